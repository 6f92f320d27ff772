#include "worker/strategy/server_variable.h"

#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/slicing.h"

namespace cairn {
namespace {

// Keeps the last of repeated rows: `once` gets the distinct rows, `from` their positions in `rows`.
void LastOfEach(absl::Span<const int64_t> rows, std::vector<int64_t>* once,
                std::vector<int64_t>* from) {
  absl::btree_map<int64_t, int64_t> last;
  for (size_t i = 0; i < rows.size(); ++i) last[rows[i]] = static_cast<int64_t>(i);
  for (const auto& [row, at] : last) {
    once->push_back(row);
    from->push_back(at);
  }
}

}  // namespace

ServerVariable::ServerVariable(VariableTraits traits, std::shared_ptr<VariableHost> host,
                               std::string hosted, int32_t ps, int64_t first_row, bool is_part)
    : VariableBase(std::move(traits)),
      host_(std::move(host)),
      hosted_(std::move(hosted)),
      ps_(ps),
      first_row_(first_row),
      is_part_(is_part) {}

std::vector<int64_t> ServerVariable::HostedNumbers(absl::Span<const int64_t> rows) const {
  std::vector<int64_t> hosted(rows.begin(), rows.end());
  for (int64_t& row : hosted) row += first_row_;
  return hosted;
}

HostedRows ServerVariable::All(std::vector<int64_t>* rows) const {
  if (!is_part_) return {.variable = hosted_};
  rows->resize(static_cast<size_t>(shape()[0]));
  std::iota(rows->begin(), rows->end(), first_row_);
  return {.variable = hosted_, .rows = *rows};
}

absl::StatusOr<Tensor> ServerVariable::Read() {
  std::vector<int64_t> rows;
  return host_->Read(All(&rows));
}

absl::StatusOr<Tensor> ServerVariable::ReadRows(absl::Span<const int64_t> rows) {
  RETURN_IF_ERROR(CheckRows(*this, rows));
  const std::vector<int64_t> hosted = HostedNumbers(rows);
  return host_->Read({.variable = hosted_, .rows = hosted});
}

absl::Status ServerVariable::Write(AssignOp op, const Value& value) {
  ASSIGN_OR_RETURN(const Tensor tensor, TensorFor(*this, value));
  std::vector<int64_t> rows;
  const HostedRows to = All(&rows);
  if (op == AssignOp::kAssign) return host_->Assign(to, tensor);
  return host_->Add(to, tensor, op == AssignOp::kSub);
}

absl::Status ServerVariable::Scatter(ScatterOp op, const IndexedSlices& slices) {
  const std::string called = absl::StrCat(ScatterOpName(op), " of variable \"", name(), "\"");
  const bool adds = op == ScatterOp::kAdd || op == ScatterOp::kSub;
  if (!adds && op != ScatterOp::kUpdate) {
    return Unimplemented(called,
                         ": parameter servers cannot do it atomically; they support "
                         "scatter_add, scatter_sub and scatter_update");
  }
  ASSIGN_OR_RETURN(const Tensor indices, RowNumbers(called, slices.indices));
  RETURN_IF_ERROR(CheckRows(*this, indices.values<int64_t>()));
  const std::vector<int64_t> rows = HostedNumbers(indices.values<int64_t>());
  if (adds) {
    return host_->Add({.variable = hosted_, .rows = rows}, slices.values, op == ScatterOp::kSub);
  }
  if (slices.values.is_text() || slices.values.rank() < 1 ||
      slices.values.shape()[0] != indices.elements()) {
    return InvalidArgument(called, ": found ", slices.values.TypeText(), " for ",
                           indices.elements(), " rows");
  }
  std::vector<int64_t> once;
  std::vector<int64_t> from;
  LastOfEach(rows, &once, &from);
  ASSIGN_OR_RETURN(const Tensor last, TakeRows(slices.values, from));
  return host_->Assign({.variable = hosted_, .rows = once}, last);
}

}  // namespace cairn
