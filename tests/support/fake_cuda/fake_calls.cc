// Settings of the fakes, and what they count.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_registry.h"

namespace cairn::test::fake {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Counters by name. Relaxed atomics: counting must not order the threads that count, or it would
// hide their races from ThreadSanitizer.
struct Counter {
  std::atomic<const char*> name{nullptr};
  std::atomic<int64_t> calls{0};
};
constexpr size_t kMaxNames = 64;
std::array<Counter, kMaxNames> counters;

std::atomic<bool> tracing{false};
std::mutex trace_mutex;
std::vector<TracedCall> trace;

}  // namespace

Settings& settings() {
  static Settings* const settings = [] {
    auto* const made = new Settings;
    made->delay_us = FromEnvironment("CAIRN_FAKE_DELAY_US", 20);
    made->threads = FromEnvironment("CAIRN_FAKE_THREADS", 1);
    made->network = FromEnvironment("CAIRN_FAKE_NETWORK", 0) != 0;
    return made;
  }();
  return *settings;
}

int DeviceCount() {
  static const int count = std::clamp(FromEnvironment("CAIRN_FAKE_GPUS", 4), 0, 16);
  return count;
}

void CountCall(const char* name, cudaStream_t stream, uint64_t size) {
  for (Counter& counter : counters) {
    const char* found = counter.name.load(std::memory_order_relaxed);
    if (found == nullptr && counter.name.compare_exchange_strong(found, name)) found = name;
    if (std::strcmp(found, name) != 0) continue;
    counter.calls.fetch_add(1, std::memory_order_relaxed);
    break;
  }
  if (!tracing.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(trace_mutex);
  trace.push_back({name, stream, size});
}

int64_t Calls(const std::string& name) {
  int64_t calls = 0;
  for (const Counter& counter : counters) {
    const char* const found = counter.name.load(std::memory_order_relaxed);
    if (found == nullptr) break;
    if (name.empty() || name == found) calls += counter.calls.load(std::memory_order_relaxed);
  }
  return calls;
}

void BeginTrace() {
  const std::lock_guard lock(trace_mutex);
  trace.clear();
  tracing = true;
}

std::vector<TracedCall> EndTrace() {
  const std::lock_guard lock(trace_mutex);
  tracing = false;
  return std::move(trace);
}

namespace {
std::atomic<int64_t> nccl_kernels{0}, nccl_bytes{0};
}  // namespace
int64_t NcclKernels() { return nccl_kernels.load(); }
int64_t NcclBytes() { return nccl_bytes.load(); }
void CountNcclKernel() { nccl_kernels.fetch_add(1, std::memory_order_relaxed); }
void CountNcclBytes(size_t bytes) {
  nccl_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

bool MustFail() {
  int left = settings().fail_at.load(std::memory_order_relaxed);
  while (left > 0) {
    if (settings().fail_at.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
      return left == 1;
    }
  }
  return false;
}

void Pause(int us) {
  const timespec pause = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
}

}  // namespace cairn::test::fake
