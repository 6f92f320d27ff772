// Highway's rule: foreach_target.h, which includes this file once per instruction set, comes before
// anything else that uses HWY_NAMESPACE.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/value_format.cc"
#include "common/errors.h"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "absl/base/casts.h"
#include "common/value_format.h"
#include "common/value_kernels-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
namespace cairn {
namespace {

HWY_EXPORT(ToHalves);
HWY_EXPORT(FromHalves);
HWY_EXPORT(ToBFloats);
HWY_EXPORT(FromBFloats);
HWY_EXPORT(ToBytes);
HWY_EXPORT(FromBytes);

constexpr int64_t kNarrow = 8;           // narrower rows share a scale, to spare 4 bytes per row
constexpr int64_t kValuesOfAScale = 64;  // a shared scale serves at least this many values

int64_t Scales(int64_t rows, int64_t width) {
  if (width == 0) return 0;  // the rows have no values
  const int64_t shared = ScaledRows(width);
  return (rows + shared - 1) / shared;
}

// Calls fn(index of the scale, index of its first value, number of its values) for each scale.
template <typename Fn>
void ForEachScale(int64_t rows, int64_t width, const Fn& fn) {
  const int64_t values = rows * width, step = ScaledRows(width) * width;
  for (int64_t first = 0, i = 0; first < values; first += step, ++i) {
    fn(i, first, static_cast<size_t>(std::min(step, values - first)));
  }
}

void EncodeInt8(const float* values, int64_t rows, int64_t width, std::byte* out) {
  auto* const bytes =
      reinterpret_cast<int8_t*>(out + static_cast<size_t>(Scales(rows, width)) * sizeof(float));
  ForEachScale(rows, width, [&](int64_t i, int64_t first, size_t count) {
    const float scale = HWY_DYNAMIC_DISPATCH(ToBytes)(values + first, count, bytes + first);
    std::memcpy(out + static_cast<size_t>(i) * sizeof scale, &scale, sizeof scale);
  });
}

void DecodeInt8(const std::byte* in, int64_t rows, int64_t width, float* out) {
  const auto* const bytes = reinterpret_cast<const int8_t*>(
      in + static_cast<size_t>(Scales(rows, width)) * sizeof(float));
  ForEachScale(rows, width, [&](int64_t i, int64_t first, size_t count) {
    float scale = 0;
    std::memcpy(&scale, in + static_cast<size_t>(i) * sizeof scale, sizeof scale);
    HWY_DYNAMIC_DISPATCH(FromBytes)(bytes + first, count, scale, out + first);
  });
}

// The value's bits without the sign; they compare as the value's magnitude does.
uint32_t SizeOf(float value) { return absl::bit_cast<uint32_t>(value) & 0x7fffffff; }

struct SmallestKept {
  uint32_t size = 0;  // SizeOf the smallest of the `kept` largest values
  int64_t ties = 0;   // how many of the kept values have that size
};

// Counts sizes by their leading bits, then sorts only the sizes that share them with the result.
SmallestKept FindSmallest(absl::Span<const float> values, int64_t kept) {
  constexpr int kShift = 20;
  std::array<int64_t, size_t{1} << (31 - kShift)> counts{};
  for (const float value : values) ++counts[SizeOf(value) >> kShift];
  size_t bits = counts.size() - 1;
  int64_t rank = kept;  // rank of the result among sizes with these bits; 1 is the largest
  while (counts[bits] < rank) rank -= counts[bits--];
  std::vector<uint32_t> sizes;
  sizes.reserve(static_cast<size_t>(counts[bits]));
  for (const float value : values) {
    if (SizeOf(value) >> kShift == bits) sizes.push_back(SizeOf(value));
  }
  const auto last = sizes.begin() + rank - 1;
  std::nth_element(sizes.begin(), last, sizes.end(), std::greater<>());
  const uint32_t size = *last;
  return {.size = size, .ties = rank - std::count_if(sizes.begin(), last, [size](uint32_t other) {
                                  return other > size;
                                })};
}

absl::Status DecodeTopK(absl::Span<const std::byte> bytes, int64_t count, float* out) {
  if (bytes.size() % TopKBytes(1) != 0) {
    return InvalidArgument(bytes.size(), " bytes are not pairs of an index and a value, of ",
                           TopKBytes(1), " bytes");
  }
  const size_t kept = bytes.size() / TopKBytes(1);
  std::fill_n(out, count, 0.0F);
  int64_t before = -1;
  for (size_t i = 0; i < kept; ++i) {
    uint32_t index = 0;
    std::memcpy(&index, bytes.data() + i * sizeof index, sizeof index);
    if (index <= before || index >= count) {
      return InvalidArgument("index ", index, " after ", before, "; indices ascend, below ", count);
    }
    std::memcpy(&out[index], bytes.data() + (kept + i) * sizeof(float), sizeof(float));
    before = index;
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view ValueFormatName(ValueFormat format) {
  return kValueFormatNames[static_cast<size_t>(format)];
}

ValueFormat ValueFormatFromName(absl::string_view name) {
  const auto* const found =
      std::find(std::begin(kValueFormatNames), std::end(kValueFormatNames), name);
  return found == std::end(kValueFormatNames)
             ? ValueFormat::kPlain
             : static_cast<ValueFormat>(found - std::begin(kValueFormatNames));
}

int64_t ScaledRows(int64_t width) {
  return width >= kNarrow || width < 1 ? 1 : (kValuesOfAScale + width - 1) / width;
}

size_t EncodedBytes(ValueFormat format, int64_t rows, int64_t width) {
  const auto values = static_cast<size_t>(rows * width);
  switch (format) {
    case ValueFormat::kPlain: return values * sizeof(float);
    case ValueFormat::kFloat16:
    case ValueFormat::kBFloat16: return values * sizeof(uint16_t);
    case ValueFormat::kInt8:
      return values + static_cast<size_t>(Scales(rows, width)) * sizeof(float);
    case ValueFormat::kTopK: break;
  }
  return 0;
}

int64_t KeptValues(double fraction, int64_t count) {
  return std::min(count, static_cast<int64_t>(std::ceil(fraction * static_cast<double>(count))));
}

void EncodeValues(ValueFormat format, const float* values, int64_t rows, int64_t width,
                  std::byte* out) {
  const auto count = static_cast<size_t>(rows * width);
  auto* const halves = reinterpret_cast<uint16_t*>(out);
  if (format == ValueFormat::kFloat16) HWY_DYNAMIC_DISPATCH(ToHalves)(values, count, halves);
  if (format == ValueFormat::kBFloat16) HWY_DYNAMIC_DISPATCH(ToBFloats)(values, count, halves);
  if (format == ValueFormat::kInt8) EncodeInt8(values, rows, width, out);
}

void EncodeTopK(absl::Span<const float> values, int64_t kept, std::byte* out) {
  if (kept == 0) return;
  const SmallestKept least = FindSmallest(values, kept);
  int64_t ties = least.ties;
  auto* const value_bytes = out + static_cast<size_t>(kept) * sizeof(uint32_t);
  size_t done = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t size = SizeOf(values[i]);
    if (size < least.size || (size == least.size && ties-- <= 0)) continue;
    const auto index = static_cast<uint32_t>(i);
    std::memcpy(out + done * sizeof index, &index, sizeof index);
    std::memcpy(value_bytes + done * sizeof(float), &values[i], sizeof(float));
    ++done;
  }
}

absl::Status DecodeValues(ValueFormat format, absl::Span<const std::byte> bytes, int64_t rows,
                          int64_t width, float* out) {
  if (format == ValueFormat::kTopK) return DecodeTopK(bytes, rows * width, out);
  const size_t wanted = EncodedBytes(format, rows, width);
  if (bytes.size() != wanted) {
    return InvalidArgument(bytes.size(), " bytes, expected ", wanted, " (", rows, " rows x ", width,
                           " ", ValueFormatName(format), ")");
  }
  const auto count = static_cast<size_t>(rows * width);
  const auto* const halves = reinterpret_cast<const uint16_t*>(bytes.data());
  if (format == ValueFormat::kFloat16) HWY_DYNAMIC_DISPATCH(FromHalves)(halves, count, out);
  if (format == ValueFormat::kBFloat16) HWY_DYNAMIC_DISPATCH(FromBFloats)(halves, count, out);
  if (format == ValueFormat::kInt8) DecodeInt8(bytes.data(), rows, width, out);
  return absl::OkStatus();
}

}  // namespace cairn
#endif  // HWY_ONCE
