// The status of a rank of a Gloo group, and how ranks find the fault from each other's statuses
// after a collective has failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/deadline.h"

namespace cairn {

struct GroupStatus {
  int32_t rank = -1;    // the reporting rank
  uint64_t number = 0;  // the number of the running call, or of the last one
  bool in_call = false;
  absl::Status failure;   // why the group broke, as this rank reports it
  int32_t at_fault = -1;  // the rank that broke it, if known

  std::string Encode() const;
  // kInvalidArgument: not an encoded status.
  static absl::StatusOr<GroupStatus> Decode(absl::string_view bytes);
};

// Sends this rank's status to every other rank that has an address in `addresses`, all at once, and
// returns their statuses by rank. A missing status is an error: kUnavailable if nothing listens
// there any longer, kDeadlineExceeded if no answer arrived in time.
std::vector<absl::StatusOr<GroupStatus>> ExchangeStatuses(absl::Span<const std::string> addresses,
                                                          const GroupStatus& own,
                                                          Deadline deadline);

struct GroupVerdict {
  absl::Status status;
  int32_t at_fault = -1;
};
// Determines why call `number` of `rank` failed while it waited for `waited_for`. In this order: a
// rank whose process is gone; a fault that another rank has found; ranks that do not answer or have
// not reached the call. `what` is the transport's own error, used if nothing better is known.
GroupVerdict FindFault(absl::Span<const absl::StatusOr<GroupStatus>> statuses,
                       absl::Span<const std::string> peers, int rank, uint64_t number,
                       int waited_for, absl::string_view what);

}  // namespace cairn
