#include "tests/fuzz/failing_memory.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/outside_store.h"

namespace cairn::fuzz {
namespace {

// Plain numbers, so that operator new may use them at any time.
struct Counts {
  bool armed;
  int outside;  // in a library that does not survive a failure
  int64_t made, fails_at;
  bool failed;
};
thread_local Counts counts;

// More tries would mean that a call never ends.
constexpr int64_t kMostTries = 20000;

bool Fails() {
  if (!counts.armed || counts.outside > 0) return false;
  if (++counts.made != counts.fails_at) return false;
  counts.failed = true;
  return true;
}

void* Allocate(size_t size) {
  if (Fails()) return nullptr;
  return std::malloc(size == 0 ? 1 : size);
}

void* AllocateAligned(size_t size, std::align_val_t alignment) {
  if (Fails()) return nullptr;
  const auto align = static_cast<size_t>(alignment);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}

}  // namespace

bool MemoryFails() { return Fails(); }

OutsideCairn::OutsideCairn() { ++counts.outside; }
OutsideCairn::~OutsideCairn() { --counts.outside; }

FailingAllocation::FailingAllocation(int64_t n) {
  counts = {.armed = true, .outside = 0, .made = 0, .fails_at = n, .failed = false};
}
FailingAllocation::~FailingAllocation() { counts.armed = false; }
bool FailingAllocation::failed() const { return counts.failed; }

Outcome FailEachAllocation(absl::string_view method, absl::FunctionRef<Outcome()> call) {
  // The error of a request that is invalid in itself, which the first failing allocation hid.
  std::string refused;
  for (int64_t n = 1; n < kMostTries; ++n) {
    Outcome outcome;
    bool failed = false;
    {
      const FailingAllocation allocation(n);
      outcome = call();
      failed = allocation.failed();
    }
    outcome.tries = n;
    if (outcome.Is(wire::ErrorReason::STOPPING) && failed) {
      outcome.finding = std::string(kServerStopped);
      return outcome;
    }
    if (failed && outcome.finding.empty() && !outcome.ok &&
        !outcome.Is(wire::ErrorCode::RESOURCE_EXHAUSTED) && refused.empty()) {
      refused = absl::StrCat("allocation ", n, " failing: ", outcome.error.message);
    }
    if (!failed || !(outcome.finding.empty() || outcome.out_of_memory)) {
      if (outcome.ok && !refused.empty()) {
        outcome.finding = absl::StrCat(method, " is valid, but was refused with ", refused);
      }
      return outcome;
    }
  }
  Outcome outcome;
  outcome.finding = absl::StrCat(method, " makes more than ", kMostTries, " allocations");
  return outcome;
}

}  // namespace cairn::fuzz

// These replace the operators of the whole program.

void* operator new(size_t size) {
  void* const memory = cairn::fuzz::Allocate(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return cairn::fuzz::Allocate(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return cairn::fuzz::Allocate(size);
}
void* operator new(size_t size, std::align_val_t alignment) {
  void* const memory = cairn::fuzz::AllocateAligned(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return operator new(size, alignment);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" void* mmap(void* at, size_t size, int protection, int flags, int fd,
                      off_t offset) noexcept {
  static const auto real =
      reinterpret_cast<void* (*)(void*, size_t, int, int, int, off_t)>(dlsym(RTLD_NEXT, "mmap"));
  if (cairn::fuzz::MemoryFails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return real(at, size, protection, flags, fd, offset);
}
