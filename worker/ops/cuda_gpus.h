// Access of GPUs to each other's memory.
#pragma once

namespace cairn {

// Lets GPUs `a` and `b` copy from each other's memory directly, if CUDA allows it; otherwise copies
// go through the host. Changes the calling thread's current device. Only the first call for a pair
// does anything. Thread safety: any thread.
void EnablePeerAccess(int a, int b);

// The queue for which the calling thread's current device was chosen last; null: unknown. A step
// calls a queue some hundred times, between which nobody else chooses the thread's device.
const void*& SelectingQueue();

// Has CUDA load kernels when it starts, unless the user has chosen, if several of `gpus` GPUs may
// compute. By default CUDA loads a kernel when it is first launched, and waits for the GPU then:
// for a sum over GPUs, perhaps, that waits for this very process. CUDA reads the choice once, in
// its first call.
void LoadKernelsEarly(int gpus);

}  // namespace cairn
