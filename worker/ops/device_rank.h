// A device's place among several whose memory is added up.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace cairn {

// The sum over all ranks of `count` float32 at `x`, each rank's in memory of its own device. Rank
// `root` has it there afterwards; what the others have is unspecified then. kAllRanks: all have it.
struct RankSum {
  static constexpr int kAllRanks = -1;
  float* x = nullptr;
  size_t count = 0;
  int root = 0;
};

// One of several ranks, each with a device of its own. All make the same calls of Reduce in the
// same order, with sums that have the same counts and roots. A rank that cannot tells the others
// with Fail, or they would wait for it.
// Thread safety: Fail from any thread, also while another rank's call runs; else one thread at a
// time.
class DeviceRank {
 public:
  virtual ~DeviceRank() = default;

  // Queues `sums` on `stream`, after what it has: CUDA's of this rank's device, null where the
  // device has none. Waits for the other ranks' calls at most, and with a deadline. An error is
  // the ranks': see Check.
  virtual absl::Status Reduce(absl::Span<const RankSum> sums, CUstream_st* stream) = 0;

  // OK: sums that were queued may still come. Else they will not, on any rank, and what this one
  // had queued ends by itself, with unspecified data: kAborted with the first reason given to Fail,
  // or an error of the connection. It stays so: new ranks are needed.
  virtual absl::Status Check() = 0;

  // Sums that were not done yet will not come, on any rank. The first call's `why` is kept.
  virtual void Fail(const absl::Status& why) = 0;

  // Fail, where this rank's device hangs: what it uses is left to the end of the process, since
  // ending it would wait for the device.
  virtual void Abandon(const absl::Status& why) = 0;
};

}  // namespace cairn
