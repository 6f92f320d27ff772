#include "thrift/payload_pool.h"

#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace cairn {
namespace {

constexpr size_t kBlockAlignment = 64;
// Larger blocks may be filled over a long time, by a slow connection, and are charged as they are.
constexpr auto kPopulatedBytes = static_cast<size_t>(kFirstPayloadStepBytes);

bool IsMapped(size_t bytes) { return bytes >= static_cast<size_t>(kMappedPayloadBytes); }

}  // namespace

// Never destroyed, because payloads of static duration may outlive it.
PayloadPool& PayloadPool::Get() {
  static PayloadPool& pool = *new PayloadPool;
  return pool;
}

size_t PayloadPool::RoundUp(size_t bytes) {
  const size_t step = std::bit_floor(bytes - 1) / kSteps;
  if (bytes > SIZE_MAX - step) throw std::bad_alloc();
  return (bytes + step - 1) / step * step;
}

// Of a size that RoundUp returned: 0 for kMinBytes.
size_t PayloadPool::IndexOf(size_t bytes) {
  const size_t power = std::bit_floor(bytes);
  const auto powers = static_cast<size_t>(std::countr_zero(power / kMinBytes));
  return powers * kSteps + (bytes - power) / (power / kSteps);
}

std::byte* PayloadPool::Pop(size_t index) {
  Stack& stack = stacks_[index];
  std::byte* const memory = stack.top;
  std::memcpy(&stack.top, memory, sizeof(stack.top));
  --stack.count;
  return memory;
}

PayloadPool::Block PayloadPool::Take(size_t bytes) {
  const size_t rounded = RoundUp(bytes);
  const size_t index = IndexOf(rounded);
  {
    absl::MutexLock lock(&mutex_);
    stacks_[index].last_take = ++takes_;
    if (stacks_[index].count > 0) {
      bytes_ -= static_cast<int64_t>(rounded);
      return {Pop(index), rounded};
    }
  }
  void* memory = nullptr;
  if (IsMapped(rounded)) {
    // One call of the kernel instead of a page fault for each page, which is about to be written.
    const int populate = rounded <= kPopulatedBytes ? MAP_POPULATE : 0;
    memory = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | populate, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
  } else {
    memory = std::aligned_alloc(kBlockAlignment, rounded);
  }
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), rounded};
}

void PayloadPool::Free(Block block) noexcept {
  if (IsMapped(block.bytes)) {
    // Fails where the process has as many mappings as the system allows, and this would cut one.
    if (::munmap(block.memory, block.bytes) != 0) {
      ::madvise(block.memory, block.bytes, MADV_DONTNEED);
    }
  } else {
    std::free(block.memory);
  }
}

void PayloadPool::Return(Block block) noexcept {
  bool surplus = false;
  {
    absl::MutexLock lock(&mutex_);
    Stack& stack = stacks_[IndexOf(block.bytes)];
    std::memcpy(block.memory, &stack.top, sizeof(stack.top));
    stack.top = block.memory;
    ++stack.count;
    bytes_ += static_cast<int64_t>(block.bytes);
    surplus = bytes_ > limit_;
  }
  if (surplus) FreeSurplus();
}

void PayloadPool::RaiseLimit(int64_t bytes) {
  bool surplus = false;
  {
    absl::MutexLock lock(&mutex_);
    limit_ += bytes;
    surplus = bytes_ > limit_;
  }
  if (surplus) FreeSurplus();
}

// Calls the system without the lock.
void PayloadPool::FreeSurplus() noexcept {
  for (Block freed = TakeSurplus(); freed.memory != nullptr; freed = TakeSurplus()) Free(freed);
}

PayloadPool::Block PayloadPool::TakeSurplus() {
  absl::MutexLock lock(&mutex_);
  if (bytes_ <= limit_) return {nullptr, 0};
  size_t oldest = stacks_.size();
  for (size_t i = 0; i < stacks_.size(); ++i) {
    if (stacks_[i].count == 0) continue;
    if (oldest == stacks_.size() || stacks_[i].last_take < stacks_[oldest].last_take) oldest = i;
  }
  if (oldest == stacks_.size()) return {nullptr, 0};  // the limit is below zero
  const size_t bytes = (kMinBytes << oldest / kSteps) / kSteps * (kSteps + oldest % kSteps);
  bytes_ -= static_cast<int64_t>(bytes);
  return {Pop(oldest), bytes};
}

}  // namespace cairn
