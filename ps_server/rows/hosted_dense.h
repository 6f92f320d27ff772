// A dense shard on this server: its rows in stripes of about 256 KiB of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "ps_server/rows/change_marks.h"
#include "ps_server/rows/dense_stripe.h"
#include "ps_server/rows/hosted_shard.h"

namespace cairn {

// The rows that a request names, in increasing order, without repeats, with their gradients.
struct SortedRows {
  absl::Span<const int64_t> ids;         // global row numbers
  const std::byte* gradients = nullptr;  // in the variable's dtype, in the order of `ids`
};

// Working memory for SortRows and for orders; a thread keeps it from one request to the next.
struct RowScratch {
  std::vector<uint32_t> order;
  std::vector<int64_t> ids;
  std::vector<float> sums;
  std::vector<double> double_sums;
  std::vector<std::byte> gradients;
};

// True if `ids` are strictly increasing.
bool AreSorted(absl::Span<const int64_t> ids);
// For ids that are not AreSorted: returns them in increasing order; the gradients of repeated ids
// are summed in order of appearance. The result refers to `scratch`, which then holds a copy of the
// gradients.
SortedRows SortRows(absl::Span<const int64_t> ids, const std::byte* gradients,
                    const DenseLayout& layout, RowScratch& scratch);

// Thread safety: every method may be called from several threads at once, except where noted.
class HostedDense final : public HostedShard {
 public:
  // Contents are unspecified until Write, or stripe() and LoadImage, have filled every part.
  HostedDense(uint32_t variable, int32_t index, const DenseLayout& layout, int64_t first_row,
              int64_t rows, int64_t rows_per_stripe);

  int64_t first_row() const override { return first_row_; }
  int64_t row_count() const override { return rows_; }
  int64_t stripe_count() const override { return static_cast<int64_t>(stripes_.size()); }
  int64_t memory_bytes() const override { return memory_bytes_; }
  std::vector<int64_t> uses() const override;
  const DenseLayout& layout() const { return layout_; }
  // Stripe number `stripe`; nullptr if the shard has no such stripe.
  DenseStripe* stripe(uint32_t stripe);
  // Calls Stripe::HandOver for every stripe.
  void HandOver();
  // First global row of a stripe.
  int64_t stripe_first_row(uint32_t stripe) const { return first_row_ + stripe * rows_per_stripe_; }

  // Applies one update to every row. PushWhole and PushRows return true if any stripe applied the
  // update, and false if every stripe had applied it before.
  bool PushWhole(const Optimizer& optimizer, const UpdateStep& step, const Origin& origin,
                 const std::byte* gradient);
  // Applies one update to `rows`. `others_too`: all other rows get a zero gradient.
  bool PushRows(const Optimizer& optimizer, const UpdateStep& step, const Origin& origin,
                const SortedRows& rows, bool others_too);

  // Copies part `part` of every row, or of `ids` (any order, in this shard), to `out`.
  void PullWhole(size_t part, std::byte* out) const;
  void PullRows(size_t part, absl::Span<const int64_t> ids, RowScratch& scratch,
                std::byte* out) const;

  // Returns the mark of a copy of the values that begins now (CopyMarks::Begin).
  int64_t BeginCopy() { return marks_.Begin(); }
  // Lists the rows whose values may have changed since the copy with `mark` began, ascending, in at
  // most `most` runs. Changes that happen during or after this call may be missing. False: `mark`
  // is not a mark of this shard.
  bool ChangedSince(int64_t mark, size_t most, std::vector<RowRun>* runs) const;
  // Copies the values of `runs`, in this shard and ascending, to `out`.
  void PullRuns(absl::Span<const RowRun> runs, std::byte* out) const;

  // Sets part `part` of every row, or of `ids` (any order, in this shard, no repeats), in the
  // stripes that do not have `origin` yet, and adds these stripes to `touched`. The caller raises
  // their watermarks when all items of its request are applied.
  void AssignWhole(size_t part, const Origin& origin, const std::byte* values,
                   std::vector<TouchedStripe>& touched);
  void AssignRows(size_t part, const Origin& origin, absl::Span<const int64_t> ids,
                  RowScratch& scratch, const std::byte* values,
                  std::vector<TouchedStripe>& touched);

 private:
  size_t stripe_of(int64_t id) const {
    return static_cast<size_t>((id - first_row_) / rows_per_stripe_);
  }
  void PushStripe(const Optimizer& optimizer, const UpdateStep& step, DenseStripe& stripe,
                  const SortedRows& rows, bool others_too);

  const DenseLayout layout_;
  CopyMarks marks_;
  const int64_t first_row_;
  const int64_t rows_;
  const int64_t rows_per_stripe_;
  std::vector<std::unique_ptr<DenseStripe>> stripes_;
  int64_t memory_bytes_ = 0;
};

// Number of rows in a stripe, for a variable whose rows have `row_bytes` of values.
int64_t RowsPerStripe(size_t row_bytes);

}  // namespace cairn
