// All-reduce of a list of gradients, packed.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collective/collective_group.h"
#include "worker/collective/communication_options.h"

namespace cairn {

// Reduces every gradient in place, as group.AllReduce would each by itself. Every rank brings the
// same gradients in the same order. They are packed in reverse, since the backward pass computes
// the last first, by options.bytes_per_pack and by dtype; in a pack, what is too small to be worth
// a collective of its own travels together, and larger gradients are reduced where they lie,
// without a copy. `deadline` is of the whole; options.timeout, where given, of each collective.
// Errors are those of the first collective that fails, on every rank the same one; gradients are
// unspecified then. kInvalidArgument besides: options.Validate().
absl::Status BatchAllReduce(CollectiveGroup& group, ReduceOp op,
                            absl::Span<const MutableBuffer> gradients,
                            const CommunicationOptions& options, Deadline deadline);

}  // namespace cairn
