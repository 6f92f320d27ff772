#include "tests/support/fake_cuda/fake_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "tests/support/fake_cuda/fake_gpus.h"

namespace cairn::test::fake {
namespace {

constexpr size_t kDeviceBytes = size_t{2} << 30;
constexpr size_t kMaxDevices = 16;
constexpr size_t kAlignment = 256;

class Arena {
 public:
  static Arena& Get() {
    static Arena* const arena = new Arena;
    return *arena;
  }

  Arena() {
    void* const memory = ::mmap(nullptr, kMaxDevices * kDeviceBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("fake devices: mmap");
      std::abort();
    }
    base_ = static_cast<std::byte*>(memory);
    key_ = ::pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key_ >= 0 &&
        ::pkey_mprotect(base_, kMaxDevices * kDeviceBytes, PROT_READ | PROT_WRITE, key_) != 0) {
      key_ = -1;
    }
  }

  int key() const { return key_; }

  void* Allocate(int device, size_t bytes) {
    const size_t size = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    std::byte* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      Pool& pool = pools_[device];
      std::vector<std::byte*>& free = pool.free[size];
      if (!free.empty()) {
        block = free.back();
        free.pop_back();
      } else if (pool.used + size <= kDeviceBytes) {
        block = base_ + static_cast<size_t>(device) * kDeviceBytes + pool.used;
        pool.used += size;
      } else {
        return nullptr;
      }
      sizes_[block] = size;
      allocated_ += size;
    }
    const DeviceAccess access;
    std::fill_n(reinterpret_cast<float*>(block), size / sizeof(float),
                std::numeric_limits<float>::quiet_NaN());
    return block;
  }

  bool Free(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return false;
    pools_[DeviceOf(memory)].free[found->second].push_back(static_cast<std::byte*>(memory));
    allocated_ -= found->second;
    sizes_.erase(found);
    return true;
  }

  int DeviceOf(const void* memory) const {
    const auto* const at = static_cast<const std::byte*>(memory);
    if (at < base_ || at >= base_ + kMaxDevices * kDeviceBytes) return -1;
    return static_cast<int>(static_cast<size_t>(at - base_) / kDeviceBytes);
  }

  size_t allocated() {
    const std::lock_guard lock(mutex_);
    return allocated_;
  }

 private:
  struct Pool {
    size_t used = 0;
    std::map<size_t, std::vector<std::byte*>> free;
  };

  std::byte* base_ = nullptr;
  int key_ = -1;
  std::mutex mutex_;
  Pool pools_[kMaxDevices];
  std::map<void*, size_t> sizes_;
  size_t allocated_ = 0;
};

thread_local int accesses = 0;

void SetAccess(unsigned rights) {
  if (Arena::Get().key() >= 0) ::pkey_set(Arena::Get().key(), rights);
}

}  // namespace

DeviceAccess::DeviceAccess() {
  if (accesses++ == 0) SetAccess(0);
}
DeviceAccess::~DeviceAccess() {
  if (--accesses == 0) SetAccess(PKEY_DISABLE_ACCESS);
}

void* AllocateOn(int device, size_t bytes) { return Arena::Get().Allocate(device, bytes); }
bool FreeOnDevice(void* memory) { return Arena::Get().Free(memory); }
int DeviceOfMemory(const void* memory) { return Arena::Get().DeviceOf(memory); }
size_t AllocatedBytes() { return Arena::Get().allocated(); }
bool IsProtected() { return Arena::Get().key() >= 0; }

bool IsDeviceMemory(const void* memory, int device) { return DeviceOfMemory(memory) == device; }
size_t DeviceBytes() { return AllocatedBytes(); }

}  // namespace cairn::test::fake
