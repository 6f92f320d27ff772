#include "worker/input/labels.h"

#include "absl/strings/str_cat.h"

namespace cairn {

LabelRule::LabelRule(const ReaderOptions& options)
    : label_base_(options.data.label_base), classes_(options.model.classes) {
  limit_ = classes_ > 0 ? static_cast<float>(classes_) : kEndOfExact;
  const std::string& loss = options.model.loss;
  if (loss == "sigmoid_cross_entropy") kind_ = Kind::kBinary;
  if (loss == "softmax_cross_entropy") kind_ = Kind::kClass;
}

std::string LabelRule::Allowed() const {
  switch (kind_) {
    case Kind::kBinary: return "sigmoid_cross_entropy takes 0 and 1, or -1 and 1";
    case Kind::kClass:
      if (classes_ <= 0) {
        return absl::StrCat("softmax_cross_entropy takes whole numbers from data.label_base ",
                            label_base_, " to ", static_cast<int64_t>(kEndOfExact) - 1);
      }
      return absl::StrCat("softmax_cross_entropy takes whole numbers from data.label_base ",
                          label_base_, " to ", label_base_ + classes_ - 1, " (model.classes ",
                          classes_, ")");
    case Kind::kAny: return "any number";
  }
  return "";
}

}  // namespace cairn
