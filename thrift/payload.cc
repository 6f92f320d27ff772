#include "thrift/payload.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "thrift/limits.h"

namespace cairn {

namespace {

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes, size_t multiple) {
  if (bytes > SIZE_MAX - multiple) throw std::bad_alloc();
  return (bytes + multiple - 1) / multiple * multiple;
}

std::byte* Checked(void* memory) {
  if (memory == nullptr || memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

// Unused mapped blocks; the most recently freed one is at the back.
// Thread safety: every method may be called from several threads at once.
class BlockPool {
 public:
  struct Block {
    std::byte* memory;
    size_t bytes;
  };

  // A block of at least `bytes`, and at most a quarter more.
  Block Take(size_t bytes) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (size_t i = blocks_.size(); i-- > 0;) {  // most recently used first
        const Block block = blocks_[i];
        if (block.bytes < bytes || block.bytes - bytes > bytes / 4) continue;
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
        bytes_ -= block.bytes;
        return block;
      }
    }
    const size_t mapped = RoundUp(bytes, kPageBytes);
    // One call of the kernel instead of a page fault for each page, which is about to be written.
    const int populate = mapped <= kPopulatedBytes ? MAP_POPULATE : 0;
    return {Checked(::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | populate, -1, 0)),
            mapped};
  }

  void Return(Block block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_back(block);
    bytes_ += block.bytes;
    while (bytes_ > static_cast<size_t>(kPooledPayloadBytes)) {
      bytes_ -= blocks_.front().bytes;
      ::munmap(blocks_.front().memory, blocks_.front().bytes);
      blocks_.erase(blocks_.begin());
    }
  }

 private:
  static constexpr size_t kPageBytes = 4096;
  // Larger blocks may be filled over a long time, by a slow connection.
  static constexpr size_t kPopulatedBytes = 4 << 20;
  std::mutex mutex_;
  std::vector<Block> blocks_;  // at most kPooledPayloadBytes / kMappedPayloadBytes = 256
  size_t bytes_ = 0;
};

// Never destroyed, because payloads of static duration may outlive it.
BlockPool& Pool() {
  static BlockPool& pool = *new BlockPool;
  return pool;
}

// AddressSanitizer detects overflows only in malloc's memory.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUsePool = false;
#else
constexpr bool kUsePool = true;
#endif

}  // namespace

void Payload::Free::operator()(std::byte* memory) const {
  if (pooled_bytes == 0) {
    std::free(memory);
  } else {
    Pool().Return({memory, pooled_bytes});
  }
}

Payload Payload::Uninitialized(size_t size) {
  Payload payload;
  if (size == 0) return payload;
  if (kUsePool && size >= static_cast<size_t>(kMappedPayloadBytes)) {
    const BlockPool::Block block = Pool().Take(size);
    payload.owned_ = {block.memory, Free(block.bytes)};
  } else {
    // aligned_alloc requires a multiple of the alignment.
    payload.owned_ = {Checked(std::aligned_alloc(kAlignment, RoundUp(size, kAlignment))), Free()};
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
