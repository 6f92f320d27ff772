// Collective operations between the ranks of a group of processes (gloo_group.h). Replicas in one
// process reduce by their strategy (worker/strategy); GPUs sum by NCCL (nccl_ranks.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/collective/buffer.h"
#include "worker/collective/reduce_op.h"

namespace cairn {

// What the callers of a collective make of its result. The ranks compare it as they compare their
// calls, so that ranks that would make different things of one result fail instead.
struct CallPurpose {
  // The reduction that the call is a part of: kMean where the callers divide a sum.
  std::optional<ReduceOp> reduction = {};
  // A digest of the shapes of the callers' values, where buffers of equal counts are not enough.
  uint32_t shapes = 0;
};

// One rank's end of a group of `size()` ranks.
//
// Order: every rank must make the same calls in the same order: the n-th call of one rank matches
// the n-th call of every other rank.
// Thread safety: one call at a time on each rank's object; ranks of one process call from their own
// threads. Abort() may be called from any thread at any time.
// Results: bitwise equal on every rank, and determined only by the inputs and the group size.
// In place: an output may be exactly the input; any other overlap of buffers is not allowed.
//
// Errors name the operation, the reporting rank and the rank at fault, with its device or address.
// kInvalidArgument: a rank's arguments are wrong, a rank called Refuse, or ranks call different
//   operations, dtypes or counts, or for different purposes. Every rank gets this error, no output
//   was written, and the group stays usable.
// kDeadlineExceeded: some ranks, which the message names, did not call by `deadline`.
// kUnavailable: a rank is gone. kAborted: a rank called Abort(), or had no memory for the call.
// kResourceExhausted: this rank had no memory for the call.
// After these four errors outputs are unspecified; usable() and the group's own header say whether
// the group can be used again.
class CollectiveGroup {
 public:
  // Given every rank's element count, returns the memory for all elements; its count must be the
  // sum. An error, or an exception (kResourceExhausted), affects only this rank; the other ranks'
  // calls succeed.
  using PlaceGathered =
      absl::FunctionRef<absl::StatusOr<MutableBuffer>(absl::Span<const int64_t> counts)>;

  virtual ~CollectiveGroup() = default;
  CollectiveGroup() = default;
  CollectiveGroup(const CollectiveGroup&) = delete;
  CollectiveGroup& operator=(const CollectiveGroup&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The address ("10.0.0.2:9090") of a rank in [0, size()).
  virtual const std::string& peer(int rank) const = 0;

  // out[i] = the sum over ranks of in[i], divided by size() for kMean. `in` and `out` must have the
  // same dtype and count on every rank; kMean takes only floating dtypes. float16 and bfloat16 are
  // added in float32 and rounded: small inputs once, others at every hop.
  virtual absl::Status AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out, Deadline deadline,
                                 const CallPurpose& purpose) = 0;
  absl::Status AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out, Deadline deadline) {
    return AllReduce(op, in, out, deadline, {});
  }
  absl::Status AllReduce(ReduceOp op, MutableBuffer in_out, Deadline deadline,
                         const CallPurpose& purpose = {}) {
    return AllReduce(op, in_out, in_out, deadline, purpose);
  }

  // Sends rank `root`'s buffer to every rank. Dtype and count must be the same on every rank.
  virtual absl::Status Broadcast(int root, MutableBuffer buffer, Deadline deadline,
                                 const CallPurpose& purpose) = 0;
  absl::Status Broadcast(int root, MutableBuffer buffer, Deadline deadline) {
    return Broadcast(root, buffer, deadline, {});
  }

  // Concatenates all ranks' elements in rank order. Counts may differ between ranks, dtypes must
  // not. `place` is called once, after every rank has arrived.
  virtual absl::Status AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline,
                                  const CallPurpose& purpose) = 0;
  absl::Status AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline) {
    return AllGatherV(in, place, deadline, {});
  }
  // AllGatherV with the same count on every rank; out.count = size() * in.count.
  absl::Status AllGather(ConstBuffer in, MutableBuffer out, Deadline deadline);

  // Rank r's out = elements [r * out.count, (r + 1) * out.count) of the reduced `in`.
  // in.count = size() * out.count; `out` must not overlap `in`.
  virtual absl::Status ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                                     Deadline deadline) = 0;

  // Returns after every rank has called it.
  virtual absl::Status Barrier(Deadline deadline) = 0;

  // Takes this rank's place in the call that the other ranks make, without arguments for it: that
  // call, whatever it is, fails on every other rank with kInvalidArgument and `why` (its first
  // 4096 bytes), and the group stays usable. Does not wait for that call; this rank's next call, or
  // next refusal, waits for both within its own deadline.
  virtual void Refuse(const absl::Status& why, Deadline deadline) = 0;
  // The reason of this rank's last call, if that was Refuse; otherwise OK. A rank that leaves now
  // may leave before the other ranks have the reason: it calls Abort instead of waiting for them.
  virtual absl::Status open_refusal() const { return absl::OkStatus(); }

  // Makes this rank's running collective and all later ones fail on every rank with kAborted and
  // `why`; calls that this rank has completed do not fail on others. For a rank that cannot
  // continue while others wait for it. Has no effect if `why` is OK.
  virtual void Abort(const absl::Status& why) = 0;

  // OK, or the reason why every further call fails, with the next step.
  virtual absl::Status usable() const = 0;

  // Says why work cannot end that the ranks do together outside this group's calls (NCCL's sums on
  // GPUs), for a rank that waits for it. OK: there is no fault. Faults: a rank's process is gone,
  // or a rank has called Abort; with `silence_is_fault`, also a rank that does not answer by
  // `deadline`. A fault breaks the group. Takes a place in this rank's order of calls; the other
  // ranks need not call it.
  virtual absl::Status FindFault(bool silence_is_fault, Deadline deadline);
};

}  // namespace cairn
