#include "worker/ops/loss.h"

#include <algorithm>
#include <cmath>

#include "worker/ops/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/ops/loss.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "worker/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

void SigmoidCrossEntropyKernel(const float* logits, const float* labels, size_t count, float* loss,
                               float* d_logits) {
  ForLanes(count, [&](auto d, size_t i) HWY_ATTR {
    const auto zero = hn::Zero(d);
    const auto one = hn::Set(d, 1.0f);
    const auto x = hn::LoadU(d, logits + i);
    const auto y = hn::Max(hn::LoadU(d, labels + i), zero);
    const auto decay = hn::Exp(d, hn::Neg(hn::Abs(x)));
    const auto numerator = hn::IfThenElse(hn::Lt(x, zero), decay, one);
    const auto linear = hn::NegMulAdd(x, y, hn::Max(zero, x));
    hn::StoreU(hn::Add(linear, hn::Log1p(d, decay)), d, loss + i);
    hn::StoreU(hn::Sub(hn::Div(numerator, hn::Add(one, decay)), y), d, d_logits + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {

HWY_EXPORT(SigmoidCrossEntropyKernel);

void SigmoidCrossEntropy(const float* logits, const float* labels, size_t count, float* loss,
                         float* d_logits) {
  HWY_DYNAMIC_DISPATCH(SigmoidCrossEntropyKernel)(logits, labels, count, loss, d_logits);
}

void SoftmaxCrossEntropy(const float* logits, const float* labels, size_t rows, size_t classes,
                         float* loss, float* d_logits) {
  for (size_t r = 0; r < rows; ++r) {
    const float* x = logits + r * classes;
    const float max = *std::max_element(x, x + classes);
    float* z = d_logits + r * classes;
    for (size_t c = 0; c < classes; ++c) z[c] = x[c] - max;
    loss[r] = z[static_cast<size_t>(labels[r])];
  }
  Exp(d_logits, d_logits, rows * classes);
  for (size_t r = 0; r < rows; ++r) {
    float* p = d_logits + r * classes;
    float sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += p[c];
    for (size_t c = 0; c < classes; ++c) p[c] /= sum;
    p[static_cast<size_t>(labels[r])] -= 1.0f;
    loss[r] = std::log(sum) - loss[r];
  }
}

void SquaredError(const float* predictions, const float* targets, size_t rows, size_t width,
                  float* loss, float* d_predictions) {
  const float scale = 1.0f / static_cast<float>(width);
  for (size_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      const float error = predictions[i] - targets[i];
      sum += error * error;
      d_predictions[i] = 2.0f * error * scale;
    }
    loss[r] = sum * scale;
  }
}

double MeanLoss(absl::Span<const float> loss, absl::Span<const float> weights, size_t width,
                float* d) {
  if (loss.empty()) return 0;
  const double count = static_cast<double>(loss.size());
  double sum = 0;
  if (weights.empty()) {
    for (const float value : loss) sum += value;
    const float scale = static_cast<float>(1 / count);
    for (size_t i = 0; i < loss.size() * width; ++i) d[i] *= scale;
    return sum / count;
  }
  for (size_t r = 0; r < loss.size(); ++r) {
    sum += static_cast<double>(weights[r]) * loss[r];
    const float scale = static_cast<float>(weights[r] / count);
    for (size_t i = r * width; i < (r + 1) * width; ++i) d[i] *= scale;
  }
  return sum / count;
}

}  // namespace cairn
#endif  // HWY_ONCE
