#include "worker/collective/reduce_kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/collective/reduce_kernels.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A piece is added up in this buffer before it is written to the outputs. Together with one input's
// piece it fits the smallest L1 cache in use, so memory sees each input read once and each output
// written once.
constexpr size_t kPieceBytes = 8192;

// Calls body(tag, i) for whole vectors, then for single lanes.
template <typename T, typename Body>
HWY_INLINE void ForEachLane(size_t count, Body&& body) {
  const hn::ScalableTag<T> full;
  const hn::CappedTag<T, 1> one;
  const size_t lanes = hn::Lanes(full);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(full, i);
  for (; i < count; ++i) body(one, i);
}

// `sum` may be `a`.
template <typename T>
void AddKernel(const T* a, const T* b, T* sum, size_t count) {
  ForEachLane<T>(count, [&](auto d, size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, sum + i);
  });
}

template <typename T>
void DivideKernel(T* values, size_t count, int divisor) {
  ForEachLane<T>(count, [&](auto d, size_t i) HWY_ATTR {
    const auto by = hn::Set(d, static_cast<T>(divisor));
    hn::StoreU(hn::Div(hn::LoadU(d, values + i), by), d, values + i);
  });
}

void Divide(float* values, size_t count, int divisor) { DivideKernel(values, count, divisor); }
void Divide(double* values, size_t count, int divisor) { DivideKernel(values, count, divisor); }
void Divide(int32_t*, size_t, int) {}
void Divide(int64_t*, size_t, int) {}

template <typename T>
void SumAs(absl::Span<const void* const> inputs, absl::Span<void* const> outputs, size_t count,
           int divisor) {
  constexpr size_t kPiece = kPieceBytes / sizeof(T);
  HWY_ALIGN T piece[kPiece];
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t length = std::min(kPiece, count - begin);
    const auto input = [&](size_t k) { return static_cast<const T*>(inputs[k]) + begin; };
    if (inputs.size() == 1) {
      std::memcpy(piece, input(0), length * sizeof(T));
    } else {
      AddKernel(input(0), input(1), piece, length);
    }
    for (size_t k = 2; k < inputs.size(); ++k) AddKernel(piece, input(k), piece, length);
    if (divisor != 1) Divide(piece, length, divisor);
    for (void* output : outputs) {
      std::memcpy(static_cast<T*>(output) + begin, piece, length * sizeof(T));
    }
  }
}

// bfloat16 is the upper half of a float32.
HWY_INLINE void WidenBFloat16(const uint16_t* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
}

// Like BFloat16FromFloat, without a branch, so that the compiler can vectorize it.
HWY_INLINE void RoundToBFloat16(const float* from, uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, from + i, sizeof(bits));
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to[i] = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
  }
}

// Only if the processor converts float16; otherwise Highway would round differently.
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
void WidenFloat16(const uint16_t* from, float* to, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto* at = reinterpret_cast<const hwy::float16_t*>(from + i);
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, at)), d, to + i);
  }
  for (; i < count; ++i) to[i] = FloatFromFloat16(from[i]);
}

void RoundToFloat16(const float* from, uint16_t* to, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    auto* at = reinterpret_cast<hwy::float16_t*>(to + i);
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, from + i)), half, at);
  }
  for (; i < count; ++i) to[i] = Float16FromFloat(from[i]);
}
#else
void WidenFloat16(const uint16_t* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = FloatFromFloat16(from[i]);
}
void RoundToFloat16(const float* from, uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = Float16FromFloat(from[i]);
}
#endif

void SumHalves(bool brain, absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
               size_t count, int divisor) {
  constexpr size_t kPiece = kPieceBytes / sizeof(float) / 2;
  HWY_ALIGN float sum[kPiece];
  HWY_ALIGN float widened[kPiece];
  HWY_ALIGN uint16_t rounded[kPiece];
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t length = std::min(kPiece, count - begin);
    for (size_t k = 0; k < inputs.size(); ++k) {
      const auto* from = static_cast<const uint16_t*>(inputs[k]) + begin;
      float* to = k == 0 ? sum : widened;
      brain ? WidenBFloat16(from, to, length) : WidenFloat16(from, to, length);
      if (k > 0) AddKernel<float>(sum, widened, sum, length);
    }
    if (divisor != 1) Divide(sum, length, divisor);
    brain ? RoundToBFloat16(sum, rounded, length) : RoundToFloat16(sum, rounded, length);
    for (void* output : outputs) {
      std::memcpy(static_cast<uint16_t*>(output) + begin, rounded, length * sizeof(uint16_t));
    }
  }
}

void SumKernel(DType dtype, absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
               size_t count, int divisor) {
  switch (dtype) {
    case DType::kFloat32: SumAs<float>(inputs, outputs, count, divisor); return;
    case DType::kFloat64: SumAs<double>(inputs, outputs, count, divisor); return;
    case DType::kInt32: SumAs<int32_t>(inputs, outputs, count, divisor); return;
    case DType::kInt64: SumAs<int64_t>(inputs, outputs, count, divisor); return;
    case DType::kFloat16: SumHalves(false, inputs, outputs, count, divisor); return;
    case DType::kBFloat16: SumHalves(true, inputs, outputs, count, divisor); return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {

HWY_EXPORT(SumKernel);

void SumBuffers(DType dtype, absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                size_t count, int divisor) {
  HWY_DYNAMIC_DISPATCH(SumKernel)(dtype, inputs, outputs, count, divisor);
}

}  // namespace cairn
#endif  // HWY_ONCE
