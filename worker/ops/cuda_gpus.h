// State that all queues of a process share: peer access, current devices, loading of kernels.
#pragma once

namespace cairn {

// Lets GPUs `a` and `b` copy from each other's memory directly, if CUDA allows it; otherwise copies
// go through the host. Changes the calling thread's current device. Only the first call for a pair
// does anything. Thread safety: any thread.
void EnablePeerAccess(int a, int b);

// The queue that last set the calling thread's current device; null: unknown. Spares a step the
// repeated cudaSetDevice.
const void*& SelectingQueue();

// Requests eager loading of kernels (CUDA_MODULE_LOADING=EAGER) if the machine has several GPUs and
// the user has not set the variable. By default CUDA loads a kernel at its first launch and may
// wait for the GPU, and thus for a sum that waits for this process. CUDA reads the variable once,
// in its first call.
void LoadKernelsEarly(int gpus);

}  // namespace cairn
