#include "worker/input/dataset/element.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn {

TensorSpec TensorSpec::Of(const Tensor& tensor) {
  return tensor.is_text() ? Texts(tensor.shape()) : Numbers(tensor.dtype(), tensor.shape());
}

bool TensorSpec::is_static() const {
  return shape.has_value() &&
         std::ranges::all_of(*shape, [](int64_t extent) { return extent >= 0; });
}

std::string TensorSpec::ToText() const {
  return absl::StrCat(text ? "text" : DTypeName(dtype), " ",
                      shape.has_value() ? ShapeText(*shape) : "of any shape");
}

ElementSpec SpecOf(const Element& element) {
  ElementSpec spec;
  spec.reserve(element.size());
  for (const Tensor& component : element) spec.push_back(TensorSpec::Of(component));
  return spec;
}

bool IsStatic(const std::optional<ElementSpec>& spec) {
  return spec.has_value() &&
         std::ranges::all_of(*spec, [](const TensorSpec& one) { return one.is_static(); });
}

}  // namespace cairn
