// Arrays in the memory of one device: replicas compute with them, datasets yield them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/device.h"
#include "common/dtype.h"
#include "common/shape.h"

namespace cairn {

// The DType of a C++ type: float, double, int32_t or int64_t. The 16-bit types have none; they are
// read and written as bits through data().
template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kInt64;
}

// A row-major array of numbers or texts. Copies of a Tensor share its memory, which lives as long
// as any of them; a write through one copy is visible through all. A tensor of texts has no dtype
// and lives on a CPU.
//
// Thread safety: const methods may be called from several threads at once; a writer needs exclusive
// access to the memory.
class Tensor {
 public:
  // No elements: float32 of shape [0] on cpu:0.
  Tensor();

  // Uninitialized numbers. `shape` must be valid (ElementCount); `device` must be a CPU. The memory
  // is aligned to 64 bytes.
  static Tensor Uninitialized(DType dtype, Shape shape, Device device = Cpu(0));
  static Tensor Zeros(DType dtype, Shape shape, Device device = Cpu(0));
  // Every element is `value`, converted to `dtype`.
  static Tensor Full(DType dtype, Shape shape, double value, Device device = Cpu(0));
  template <typename T>
  static Tensor Scalar(T value) {
    return Of<T>({}, {&value, 1});
  }
  // A copy of `values`, whose count must be the number of elements of `shape`.
  template <typename T>
  static Tensor Of(Shape shape, absl::Span<const std::type_identity_t<T>> values) {
    return Copy(DTypeOf<T>(), std::move(shape), values.data(), values.size());
  }
  template <typename T>
  static Tensor Vector(absl::Span<const std::type_identity_t<T>> values) {
    return Of<T>({static_cast<int64_t>(values.size())}, values);
  }
  static Tensor Texts(Shape shape, std::vector<std::string> texts);
  // Wraps foreign memory on any device; `owner` keeps it alive until the last copy is destroyed.
  static Tensor Wrap(DType dtype, Shape shape, Device device, std::shared_ptr<void> owner,
                     void* data);

  bool is_text() const { return memory_->text; }
  DType dtype() const;  // not for a tensor of texts
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t elements() const { return elements_; }
  size_t bytes() const { return static_cast<size_t>(elements_) * DTypeBytes(dtype()); }
  Device device() const { return memory_->device; }

  const void* data() const { return memory_->data; }
  void* mutable_data() { return memory_->data; }
  // `T` must be the type of dtype(), and the memory must be host memory.
  template <typename T>
  absl::Span<const T> values() const {
    CheckType(DTypeOf<T>());
    return {static_cast<const T*>(memory_->data), static_cast<size_t>(elements_)};
  }
  template <typename T>
  absl::Span<T> mutable_values() {
    CheckType(DTypeOf<T>());
    return {static_cast<T*>(memory_->data), static_cast<size_t>(elements_)};
  }
  absl::Span<const std::string> texts() const { return memory_->texts; }

  // Whether no other tensor sees a write to this one: no copy, no Slice, and no owner of foreign
  // memory.
  bool IsOnlyCopy() const;
  // Whether both are copies of one Tensor, with the same memory and the same shape.
  bool IsSameAs(const Tensor& other) const {
    return memory_ == other.memory_ && shape_ == other.shape_;
  }
  // The same memory with another shape that has the same number of elements.
  Tensor Reshaped(Shape shape) const;
  // The elements from number `begin` on, as `shape`, which must be within this tensor. Numbers
  // share the memory, texts are copied.
  Tensor Slice(int64_t begin, Shape shape) const;
  // A copy with separate memory on `device`, which must be a CPU.
  Tensor CopyTo(Device device) const;
  Tensor Copy() const { return CopyTo(device()); }

  // Every element as a double (numbers, host memory); int64 beyond 2^53 is rounded.
  std::vector<double> ToDoubles() const;
  // "float32 [2, 3]" or "text [2]".
  std::string TypeText() const;
  // Type and up to 16 elements: "float32 [2] (1, 2.5)".
  std::string text() const;

 private:
  struct Memory {
    DType dtype = DType::kFloat32;
    bool text = false;
    bool foreign = false;  // allocated elsewhere (Wrap)
    Device device;
    void* data = nullptr;
    std::shared_ptr<void> owner;
    std::vector<std::string> texts;
  };

  Tensor(std::shared_ptr<Memory> memory, Shape shape, int64_t elements)
      : memory_(std::move(memory)), shape_(std::move(shape)), elements_(elements) {}
  static Tensor Copy(DType dtype, Shape shape, const void* values, size_t count);
  void CheckType(DType asked) const;

  std::shared_ptr<Memory> memory_;
  Shape shape_;
  int64_t elements_ = 0;
};

}  // namespace cairn
