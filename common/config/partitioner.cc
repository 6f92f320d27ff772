#include "common/config/partitioner.h"

#include <algorithm>
#include <limits>

#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Rounds up; `by` is at least 1.
int64_t DivideUp(int64_t value, int64_t by) { return value / by + (value % by != 0 ? 1 : 0); }

absl::Status AtLeastOne(absl::string_view partitioner, absl::string_view argument, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return InvalidArgument(partitioner, ": ", argument, " is ", value, "; it must be at least 1");
}

class FixedShards : public Partitioner {
 public:
  explicit FixedShards(int64_t num_shards) : Partitioner(1), num_shards_(num_shards) {}

 protected:
  absl::string_view name() const override { return "FixedShardsPartitioner"; }
  absl::StatusOr<int64_t> Shards(int64_t rows, int64_t) const override {
    if (rows == 0) return absl::InvalidArgumentError("the variable has no rows to split");
    return std::min(num_shards_, rows);
  }

 private:
  const int64_t num_shards_;
};

class MinSize : public Partitioner {
 public:
  MinSize(int64_t min_shard_bytes, int64_t max_shards, int64_t bytes_per_string)
      : Partitioner(bytes_per_string), min_shard_bytes_(min_shard_bytes), max_shards_(max_shards) {}

 protected:
  absl::string_view name() const override { return "MinSizePartitioner"; }
  absl::StatusOr<int64_t> Shards(int64_t rows, int64_t total_bytes) const override {
    const int64_t wanted = DivideUp(total_bytes, min_shard_bytes_);
    return std::max<int64_t>(1, std::min({rows, max_shards_, wanted}));
  }

 private:
  const int64_t min_shard_bytes_;
  const int64_t max_shards_;
};

class MaxSize : public Partitioner {
 public:
  MaxSize(int64_t max_shard_bytes, int64_t max_shards, int64_t bytes_per_string)
      : Partitioner(bytes_per_string), max_shard_bytes_(max_shard_bytes), max_shards_(max_shards) {}

 protected:
  absl::string_view name() const override { return "MaxSizePartitioner"; }
  absl::StatusOr<int64_t> Shards(int64_t rows, int64_t total_bytes) const override {
    if (rows == 0) return absl::InvalidArgumentError("the variable has no rows to split");
    const int64_t row_bytes = total_bytes / rows;
    if (row_bytes == 0) return absl::InvalidArgumentError("the variable's rows have no elements");
    const int64_t rows_per_shard = std::max<int64_t>(1, max_shard_bytes_ / row_bytes);
    return std::min(max_shards_, DivideUp(rows, rows_per_shard));
  }

 private:
  const int64_t max_shard_bytes_;
  const int64_t max_shards_;
};

class RoundRobin : public Placement {
 public:
  explicit RoundRobin(int32_t ps_count) : ps_count_(ps_count) {}
  int32_t Next(int64_t) override {
    const int32_t ps = next_;
    next_ = (next_ + 1) % ps_count_;
    return ps;
  }

 private:
  const int32_t ps_count_;
  int32_t next_ = 0;
};

class GreedyByBytes : public Placement {
 public:
  explicit GreedyByBytes(int32_t ps_count) : bytes_(ps_count, 0) {}
  int32_t Next(int64_t bytes) override {
    const auto least = std::ranges::min_element(bytes_);
    *least += bytes;
    return static_cast<int32_t>(least - bytes_.begin());
  }

 private:
  std::vector<int64_t> bytes_;
};

}  // namespace

absl::StatusOr<std::vector<int64_t>> Partitioner::Partition(absl::Span<const int64_t> shape,
                                                            DType dtype) const {
  return PartitionBytes(shape, static_cast<int64_t>(DTypeBytes(dtype)));
}

absl::StatusOr<std::vector<int64_t>> Partitioner::PartitionStrings(
    absl::Span<const int64_t> shape) const {
  return PartitionBytes(shape, bytes_per_string_);
}

absl::StatusOr<std::vector<int64_t>> Partitioner::PartitionBytes(absl::Span<const int64_t> shape,
                                                                 int64_t element_bytes) const {
  const auto refuse = [&](absl::string_view why) {
    return InvalidArgument(name(), " on shape ", ShapeText(shape), ": ", why);
  };
  if (shape.empty()) return refuse("a scalar has no axis to cut; keep it whole");
  const absl::StatusOr<int64_t> elements = ElementCount(shape);
  if (!elements.ok()) return refuse(elements.status().message());
  if (*elements > kNoLimit / element_bytes) return refuse("more than 2^63 bytes");
  const absl::StatusOr<int64_t> shards = Shards(shape[0], *elements * element_bytes);
  if (!shards.ok()) return refuse(shards.status().message());
  std::vector<int64_t> partitions(shape.size(), 1);
  partitions[0] = *shards;
  return partitions;
}

absl::StatusOr<std::unique_ptr<Partitioner>> FixedShardsPartitioner(int64_t num_shards) {
  RETURN_IF_ERROR(AtLeastOne("FixedShardsPartitioner", "num_shards", num_shards));
  return std::make_unique<FixedShards>(num_shards);
}

absl::StatusOr<std::unique_ptr<Partitioner>> MinSizePartitioner(int64_t min_shard_bytes,
                                                                int64_t max_shards,
                                                                int64_t bytes_per_string) {
  RETURN_IF_ERROR(AtLeastOne("MinSizePartitioner", "min_shard_bytes", min_shard_bytes));
  RETURN_IF_ERROR(AtLeastOne("MinSizePartitioner", "max_shards", max_shards));
  RETURN_IF_ERROR(AtLeastOne("MinSizePartitioner", "bytes_per_string", bytes_per_string));
  return std::make_unique<MinSize>(min_shard_bytes, max_shards, bytes_per_string);
}

absl::StatusOr<std::unique_ptr<Partitioner>> MaxSizePartitioner(int64_t max_shard_bytes,
                                                                int64_t max_shards,
                                                                int64_t bytes_per_string) {
  RETURN_IF_ERROR(AtLeastOne("MaxSizePartitioner", "max_shard_bytes", max_shard_bytes));
  if (max_shards == 0) max_shards = kNoLimit;
  RETURN_IF_ERROR(AtLeastOne("MaxSizePartitioner", "max_shards", max_shards));
  RETURN_IF_ERROR(AtLeastOne("MaxSizePartitioner", "bytes_per_string", bytes_per_string));
  return std::make_unique<MaxSize>(max_shard_bytes, max_shards, bytes_per_string);
}

absl::StatusOr<std::vector<DenseShard>> DivShards(int64_t rows, int64_t shards) {
  if (rows < 0 || shards < 1 || shards > std::max<int64_t>(rows, 1)) {
    return InvalidArgument(rows, " rows cannot be cut into ", shards,
                           " shards; allowed: 1 to the number of rows");
  }
  std::vector<DenseShard> result(shards);
  int64_t first = 0;
  for (int64_t i = 0; i < shards; ++i) {
    result[i].first_row = first;
    result[i].rows = rows / shards + (i < rows % shards ? 1 : 0);
    first += result[i].rows;
  }
  return result;
}

std::unique_ptr<Placement> RoundRobinPlacement(int32_t ps_count) {
  return std::make_unique<RoundRobin>(ps_count);
}

std::unique_ptr<Placement> GreedyByBytesPlacement(int32_t ps_count) {
  return std::make_unique<GreedyByBytes>(ps_count);
}

}  // namespace cairn
