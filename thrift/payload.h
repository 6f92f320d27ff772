// Bytes of a tensor on the wire: the C++ type of the IDL's TensorData.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"

namespace cairn {

// Either owns memory (64-byte aligned, not zero-filled) or views memory of the caller, who keeps it
// alive and unchanged until the call that sends it has returned. Copying an owner copies the bytes;
// copying a view copies the view. Thread safety: as std::string.
class Payload {
 public:
  Payload() = default;
  Payload(const Payload& other);
  Payload(Payload&& other) noexcept;
  Payload& operator=(const Payload& other);
  Payload& operator=(Payload&& other) noexcept;
  ~Payload() = default;

  // `size` bytes of unspecified content.
  static Payload Uninitialized(size_t size);
  static Payload Copy(const void* data, size_t size);
  static Payload View(const void* data, size_t size);
  template <typename T>
  static Payload ViewOf(absl::Span<const T> values) {
    return View(values.data(), values.size() * sizeof(T));
  }

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Only of an owner; nullptr for a view or where size() is 0.
  std::byte* mutable_data() { return owned_.get(); }

  // The bytes as T. Sizes that are no multiple of sizeof(T) lose the rest: check size() first.
  // Owned memory is aligned for every T; a view is as aligned as what it views.
  template <typename T>
  absl::Span<const T> As() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }
  template <typename T>
  absl::Span<T> MutableAs() {
    return {reinterpret_cast<T*>(owned_.get()), owned_ ? size_ / sizeof(T) : 0};
  }

  // Byte-wise.
  bool operator==(const Payload& other) const;
  // Generated code orders and prints structs.
  bool operator<(const Payload& other) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> owned_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// "1024 bytes"; found by generated printers.
std::string to_string(const Payload& payload);

}  // namespace cairn
