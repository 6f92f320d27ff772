#include "worker/strategy/sharded_variable.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/strategy.h"

namespace cairn {
namespace {

absl::Status CheckShards(absl::string_view name, const std::vector<VariablePtr>& shards) {
  const auto refuse = [name](auto... what) {
    return InvalidArgument("sharded variable \"", name, "\": ", what...);
  };
  if (shards.empty()) return refuse("no shards; it takes a non-empty list of variables");
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i] == nullptr) return refuse("shard ", i, " is null; every shard is a variable");
    const Variable& first = *shards[0];
    const Variable& shard = *shards[i];
    if (shard.shape().empty()) return refuse("shard ", i, " is a scalar, without rows");
    if (shard.dtype() != first.dtype()) {
      return refuse("shard 0 is ", DTypeName(first.dtype()), " and shard ", i, " is ",
                    DTypeName(shard.dtype()), "; shards must have the same dtype");
    }
    if (!std::equal(shard.shape().begin() + 1, shard.shape().end(), first.shape().begin() + 1,
                    first.shape().end())) {
      return refuse("shard 0 is ", ShapeText(first.shape()), " and shard ", i, " is ",
                    ShapeText(shard.shape()),
                    "; shards must have the same shapes except along the first axis");
    }
  }
  return absl::OkStatus();
}

// The rows of a request that one shard holds: their numbers in the shard and in the request.
struct RowsOfShard {
  std::vector<int64_t> local;
  std::vector<int64_t> from;
};

std::vector<RowsOfShard> SplitRows(const ShardedVariable& variable,
                                   absl::Span<const int64_t> rows) {
  std::vector<RowsOfShard> split(variable.shards().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t shard = variable.ShardOfRow(rows[i]);
    split[shard].local.push_back(rows[i] - variable.first_rows()[shard]);
    split[shard].from.push_back(static_cast<int64_t>(i));
  }
  return split;
}

Shape WithRows(Shape shape, size_t rows) {
  shape[0] = static_cast<int64_t>(rows);
  return shape;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShardedVariable>> ShardedVariable::Create(
    std::string name, std::vector<VariablePtr> shards, VariablePtr whole) {
  RETURN_IF_ERROR(CheckShards(name, shards));
  const Variable& first = *shards[0];
  VariableTraits traits = {.name = std::move(name),
                           .dtype = first.dtype(),
                           .shape = first.shape(),
                           .device = first.device(),
                           .trainable = first.trainable(),
                           .synchronization = first.synchronization(),
                           .aggregation = first.aggregation(),
                           .strategy = first.strategy()};
  for (size_t i = 1; i < shards.size(); ++i) traits.shape[0] += shards[i]->shape()[0];
  if (whole != nullptr && (whole->dtype() != traits.dtype || whole->shape() != traits.shape)) {
    return InvalidArgument("sharded variable \"", traits.name, "\": the whole is ",
                           DTypeName(whole->dtype()), " ", ShapeText(whole->shape()),
                           ", its shards together are ", DTypeName(traits.dtype), " ",
                           ShapeText(traits.shape));
  }
  return std::shared_ptr<ShardedVariable>(
      new ShardedVariable(std::move(traits), std::move(shards), std::move(whole)));
}

ShardedVariable::ShardedVariable(VariableTraits traits, std::vector<VariablePtr> shards,
                                 VariablePtr whole)
    : VariableBase(std::move(traits)), shards_(std::move(shards)), whole_(std::move(whole)) {
  first_rows_.push_back(0);
  for (const VariablePtr& shard : shards_) {
    first_rows_.push_back(first_rows_.back() + shard->shape()[0]);
  }
}

size_t ShardedVariable::ShardOfRow(int64_t row) const {
  const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  return static_cast<size_t>(after - first_rows_.begin()) - 1;
}

bool ShardedVariable::IsDiv() const {
  const auto count = static_cast<int64_t>(shards_.size());
  const int64_t base = shape()[0] / count;
  const int64_t larger = shape()[0] % count;
  for (int64_t i = 0; i < count; ++i) {
    const auto shard = static_cast<size_t>(i);
    if (first_rows_[shard + 1] - first_rows_[shard] != base + (i < larger ? 1 : 0)) return false;
  }
  return true;
}

absl::Status ShardedVariable::CheckDiv(absl::string_view method) const {
  if (IsDiv()) return absl::OkStatus();
  std::vector<int64_t> rows;
  for (const VariablePtr& shard : shards_) rows.push_back(shard->shape()[0]);
  return Unimplemented(method, " of sharded variable \"", name(), "\": its shards have ",
                       ShapeText(rows),
                       " rows, which is not the \"div\" layout (even, the first "
                       "shards with one row more); make them so, or write the whole");
}

absl::StatusOr<Tensor> ShardedVariable::Read() {
  if (whole_ != nullptr) return whole_->Read();
  std::vector<Tensor> parts;
  for (const VariablePtr& shard : shards_) {
    ASSIGN_OR_RETURN(parts.emplace_back(), shard->Read());
  }
  return ConcatTensors(parts, 0);
}

absl::StatusOr<Tensor> ShardedVariable::ReadRows(absl::Span<const int64_t> rows) {
  if (whole_ != nullptr) return whole_->ReadRows(rows);
  RETURN_IF_ERROR(CheckRows(*this, rows));
  ASSIGN_OR_RETURN(Tensor out, NewTensor(dtype(), WithRows(shape(), rows.size()), device()));
  const std::vector<RowsOfShard> split = SplitRows(*this, rows);
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (split[s].local.empty()) continue;
    ASSIGN_OR_RETURN(const Tensor part, shards_[s]->ReadRows(split[s].local));
    RETURN_IF_ERROR(ApplyRows(ElementOp::kSet, Tensor::Vector<int64_t>(split[s].from), part, &out));
  }
  return out;
}

absl::Status ShardedVariable::Write(AssignOp op, const Value& value) {
  if (whole_ != nullptr) return whole_->Write(op, value);
  ASSIGN_OR_RETURN(const Tensor tensor, TensorFor(*this, value));
  for (size_t s = 0; s < shards_.size(); ++s) {
    const int64_t rows = first_rows_[s + 1] - first_rows_[s];
    ASSIGN_OR_RETURN(Tensor part, SliceTensor(tensor, 0, first_rows_[s], rows));
    RETURN_IF_ERROR(shards_[s]->Write(op, std::move(part)));
  }
  return absl::OkStatus();
}

absl::Status ShardedVariable::Scatter(ScatterOp op, const IndexedSlices& slices) {
  const std::string called = absl::StrCat(ScatterOpName(op), " of variable \"", name(), "\"");
  ASSIGN_OR_RETURN(const Tensor numbers, RowNumbers(called, slices.indices));
  const absl::Span<const int64_t> rows = numbers.values<int64_t>();
  RETURN_IF_ERROR(CheckDiv(ScatterOpName(op)));
  RETURN_IF_ERROR(CheckRows(*this, rows));
  const Tensor& values = slices.values;
  if (values.is_text() || values.dtype() != dtype() ||
      values.shape() != WithRows(shape(), rows.size())) {
    return InvalidArgument(called, ": found ", values.TypeText(), ", expected ", DTypeName(dtype()),
                           " ", ShapeText(WithRows(shape(), rows.size())));
  }
  if (whole_ != nullptr) return whole_->Scatter(op, slices);
  const std::vector<RowsOfShard> split = SplitRows(*this, rows);
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (split[s].local.empty()) continue;
    ASSIGN_OR_RETURN(Tensor part, TakeRows(values, split[s].from));
    RETURN_IF_ERROR(
        shards_[s]->Scatter(op, {Tensor::Vector<int64_t>(split[s].local), std::move(part)}));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ShardedVariable::SparseRead(const Tensor& indices) {
  ASSIGN_OR_RETURN(const Tensor rows,
                   RowNumbers(absl::StrCat("sparse_read of variable \"", name(), "\""), indices));
  RETURN_IF_ERROR(CheckDiv("sparse_read"));
  return ReadRows(rows.values<int64_t>());
}

absl::StatusOr<Tensor> ShardedVariable::At(absl::Span<const IndexTerm> index) {
  absl::StatusOr<ResolvedIndex> resolved = ResolveIndex(shape(), index);
  RETURN_IF_ERROR(Annotate(resolved.status(), absl::StrCat("variable \"", name(), "\"")));
  AxisRange& taken = resolved->axes[0];
  if (taken.count == shape()[0]) {
    ASSIGN_OR_RETURN(const Tensor whole, Read());
    return TakeIndex(whole, *resolved);
  }
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < taken.count; ++i) rows.push_back(taken.first + i * taken.step);
  ASSIGN_OR_RETURN(const Tensor read, ReadRows(rows));
  taken = {.first = 0, .count = taken.count, .step = 1};
  return TakeIndex(read, *resolved);
}

absl::StatusOr<Tensor> ShardedVariable::At(const BooleanMask& mask) {
  ASSIGN_OR_RETURN(const Tensor whole, Read());
  absl::StatusOr<Tensor> taken = TakeMask(whole, mask);
  RETURN_IF_ERROR(Annotate(taken.status(), absl::StrCat("variable \"", name(), "\"")));
  return taken;
}

}  // namespace cairn
