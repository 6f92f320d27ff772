// A device's membership in a group of devices that sum their memory.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace cairn {

// Adds up `count` float32 at `x` over all ranks; each rank's `x` is memory of its own device.
// Afterwards rank `root` has the sum, and the other ranks' memory is unspecified. kAllRanks: all
// ranks have the sum.
struct RankSum {
  static constexpr int kAllRanks = -1;
  float* x = nullptr;
  size_t count = 0;
  int root = 0;
};

// One of several ranks, each with its own device. All make the same calls of Reduce in the same
// order, with sums that have the same counts and roots. A rank that cannot continue must call Fail,
// or the others wait for it. Thread safety: Fail from any thread, also while another rank's call
// runs; the other methods from one thread at a time.
class DeviceRank {
 public:
  virtual ~DeviceRank() = default;

  // Queues `sums` on `stream` behind its current work; `stream` is the CUDA stream of this rank's
  // device, or null if the device has none. May wait for the other ranks' calls, until a deadline,
  // but for nothing else. An error concerns all ranks: see Check.
  virtual absl::Status Reduce(absl::Span<const RankSum> sums, CUstream_st* stream) = 0;

  // Called repeatedly while queued sums are waited for. OK: they may still complete. Otherwise they
  // will not, on any rank, and this rank's queued work ends by itself with unspecified data:
  // kAborted with the first reason given to Fail, or an error of the connection. The error is
  // permanent: new ranks are needed. After the sums' time limit, other ranks that are silent count
  // as failed.
  virtual absl::Status Check() = 0;

  // How long Check lets sums wait for the other ranks. A queue does not give them up before.
  virtual absl::Duration limit() const { return absl::ZeroDuration(); }

  // Like Check, but called while no sums are queued, when ranks may be silent for any time.
  virtual absl::Status Usable() { return Check(); }

  // Sums that are not done yet will not complete, on any rank. Only the first call's `why` is kept.
  virtual void Fail(const absl::Status& why) = 0;

  // Like Fail, for a device that hangs: its resources are kept until the process ends, since
  // freeing them would wait for the device.
  virtual void Abandon(const absl::Status& why) = 0;
};

}  // namespace cairn
