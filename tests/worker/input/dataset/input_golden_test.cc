// Every record of input.json: batches, splits and steps equal TensorFlow's.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/worker/input/dataset/elements.h"
#include "tests/worker/input/dataset/golden_records.h"
#include "worker/input/dataset/distributed_dataset.h"
#include "worker/input/dataset/rebatch.h"

namespace cairn {
namespace {

using nlohmann::json;
using test::Drain;
using test::Drained;
using test::ForEachRecord;
using test::Refuses;

constexpr char kFile[] = "input.json";

absl::StatusOr<Element> Same(Element element) { return element; }

int64_t Int(const json& record, const char* field) { return record.at(field).get<int64_t>(); }

// range(n).batch(batch, drop_remainder), with the batch size hidden behind a map if the record says
// that it is unknown.
Dataset BatchedRange(const json& record) {
  const bool drop = record.value("drop_remainder", false);
  const Dataset batches = Dataset::Range(Int(record, "n")).Batch(Int(record, "batch"), drop);
  return record.value("batch_known", true) ? batches : batches.Map(Same);
}

InputStrategy StrategyOf(const json& record) {
  const std::string name = record.at("strategy").get<std::string>();
  if (name == "mirrored") return test::MirroredInput(record.value("replicas", 2));
  if (name == "central") return test::CentralInput(record.value("replicas", 2));
  if (name != "one_device") throw test::UnknownRecord("no strategy '" + name + "'");
  return test::OneDeviceInput();
}

TEST(InputGolden, BatchSizes) {
  const std::set<std::string> fields{"global_batch", "workers", "replicas", "sizes_of_worker"};
  ForEachRecord(kFile, "batch_sizes", fields, [](const json& record) {
    json sizes = json::array();
    for (int64_t worker = 0; worker < Int(record, "workers"); ++worker) {
      const auto of_worker = BatchSizesForWorker(
          Int(record, "global_batch"), Int(record, "workers"), Int(record, "replicas"), worker);
      ASSERT_TRUE(of_worker.ok()) << of_worker.status();
      sizes.push_back(*of_worker);
    }
    EXPECT_EQ(sizes, record.at("sizes_of_worker"));
  });
}

TEST(InputGolden, Rebatch) {
  const std::set<std::string> fields{"rule",           "n",        "batch", "sizes",
                                     "drop_remainder", "elements", "splits"};
  ForEachRecord(kFile, "rebatch", fields, [](const json& record) {
    const Dataset batches = Dataset::Range(Int(record, "n")).Batch(Int(record, "batch"));
    const std::string rule = record.at("rule").get<std::string>();
    if (rule != "sizes" && rule != "legacy") throw test::UnknownRecord("no rule '" + rule + "'");
    const Drained drained =
        rule == "legacy" ? Drain(batches.LegacyRebatch(Int(record, "splits")))
                         : Drain(batches.Rebatch(record.at("sizes").get<std::vector<int64_t>>(),
                                                 record.at("drop_remainder").get<bool>()));
    EXPECT_TRUE(drained.status.ok()) << drained.status;
    EXPECT_EQ(drained.elements, record.at("elements"));
  });
}

TEST(InputGolden, PerReplicaBatch) {
  const std::set<std::string> fields{"global_batch", "replicas", "text",
                                     "per_replica",  "error",    "contains"};
  ForEachRecord(kFile, "per_replica_batch", fields, [](const json& record) {
    const InputContext context(2, 1, Int(record, "replicas"));
    EXPECT_EQ(context.ToText(), record.at("text").get<std::string>());
    const auto batch = context.GetPerReplicaBatchSize(Int(record, "global_batch"));
    if (record.contains("error")) {
      EXPECT_TRUE(Refuses(batch.status(), record));
    } else {
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ(*batch, Int(record, "per_replica"));
    }
  });
}

TEST(InputGolden, Distributed) {
  const std::set<std::string> fields{"strategy",       "replicas",    "n",    "batch",
                                     "drop_remainder", "batch_known", "steps"};
  ForEachRecord(kFile, "distributed", fields, [](const json& record) {
    const auto dataset = DistributeDataset(BatchedRange(record), StrategyOf(record));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const Drained steps = test::DrainSteps(*dataset);
    EXPECT_TRUE(steps.status.ok()) << steps.status;
    EXPECT_EQ(steps.elements, record.at("steps"));
  });
}

TEST(InputGolden, FromFunction) {
  const std::set<std::string> fields{"strategy",       "replicas", "n",     "batch",
                                     "drop_remainder", "mode",     "steps", "input_contexts"};
  ForEachRecord(kFile, "from_function", fields, [](const json& record) {
    const std::string mode = record.at("mode").get<std::string>();
    if (mode != "PER_WORKER" && mode != "PER_REPLICA") {
      throw test::UnknownRecord("no mode '" + mode + "'");
    }
    InputOptions options;
    options.replication_mode =
        mode == "PER_WORKER" ? InputReplicationMode::kPerWorker : InputReplicationMode::kPerReplica;
    json contexts = json::array();
    const auto dataset = DistributeDatasetsFromFunction(
        [&](const InputContext& context) {
          contexts.push_back({context.num_input_pipelines(), context.input_pipeline_id(),
                              context.num_replicas_in_sync()});
          return BatchedRange(record);
        },
        StrategyOf(record), options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(contexts, record.at("input_contexts"));
    const Drained steps = test::DrainSteps(*dataset);
    EXPECT_TRUE(steps.status.ok()) << steps.status;
    EXPECT_EQ(steps.elements, record.at("steps"));
  });
}

TEST(InputGolden, MultiWorker) {
  const std::set<std::string> fields{"workers",        "replicas",       "n",
                                     "batch",          "policy",         "batch_known",
                                     "drop_remainder", "steps_of_worker"};
  const std::map<std::string, AutoShardPolicy> policies{{"AUTO", AutoShardPolicy::kAuto},
                                                        {"DATA", AutoShardPolicy::kData},
                                                        {"OFF", AutoShardPolicy::kOff}};
  ForEachRecord(kFile, "multi_worker", fields, [&policies](const json& record) {
    const AutoShardPolicy policy = policies.at(record.at("policy").get<std::string>());
    const Dataset batches = BatchedRange(record).WithAutoShardPolicy(policy);
    const std::vector<Drained> workers = test::RunWorkers(
        Int(record, "workers"), Int(record, "replicas"),
        [&batches](const InputStrategy& strategy) { return DistributeDataset(batches, strategy); });
    // The records hold the only replica's batches without an array around each.
    json got = json::array();
    for (const Drained& worker : workers) {
      EXPECT_TRUE(worker.status.ok()) << worker.status;
      json steps = json::array();
      for (const json& step : worker.elements) steps.push_back(step.at(0));
      got.push_back(std::move(steps));
    }
    EXPECT_EQ(Int(record, "replicas"), 1);
    EXPECT_EQ(got, record.at("steps_of_worker"));
  });
}

// The pipelines of section batch_size. Functions are opaque here: MapOptions::spec states the
// result that TensorFlow finds by tracing. A window is a dataset of datasets, which FlatMap
// flattens again: the function returns a batched dataset.
std::map<std::string, Dataset> Pipelines() {
  const Dataset range = Dataset::Range(20);
  const Dataset four = range.Batch(4);
  const auto many = [](const Element&) { return Dataset::Range(8).Batch(4); };
  const auto keep = [](const Element&) -> absl::StatusOr<bool> { return true; };
  const auto traced = [](const Dataset& dataset) {
    return dataset.Map(Same, {.spec = dataset.spec()});
  };
  return {
      {"range,batch(4)", four},
      {"range,batch(4,drop)", range.Batch(4, true)},
      {"range,batch(4),take(5)", four.Take(5)},
      {"range,batch(4),skip(1)", four.Skip(1)},
      {"range,batch(4),repeat", four.Repeat()},
      {"range,batch(4),shuffle", four.Shuffle(4)},
      {"range,batch(4),prefetch", four.Prefetch(1)},
      {"range,batch(4),cache", four.Cache()},
      {"range,batch(4),filter", four.Filter(keep)},
      {"range,batch(4),map", traced(four)},
      {"range,batch(4,drop),map", traced(range.Batch(4, true))},
      {"range,map,batch(4)", range.Map(Same).Batch(4)},
      {"zip(batch(4),batch(4))", Dataset::Zip({four, four})},
      {"zip(batch(4),batch(8))", Dataset::Zip({four, range.Batch(8)})},
      {"zip(batch(4,drop),batch(8))", Dataset::Zip({range.Batch(4, true), range.Batch(8)})},
      {"zip(batch(4),tensor of 4 rows)",
       Dataset::Zip({four, Dataset::FromTensors({Tensor::Zeros(DType::kFloat32, {4})})})},
      {"concatenate(batch(4),batch(8))", four.Concatenate(range.Batch(8))},
      {"range,batch(4),batch(2)", four.Batch(2)},
      {"range,batch(4),unbatch,batch(2)", four.Unbatch().Batch(2)},
      {"range,batch(4),interleave", four.Interleave(many, 2)},
      {"range,batch(4),flat_map", four.FlatMap(many)},
      {"range,padded_batch(4)", range.PaddedBatch(4)},
      {"range,window,flat_map(batch(4))", range.FlatMap(many)},
      {"range,batch(4),enumerate", four.Enumerate()},
      {"range,batch(4),shard", four.Shard(2, 0)},
      {"tensor_slices of 3x4", Dataset::FromTensorSlices({Tensor::Zeros(DType::kFloat32, {3, 4})})},
      {"range,batch(4),rebatch(2)", four.Rebatch({2})},
  };
}

TEST(InputGolden, BatchSize) {
  const std::map<std::string, Dataset> pipelines = Pipelines();
  const std::set<std::string> fields{"pipeline", "batch_size", "error", "contains"};
  ForEachRecord(kFile, "batch_size", fields, [&pipelines](const json& record) {
    const auto found = pipelines.find(record.at("pipeline").get<std::string>());
    if (found == pipelines.end()) {
      throw test::UnknownRecord("no pipeline " + record.at("pipeline").dump());
    }
    const auto size = ComputeBatchSize(found->second);
    if (record.contains("error")) {
      EXPECT_TRUE(Refuses(size.status(), record));
    } else {
      ASSERT_TRUE(size.ok()) << size.status();
      EXPECT_EQ(*size, Int(record, "batch_size"));
    }
  });
}

absl::Status Call(const std::string& call, const InputStrategy& strategy) {
  InputOptions options;
  const Dataset batches = Dataset::Range(8).Batch(4);
  if (call == "unbatched") return DistributeDataset(Dataset::Range(8), strategy).status();
  if (call == "place_on_device") {
    options.place_dataset_on_device = true;
    return DistributeDataset(batches, strategy, options).status();
  }
  options.replication_mode = InputReplicationMode::kPerReplica;
  if (call == "per_replica_dataset") return DistributeDataset(batches, strategy, options).status();
  if (call == "fetch_and_place_on_device") {
    options.place_dataset_on_device = true;
  } else if (call != "per_replica_function") {
    throw test::UnknownRecord("no call '" + call + "'");
  }
  return DistributeDatasetsFromFunction([&batches](const InputContext&) { return batches; },
                                        strategy, options)
      .status();
}

TEST(InputGolden, Refused) {
  const std::set<std::string> fields{"strategy", "call", "error", "contains", "ok"};
  ForEachRecord(kFile, "refused", fields, [](const json& record) {
    const absl::Status status = Call(record.at("call").get<std::string>(), StrategyOf(record));
    if (record.contains("error")) {
      EXPECT_TRUE(Refuses(status, record));
    } else {
      EXPECT_TRUE(record.at("ok").get<bool>());
      EXPECT_TRUE(status.ok()) << status;
    }
  });
}

}  // namespace
}  // namespace cairn
