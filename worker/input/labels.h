// The labels that each loss allows.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "worker/input/reader_options.h"

namespace cairn {

// Thread safety: a value.
class LabelRule {
 public:
  LabelRule() = default;
  // The rule of the job's loss. sigmoid_cross_entropy: -1 and 0 become 0, 1 stays 1.
  // softmax_cross_entropy: integers in [label_base, label_base + classes), minus label_base;
  // classes 0: no upper bound. Only integers between -2^24 and 2^24. Any other loss: any number,
  // unchanged.
  explicit LabelRule(const ReaderOptions& options);

  // False: the label is not allowed; Allowed() says which labels are.
  bool Apply(float* label) const {
    switch (kind_) {
      case Kind::kBinary:
        if (*label == -1.0f) *label = 0.0f;
        return *label == 0.0f || *label == 1.0f;
      case Kind::kClass: {
        const float number = *label - static_cast<float>(label_base_);
        if (std::fabs(*label) >= kEndOfExact) return false;
        *label = number;
        return number >= 0.0f && number < limit_ &&
               number == static_cast<float>(static_cast<int64_t>(number));
      }
      case Kind::kAny: return true;
    }
    return false;
  }
  std::string Allowed() const;

 private:
  // Larger integers may be equal as float32, in which labels are read and stored.
  static constexpr float kEndOfExact = 1 << 24;
  enum class Kind { kBinary, kClass, kAny };
  Kind kind_ = Kind::kAny;
  int64_t label_base_ = 0;
  int64_t classes_ = 0;
  float limit_ = 0;
};

}  // namespace cairn
