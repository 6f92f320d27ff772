// Losses and their gradients, with the formulas of TensorFlow and Keras (checked against
// tests/golden/data/losses_metrics.json).
// Thread safety: functions may be called concurrently if no output overlaps another call's memory.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace cairn {

// loss[i] = max(x, 0) - x y + log1p(exp(-|x|)); d_logits[i] = sigmoid(x) - y. Labels are in [0, 1],
// or -1, which counts as 0. `d_logits` may be the logits' memory.
void SigmoidCrossEntropy(const float* logits, const float* labels, size_t count, float* loss,
                         float* d_logits);

// logits, d_logits [rows, classes]; labels [rows] hold class numbers in [0, classes).
// loss[r] = log(sum(exp(z))) - z[label] with z = x - max(x); d_logits = softmax(x) - onehot(label).
void SoftmaxCrossEntropy(const float* logits, const float* labels, size_t rows, size_t classes,
                         float* loss, float* d_logits);

// predictions, targets [rows, width]; loss[r] = mean of (p - y)^2 over the row's width.
void SquaredError(const float* predictions, const float* targets, size_t rows, size_t width,
                  float* loss, float* d_predictions);

// The batch's loss: sum(weight * loss) / rows, summed in double. It is divided by the number of
// rows, not by the sum of the weights (as in Keras). Scales the per-row gradients `d` [rows, width]
// to the gradient of that mean. `weights` may be empty: 1 each. No rows: 0.
double MeanLoss(absl::Span<const float> loss, absl::Span<const float> weights, size_t width,
                float* d);

}  // namespace cairn
