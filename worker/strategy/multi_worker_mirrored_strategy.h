// Synchronous training on the devices of several processes:
// tf.distribute.MultiWorkerMirroredStrategy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/collective/collective_group.h"
#include "worker/collective/communication_options.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/strategy/mirrored_strategy.h"

namespace cairn {

struct MultiWorkerMirroredOptions {
  // "host:port" of every worker, the chief first, the same list on each; one entry: no other
  // process.
  std::vector<std::string> workers = {};
  int32_t worker_index = 0;          // index of this process in `workers`
  std::vector<Device> devices = {};  // of this process; the same number on every worker
  // timeout: how long a worker waits for the others in one collective (default 60 s).
  // implementation: with kAuto, float32 tensors are summed on the GPUs if the devices of all
  // workers are different GPUs that NCCL connects; other values, and all values with kRing, are
  // summed on the CPUs. kNccl, here and in calls: kFailedPrecondition if NCCL cannot be used.
  // bytes_per_pack applies to lists of values.
  CommunicationOptions communication = {};
  absl::Duration connect_timeout = absl::Minutes(5);  // for all workers to connect
  std::string rendezvous_address = {};                // as in GlooOptions
  JoinGpus join = JoinByNccl;                         // for tests
};

// One copy of every variable on each device of each worker, kept equal: gradients are reduced over
// all of them by collectives (gloo_group.h), and initial values are the first worker's.
//
// Every worker must do the same in the same order: create variables, run steps, reduce, save, read
// kOnRead variables. (Those of kOnlyFirstReplica are read alone, as the worker's own first copy.)
// An operation that only some workers start waits until the timeout, and the error names the
// missing workers; an operation that differs between workers, or whose values one worker refuses,
// is kInvalidArgument on all of them. After a worker is gone (kUnavailable, kDeadlineExceeded) the
// strategy is unusable: destroy it, and create one with the remaining workers.
//
// A tensor that is not distributed counts as this worker's contribution: Reduce(kSum) of 1.0 over
// two workers is 2.0.
// Thread safety: as Strategy's; collectives of several threads have an order only if the program
// enforces one.
class MultiWorkerMirroredStrategy : public MirroredStrategy {
 public:
  // Waits for every worker. kInvalidArgument: options that contradict each other, or the options of
  // other workers (number of devices). kDeadlineExceeded: the message names the missing workers.
  static absl::StatusOr<std::unique_ptr<MultiWorkerMirroredStrategy>> Create(
      const MultiWorkerMirroredOptions& options);

  // Waits a few seconds for the other workers to reach this point: a worker that closes its
  // connections while another still reads the last result would look dead. If the last Run failed,
  // the destructor does not wait: the other workers' collectives fail with that error (kAborted).
  ~MultiWorkerMirroredStrategy() override;

  std::string name() const override { return "MultiWorkerMirroredStrategy"; }
  int32_t workers() const override { return group_->size(); }
  int32_t worker_index() const override { return group_->rank(); }
  bool between_graph() const override { return true; }
  bool should_checkpoint() const override { return worker_index() == 0; }
  bool should_save_summary() const override { return worker_index() == 0; }

  absl::StatusOr<Tensor> FirstValue(const Tensor& initial) override;
  absl::StatusOr<Value> BroadcastFirst(const Value& value) override;
  absl::StatusOr<std::vector<Value>> ReduceAll(ReduceOp op,
                                               absl::Span<const Value::Sequence> locals,
                                               const CommunicationOptions& options) override;
  absl::StatusOr<Value> ReducePlain(ReduceOp op, const Value& value) override;
  absl::StatusOr<Tensor> GatherAll(absl::Span<const Value> locals, int64_t axis,
                                   const CommunicationOptions& options) override;
  void RefuseCollective(const absl::Status& why) override;
  InputStrategy input_strategy() override;
  void RunEnded(const absl::Status& status) override;

  // Returns after every worker has called it.
  absl::Status Barrier();

 private:
  MultiWorkerMirroredStrategy(std::vector<Device> devices, CommunicationOptions communication,
                              std::unique_ptr<CollectiveGroup> group);

  absl::Status CheckDeviceCounts();
  // Which values are summed between GPUs; the same on every worker. kInvalidArgument, on every
  // worker: they reduce different values.
  absl::StatusOr<std::vector<bool>> OnGpus(ReduceOp op, absl::Span<const Value::Sequence> locals,
                                           const CommunicationOptions& options);
  absl::Status CheckCall(const CommunicationOptions& options) const;
  Deadline CallDeadline(const CommunicationOptions& options) const;
  // Sums the workers' values between CPUs for the reduction `op`, which the workers compare; an
  // error here is sent to all workers.
  absl::StatusOr<std::vector<Value>> SumOverWorkers(ReduceOp op,
                                                    absl::StatusOr<std::vector<Value>> locals,
                                                    const CommunicationOptions& options);
  absl::StatusOr<Value> SumSlices(const IndexedSlices& slices, const CallPurpose& purpose,
                                  Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> AnyHasData(bool local);

  const CommunicationOptions communication_;
  absl::Mutex mutex_;  // one collective at a time
  // Why the last Run failed, until a sum over the workers succeeds; sent to the others if this
  // worker leaves.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<CollectiveGroup> group_;
  // The GPUs of all workers; null: sums go between CPUs. Used under mutex_, like group_, which it
  // asks for faults. Set once, by Create.
  std::unique_ptr<GpuAllReduce> gpus_;
};

}  // namespace cairn
