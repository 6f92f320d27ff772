// What datasets yield: elements of one or several components, and what is known of them beforehand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor.h"

namespace cairn {

// The components of one element; every element of a dataset has as many. Tensors share memory with
// the dataset that made them: read them, and write to a Copy().
using Element = std::vector<Tensor>;

// What is known of one component before an element is read.
struct TensorSpec {
  bool text = false;
  DType dtype = DType::kFloat32;    // of numbers
  std::optional<Shape> shape = {};  // extents of -1 vary; nullopt: not even the rank is known

  static TensorSpec Of(const Tensor& tensor);
  static TensorSpec Numbers(DType dtype, std::optional<Shape> shape) {
    return {.dtype = dtype, .shape = std::move(shape)};
  }
  static TensorSpec Texts(std::optional<Shape> shape) {
    return {.text = true, .shape = std::move(shape)};
  }
  // Rank and every extent are known.
  bool is_static() const;
  // "int64 [-1, 3]", "text of any shape".
  std::string ToText() const;

  friend bool operator==(const TensorSpec& a, const TensorSpec& b) = default;
};

// One a component. Where a dataset has none (std::nullopt), nothing is known.
using ElementSpec = std::vector<TensorSpec>;

ElementSpec SpecOf(const Element& element);
bool IsStatic(const std::optional<ElementSpec>& spec);

}  // namespace cairn
