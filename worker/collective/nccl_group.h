// A group whose ranks are GPUs, connected by NCCL. Built where CUDA and NCCL are found (Meson
// option `cuda`).
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collective/collective_group.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace cairn {

// Whether this build has NCCL, which ConnectNccl needs.
bool HasNccl();
// Whether NCCL can be loaded here. kUnimplemented: the build has none. kFailedPrecondition: what is
// missing, and what to do.
absl::Status NcclStatus();

struct NcclOptions {
  int device = 0;  // number of the GPU, as CUDA counts them
  // The stream that collectives run on; null: one of the group's own.
  CUstream_st* stream = nullptr;
};

// One rank of a group of GPUs. Every rank of `bootstrap` calls it, each with a GPU of its own: NCCL
// refuses two ranks on one GPU. `bootstrap` carries NCCL's id from rank 0 to the others, and later
// the calls themselves, which are compared before NCCL is told of them; it must outlive the group
// and be used for nothing else in between. Threads of one process connect at the same time.
//
// Buffers of the group's calls are memory of its device. A call waits until its work on the stream
// is done, or `deadline` has passed: then NCCL's communicator is aborted and the group is broken,
// which usable() says; connect again on every rank. The order of additions is NCCL's: the same on
// every rank, not that of InProcessGroups. kMean is NCCL's average. Where one rank has no place for
// what is gathered, every rank's call fails, and the group goes on. kUnimplemented: the build has
// no NCCL. kInternal: CUDA's or NCCL's own error, named.
absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectNccl(CollectiveGroup& bootstrap,
                                                             const NcclOptions& options,
                                                             Deadline deadline);

}  // namespace cairn
