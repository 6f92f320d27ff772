// The GPUs on which replicas, of one process or of all workers, sum their values by NCCL.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/communication_options.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/ops/device_rank.h"

namespace cairn {

// Whether NCCL can sum between `devices`: several different GPUs, each named once, that CUDA can
// use; and NCCL is installed. kFailedPrecondition, kUnimplemented: why it cannot.
absl::Status CheckNccl(absl::Span<const Device> devices);

// The ranks of this process's devices, for one step at a time. Thread safety: Acquire from any
// thread; the other methods between a true Acquire and Release, one thread at a time.
class GpuRanks {
 public:
  // Joins `devices`, which CheckNccl accepts, when they are first needed and after an error.
  // `required`: a failure to join is an error; otherwise it is a warning, after which no further
  // attempt is made.
  GpuRanks(std::vector<Device> devices, JoinGpus join, bool required);
  // The ranks of this worker among those of all workers (JoinWorkers). They cannot be joined again:
  // an error breaks the workers' group too.
  GpuRanks(std::vector<std::unique_ptr<DeviceRank>> joined, const NcclPeers& peers);

  // The other workers' ranks; no workers: only this process's devices sum.
  const NcclPeers& peers() const { return peers_; }

  // False: there are no ranks, or another step has them; then nothing is acquired.
  bool Acquire();
  void Release();

  // Joins the ranks if needed. Empty: they could not be joined; the log says why. Errors: those of
  // `join`, if required; the error of ranks that cannot be joined again.
  absl::StatusOr<absl::Span<const std::unique_ptr<DeviceRank>>> Joined();

  // Returns `own`, how this worker's sums ended, or an error if another worker's failed: its GPUs
  // may have added unspecified data. Every worker calls it after its sums.
  absl::Status Agree(const absl::Status& own) const;

 private:
  const std::vector<Device> devices_;
  const JoinGpus join_;
  const bool required_ = true;
  const NcclPeers peers_;
  std::atomic<bool> taken_ = false;
  std::atomic<bool> unavailable_ = false;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
};

// How workers connect their GPUs.
struct WorkerGpus {
  std::vector<Device> devices;  // of this worker
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
  NcclPeers peers;             // with workers
  JoinGpus join = JoinByNccl;  // for tests
};

// Connects the GPUs of all workers; every worker must call it, with the same implementation. The
// result has the same kind on every worker: null if the implementation is kRing, or is kAuto and a
// device of a worker is no GPU or a worker cannot connect its GPUs (a warning says why, unless this
// worker has CPUs). kFailedPrecondition: the implementation is kNccl, and a worker cannot; says
// why. Otherwise errors as CollectiveGroup.
absl::StatusOr<std::unique_ptr<GpuRanks>> JoinWorkers(const WorkerGpus& gpus);

}  // namespace cairn
