// Tensors shared with other frameworks, without copies, by DLPack (dlpack.readthedocs.io).
#pragma once

#include "absl/status/statusor.h"
#include "common/tensor.h"

struct DLManagedTensor;  // <dlpack/dlpack.h>, of version 0.6 or of any framework

namespace cairn {

// `tensor`'s memory, held until the consumer calls the result's deleter, from any thread. What one
// side writes, the other sees: who writes must be alone. cpu:N is DLPack's CPU, gpu:N its CUDA
// device N; work that a stream of a GPU still does on it is not waited for. kInvalidArgument:
// texts.
absl::StatusOr<DLManagedTensor*> ToDLPack(const Tensor& tensor);

// `managed`'s memory, whose deleter is called when the last copy of the tensor is gone. Host memory
// is on cpu:0. It stays the caller's where it is refused: kInvalidArgument: none; a dtype that
// DType has not, a device that is neither CPU nor CUDA, a shape that is none, elements that are not
// packed row-major or not aligned to their size.
absl::StatusOr<Tensor> FromDLPack(DLManagedTensor* managed);

}  // namespace cairn
