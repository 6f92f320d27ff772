// A variable whose parts follow each other along axis 0, used as one variable.
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

// tf.distribute's ShardedVariable. Reads and writes of the whole proceed shard by shard: another
// thread may see some shards written and others not.
class ShardedVariable : public VariableBase {
 public:
  // `shards` hold the rows in order. `whole`, if not null, is a variable of all rows, and the
  // shards are views of it: reads and writes of the whole then take one call. kInvalidArgument: no
  // shards, a null or scalar shard, or shards that differ in dtype or in extents after the first
  // axis.
  static absl::StatusOr<std::shared_ptr<ShardedVariable>> Create(std::string name,
                                                                 std::vector<VariablePtr> shards,
                                                                 VariablePtr whole = nullptr);

  const std::vector<VariablePtr>& shards() const { return shards_; }
  // shards().size() + 1 numbers: shard i holds rows [first_rows()[i], first_rows()[i + 1]).
  const std::vector<int64_t>& first_rows() const { return first_rows_; }
  // `row` must be in range.
  size_t ShardOfRow(int64_t row) const;
  // Whether rows are divided as evenly as possible, the first shards having one row more ("div").
  bool IsDiv() const;

  // All rows, in shard order.
  absl::StatusOr<Tensor> Read() override;
  absl::StatusOr<Tensor> ReadRows(absl::Span<const int64_t> rows) override;
  // Writes to each shard its rows of `value`, a tensor of the whole shape.
  absl::Status Write(AssignOp op, const Value& value) override;
  // kUnimplemented: a layout other than "div". Rows are written in the given order.
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;

  // Rows `indices` (int32 or int64 [n]), in that order. kInvalidArgument: indices that are not
  // one-dimensional, not integers, or out of range. kUnimplemented: a layout other than "div".
  absl::StatusOr<Tensor> SparseRead(const Tensor& indices);
  // The elements that `index` selects; reads only their rows. Errors as ResolveIndex'.
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
