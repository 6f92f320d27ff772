#include "ps_server/rows/hosted_dense.h"

#include <algorithm>
#include <numeric>

#include "common/crash_point.h"

namespace cairn {
namespace {

constexpr size_t kStripeBytes = 256 << 10;

// Positions of `ids` in increasing order of id; equal ids in order of appearance.
void OrderById(absl::Span<const int64_t> ids, std::vector<uint32_t>& order) {
  order.resize(ids.size());
  std::iota(order.begin(), order.end(), 0);
  if (std::ranges::is_sorted(ids)) return;
  std::ranges::sort(
      order, [ids](uint32_t a, uint32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
}

template <typename T>
void AddElements(DType dtype, const std::byte* from, size_t count, std::vector<T>& sums) {
  if constexpr (std::is_same_v<T, double>) {
    const double* values = reinterpret_cast<const double*>(from);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  } else if (dtype == DType::kFloat32) {
    const float* values = reinterpret_cast<const float*>(from);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  } else {
    for (size_t i = 0; i < count; ++i) {
      float value;
      ToFloat32(dtype, from + i * DTypeBytes(dtype), 1, &value);
      sums[i] += value;
    }
  }
}

template <typename T>
SortedRows SumRepeats(absl::Span<const int64_t> ids, const std::byte* gradients,
                      const DenseLayout& layout, RowScratch& scratch, std::vector<T>& sums) {
  const size_t row_bytes = layout.part_row_bytes(0);
  const size_t width = static_cast<size_t>(layout.width);
  scratch.ids.clear();
  scratch.gradients.resize(ids.size() * row_bytes);
  for (size_t i = 0; i < ids.size();) {
    const int64_t id = ids[scratch.order[i]];
    std::byte* out = scratch.gradients.data() + scratch.ids.size() * row_bytes;
    scratch.ids.push_back(id);
    size_t end = i + 1;
    while (end < ids.size() && ids[scratch.order[end]] == id) ++end;
    if (end == i + 1) {
      // Not memcpy: `gradients` may be null if rows have no bytes.
      std::copy_n(gradients + scratch.order[i] * row_bytes, row_bytes, out);
    } else {
      sums.assign(width, 0);
      for (size_t j = i; j < end; ++j) {
        AddElements(layout.dtype, gradients + scratch.order[j] * row_bytes, width, sums);
      }
      if constexpr (std::is_same_v<T, double>) {
        std::copy_n(reinterpret_cast<const std::byte*>(sums.data()), row_bytes, out);
      } else {
        FromFloat32(layout.dtype, sums.data(), width, out);
      }
    }
    i = end;
  }
  return {.ids = scratch.ids, .gradients = scratch.gradients.data()};
}

}  // namespace

int64_t RowsPerStripe(size_t row_bytes) {
  return std::max<int64_t>(1, static_cast<int64_t>(kStripeBytes / std::max<size_t>(row_bytes, 1)));
}

bool AreSorted(absl::Span<const int64_t> ids) {
  const auto not_below = [](int64_t a, int64_t b) { return a >= b; };
  return std::ranges::adjacent_find(ids, not_below) == ids.end();
}

SortedRows SortRows(absl::Span<const int64_t> ids, const std::byte* gradients,
                    const DenseLayout& layout, RowScratch& scratch) {
  OrderById(ids, scratch.order);
  if (layout.dtype == DType::kFloat64) {
    return SumRepeats<double>(ids, gradients, layout, scratch, scratch.double_sums);
  }
  return SumRepeats<float>(ids, gradients, layout, scratch, scratch.sums);
}

HostedDense::HostedDense(uint32_t variable, int32_t index, const DenseLayout& layout,
                         int64_t first_row, int64_t rows, int64_t rows_per_stripe)
    : HostedShard(index),
      layout_(layout),
      first_row_(first_row),
      rows_(rows),
      rows_per_stripe_(rows_per_stripe) {
  for (int64_t done = 0; done < rows; done += rows_per_stripe) {
    const StripeId id{.variable = variable,
                      .shard = static_cast<uint32_t>(index),
                      .stripe = static_cast<uint32_t>(stripes_.size())};
    stripes_.push_back(
        std::make_unique<DenseStripe>(id, layout, std::min(rows_per_stripe, rows - done)));
    memory_bytes_ += static_cast<int64_t>(stripes_.back()->memory_bytes() + sizeof(DenseStripe));
  }
}

std::vector<int64_t> HostedDense::uses() const {
  int64_t uses = 0;
  for (const auto& stripe : stripes_) uses += stripe->uses();
  return {uses};
}

void HostedDense::HandOver() {
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mutex());
    stripe->HandOver();
  }
}

DenseStripe* HostedDense::stripe(uint32_t stripe) {
  return stripe < stripes_.size() ? stripes_[stripe].get() : nullptr;
}

bool HostedDense::PushWhole(const Optimizer& optimizer, const UpdateStep& step,
                            const Origin& origin, const std::byte* gradient) {
  bool any = false;
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mutex());
    if (!stripe->Has(origin)) {
      stripe->ReserveTouch();
      stripe->changed().NoteAll(marks_.now());
      stripe->Apply(optimizer, step, 0, stripe->rows(), gradient);
      CAIRN_CRASH_POINT("push: stripe applied, not marked");
      stripe->Touch(origin, dirty());
      stripe->CountUses(stripe->rows());
      any = true;
    }
    gradient += static_cast<size_t>(stripe->rows()) * layout_.part_row_bytes(0);
  }
  return any;
}

void HostedDense::PushStripe(const Optimizer& optimizer, const UpdateStep& step,
                             DenseStripe& stripe, const SortedRows& rows, bool others_too) {
  const int64_t first_row = stripe_first_row(stripe.id().stripe);
  if (!others_too) {
    stripe.changed().Note(marks_.now(), rows.ids, first_row);
    return stripe.ApplyRows(optimizer, step, rows.ids, first_row, rows.gradients);
  }
  stripe.changed().NoteAll(marks_.now());
  const size_t row_bytes = layout_.part_row_bytes(0);
  int64_t next = 0;  // first row of the stripe that is not updated yet
  for (size_t i = 0; i < rows.ids.size();) {
    size_t end = i + 1;
    while (end < rows.ids.size() && rows.ids[end] == rows.ids[end - 1] + 1) ++end;
    const int64_t row = rows.ids[i] - first_row;
    if (row > next) stripe.ApplyZero(optimizer, step, next, row - next);
    stripe.Apply(optimizer, step, row, static_cast<int64_t>(end - i),
                 rows.gradients + i * row_bytes);
    next = row + static_cast<int64_t>(end - i);
    i = end;
  }
  if (next < stripe.rows()) stripe.ApplyZero(optimizer, step, next, stripe.rows() - next);
}

bool HostedDense::PushRows(const Optimizer& optimizer, const UpdateStep& step, const Origin& origin,
                           const SortedRows& rows, bool others_too) {
  bool any = false;
  size_t begin = 0;
  for (const auto& stripe : stripes_) {
    const int64_t past = stripe_first_row(stripe->id().stripe) + stripe->rows();
    const auto last =
        std::lower_bound(rows.ids.begin() + static_cast<ptrdiff_t>(begin), rows.ids.end(), past);
    const size_t end = static_cast<size_t>(last - rows.ids.begin());
    if (end > begin || others_too) {
      const SortedRows part{.ids = rows.ids.subspan(begin, end - begin),
                            .gradients = rows.gradients + begin * layout_.part_row_bytes(0)};
      absl::MutexLock lock(&stripe->mutex());
      if (!stripe->Has(origin)) {
        stripe->ReserveTouch();
        PushStripe(optimizer, step, *stripe, part, others_too);
        stripe->Touch(origin, dirty());
        stripe->CountUses(others_too ? stripe->rows() : static_cast<int64_t>(end - begin));
        CAIRN_CRASH_POINT("push: between stripes");
        any = true;
      }
    }
    begin = end;
  }
  return any;
}

void HostedDense::PullWhole(size_t part, std::byte* out) const {
  for (const auto& stripe : stripes_) {
    const size_t bytes = static_cast<size_t>(stripe->rows()) * layout_.part_row_bytes(part);
    absl::ReaderMutexLock lock(&stripe->mutex());
    stripe->CountUses(stripe->rows());
    std::copy_n(stripe->Row(part, 0), bytes, out);
    out += bytes;
  }
}

bool HostedDense::ChangedSince(int64_t mark, size_t most, std::vector<RowRun>* runs) const {
  if (!marks_.Knows(mark)) return false;
  for (const auto& stripe : stripes_) {
    absl::ReaderMutexLock lock(&stripe->mutex());
    stripe->changed().AppendSince(mark, stripe_first_row(stripe->id().stripe), runs);
    if (runs->size() > 2 * most) JoinRuns(most, runs);
  }
  JoinRuns(most, runs);
  return true;
}

void HostedDense::PullRuns(absl::Span<const RowRun> runs, std::byte* out) const {
  for (RowRun run : runs) {
    while (run.count > 0) {
      const size_t number = stripe_of(run.first);
      const DenseStripe& stripe = *stripes_[number];
      const int64_t row = run.first - stripe_first_row(static_cast<uint32_t>(number));
      const int64_t count = std::min(run.count, stripe.rows() - row);
      const size_t bytes = static_cast<size_t>(count) * layout_.part_row_bytes(0);
      {
        absl::ReaderMutexLock lock(&stripe.mutex());
        stripe.CountUses(count);
        std::copy_n(stripe.Row(0, row), bytes, out);
      }
      out += bytes;
      run = {.first = run.first + count, .count = run.count - count};
    }
  }
}

void HostedDense::PullRows(size_t part, absl::Span<const int64_t> ids, RowScratch& scratch,
                           std::byte* out) const {
  const size_t row_bytes = layout_.part_row_bytes(part);
  OrderById(ids, scratch.order);
  for (size_t i = 0; i < ids.size();) {
    const size_t number = stripe_of(ids[scratch.order[i]]);
    const DenseStripe& stripe = *stripes_[number];
    const int64_t first_row = stripe_first_row(static_cast<uint32_t>(number));
    absl::ReaderMutexLock lock(&stripe.mutex());
    const size_t first = i;
    for (; i < ids.size(); ++i) {
      const size_t position = scratch.order[i];
      const int64_t row = ids[position] - first_row;
      if (row >= stripe.rows()) break;
      std::copy_n(stripe.Row(part, row), row_bytes, out + position * row_bytes);
    }
    stripe.CountUses(static_cast<int64_t>(i - first));
  }
}

void HostedDense::AssignWhole(size_t part, const Origin& origin, const std::byte* values,
                              std::vector<TouchedStripe>& touched) {
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mutex());
    if (!stripe->Has(origin)) {
      stripe->changed().NoteAll(marks_.now());
      stripe->Write(part, 0, stripe->rows(), values);
      stripe->Touch(Origin{}, dirty());
      touched.push_back({.stripe = stripe.get(), .dirty = &dirty()});
    }
    values += static_cast<size_t>(stripe->rows()) * layout_.part_row_bytes(part);
  }
}

void HostedDense::AssignRows(size_t part, const Origin& origin, absl::Span<const int64_t> ids,
                             RowScratch& scratch, const std::byte* values,
                             std::vector<TouchedStripe>& touched) {
  const size_t row_bytes = layout_.part_row_bytes(part);
  OrderById(ids, scratch.order);
  for (size_t i = 0; i < ids.size();) {
    const size_t number = stripe_of(ids[scratch.order[i]]);
    DenseStripe& stripe = *stripes_[number];
    const int64_t first_row = stripe_first_row(static_cast<uint32_t>(number));
    absl::MutexLock lock(&stripe.mutex());
    const bool has = stripe.Has(origin);
    const int64_t now = marks_.now();
    for (; i < ids.size(); ++i) {
      const size_t position = scratch.order[i];
      const int64_t row = ids[position] - first_row;
      if (row >= stripe.rows()) break;
      if (has) continue;
      stripe.changed().Note(now, row);
      stripe.Write(part, row, 1, values + position * row_bytes);
    }
    if (has) continue;
    stripe.Touch(Origin{}, dirty());
    touched.push_back({.stripe = &stripe, .dirty = &dirty()});
  }
}

}  // namespace cairn
