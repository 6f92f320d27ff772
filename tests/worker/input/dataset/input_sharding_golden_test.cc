// Every record of input_sharding.json: each worker reads the same elements as TensorFlow's.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/input/dataset/elements.h"
#include "tests/worker/input/dataset/golden_records.h"
#include "tests/worker/input/input_files.h"
#include "worker/input/dataset/auto_shard.h"
#include "worker/input/dataset/distributed_dataset.h"
#include "worker/input/dataset/record_file.h"

namespace cairn {
namespace {

using nlohmann::json;
using test::Drain;
using test::Drained;
using test::ForEachRecord;
using test::Refuses;

constexpr char kShardingFile[] = "input_sharding.json";

int64_t IntField(const json& record, const char* field) { return record.at(field).get<int64_t>(); }

AutoShardPolicy Policy(const json& record) {
  static const std::map<std::string, AutoShardPolicy> policies{{"AUTO", AutoShardPolicy::kAuto},
                                                               {"DATA", AutoShardPolicy::kData},
                                                               {"FILE", AutoShardPolicy::kFile},
                                                               {"OFF", AutoShardPolicy::kOff}};
  return policies.at(record.at("policy").get<std::string>());
}

// Compares the sub-batches of every worker, or its error, with the record.
void CheckStreams(const json& record, const Dataset& dataset) {
  const json& expected = record.at("stream_of_worker");
  ASSERT_EQ(static_cast<int64_t>(expected.size()), IntField(record, "workers"));
  for (size_t worker = 0; worker < expected.size(); ++worker) {
    SCOPED_TRACE(absl::StrCat("worker ", worker));
    InputStrategy strategy = test::MirroredInput(IntField(record, "replicas"));
    strategy.workers = IntField(record, "workers");
    strategy.worker = static_cast<int64_t>(worker);
    strategy.agree = [](bool local) { return local; };
    const auto stream = DatasetOfWorker(dataset.WithAutoShardPolicy(Policy(record)), strategy);
    const Drained drained = stream.ok() ? Drain(*stream) : Drained{.status = stream.status()};
    if (expected[worker].is_object()) {
      EXPECT_TRUE(Refuses(drained.status, expected[worker]));
    } else {
      EXPECT_TRUE(drained.status.ok()) << drained.status;
      EXPECT_EQ(drained.elements, expected[worker]);
    }
  }
}

TEST(InputShardingGolden, Streams) {
  const std::set<std::string> fields{"n",       "batch",    "batch_known",     "policy",
                                     "workers", "replicas", "stream_of_worker"};
  ForEachRecord(kShardingFile, "streams", fields, [](const json& record) {
    Dataset batches = Dataset::Range(IntField(record, "n")).Batch(IntField(record, "batch"));
    if (!record.at("batch_known").get<bool>()) {
      batches = batches.Map([](Element element) -> absl::StatusOr<Element> { return element; });
    }
    CheckStreams(record, batches);
  });
}

// Files f0, f1, … in their own directory, with records "f<i>r<j>".
std::vector<std::string> WriteFiles(const TempDir& folder, const json& record) {
  std::vector<std::string> files;
  for (const json& records : record.at("records_per_file")) {
    std::string bytes;
    for (int64_t j = 0; j < records.get<int64_t>(); ++j) {
      const std::string text = absl::StrCat("f", files.size(), "r", j);
      if (record.at("reader") == "tfrecord") {
        AppendTFRecord(text, &bytes);
      } else {
        absl::StrAppend(&bytes, text, "\n");
      }
    }
    files.push_back(folder.Join(absl::StrCat("f", files.size())));
    test::WriteFile(files.back(), bytes);
  }
  return files;
}

Dataset Pipeline(const json& record, const TempDir& folder) {
  const std::vector<std::string> files = WriteFiles(folder, record);
  const std::string reader = record.at("reader").get<std::string>();
  if (reader != "tfrecord" && reader != "textline") {
    throw test::UnknownRecord("no reader '" + reader + "'");
  }
  const bool records = reader == "tfrecord";
  const auto read = [records](const std::vector<std::string>& names) {
    return records ? Dataset::TFRecord(names) : Dataset::TextLine(names);
  };
  const DatasetFunction function = records ? Dataset::TFRecordReader() : Dataset::TextLineReader();
  const Dataset names = Dataset::FromFiles(files);
  const std::string pipeline = record.at("pipeline").get<std::string>();
  if (pipeline == "reader(files)") return read(files);
  if (pipeline == "files,flat_map(reader)") return names.FlatMap(function);
  if (pipeline == "files,flat_map(reader),prefetch") return names.FlatMap(function).Prefetch(2);
  if (pipeline == "files,flat_map(reader),take(5)") return names.FlatMap(function).Take(5);
  // The records were made with cycle_length 2.
  if (pipeline == "files,interleave(reader)") return names.Interleave(function, 2);
  if (pipeline == "list_files,flat_map(reader)") {
    return Dataset::ListFiles(folder.Join("f*"), std::nullopt).FlatMap(function);
  }
  if (pipeline != "concatenate(reader(first),reader(rest))") {
    throw test::UnknownRecord("no pipeline '" + pipeline + "'");
  }
  return read({files.front()}).Concatenate(read({files.begin() + 1, files.end()}));
}

TEST(InputShardingGolden, Files) {
  const std::set<std::string> fields{"reader", "records_per_file", "pipeline", "batch",
                                     "policy", "workers",          "replicas", "stream_of_worker"};
  ForEachRecord(kShardingFile, "files", fields, [](const json& record) {
    const TempDir folder;
    CheckStreams(record, Pipeline(record, folder).Batch(IntField(record, "batch")));
  });
}

TEST(InputShardingGolden, Shard) {
  const std::set<std::string> fields{"n",     "policy",   "shards",  "index",
                                     "error", "elements", "contains"};
  ForEachRecord(kShardingFile, "shard", fields, [](const json& record) {
    const auto sharded = AutoShard(Dataset::Range(IntField(record, "n")), Policy(record),
                                   IntField(record, "shards"), IntField(record, "index"));
    const Drained drained =
        sharded.ok() ? Drain(sharded->dataset) : Drained{.status = sharded.status()};
    if (record.contains("error")) {
      EXPECT_TRUE(Refuses(drained.status, record));
    } else {
      EXPECT_TRUE(drained.status.ok()) << drained.status;
      EXPECT_EQ(drained.elements, record.at("elements"));
    }
  });
}

}  // namespace
}  // namespace cairn
