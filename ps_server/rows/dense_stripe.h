// A run of rows of a dense variable with its optimizer slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/dtype.h"
#include "common/optimizer/optimizer.h"
#include "ps_server/rows/change_marks.h"
#include "ps_server/rows/stripe.h"

namespace cairn {

// How the elements of a dense variable lie in memory. Values have the variable's dtype; slots are
// float64 for float64 variables, else float32.
struct DenseLayout {
  DType dtype = DType::kFloat32;
  int64_t width = 1;  // elements of a row
  size_t slot_count = 0;

  // Part 0 is the value, part s + 1 is slot s.
  DType part_dtype(size_t part) const {
    return part == 0 || dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  }
  size_t part_row_bytes(size_t part) const {
    return static_cast<size_t>(width) * DTypeBytes(part_dtype(part));
  }
};

// Values, then each slot, every part contiguous and 64-byte aligned in one allocation.
// Thread safety: hold mutex() (shared for the const methods).
class DenseStripe final : public Stripe {
 public:
  // Contents are unspecified until Write has filled every part.
  DenseStripe(const StripeId& id, const DenseLayout& layout, int64_t rows);

  int64_t rows() const { return rows_; }
  size_t memory_bytes() const { return part_offset(layout_.slot_count + 1); }
  // Row `row` and the rows after it, numbered from the stripe's first row.
  const std::byte* Row(size_t part, int64_t row) const;
  void Write(size_t part, int64_t row, int64_t count, const std::byte* from);
  // A caller that changes values must record the change here.
  ChangedRows& changed() { return changed_; }
  const ChangedRows& changed() const { return changed_; }

  // Applies one update to rows [row, row + count); `gradient` has the variable's dtype, any
  // alignment.
  void Apply(const Optimizer& optimizer, const UpdateStep& step, int64_t row, int64_t count,
             const std::byte* gradient);
  // Applies one update to each of `rows` (strictly increasing); `gradients` has their gradients in
  // the same order.
  void ApplyRows(const Optimizer& optimizer, const UpdateStep& step, absl::Span<const int64_t> rows,
                 int64_t first_row, const std::byte* gradients);
  // Applies the update with a zero gradient to rows [row, row + count).
  void ApplyZero(const Optimizer& optimizer, const UpdateStep& step, int64_t row, int64_t count);

  // Appends the image that LoadImage reads.
  void AppendImage(std::string* image) const;
  // kDataLoss: not an image of this layout.
  absl::Status LoadImage(absl::string_view image);

 protected:
  void DrainContent(StripeBatch& batch) override;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  size_t part_bytes(size_t part) const {
    return static_cast<size_t>(rows_) * layout_.part_row_bytes(part);
  }
  size_t part_offset(size_t part) const;
  std::byte* MutableRow(size_t part, int64_t row);
  template <typename T>
  void ApplyNative(const Optimizer& optimizer, const UpdateStep& step, int64_t row, int64_t count,
                   const std::byte* gradient);
  void ApplyHalf(const Optimizer& optimizer, const UpdateStep& step, int64_t row, int64_t count,
                 const std::byte* gradient);
  template <typename T>
  void ApplyGathered(const Optimizer& optimizer, const UpdateStep& step,
                     absl::Span<const int64_t> rows, int64_t first_row, const std::byte* gradients);

  const DenseLayout layout_;
  const int64_t rows_;
  std::unique_ptr<std::byte[], Free> memory_;
  ChangedRows changed_;
};

}  // namespace cairn
