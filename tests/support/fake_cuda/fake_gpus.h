// Settings and counters of the fake GPUs (README.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

namespace cairn::test::fake {

// Thread safety: every member may be used from any thread, while streams work too.
struct Settings {
  // The longest random pause of a stream before a piece of work. $CAIRN_FAKE_DELAY_US.
  std::atomic<int> delay_us;
  // Allocations wait until every stream of the process is idle, as drivers may.
  std::atomic<bool> allocation_waits{false};
  // cudaSetDevice of this device fails: another process has it exclusively. -1: none.
  std::atomic<int> forbidden{-1};
  // The n-th of the following calls fails with cudaErrorInvalidValue; 0: none fails.
  std::atomic<int> fail_at{0};
  // Larger allocations fail with cudaErrorMemoryAllocation.
  std::atomic<size_t> largest_allocation{SIZE_MAX};
  // A network connects NCCL's ranks: sends arrive some time after their kernel has ended, and a
  // rank that waits for the bytes of a process that has ended has an error. $CAIRN_FAKE_NETWORK.
  std::atomic<bool> network;
  // Number of threads that run a kernel body at once.
  std::atomic<int> threads{1};
};
Settings& settings();

// Number of devices: $CAIRN_FAKE_GPUS, by default 4. All start without a context.
int DeviceCount();
// Whether `device` has a context of this process.
bool HasContext(int device);

// Number of calls of the function `name` ("cudaMalloc", "kernel", "cublasSgemm_v2_64") so far; an
// empty name: of all but queries of streams and errors.
int64_t Calls(const std::string& name = "");
// All such calls from BeginTrace to EndTrace, of all threads, in order.
struct TracedCall {
  std::string name;
  cudaStream_t stream = nullptr;  // null: the call is of none
  uint64_t size = 0;              // bytes of a copy; elements of a kernel, of all its threads
};
void BeginTrace();
std::vector<TracedCall> EndTrace();
// Copies between devices that went through the host, for lack of peer access.
int64_t StagedPeerCopies();
// NCCL's kernels and the bytes of the calls' buffers so far, of all ranks of this process.
int64_t NcclKernels();
int64_t NcclBytes();
void CountNcclKernel();
void CountNcclBytes(size_t bytes);
// Bytes of allocated device memory and page-locked host memory.
size_t DeviceBytes();
size_t HostBytes();
// Whether `memory` is memory of `device`.
bool IsDeviceMemory(const void* memory, int device);

// Queues `work` on `stream` as the runtime queues its own. Any thread.
void Enqueue(cudaStream_t stream, std::function<void()> work);
int DeviceOf(cudaStream_t stream);
// A launch of `kernel` over `elements`, which is called once for each of settings().threads, with
// its number and their count. Counts as "kernel".
cudaError_t Launch(cudaStream_t stream, uint64_t elements,
                   std::function<void(int thread, int threads)> kernel);
// Notes a call; an error if settings().fail_at says so.
cudaError_t Call(const char* name, cudaStream_t stream = nullptr, uint64_t size = 0);

// The calling thread may read and write device memory during the object's lifetime.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// A pause of at most `us` microseconds, for threads of the fakes that poll.
void Pause(int us);

}  // namespace cairn::test::fake
