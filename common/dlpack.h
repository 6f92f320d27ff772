// Shares tensors with other frameworks through DLPack (dlpack.readthedocs.io), without copies.
#pragma once

#include "absl/status/statusor.h"
#include "common/tensor.h"

struct DLManagedTensor;  // <dlpack/dlpack.h>, of version 0.6 or of any framework

namespace cairn {

// Exports the memory of `tensor`, which stays alive until the consumer calls the result's deleter,
// from any thread. Both sides see each other's writes, so a writer must have exclusive access.
// cpu:N maps to DLPack's CPU, gpu:N to its CUDA device N. A consumer may use the memory on any
// stream, because Cairn's ops are complete when their calls return; it must wait for its own
// kernels (worker/ops/device_stream.h). kInvalidArgument: a tensor of texts.
absl::StatusOr<DLManagedTensor*> ToDLPack(const Tensor& tensor);

// Imports the memory of `managed` and calls its deleter when the last copy of the tensor is
// destroyed. Does not wait for work that the producer has queued on a stream: call AwaitStream
// (worker/ops/device_stream.h) first. Host memory becomes cpu:0. On error the caller keeps
// ownership. kInvalidArgument: `managed` is null; a dtype that DType does not have; a device that
// is neither CPU nor CUDA; an invalid shape; elements that are not packed row-major or not aligned
// to their size.
absl::StatusOr<Tensor> FromDLPack(DLManagedTensor* managed);

}  // namespace cairn
