#include "worker/ops/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace cairn {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

struct Scored {
  float score;
  float positive;  // weight if the label is positive, else 0
  float negative;
};

double WeightOf(absl::Span<const float> weights, size_t row) {
  return weights.empty() ? 1.0 : weights[row];
}

bool HasNaN(absl::Span<const float> scores) {
  return std::any_of(scores.begin(), scores.end(), [](float score) { return std::isnan(score); });
}

// Weighted mean of value(row) over `rows` rows.
template <typename Value>
double WeightedMean(size_t rows, absl::Span<const float> weights, const Value& value) {
  double sum = 0, total = 0;
  for (size_t r = 0; r < rows; ++r) {
    const double weight = WeightOf(weights, r);
    sum += weight * value(r);
    total += weight;
  }
  return total > 0 ? sum / total : kUndefined;
}

}  // namespace

double Auc(absl::Span<const float> labels, absl::Span<const float> scores,
           absl::Span<const float> weights) {
  std::vector<Scored> rows(labels.size());
  if (HasNaN(scores)) return kUndefined;
  for (size_t r = 0; r < rows.size(); ++r) {
    const float weight = weights.empty() ? 1.0f : weights[r];
    const bool positive = labels[r] > 0;
    rows[r] = {scores[r], positive ? weight : 0.0f, positive ? 0.0f : weight};
  }
  std::ranges::sort(rows, [](const Scored& a, const Scored& b) { return a.score < b.score; });
  double pairs = 0, positives = 0, negatives = 0;
  for (size_t begin = 0; begin < rows.size();) {
    double tied_positives = 0, tied_negatives = 0;
    size_t end = begin;
    for (; end < rows.size() && rows[end].score == rows[begin].score; ++end) {
      tied_positives += rows[end].positive;
      tied_negatives += rows[end].negative;
    }
    pairs += tied_positives * (negatives + 0.5 * tied_negatives);
    positives += tied_positives;
    negatives += tied_negatives;
    begin = end;
  }
  if (positives <= 0 || negatives <= 0) return kUndefined;
  return pairs / (positives * negatives);
}

double LogLoss(absl::Span<const float> labels, absl::Span<const float> probabilities,
               absl::Span<const float> weights) {
  constexpr double kClip = std::numeric_limits<double>::epsilon();
  return WeightedMean(labels.size(), weights, [&](size_t r) {
    const double p = std::clamp<double>(probabilities[r], kClip, 1 - kClip);
    const double y = std::max(labels[r], 0.0f);
    return -(y * std::log(p) + (1 - y) * std::log1p(-p));
  });
}

double BinaryAccuracy(absl::Span<const float> labels, absl::Span<const float> scores,
                      double threshold, absl::Span<const float> weights) {
  if (HasNaN(scores)) return kUndefined;
  return WeightedMean(labels.size(), weights, [&](size_t r) {
    return (scores[r] > threshold) == (labels[r] > 0) ? 1.0 : 0.0;
  });
}

double ClassAccuracy(absl::Span<const float> labels, absl::Span<const float> scores,
                     size_t classes) {
  if (HasNaN(scores)) return kUndefined;
  return WeightedMean(labels.size(), {}, [&](size_t r) {
    const float* row = scores.data() + r * classes;
    const auto best = std::max_element(row, row + classes) - row;
    return static_cast<float>(best) == labels[r] ? 1.0 : 0.0;
  });
}

double Rmse(absl::Span<const float> labels, absl::Span<const float> predictions,
            absl::Span<const float> weights) {
  return std::sqrt(WeightedMean(labels.size(), weights, [&](size_t r) {
    const double error = static_cast<double>(predictions[r]) - labels[r];
    return error * error;
  }));
}

}  // namespace cairn
