// The transfers of large collectives between processes. Every rank calls the same function with the
// same counts; the caller has compared them. All functions throw GlooFailure and std::bad_alloc.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/collective/buffer.h"
#include "worker/collective/gloo_link.h"

namespace cairn {

// out = the sum of all ranks' `in`, divided by `divisor`. `in` may be `out`.
void RingAllReduce(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor);

// out = chunk rank() of the sum: elements [rank() * out.count, (rank() + 1) * out.count).
void RingReduceScatter(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor);

// Sends root's `buffer` to all ranks: along a chain that starts at the root, in segments.
void ChainBroadcast(GlooLink& link, int root, MutableBuffer buffer);

// Sends every rank's `bytes[r]` bytes to all ranks; rank r's bytes go to `to` + the sum of the
// bytes of lower ranks. If `present[r]`, rank r's bytes are in place already, and r does not send
// them. If `to` is null, the bytes that this rank receives are dropped.
void DirectGather(GlooLink& link, const void* in, absl::Span<const size_t> bytes,
                  absl::Span<const bool> present, void* to);

}  // namespace cairn
