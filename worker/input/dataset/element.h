// The elements of datasets, which have one or several components, and their specs, which are known
// beforehand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/tensor.h"

namespace cairn {

// The components of one element; all elements of a dataset have the same number. Tensors share
// memory with the dataset that made them: read them, and write only to a Copy(). A function of Map
// may write to the element that it gets.
using Element = std::vector<Tensor>;

// The facts known about a component before an element is read.
struct TensorSpec {
  bool text = false;
  DType dtype = DType::kFloat32;    // only for numbers
  std::optional<Shape> shape = {};  // extents of -1 vary; nullopt: even the rank is unknown

  static TensorSpec Of(const Tensor& tensor);
  static TensorSpec Numbers(DType dtype, std::optional<Shape> shape) {
    return {.dtype = dtype, .shape = std::move(shape)};
  }
  static TensorSpec Texts(std::optional<Shape> shape) {
    return {.text = true, .shape = std::move(shape)};
  }
  // The rank and every extent are known.
  bool is_static() const;
  // "int64 [-1, 3]", "text of any shape".
  std::string ToText() const;

  friend bool operator==(const TensorSpec& a, const TensorSpec& b) = default;
};

// One for each component. std::nullopt in its place: nothing is known.
using ElementSpec = std::vector<TensorSpec>;

ElementSpec SpecOf(const Element& element);
bool IsStatic(const std::optional<ElementSpec>& spec);

}  // namespace cairn
