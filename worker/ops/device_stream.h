// Users' kernels on the tensors of a GPU, and the order of their streams with Cairn's.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device.h"

struct CUstream_st;  // cudaStream_t is a pointer to this

namespace cairn {

// Calls `use` with the stream on which ops on `gpu`'s tensors run, and waits for the work that
// `use` queued there. The GPU is the calling thread's current CUDA device during the call; in a
// replica function, pass the replica's device. Earlier ops on the tensors are complete. `use` may
// launch kernels and asynchronous copies; it must not make or free tensors. Thread safety: any
// thread; calls for one GPU run one after the other. Returns the error of `use`, or the GPU's.
// kInvalidArgument: `gpu` is a CPU. kFailedPrecondition, kUnimplemented: this process cannot use
// the GPU.
absl::Status ComputeOnStream(Device gpu, absl::FunctionRef<absl::Status(CUstream_st* stream)> use);

// Returns when the work that another framework has queued on `stream` of `gpu` is complete; null is
// the legacy default stream. Call it before ops on memory that FromDLPack imported. Exported memory
// needs no wait: every op is complete when its call returns. Errors as ComputeOnStream.
absl::Status AwaitStream(Device gpu, CUstream_st* stream);

}  // namespace cairn
