// What a rank of a Gloo group is doing, and what ranks make of each other's answers when a
// collective has failed.
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
  int32_t rank = -1;    // whose it is
  uint64_t number = 0;  // of the running call, or of the last one
  bool in_call = false;
  int32_t waiting_for = -1;
  absl::Status failure;   // what broke the group, in this rank's words
  int32_t at_fault = -1;  // the rank that did, if one is known

  std::string Encode() const;
  // kInvalidArgument: not an encoded status.
  static absl::StatusOr<GroupStatus> Decode(absl::string_view bytes);
};

// Tells every rank but `own.rank` that has an address in `addresses` this rank's status, all at
// once, and returns theirs. An error where there was none: kUnavailable if nothing listens there
// any more, kDeadlineExceeded if there was no answer in time.
std::vector<absl::StatusOr<GroupStatus>> ExchangeStatuses(absl::Span<const std::string> addresses,
                                                          const GroupStatus& own,
                                                          Deadline deadline);

struct GroupVerdict {
  absl::Status status;
  int32_t at_fault = -1;
};
// Why call `number` of `rank` failed while it waited for `waited_for`: a rank whose process is
// gone, else one that does not answer, else what another rank has found, else a rank that has not
// come to the call. `what` is the transport's own error, told if nothing better is known.
GroupVerdict FindFault(absl::Span<const absl::StatusOr<GroupStatus>> statuses,
                       absl::Span<const std::string> peers, int rank, uint64_t number,
                       int waited_for, absl::string_view what);

}  // namespace cairn
