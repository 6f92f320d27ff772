// A variable in parts that follow each other along axis 0, used as one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/strategy/plain_variable.h"
#include "worker/strategy/slicing.h"

namespace cairn {

// tf.distribute's ShardedVariable. Reads and writes of the whole go shard by shard: another thread
// may see some shards written and others not.
class ShardedVariable : public VariableBase {
 public:
  // `shards` are the rows in order. `whole`, if any, is a variable of all rows, of which the shards
  // are views: reads and writes of the whole then take one call of it.
  // kInvalidArgument: no shards, one that is null or a scalar, dtypes or extents after the first
  // axis that differ.
  static absl::StatusOr<std::shared_ptr<ShardedVariable>> Create(std::string name,
                                                                 std::vector<VariablePtr> shards,
                                                                 VariablePtr whole = nullptr);

  const std::vector<VariablePtr>& shards() const { return shards_; }
  // shards().size() + 1 numbers: shard i is rows [first_rows()[i], first_rows()[i + 1]).
  const std::vector<int64_t>& first_rows() const { return first_rows_; }
  // `row` must be in range.
  size_t ShardOfRow(int64_t row) const;
  // Whether rows are shared out as evenly as possible, the first shards having one more ("div").
  bool IsDiv() const;

  // All rows, one shard after the other.
  absl::StatusOr<Tensor> Read() override;
  absl::StatusOr<Tensor> ReadRows(absl::Span<const int64_t> rows) override;
  // Each shard is written its rows of `value`, a tensor of the whole shape.
  absl::Status Write(AssignOp op, const Value& value) override;
  // kUnimplemented: another layout than "div". Rows are written in the order given.
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;

  // Rows `indices` (int32 or int64 [n]) in their order. kInvalidArgument: not one-dimensional, not
  // integers, out of range. kUnimplemented: another layout than "div".
  absl::StatusOr<Tensor> SparseRead(const Tensor& indices);
  // What `index` takes of the whole; reads only the rows it takes. Errors as ResolveIndex'.
  absl::StatusOr<Tensor> At(absl::Span<const IndexTerm> index);
  // Errors as TakeMask's.
  absl::StatusOr<Tensor> At(const BooleanMask& mask);

 private:
  ShardedVariable(VariableTraits traits, std::vector<VariablePtr> shards, VariablePtr whole);

  absl::Status CheckDiv(absl::string_view method) const;

  const std::vector<VariablePtr> shards_;
  const VariablePtr whole_;  // null: none
  std::vector<int64_t> first_rows_;
};

}  // namespace cairn
