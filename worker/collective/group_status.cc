#include "worker/collective/group_status.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/start_thread.h"
#include "worker/collective/collective_call.h"
#include "worker/collective/control_wire.h"

namespace cairn {

std::string GroupStatus::Encode() const {
  return ControlWriter()
      .Value(rank)
      .Value(number)
      .Value(static_cast<uint8_t>(in_call))
      .Value(at_fault)
      .Value(static_cast<int32_t>(failure.code()))
      .Bytes({failure.message().data(), failure.message().size()})
      .Take();
}

absl::StatusOr<GroupStatus> GroupStatus::Decode(absl::string_view bytes) {
  ControlReader reader(bytes);
  GroupStatus status;
  status.rank = reader.Value<int32_t>();
  status.number = reader.Value<uint64_t>();
  status.in_call = reader.Value<uint8_t>() != 0;
  status.at_fault = reader.Value<int32_t>();
  const auto code = static_cast<absl::StatusCode>(reader.Value<int32_t>());
  status.failure = absl::Status(code, reader.Bytes());
  if (!reader.ok() || !reader.at_end()) return absl::InvalidArgumentError("not a rank's status");
  return status;
}

std::vector<absl::StatusOr<GroupStatus>> ExchangeStatuses(absl::Span<const std::string> addresses,
                                                          const GroupStatus& own,
                                                          Deadline deadline) {
  std::vector<absl::StatusOr<GroupStatus>> statuses(addresses.size(), GroupStatus());
  const std::string request = ControlWriter().Value(ControlOp::kStatus).Bytes(own.Encode()).Take();
  const auto ask = [&](size_t r, Deadline until) {
    const absl::StatusOr<std::string> reply = AskAt(addresses[r], request, until);
    statuses[r] = reply.ok() ? GroupStatus::Decode(*reply) : reply.status();
  };
  std::vector<std::thread> askers;
  std::vector<size_t> without_thread;
  for (size_t r = 0; r < addresses.size(); ++r) {
    if (r == static_cast<size_t>(own.rank) || addresses[r].empty()) continue;
    absl::StatusOr<std::thread> asker = StartThread([&ask, r, deadline] { ask(r, deadline); });
    if (asker.ok()) {
      askers.push_back(*std::move(asker));
    } else {
      without_thread.push_back(r);
    }
  }
  // One after another: a rank that does not answer leaves their share of the time to the others.
  for (; !without_thread.empty(); without_thread.pop_back()) {
    const auto left = static_cast<int64_t>(without_thread.size());
    ask(without_thread.back(), Deadline::In(deadline.Remaining() / left));
  }
  for (std::thread& asker : askers) asker.join();
  return statuses;
}

GroupVerdict FindFault(absl::Span<const absl::StatusOr<GroupStatus>> statuses,
                       absl::Span<const std::string> peers, int rank, uint64_t number,
                       int waited_for, absl::string_view what) {
  const auto name = [&](size_t r) { return RankText(static_cast<int>(r), peers[r]); };
  const auto ranks = statuses.size();
  for (size_t r = 0; r < ranks; ++r) {
    if (!absl::IsUnavailable(statuses[r].status())) continue;
    return {Unavailable(name(r), " is gone: its process does not accept connections"),
            static_cast<int32_t>(r)};
  }
  for (size_t r = 0; r < ranks; ++r) {
    if (r == static_cast<size_t>(rank) || !statuses[r].ok() || statuses[r]->failure.ok()) continue;
    const absl::Status& failure = statuses[r]->failure;
    return {absl::Status(failure.code(), absl::StrCat(name(r), " reports: ", failure.message())),
            statuses[r]->at_fault};
  }
  // On a busy machine a rank may be slow to answer, so every late rank is named. A rank that is
  // still in an earlier call is late because of another rank.
  std::vector<std::string> late;
  int32_t first = -1;
  for (size_t r = 0; r < ranks; ++r) {
    if (r == static_cast<size_t>(rank)) continue;
    if (!statuses[r].ok()) {
      late.push_back(
          absl::StrCat(name(r), " does not answer: its process is stopped or unreachable"));
    } else if (statuses[r]->number < number && !statuses[r]->in_call) {
      late.push_back(absl::StrCat(name(r),
                                  " did not come in time: it runs, and its last collective "
                                  "was #",
                                  statuses[r]->number));
    } else {
      continue;
    }
    if (first < 0) first = static_cast<int32_t>(r);
  }
  if (!late.empty()) return {absl::DeadlineExceededError(absl::StrJoin(late, "; ")), first};
  const auto waited = static_cast<size_t>(waited_for);
  return {DeadlineExceeded("no data from ", name(waited), " in time: ", what), waited_for};
}

}  // namespace cairn
