#include "worker/models/sparse_columns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Costs in units of moving one float of a whole variable both ways (about 5 ns: 8 bytes at 2 to 3
// GB/s, including filling and scanning). Numbering an entry costs up to two units; an id travels
// both ways and is looked up twice. Rows are used only if they cost at most half.
constexpr int64_t kEntryCost = 2;
constexpr int64_t kIdCost = 4;
constexpr int64_t kMargin = 2;

}  // namespace

SparseColumns::SparseColumns(int64_t features, int64_t floats_per_column,
                             std::vector<size_t> variables)
    : features_(features),
      floats_per_column_(floats_per_column),
      variables_(std::move(variables)) {}

absl::Status SparseColumns::Plan(const Batch& batch, StepState* state) const {
  const auto inside = [&](int32_t column) { return column >= 0 && column < features_; };
  const auto bad = std::ranges::find_if_not(batch.columns, inside);
  if (bad != batch.columns.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry ", bad - batch.columns.begin(), " of the batch: column ", *bad,
                     " (counted from 0) is outside [0, ", features_, "): raise data.features"));
  }
  if (state->resident != nullptr) return absl::OkStatus();  // nothing has to be moved
  const int64_t whole = features_ * floats_per_column_;
  if (static_cast<int64_t>(batch.columns.size()) * kEntryCost > whole) return absl::OkStatus();
  const auto limit = static_cast<size_t>(whole / (kMargin * (kIdCost + floats_per_column_)));
  std::vector<int64_t>& ids = state->uses[variables_.front()].ids;
  state->positions.resize(batch.columns.size());
  state->key_index.Reset(std::min(batch.columns.size(), limit + 1));
  for (size_t n = 0; n < batch.columns.size(); ++n) {
    const int32_t number = state->key_index.Insert(batch.columns[n]);
    state->positions[n] = number;
    if (static_cast<size_t>(number) < ids.size()) continue;
    if (ids.size() == limit) {  // too many rows: use the variable whole
      ids.clear();
      return absl::OkStatus();
    }
    ids.push_back(batch.columns[n]);
  }
  for (const size_t variable : variables_) {
    state->uses[variable].part = Part::kRows;
    if (variable != variables_.front()) state->uses[variable].ids = ids;
  }
  return absl::OkStatus();
}

CsrView SparseColumns::View(StepView& step) const {
  const bool by_rows = step.part(variables_.front()) == Part::kRows;
  const StepView::Input& input = step.input();
  return {.rows = static_cast<size_t>(step.rows()),
          .row_offsets = input.row_offsets,
          .columns = by_rows ? input.positions : input.columns,
          .values = input.values};
}

size_t SparseColumns::ValueRows(const StepView& step) const {
  const size_t first = variables_.front();
  return step.part(first) == Part::kRows ? step.id_count(first) : static_cast<size_t>(features_);
}

}  // namespace cairn
