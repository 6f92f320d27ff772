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
// copying a view copies the view. Thread safety: like std::string.
class Payload {
 public:
  Payload() = default;
  Payload(const Payload& other);
  Payload(Payload&& other) noexcept;
  Payload& operator=(const Payload& other);
  Payload& operator=(Payload&& other) noexcept;
  ~Payload() = default;

  // `size` bytes of unspecified content, from 1 KiB on in memory of the PayloadPool.
  static Payload Uninitialized(size_t size);
  static Payload Copy(const void* data, size_t size);
  static Payload View(const void* data, size_t size);
  template <typename T>
  static Payload ViewOf(absl::Span<const T> values) {
    return View(values.data(), values.size() * sizeof(T));
  }

  const std::byte* data() const {
    return text_ == nullptr ? data_ : reinterpret_cast<const std::byte*>(text_->data());
  }
  size_t size() const { return text_ == nullptr ? size_ : text_->size(); }
  bool empty() const { return size() == 0; }
  // Only for an owner; null for a view or if size() is 0.
  std::byte* mutable_data() {
    return text_ == nullptr ? owned_.get() : reinterpret_cast<std::byte*>(text_->data());
  }

  // The bytes as T. If the size is not a multiple of sizeof(T), the remainder is dropped, so check
  // size() first. Owned memory is aligned for every T; a view has the alignment of the viewed
  // memory.
  template <typename T>
  absl::Span<const T> As() const {
    return {reinterpret_cast<const T*>(data()), size() / sizeof(T)};
  }
  template <typename T>
  absl::Span<T> MutableAs() {
    std::byte* const memory = mutable_data();
    return {reinterpret_cast<T*>(memory), memory == nullptr ? 0 : size() / sizeof(T)};
  }

  // Byte-wise.
  bool operator==(const Payload& other) const;
  // Required by generated code, which orders and prints structs.
  bool operator<(const Payload& other) const;

  // For protocols other than BulkProtocol (Thrift's JSON, debug and compact ones), which support
  // binaries only as strings. The first operator turns the payload into an owner of a std::string
  // (aligned for every element type, not to 64 bytes). The second copies; its result is valid until
  // the next conversion in this thread.
  operator std::string&();              // NOLINT(google-explicit-constructor)
  operator const std::string&() const;  // NOLINT(google-explicit-constructor)

 private:
  struct Free {
    Free() : bytes(0) {}
    explicit Free(size_t bytes) : bytes(bytes) {}
    // From PayloadPool::kMinBytes on, the capacity of a block of the pool; below, the bytes before
    // it in a block of malloc.
    size_t bytes;
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> owned_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<std::string> text_;  // replaces the above after operator std::string&
};

// "1024 bytes". Generated printers find it by name.
std::string to_string(const Payload& payload);

}  // namespace cairn
