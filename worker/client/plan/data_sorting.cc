// Sorts ids and values of a part by the server that has them.
#include <cstddef>
#include <cstring>
#include <limits>

#include "common/errors.h"
#include "worker/client/plan/data_plan.h"
#include "worker/client/routing/row_moves.h"

namespace cairn {
namespace {

constexpr size_t kKeysAhead = 16;  // whose slots are being loaded

}  // namespace

absl::Status DataPlan::CheckRepeats(const ClientVariable& variable, bool combine_repeats,
                                    absl::string_view what) const {
  if (!combine_repeats || variable.embedding()) return absl::OkStatus();
  return InvalidArgument(what, " \"", variable.spec().name,
                         "\": only repeats of an embedding table's keys combine");
}

// The distinct ids in order of first appearance; sorted->row has the number of each id.
absl::Span<const int64_t> DataPlan::FindDistinct(absl::Span<const int64_t> ids, Sorted* sorted) {
  int64_t* const distinct = sorted->distinct.Get(ids.size());
  int32_t* const number = sorted->row.Get(ids.size());
  index_.Reset(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kKeysAhead < ids.size()) index_.Prefetch(ids[i + kKeysAhead]);
    number[i] = index_.Insert(ids[i]);
    distinct[number[i]] = ids[i];
  }
  sorted->count = static_cast<int64_t>(ids.size());
  return {distinct, static_cast<size_t>(index_.size())};
}

absl::StatusOr<DataPlan::Sorted*> DataPlan::Sort(const ClientVariable& variable,
                                                 absl::Span<const int64_t> ids,
                                                 bool combine_repeats) {
  if (sorted_used_ == sorted_.size()) sorted_.emplace_back();
  Sorted& sorted = sorted_[sorted_used_++];
  const size_t groups = variable.groups().size();
  if (groups > std::numeric_limits<uint16_t>::max()) {
    return InvalidArgument("\"", variable.spec().name, "\" has ", groups,
                           " shards; rows can be named in up to 65535");
  }
  if (combine_repeats) ids = FindDistinct(ids, &sorted);
  uint16_t* const group = sorted.group.Get(ids.size());
  sorted.starts.assign(groups + 1, 0);
  // Counts are stored one place up, so that their prefix sums are the starts.
  const auto count = [&](auto group_of) {
    for (size_t i = 0; i < ids.size(); ++i) {
      group[i] = static_cast<uint16_t>(group_of(ids[i]));
      ++sorted.starts[group[i] + 1];
    }
  };
  if (variable.embedding()) {
    count([&](int64_t key) { return variable.GroupOfKey(key); });
  } else {
    count([&](int64_t row) { return variable.GroupOfRow(row); });
  }
  for (size_t g = 0; g < groups; ++g) sorted.starts[g + 1] += sorted.starts[g];
  int64_t* const out = sorted.ids.Get(ids.size());
  int32_t* const order = sorted.order.Get(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t at = sorted.starts[group[i]]++;
    out[at] = ids[i];
    if (combine_repeats) {
      order[i] = static_cast<int32_t>(at);
    } else {
      order[at] = static_cast<int32_t>(i);
    }
  }
  // Filling has advanced each start to its group's end; shift them back by one.
  for (size_t g = groups; g > 0; --g) sorted.starts[g] = sorted.starts[g - 1];
  sorted.starts[0] = 0;
  if (combine_repeats) {
    int32_t* const row = sorted.row.Get(0);
    for (int64_t i = 0; i < sorted.count; ++i) row[i] = order[row[i]];
  }
  return &sorted;
}

const std::byte* DataPlan::SortValues(const ClientVariable& variable, const PushSource& source,
                                      bool combine_repeats, Sorted& sorted) {
  const size_t row_bytes = variable.row_bytes();
  const auto bytes = static_cast<size_t>(sorted.starts.back()) * row_bytes;
  std::byte* const rows = sorted.rows.Get(bytes);
  if (!combine_repeats) {
    GatherRows(source.values.data(), sorted.order.Get(0), source.ids.size(), row_bytes, rows);
    return rows;
  }
  if (bytes > 0) std::memset(rows, 0, bytes);
  AddRows(reinterpret_cast<const float*>(source.values.data()), sorted.row.Get(0), sorted.count,
          row_bytes / sizeof(float), reinterpret_cast<float*>(rows));
  return rows;
}

void DataPlan::CopyRepeats() {
  for (const Repeats& repeats : repeats_) {
    GatherRows(repeats.sorted->rows.Get(0), repeats.sorted->row.Get(0), repeats.sorted->count,
               repeats.row_bytes, repeats.out.data());
  }
}

}  // namespace cairn
