// Access of GPUs to each other's memory.
#pragma once

namespace cairn {

// Lets GPUs `a` and `b` copy from each other's memory directly, if CUDA allows it; otherwise copies
// go through the host. Changes the calling thread's current device. Only the first call for a pair
// does anything. Thread safety: any thread.
void EnablePeerAccess(int a, int b);

}  // namespace cairn
