// All-reduce of a list of gradients, in packs.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collective/collective_group.h"
#include "worker/collective/communication_options.h"

namespace cairn {

// Reduces every gradient in place, as group.AllReduce would reduce each. Every rank must pass the
// same gradients in the same order. They are packed in reverse, because the backward pass computes
// the last first, by options.bytes_per_pack and by dtype. In a pack, gradients too small to be
// worth their own collective are reduced together; larger gradients are reduced in their own
// memory, without a copy. `deadline` limits the whole call; options.timeout, if given, limits each
// collective. Returns the error of the first collective that fails, the same on every rank;
// gradients are then unspecified. Additional kInvalidArgument: options.Validate().
absl::Status BatchAllReduce(CollectiveGroup& group, ReduceOp op,
                            absl::Span<const MutableBuffer> gradients,
                            const CommunicationOptions& options, Deadline deadline,
                            const CallPurpose& purpose = {});

}  // namespace cairn
