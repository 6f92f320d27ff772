// What the sources of the fake runtime share.
#pragma once

#include <cstdint>

#include "tests/support/fake_cuda/include/cuda_runtime_api.h"

namespace cairn::test::fake {

// A new stream of `device`.
cudaStream_t AddStream(int device);
// False: there is no such stream. Its work is still done.
bool RemoveStream(cudaStream_t stream);

void CountCall(const char* name, cudaStream_t stream, uint64_t size);
// Whether settings().fail_at chooses this call.
bool MustFail();

// The calling thread's context for libcuda: its device, -1 if no context is current.
int CurrentContext();
void SetCurrentContext(int device);

}  // namespace cairn::test::fake
