// A group whose ranks are GPUs, connected by NCCL. Built if CUDA and NCCL are found (Meson option
// `cuda`).
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collective/collective_group.h"

struct CUstream_st;  // cudaStream_t is a pointer to this

namespace cairn {

// Whether this build has NCCL, which ConnectNccl requires.
bool HasNccl();
// Whether NCCL can be loaded here. kUnimplemented: the build lacks NCCL. kFailedPrecondition: the
// message names the missing part and the next step.
absl::Status NcclStatus();

struct NcclOptions {
  int device = 0;  // CUDA's number of the GPU
  // The stream that collectives run on; null: the group creates one.
  CUstream_st* stream = nullptr;
};

// One rank of a group of GPUs. Every rank of `bootstrap` calls it, each with a different GPU: NCCL
// refuses two ranks on one GPU. `bootstrap` carries NCCL's id from rank 0 to the others, and later
// the descriptions of calls, which are compared before NCCL is called; it must outlive the group
// and must not be used otherwise in the meantime. Threads of one process may connect concurrently.
//
// Buffers of the group's calls must be memory of its device. A call waits until its work on the
// stream is done or `deadline` has passed; in the second case NCCL's communicator is aborted and
// the group is broken, as usable() reports: connect again on every rank. The order of additions is
// NCCL's: the same on every rank, but different from GlooGroup's. kMean is NCCL's average. If
// one rank fails to provide memory for gathered elements, every rank's call fails, and the group
// remains usable. kUnimplemented: the build lacks NCCL. kInternal: an error of CUDA or NCCL, named.
absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectNccl(CollectiveGroup& bootstrap,
                                                             const NcclOptions& options,
                                                             Deadline deadline);

}  // namespace cairn
