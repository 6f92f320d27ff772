// The transfers of large collectives between processes. Every rank calls the same function with the
// same counts, which have been compared before. All throw GlooFailure.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/collective/buffer.h"
#include "worker/collective/gloo_link.h"

namespace cairn {

// out = the sum of all ranks' `in`, divided by `divisor`. `in` may be `out`.
void RingAllReduce(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor);

// The same between two ranks: each sends the other all of its input. As many bytes as round a ring
// of two, in one step instead of two that wait for each other.
void PairAllReduce(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor);

// out = chunk rank() of the sum: elements [rank() * out.count, (rank() + 1) * out.count).
void RingReduceScatter(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor);

// Root's `buffer` to all: down a chain that starts at the root, in segments.
void ChainBroadcast(GlooLink& link, int root, MutableBuffer buffer);

// Every rank's `bytes[r]` bytes to all; rank r's lie at `to` + the sum of those before.
// `present[r]`: they are there already, and r does not send them.
void DirectGather(GlooLink& link, const void* in, absl::Span<const size_t> bytes,
                  absl::Span<const bool> present, void* to);

}  // namespace cairn
