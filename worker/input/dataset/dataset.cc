#include "worker/input/dataset/dataset.h"

#include <glob.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/dataset_node.h"
#include "worker/input/dataset/rows.h"
#include "worker/input/dataset/steps.h"

namespace cairn {
namespace {

// The limit of Map's threads and of the datasets that Interleave holds open.
constexpr int32_t kMaxParallelCalls = 1024;
constexpr int64_t kMaxCycleLength = 65536;

Dataset Refused(absl::string_view who, absl::string_view argument, int64_t found,
                absl::string_view allowed) {
  return Dataset::FromError(
      InvalidArgument(who, ": ", argument, " is ", found, "; it must be ", allowed));
}

uint64_t RandomSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// The properties that both specs share; nullopt: one of them is unknown.
absl::StatusOr<std::optional<ElementSpec>> Merge(const std::optional<ElementSpec>& a,
                                                 const std::optional<ElementSpec>& b) {
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  if (a->size() != b->size()) {
    return InvalidArgument("Concatenate: elements of ", a->size(), " and ", b->size(),
                           " components");
  }
  ElementSpec merged = *a;
  for (size_t i = 0; i < merged.size(); ++i) {
    TensorSpec& one = merged[i];
    const TensorSpec& other = (*b)[i];
    if (one.text != other.text || (!one.text && one.dtype != other.dtype)) {
      return InvalidArgument("Concatenate: component ", i, " is ", one.ToText(), " and ",
                             other.ToText());
    }
    if (!one.shape.has_value() || !other.shape.has_value() ||
        one.shape->size() != other.shape->size()) {
      one.shape.reset();
      continue;
    }
    for (size_t axis = 0; axis < one.shape->size(); ++axis) {
      if ((*one.shape)[axis] != (*other.shape)[axis]) (*one.shape)[axis] = -1;
    }
  }
  return merged;
}

Dataset NoneGiven(absl::string_view method, absl::string_view what) {
  return Dataset::FromError(InvalidArgument(method, ": found no ", what, "; give one"));
}

DatasetFunction FileReader(std::function<NodePtr(std::string)> open) {
  DatasetFunction reader([open = std::move(open)](const Element& name) {
    if (name.size() != 1 || !name[0].is_text() || name[0].elements() != 1) {
      return Dataset::FromError(absl::InvalidArgumentError(
          "a reader of files takes elements of one text, the name of a file; found others"));
    }
    return Dataset::FromNode(open(name[0].texts()[0]));
  });
  reader.reads_files = true;
  reader.spec = ElementSpec{TensorSpec::Texts(Shape{})};
  return reader;
}

}  // namespace

Dataset Dataset::FromError(absl::Status error) {
  Dataset failed(nullptr, AutoShardPolicy::kAuto);
  failed.status_ =
      error.ok() ? absl::InvalidArgumentError("FromError: the error is OK") : std::move(error);
  return failed;
}

Dataset Dataset::FromNode(std::shared_ptr<const DatasetNode> node) {
  if (node == nullptr) return NoneGiven("FromNode", "node");
  return Dataset(std::move(node), AutoShardPolicy::kAuto);
}

Dataset Dataset::Range(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) return Refused("Range", "step", step, "another number");
  return FromNode(steps::Range(start, stop, step));
}

Dataset Dataset::FromTensors(Element element) {
  return FromNode(steps::Slices(std::move(element), 1, /*whole=*/true));
}

Dataset Dataset::FromTensorSlices(Element rows) {
  const absl::StatusOr<int64_t> count = BatchRows(rows, "FromTensorSlices");
  if (!count.ok()) return FromError(count.status());
  return FromNode(steps::Slices(std::move(rows), *count, /*whole=*/false));
}

Dataset Dataset::FromGenerator(GeneratorFactory factory, std::optional<ElementSpec> spec) {
  if (factory == nullptr) return NoneGiven("FromGenerator", "function");
  return FromNode(steps::Generate(std::move(factory), std::move(spec)));
}

Dataset Dataset::FromFiles(std::vector<std::string> files) {
  const auto count = static_cast<int64_t>(files.size());
  return FromTensorSlices({Tensor::Texts({count}, std::move(files))});
}

Dataset Dataset::ListFiles(const std::string& pattern, std::optional<ShuffleOptions> shuffle) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_NOMATCH || (result == 0 && files.empty())) {
    return FromError(NotFound("ListFiles: no file matches ", pattern));
  }
  if (result != 0) {
    return FromError(Unavailable("ListFiles: a folder of ", pattern, " cannot be read"));
  }
  const auto count = static_cast<int64_t>(files.size());
  const Dataset names = FromFiles(std::move(files));
  return shuffle.has_value() ? names.Shuffle(count, *shuffle) : names;
}

Dataset Dataset::TextLine(std::vector<std::string> files) {
  return FromFiles(std::move(files)).FlatMap(TextLineReader());
}

Dataset Dataset::TFRecord(std::vector<std::string> files, Compression compression) {
  return FromFiles(std::move(files)).FlatMap(TFRecordReader(compression));
}

Dataset Dataset::FixedLengthRecord(std::vector<std::string> files, int64_t record_bytes,
                                   int64_t header_bytes, int64_t footer_bytes) {
  constexpr char kWho[] = "FixedLengthRecord";
  if (record_bytes < 1) return Refused(kWho, "record_bytes", record_bytes, "1 or more");
  if (header_bytes < 0) return Refused(kWho, "header_bytes", header_bytes, "0 or more");
  if (footer_bytes < 0) return Refused(kWho, "footer_bytes", footer_bytes, "0 or more");
  return FromFiles(std::move(files))
      .FlatMap(FixedLengthRecordReader(record_bytes, header_bytes, footer_bytes));
}

DatasetFunction Dataset::TextLineReader() { return FileReader(steps::TextLines); }

DatasetFunction Dataset::TFRecordReader(Compression compression) {
  return FileReader(
      [compression](std::string file) { return steps::Records(std::move(file), compression); });
}

DatasetFunction Dataset::FixedLengthRecordReader(int64_t record_bytes, int64_t header_bytes,
                                                 int64_t footer_bytes) {
  return FileReader([record_bytes, header_bytes, footer_bytes](std::string file) {
    return steps::FixedRecords(std::move(file), record_bytes, header_bytes, footer_bytes);
  });
}

Dataset Dataset::Batch(int64_t batch_size, bool drop_remainder) const {
  if (node_ == nullptr) return *this;
  if (batch_size < 1) return Refused("Batch", "batch_size", batch_size, "1 or more");
  return With(steps::Batch(node_, batch_size, drop_remainder));
}

Dataset Dataset::PaddedBatch(int64_t batch_size, bool drop_remainder) const {
  if (node_ == nullptr) return *this;
  if (batch_size < 1) return Refused("PaddedBatch", "batch_size", batch_size, "1 or more");
  return With(steps::PaddedBatch(node_, batch_size, drop_remainder));
}

Dataset Dataset::Unbatch() const { return node_ == nullptr ? *this : With(steps::Unbatch(node_)); }

Dataset Dataset::Shuffle(int64_t buffer_size, ShuffleOptions options) const {
  if (node_ == nullptr) return *this;
  if (buffer_size < 1) return Refused("Shuffle", "buffer_size", buffer_size, "1 or more");
  const uint64_t seed = options.seed.has_value() ? *options.seed : RandomSeed();
  return With(std::make_shared<steps::ShuffleNode>(node_, buffer_size, seed,
                                                   options.reshuffle_each_iteration));
}

Dataset Dataset::Repeat(int64_t count) const {
  if (node_ == nullptr) return *this;
  if (count < -1) return Refused("Repeat", "count", count, "0 or more, or -1: without end");
  return With(steps::Repeat(node_, count));
}

Dataset Dataset::Take(int64_t count) const {
  if (node_ == nullptr) return *this;
  if (count < -1) return Refused("Take", "count", count, "0 or more, or -1: all");
  return With(steps::Take(node_, count));
}

Dataset Dataset::Skip(int64_t count) const {
  if (node_ == nullptr) return *this;
  if (count < -1) return Refused("Skip", "count", count, "0 or more, or -1: all");
  return With(steps::Skip(node_, count));
}

Dataset Dataset::Map(MapFunction function, MapOptions options) const {
  if (node_ == nullptr) return *this;
  if (function == nullptr) return NoneGiven("Map", "function");
  const int32_t calls = options.num_parallel_calls;
  if (calls < 1 || calls > kMaxParallelCalls) {
    return Refused("Map", "num_parallel_calls", calls, absl::StrCat("1 to ", kMaxParallelCalls));
  }
  return With(steps::Map(node_, std::move(function), std::move(options)));
}

Dataset Dataset::Filter(FilterFunction predicate) const {
  if (node_ == nullptr) return *this;
  if (predicate == nullptr) return NoneGiven("Filter", "function");
  return With(steps::Filter(node_, std::move(predicate)));
}

Dataset Dataset::FlatMap(DatasetFunction function) const {
  if (node_ == nullptr) return *this;
  if (function.call == nullptr) return NoneGiven("FlatMap", "function");
  return With(steps::FlatMap(node_, std::move(function)));
}

Dataset Dataset::Interleave(DatasetFunction function, int64_t cycle_length,
                            int64_t block_length) const {
  if (node_ == nullptr) return *this;
  if (function.call == nullptr) return NoneGiven("Interleave", "function");
  if (cycle_length < 1 || cycle_length > kMaxCycleLength) {
    return Refused("Interleave", "cycle_length", cycle_length,
                   absl::StrCat("1 to ", kMaxCycleLength));
  }
  if (block_length < 1) return Refused("Interleave", "block_length", block_length, "1 or more");
  return With(steps::Interleave(node_, std::move(function), cycle_length, block_length));
}

Dataset Dataset::Cache() const { return node_ == nullptr ? *this : With(steps::Cache(node_)); }

Dataset Dataset::Zip(const std::vector<Dataset>& datasets) {
  if (datasets.empty()) return FromError(absl::InvalidArgumentError("Zip: no datasets given"));
  std::vector<NodePtr> nodes;
  for (const Dataset& one : datasets) {
    if (one.node_ == nullptr) return one;
    nodes.push_back(one.node_);
  }
  return datasets.front().With(steps::Zip(std::move(nodes)));
}

Dataset Dataset::Enumerate(int64_t start) const {
  if (node_ == nullptr) return *this;
  return With(steps::Zip({steps::Range(start, INT64_MAX, 1), node_}));
}

Dataset Dataset::Concatenate(const Dataset& other) const {
  if (node_ == nullptr) return *this;
  if (other.node_ == nullptr) return other;
  absl::StatusOr<std::optional<ElementSpec>> spec = Merge(this->spec(), other.spec());
  if (!spec.ok()) return FromError(spec.status());
  return With(steps::Concatenate(node_, other.node_, *std::move(spec)));
}

Dataset Dataset::Prefetch(int64_t buffer_size) const {
  if (node_ == nullptr) return *this;
  if (buffer_size < 1) return Refused("Prefetch", "buffer_size", buffer_size, "1 or more");
  return With(steps::Prefetch(node_, buffer_size));
}

Dataset Dataset::Shard(int64_t num_shards, int64_t index) const {
  if (node_ == nullptr) return *this;
  const bool hint = num_shards == kShardHint;
  if (!hint && num_shards < 1) {
    return Refused("Shard", "num_shards", num_shards, "1 or more, or kShardHint");
  }
  if (index < 0 || (!hint && index >= num_shards)) {
    return Refused("Shard", "index", index,
                   absl::StrCat("0 to ", std::max<int64_t>(num_shards, 1) - 1));
  }
  return With(std::make_shared<steps::ShardNode>(node_, num_shards, index,
                                                 /*all_must_have=*/false));
}

Dataset Dataset::Rebatch(std::vector<int64_t> sizes, bool drop_remainder) const {
  if (node_ == nullptr) return *this;
  for (const int64_t size : sizes) {
    if (size < 0) return Refused("Rebatch", "a size", size, "0 or more");
  }
  if (std::count(sizes.begin(), sizes.end(), 0) == static_cast<ptrdiff_t>(sizes.size())) {
    return FromError(absl::InvalidArgumentError("Rebatch: no size above 0 is given"));
  }
  return With(steps::Rebatch(node_, std::move(sizes), drop_remainder));
}

Dataset Dataset::LegacyRebatch(int64_t splits) const {
  if (node_ == nullptr) return *this;
  if (splits < 1) return Refused("LegacyRebatch", "splits", splits, "1 or more");
  return With(steps::LegacyRebatch(node_, splits));
}

Dataset Dataset::WithAutoShardPolicy(AutoShardPolicy policy) const {
  Dataset changed = *this;
  changed.policy_ = policy;
  return changed;
}

int64_t Dataset::cardinality() const {
  return node_ == nullptr ? kUnknownCardinality : node_->cardinality();
}

const std::optional<ElementSpec>& Dataset::spec() const {
  static const std::optional<ElementSpec> unknown;
  return node_ == nullptr ? unknown : node_->spec();
}

absl::StatusOr<std::unique_ptr<DatasetIterator>> Dataset::MakeIterator() const {
  RETURN_IF_ERROR(status_);
  return node_->MakeIterator({.pass = node_->NextPass()});
}

}  // namespace cairn
