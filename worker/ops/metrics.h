// Evaluation metrics over all rows, in double. NaN if a metric is undefined; reports omit those.
// Thread safety: functions may be called concurrently if no output overlaps another call's memory.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace cairn {

// `weights`: one for each row, >= 0; empty: 1 each. Binary labels: > 0 is positive, so 0/1 and
// -1/+1 both work.

// Exact area under the ROC curve, ties by midrank: the weighted share of pairs (positive, negative)
// whose scores are in order, equal ones counting half. Any monotone score works; prefer logits,
// since different logits may round to equal float32 probabilities near 1. NaN: no positives, no
// negatives, or a NaN score.
double Auc(absl::Span<const float> labels, absl::Span<const float> scores,
           absl::Span<const float> weights = {});

// Weighted mean of -(y log p + (1 - y) log(1 - p)), p clipped to [2^-52, 1 - 2^-52]
// (scikit-learn). From logits, MeanLoss of SigmoidCrossEntropy is exact and needs no clipping.
double LogLoss(absl::Span<const float> labels, absl::Span<const float> probabilities,
               absl::Span<const float> weights = {});

// Weighted share of rows with (score > threshold) == (label > 0): threshold 0.5 for probabilities,
// 0 for logits. NaN: no rows, or a NaN score.
double BinaryAccuracy(absl::Span<const float> labels, absl::Span<const float> scores,
                      double threshold, absl::Span<const float> weights = {});

// scores [rows, classes]: share of rows whose largest score, the first of equals, is the label's.
// NaN: no rows, or a NaN score.
double ClassAccuracy(absl::Span<const float> labels, absl::Span<const float> scores,
                     size_t classes);

// Root of the weighted mean of (prediction - label)^2.
double Rmse(absl::Span<const float> labels, absl::Span<const float> predictions,
            absl::Span<const float> weights = {});

}  // namespace cairn
