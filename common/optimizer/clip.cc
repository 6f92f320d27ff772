// Highway's rule: foreach_target.h, which includes this file once per instruction set, comes before
// anything else that uses HWY_NAMESPACE.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/clip.cc"
#include "hwy/foreach_target.h"

#include "common/optimizer/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Squares are summed in float32 within pieces of this size, and pieces in double, so that the error
// does not grow with the tensor. Small enough for instruction sets with short vectors.
constexpr size_t kPieceFloats = 256;

float SumSquaresOfPiece(const float* tensor, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto v0 = hn::LoadU(d, tensor + i);
    const auto v1 = hn::LoadU(d, tensor + i + lanes);
    const auto v2 = hn::LoadU(d, tensor + i + 2 * lanes);
    const auto v3 = hn::LoadU(d, tensor + i + 3 * lanes);
    sum0 = hn::MulAdd(v0, v0, sum0);
    sum1 = hn::MulAdd(v1, v1, sum1);
    sum2 = hn::MulAdd(v2, v2, sum2);
    sum3 = hn::MulAdd(v3, v3, sum3);
  }
  const auto sums = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < count; ++i) sum += tensor[i] * tensor[i];
  return sum;
}

double SumSquaresOfTarget(const float* tensor, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i += kPieceFloats) {
    sum += static_cast<double>(SumSquaresOfPiece(tensor + i, std::min(kPieceFloats, count - i)));
  }
  return sum;
}

// x * 0 is 0 for finite x and NaN otherwise, and a sum with NaN is NaN. Four sums run in parallel,
// because each addition waits for the previous one.
template <typename T>
bool AllFiniteOf(const T* tensor, size_t count) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  auto sum0 = zero;
  auto sum1 = zero;
  auto sum2 = zero;
  auto sum3 = zero;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, tensor + i), zero, sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, tensor + i + lanes), zero, sum1);
    sum2 = hn::MulAdd(hn::LoadU(d, tensor + i + 2 * lanes), zero, sum2);
    sum3 = hn::MulAdd(hn::LoadU(d, tensor + i + 3 * lanes), zero, sum3);
  }
  for (; i + lanes <= count; i += lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, tensor + i), zero, sum0);
  }
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  T total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) total += tensor[i] * 0;
  return total == 0;
}

bool AllFiniteF32(const float* tensor, size_t count) { return AllFiniteOf(tensor, count); }
bool AllFiniteF64(const double* tensor, size_t count) { return AllFiniteOf(tensor, count); }

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {
namespace {

HWY_EXPORT(SumSquaresOfTarget);
HWY_EXPORT(AllFiniteF32);
HWY_EXPORT(AllFiniteF64);

double SumSquares(absl::Span<const float> tensor) {
  return HWY_DYNAMIC_DISPATCH(SumSquaresOfTarget)(tensor.data(), tensor.size());
}

// The square root of a sum that overflows where TensorFlow's float32 sum does.
float RootInFloat(double sum) {
  if (sum > std::numeric_limits<float>::max()) return std::numeric_limits<float>::infinity();
  return static_cast<float>(std::sqrt(sum));
}

template <typename T>
void ClipValues(absl::Span<T> tensor, T low, T high) {
  for (T& x : tensor) {
    // Both comparisons are false for NaN, which therefore stays.
    x = x < low ? low : x;
    x = x > high ? high : x;
  }
}

template <typename T>
void ClipNorm(absl::Span<T> tensor, T limit) {
  const T norm = L2Norm(tensor);
  const T divisor = norm < limit ? limit : norm;  // NaN stays
  for (T& x : tensor) x = x * limit / divisor;
}

}  // namespace

void ClipByValue(absl::Span<float> tensor, float low, float high) { ClipValues(tensor, low, high); }
void ClipByValue(absl::Span<double> tensor, double low, double high) {
  ClipValues(tensor, low, high);
}

float L2Norm(absl::Span<const float> tensor) { return RootInFloat(SumSquares(tensor)); }
double L2Norm(absl::Span<const double> tensor) {
  double sum = 0;
  for (const double x : tensor) sum += x * x;
  return std::sqrt(sum);
}

float GlobalNorm(absl::Span<const absl::Span<const float>> tensors) {
  double sum = 0;
  for (const absl::Span<const float> tensor : tensors) sum += SumSquares(tensor);
  return RootInFloat(sum);
}

void ClipByNorm(absl::Span<float> tensor, float limit) { ClipNorm(tensor, limit); }
void ClipByNorm(absl::Span<double> tensor, double limit) { ClipNorm(tensor, limit); }

float ClipByGlobalNorm(absl::Span<const absl::Span<float>> tensors, float limit) {
  double sum = 0;
  for (const absl::Span<float> tensor : tensors) sum += SumSquares(tensor);
  const float norm = RootInFloat(sum);
  // norm - norm is 0, or NaN where the norm is not finite.
  const float scale = limit * std::min(1 / norm, 1 / limit) + (norm - norm);
  for (const absl::Span<float> tensor : tensors) {
    for (float& x : tensor) x *= scale;
  }
  return norm;
}

bool AllFinite(absl::Span<const float> tensor) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteF32)(tensor.data(), tensor.size());
}
bool AllFinite(absl::Span<const double> tensor) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteF64)(tensor.data(), tensor.size());
}

}  // namespace cairn
#endif  // HWY_ONCE
