// CUDA's runtime over threads and guarded memory.
#include "tests/support/fake_cuda/include/cuda_runtime_api.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_capture.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_memory.h"
#include "tests/support/fake_cuda/fake_registry.h"
#include "tests/support/fake_cuda/fake_streams.h"

namespace cairn::test::fake {
namespace {

// As the runtime has it: the device of a thread that chose none is 0, without a context.
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;
thread_local bool has_current_context = false;

struct Process {
  std::mutex mutex;
  std::set<int> contexts;
  std::set<std::pair<int, int>> peers;  // device, and the one whose memory it may use
  std::map<int, cudaStream_t> legacy;   // default streams
  std::map<void*, size_t> host_memory;
  size_t host_bytes = 0;
};
Process& process() {
  static Process* const process = new Process;
  return *process;
}
std::atomic<int64_t> staged_peer_copies{0};

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

bool IsDevice(int device) { return device >= 0 && device < DeviceCount(); }

cudaError_t CreateContext(int device) {
  if (!IsDevice(device)) return Result(cudaErrorInvalidDevice);
  if (settings().forbidden == device) return Result(cudaErrorDevicesUnavailable);
  const std::lock_guard lock(process().mutex);
  process().contexts.insert(device);
  return cudaSuccess;
}

// The context that a call needs which names no device.
cudaError_t NeedContext() {
  if (has_current_context) return cudaSuccess;
  const cudaError_t error = CreateContext(current_device);
  has_current_context = error == cudaSuccess;
  return error;
}

cudaError_t Begin(const char* name, cudaStream_t stream = nullptr, uint64_t size = 0) {
  const cudaError_t error = Call(name, stream, size);
  return error == cudaSuccess ? NeedContext() : error;
}

cudaStream_t LegacyStream() {
  const std::lock_guard lock(process().mutex);
  cudaStream_t& stream = process().legacy[current_device];
  if (stream == nullptr) stream = AddStream(current_device);
  return stream;
}

template <typename Work>
cudaError_t Queue(cudaStream_t stream, Work work) {
  if (stream == nullptr) return Result(cudaErrorInvalidResourceHandle);
  Enqueue(stream, std::move(work));
  return cudaSuccess;
}

bool IsPeer(int device, int of) {
  const std::lock_guard lock(process().mutex);
  return process().peers.contains({device, of});
}

}  // namespace

cudaError_t Call(const char* name, cudaStream_t stream, uint64_t size) {
  CountCall(name, stream, size);
  return MustFail() ? Result(cudaErrorInvalidValue) : cudaSuccess;
}

bool HasContext(int device) {
  const std::lock_guard lock(process().mutex);
  return process().contexts.contains(device);
}

int64_t StagedPeerCopies() { return staged_peer_copies.load(); }

size_t HostBytes() {
  const std::lock_guard lock(process().mutex);
  return process().host_bytes;
}

int CurrentContext() { return has_current_context ? current_device : -1; }

void SetCurrentContext(int device) {
  has_current_context = device >= 0;
  if (has_current_context) current_device = device;
}

cudaError_t Launch(cudaStream_t stream, uint64_t elements,
                   std::function<void(int thread, int threads)> kernel) {
  const cudaError_t error = Begin("kernel", stream, elements);
  if (error != cudaSuccess) return error;
  if (stream->device() != current_device) return Result(cudaErrorInvalidResourceHandle);
  return Queue(stream, [kernel = std::move(kernel)] {
    const int threads = settings().threads.load(std::memory_order_relaxed);
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) {
      others.emplace_back([&kernel, t, threads] {
        const DeviceAccess access;
        kernel(t, threads);
      });
    }
    kernel(0, threads);
    for (std::thread& other : others) other.join();
  });
}

}  // namespace cairn::test::fake

using namespace cairn::test::fake;  // NOLINT: the functions below are CUDA's

cudaError_t cudaGetDeviceCount(int* count) {
  *count = DeviceCount();
  const char* const error = std::getenv("CAIRN_FAKE_CUDA_ERROR");
  if (error != nullptr) return Result(static_cast<cudaError_t>(std::atoi(error)));
  return *count > 0 ? cudaSuccess : Result(cudaErrorNoDevice);
}

// 0: no driver is installed.
cudaError_t cudaDriverGetVersion(int* version) {
  const char* const given = std::getenv("CAIRN_FAKE_DRIVER");
  *version = given == nullptr ? CUDART_VERSION : std::atoi(given);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  cudaError_t error = Call("cudaSetDevice");
  if (error == cudaSuccess) error = CreateContext(device);
  if (error != cudaSuccess) return error;
  current_device = device;
  has_current_context = true;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  if (cudaError_t error = Call("cudaDeviceGetAttribute"); error != cudaSuccess) return error;
  *value = 2;
  return IsDevice(device) ? cudaSuccess : Result(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetPCIBusId(char* address, int bytes, int device) {
  if (cudaError_t error = Call("cudaDeviceGetPCIBusId"); error != cudaSuccess) return error;
  if (!IsDevice(device)) return Result(cudaErrorInvalidDevice);
  std::snprintf(address, static_cast<size_t>(bytes), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (cudaError_t error = Call("cudaDeviceCanAccessPeer"); error != cudaSuccess) return error;
  if (!IsDevice(device) || !IsDevice(peer)) return Result(cudaErrorInvalidDevice);
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (cudaError_t error = Begin("cudaDeviceEnablePeerAccess"); error != cudaSuccess) return error;
  if (!IsDevice(peer) || peer == current_device) return Result(cudaErrorInvalidDevice);
  if (cudaError_t error = CreateContext(peer); error != cudaSuccess) return error;
  const std::lock_guard lock(process().mutex);
  const bool is_new = process().peers.insert({current_device, peer}).second;
  return is_new ? cudaSuccess : Result(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceSynchronize() {
  if (cudaError_t error = Begin("cudaDeviceSynchronize"); error != cudaSuccess) return error;
  AwaitIdle(current_device);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorDevicesUnavailable: return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
  }
  return "unrecognized error code";
}

// A thread that captures must not allocate or free, nor ask whether a stream is idle.
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (Captures() > 0) return Result(cudaErrorStreamCaptureUnsupported);
  if (cudaError_t error = Begin("cudaMalloc"); error != cudaSuccess) return error;
  if (settings().allocation_waits) AwaitIdle(-1);
  *memory = bytes > settings().largest_allocation ? nullptr : AllocateOn(current_device, bytes);
  return *memory == nullptr ? Result(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (cudaError_t error = Begin("cudaMallocHost"); error != cudaSuccess) return error;
  if (settings().allocation_waits) AwaitIdle(-1);
  if (bytes > settings().largest_allocation) return Result(cudaErrorMemoryAllocation);
  const size_t size = (bytes + 255) / 256 * 256;
  *memory = std::aligned_alloc(256, size);
  std::fill_n(static_cast<float*>(*memory), size / sizeof(float),
              std::numeric_limits<float>::quiet_NaN());
  const std::lock_guard lock(process().mutex);
  process().host_memory[*memory] = size;
  process().host_bytes += size;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (Captures() > 0) return Result(cudaErrorStreamCaptureUnsupported);
  if (cudaError_t error = Begin("cudaFree"); error != cudaSuccess) return error;
  if (memory == nullptr) return cudaSuccess;
  const int device = DeviceOfMemory(memory);
  if (device < 0) return Result(cudaErrorInvalidValue);
  AwaitIdle(device);
  for (int peer = 0; peer < DeviceCount(); ++peer) {
    if (IsPeer(peer, device)) AwaitIdle(peer);
  }
  return FreeOnDevice(memory) ? cudaSuccess : Result(cudaErrorInvalidValue);
}

cudaError_t cudaFreeHost(void* memory) {
  if (cudaError_t error = Begin("cudaFreeHost"); error != cudaSuccess) return error;
  const std::lock_guard lock(process().mutex);
  const auto found = process().host_memory.find(memory);
  if (found == process().host_memory.end()) return Result(cudaErrorInvalidValue);
  process().host_bytes -= found->second;
  process().host_memory.erase(found);
  std::free(memory);
  return cudaSuccess;
}

// A copy from pageable memory returns as soon as its source is staged.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (cudaError_t error = Begin("cudaMemcpy"); error != cudaSuccess) return error;
  cudaStream_t legacy = LegacyStream();
  if (kind == cudaMemcpyHostToDevice) {
    const auto* const bytes_from = static_cast<const char*>(from);
    return Queue(legacy, [to, staged = std::vector<char>(bytes_from, bytes_from + bytes)] {
      Pause(settings().delay_us.load(std::memory_order_relaxed));
      std::memcpy(to, staged.data(), staged.size());
    });
  }
  Queue(legacy, [=] { std::memcpy(to, from, bytes); });
  while (!legacy->IsIdle()) Pause(10);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (cudaError_t error = Begin("cudaMemcpyAsync", stream, bytes); error != cudaSuccess)
    return error;
  return Queue(stream == nullptr ? LegacyStream() : stream, [=] { std::memcpy(to, from, bytes); });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  if (cudaError_t error = Begin("cudaMemcpyPeerAsync", stream, bytes); error != cudaSuccess)
    return error;
  if (DeviceOfMemory(to) != to_device || DeviceOfMemory(from) != from_device) {
    return Result(cudaErrorInvalidValue);
  }
  if (to_device != from_device && !IsPeer(to_device, from_device)) ++staged_peer_copies;
  return Queue(stream, [=] { std::memcpy(to, from, bytes); });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (cudaError_t error = Begin("cudaMemsetAsync", stream, bytes); error != cudaSuccess)
    return error;
  return Queue(stream, [=] { std::memset(memory, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (cudaError_t error = Begin("cudaStreamCreateWithFlags"); error != cudaSuccess) return error;
  *stream = AddStream(current_device);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return RemoveStream(stream) ? cudaSuccess : Result(cudaErrorInvalidResourceHandle);
}

// "Not ready" is an answer, no error: it is no thread's last one.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->capture != nullptr) return Result(cudaErrorStreamCaptureUnsupported);
  return stream->IsIdle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (cudaError_t error = Begin("cudaStreamSynchronize"); error != cudaSuccess) return error;
  cudaStream_t of = stream == nullptr ? LegacyStream() : stream;
  while (!of->IsIdle()) Pause(10);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (cudaError_t error = Begin("cudaStreamWaitEvent", stream); error != cudaSuccess) return error;
  const std::shared_ptr<Capture>& capture = event->capture;
  if (capture != stream->capture && stream->capture != nullptr) {
    return Result(cudaErrorStreamCaptureIsolation);
  }
  if (capture == nullptr) {
    return Queue(stream, [recording = event->recording, number = event->recorded] {
      recording->Await(number);
    });
  }
  if (capture->origin()->capture != capture) return Result(cudaErrorCapturedEvent);
  stream->capture = capture;
  capture->Wait(stream, event->number_in_capture);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (cudaError_t error = Begin("cudaEventCreateWithFlags"); error != cudaSuccess) return error;
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (cudaError_t error = Begin("cudaEventRecord", stream); error != cudaSuccess) return error;
  if (stream == nullptr) stream = LegacyStream();
  event->capture = stream->capture;
  if (event->capture != nullptr) {
    event->number_in_capture = event->capture->Record(stream);
    return cudaSuccess;
  }
  return Queue(stream, [recording = event->recording, number = ++event->recorded] {
    recording->Complete(number);
  });
}
