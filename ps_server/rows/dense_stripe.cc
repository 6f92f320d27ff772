#include "ps_server/rows/dense_stripe.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "common/errors.h"

namespace cairn {
namespace {

constexpr size_t kAlignment = 64;
// Elements converted or gathered at a time: the value, three slots and a gradient fit into the
// first-level cache.
constexpr int64_t kChunkElements = 1024;
// Rows at least this wide are updated in place. Narrower rows are gathered first, because one
// kernel call for each row would cost more than the update.
constexpr int64_t kInPlaceWidth = 32;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DenseStripe::DenseStripe(const StripeId& id, const DenseLayout& layout, int64_t rows)
    : Stripe(id), layout_(layout), rows_(rows), changed_(rows, layout.part_row_bytes(0)) {
  const size_t bytes = std::max(memory_bytes(), kAlignment);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
  if (memory_ == nullptr) throw std::bad_alloc();
}

size_t DenseStripe::part_offset(size_t part) const {
  if (part == 0) return 0;
  return RoundUp(part_bytes(0)) + (part - 1) * RoundUp(part_bytes(1));
}

std::byte* DenseStripe::MutableRow(size_t part, int64_t row) {
  return memory_.get() + part_offset(part) +
         static_cast<size_t>(row) * layout_.part_row_bytes(part);
}

const std::byte* DenseStripe::Row(size_t part, int64_t row) const {
  return const_cast<DenseStripe*>(this)->MutableRow(part, row);
}

void DenseStripe::Write(size_t part, int64_t row, int64_t count, const std::byte* from) {
  // Not memcpy: `from` may be null if the values have no bytes.
  std::copy_n(from, static_cast<size_t>(count) * layout_.part_row_bytes(part),
              MutableRow(part, row));
}

template <typename T>
void DenseStripe::ApplyNative(const Optimizer& optimizer, const UpdateStep& step, int64_t row,
                              int64_t count, const std::byte* gradient) {
  T* slots[Optimizer::kMaxSlots] = {};
  for (size_t s = 0; s < layout_.slot_count; ++s) {
    slots[s] = reinterpret_cast<T*>(MutableRow(s + 1, row));
  }
  T* value = reinterpret_cast<T*>(MutableRow(0, row));
  const size_t elements = static_cast<size_t>(count * layout_.width);
  if (gradient == nullptr) {
    optimizer.ApplyZero(step, value, slots, elements);
  } else {
    optimizer.Apply(step, value, slots, reinterpret_cast<const T*>(gradient), elements);
  }
}

void DenseStripe::ApplyHalf(const Optimizer& optimizer, const UpdateStep& step, int64_t row,
                            int64_t count, const std::byte* gradient) {
  float value[kChunkElements];
  float converted[kChunkElements];
  const int64_t elements = count * layout_.width;
  std::byte* values = MutableRow(0, row);
  for (int64_t done = 0; done < elements; done += kChunkElements) {
    const size_t n = static_cast<size_t>(std::min(kChunkElements, elements - done));
    float* slots[Optimizer::kMaxSlots] = {};
    for (size_t s = 0; s < layout_.slot_count; ++s) {
      slots[s] = reinterpret_cast<float*>(MutableRow(s + 1, row)) + done;
    }
    ToFloat32(layout_.dtype, values + 2 * done, n, value);
    if (gradient == nullptr) {
      optimizer.ApplyZero(step, value, slots, n);
    } else {
      ToFloat32(layout_.dtype, gradient + 2 * done, n, converted);
      optimizer.Apply(step, value, slots, converted, n);
    }
    FromFloat32(layout_.dtype, value, n, values + 2 * done);
  }
}

void DenseStripe::Apply(const Optimizer& optimizer, const UpdateStep& step, int64_t row,
                        int64_t count, const std::byte* gradient) {
  switch (layout_.dtype) {
    case DType::kFloat32: return ApplyNative<float>(optimizer, step, row, count, gradient);
    case DType::kFloat64: return ApplyNative<double>(optimizer, step, row, count, gradient);
    default: return ApplyHalf(optimizer, step, row, count, gradient);
  }
}

void DenseStripe::ApplyZero(const Optimizer& optimizer, const UpdateStep& step, int64_t row,
                            int64_t count) {
  Apply(optimizer, step, row, count, nullptr);
}

template <typename T>
void DenseStripe::ApplyGathered(const Optimizer& optimizer, const UpdateStep& step,
                                absl::Span<const int64_t> rows, int64_t first_row,
                                const std::byte* gradients) {
  T gathered[Optimizer::kMaxSlots + 1][kChunkElements];
  T* slots[Optimizer::kMaxSlots];
  for (size_t s = 0; s < Optimizer::kMaxSlots; ++s) slots[s] = gathered[s + 1];
  const size_t width = static_cast<size_t>(layout_.width);
  const size_t chunk = static_cast<size_t>(kChunkElements) / width;
  for (size_t done = 0; done < rows.size(); done += chunk) {
    const size_t n = std::min(chunk, rows.size() - done);
    for (size_t part = 0; part <= layout_.slot_count; ++part) {
      const T* all = reinterpret_cast<const T*>(Row(part, 0));
      for (size_t i = 0; i < n; ++i) {
        const T* from = all + static_cast<size_t>(rows[done + i] - first_row) * width;
        std::copy_n(from, width, gathered[part] + i * width);
      }
    }
    optimizer.Apply(step, gathered[0], slots, reinterpret_cast<const T*>(gradients) + done * width,
                    n * width);
    for (size_t part = 0; part <= layout_.slot_count; ++part) {
      T* all = reinterpret_cast<T*>(MutableRow(part, 0));
      for (size_t i = 0; i < n; ++i) {
        std::copy_n(gathered[part] + i * width, width,
                    all + static_cast<size_t>(rows[done + i] - first_row) * width);
      }
    }
  }
}

void DenseStripe::ApplyRows(const Optimizer& optimizer, const UpdateStep& step,
                            absl::Span<const int64_t> rows, int64_t first_row,
                            const std::byte* gradients) {
  if (layout_.width == 0) return;  // a shape such as [3, 0]: rows without elements
  if (layout_.width < kInPlaceWidth && layout_.dtype == DType::kFloat32) {
    return ApplyGathered<float>(optimizer, step, rows, first_row, gradients);
  }
  if (layout_.width < kInPlaceWidth && layout_.dtype == DType::kFloat64) {
    return ApplyGathered<double>(optimizer, step, rows, first_row, gradients);
  }
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    Apply(optimizer, step, rows[i] - first_row, static_cast<int64_t>(end - i),
          gradients + i * layout_.part_row_bytes(0));
    i = end;
  }
}

void DenseStripe::DrainContent(StripeBatch& batch) {
  absl::string_view pieces[Optimizer::kMaxSlots + 1];
  for (size_t part = 0; part <= layout_.slot_count; ++part) {
    pieces[part] = {reinterpret_cast<const char*>(Row(part, 0)), part_bytes(part)};
  }
  batch.PutImage(absl::MakeConstSpan(pieces, layout_.slot_count + 1));
}

void DenseStripe::AppendImage(std::string* image) const {
  for (size_t part = 0; part <= layout_.slot_count; ++part) {
    image->append(reinterpret_cast<const char*>(Row(part, 0)), part_bytes(part));
  }
}

absl::Status DenseStripe::LoadImage(absl::string_view image) {
  size_t expected = 0;
  for (size_t part = 0; part <= layout_.slot_count; ++part) expected += part_bytes(part);
  if (image.size() != expected) {
    return DataLoss("stripe ", id().stripe, " of shard ", id().shard, " has an image of ",
                    image.size(), " bytes, not ", expected);
  }
  for (size_t part = 0; part <= layout_.slot_count; ++part) {
    std::copy_n(image.data(), part_bytes(part), reinterpret_cast<char*>(MutableRow(part, 0)));
    image.remove_prefix(part_bytes(part));
  }
  return absl::OkStatus();
}

}  // namespace cairn
