#include "thrift/payload.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "thrift/payload_pool.h"

namespace cairn {

namespace {

constexpr size_t kAlignment = 64;

// AddressSanitizer detects overflows only in malloc's memory.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUsePool = false;
#else
constexpr bool kUsePool = true;
#endif

}  // namespace

void Payload::Free::operator()(std::byte* memory) const {
  if (bytes >= PayloadPool::kMinBytes) {
    PayloadPool::Get().Return({memory, bytes});
  } else {
    std::free(memory - bytes);
  }
}

Payload Payload::Uninitialized(size_t size) {
  Payload payload;
  if (size == 0) return payload;
  if (kUsePool && size >= PayloadPool::kMinBytes) {
    const PayloadPool::Block block = PayloadPool::Get().Take(size);
    payload.owned_ = {block.memory, Free(block.bytes)};
  } else if (kUsePool) {
    // A thread has a cache of blocks of these sizes, which malloc uses and aligned_alloc does not.
    auto* const memory = static_cast<std::byte*>(std::malloc(size + kAlignment));
    if (memory == nullptr) throw std::bad_alloc();
    const size_t before = kAlignment - reinterpret_cast<uintptr_t>(memory) % kAlignment;
    payload.owned_ = {memory + before, Free(before)};
  } else {
    if (size > SIZE_MAX - kAlignment) throw std::bad_alloc();
    // aligned_alloc requires a multiple of the alignment.
    const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (memory == nullptr) throw std::bad_alloc();
    payload.owned_ = {memory, Free()};
  }
  payload.data_ = payload.owned_.get();
  payload.size_ = size;
  return payload;
}

Payload Payload::Copy(const void* data, size_t size) {
  Payload payload = Uninitialized(size);
  if (size != 0) std::memcpy(payload.owned_.get(), data, size);
  return payload;
}

Payload Payload::View(const void* data, size_t size) {
  Payload payload;
  payload.data_ = static_cast<const std::byte*>(data);
  payload.size_ = size;
  return payload;
}

Payload::Payload(const Payload& other)
    : Payload(other.owned_ == nullptr && other.text_ == nullptr
                  ? View(other.data_, other.size_)
                  : Copy(other.data(), other.size())) {}

Payload::Payload(Payload&& other) noexcept
    : owned_(std::move(other.owned_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      text_(std::move(other.text_)) {}

Payload& Payload::operator=(const Payload& other) {
  if (this != &other) *this = Payload(other);
  return *this;
}

Payload& Payload::operator=(Payload&& other) noexcept {
  if (this == &other) return *this;
  owned_ = std::move(other.owned_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  text_ = std::move(other.text_);
  return *this;
}

bool Payload::operator==(const Payload& other) const {
  return size() == other.size() && (empty() || std::memcmp(data(), other.data(), size()) == 0);
}

bool Payload::operator<(const Payload& other) const {
  const size_t common = std::min(size(), other.size());
  const int order = common == 0 ? 0 : std::memcmp(data(), other.data(), common);
  return order != 0 ? order < 0 : size() < other.size();
}

Payload::operator std::string&() {
  if (text_ == nullptr) {
    text_ = std::make_unique<std::string>(reinterpret_cast<const char*>(data_), size_);
    owned_.reset();
    data_ = nullptr;
    size_ = 0;
  }
  return *text_;
}

Payload::operator const std::string&() const {
  thread_local std::string copy;
  copy.assign(reinterpret_cast<const char*>(data()), size());
  return copy;
}

std::string to_string(const Payload& payload) { return std::to_string(payload.size()) + " bytes"; }

}  // namespace cairn
