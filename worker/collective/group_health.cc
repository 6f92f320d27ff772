#include "worker/collective/group_health.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/collective/collective_call.h"

namespace cairn {
namespace {

// A rank that is gone or has failed sends nothing more, but what it has sent may be on its way. So
// may what a rank has sent that has completed the call, on a slow network for longer.
constexpr int kAsksOfGone = 2;
constexpr int kAsksOfCompleted = 10;
constexpr int kNoLimit = std::numeric_limits<int>::max();

bool HasNotCompleted(const GroupStatus& status, uint64_t number) {
  return status.number < number || (status.number == number && status.in_call);
}

}  // namespace

GroupHealth::GroupHealth(std::string group, int rank, std::vector<std::string> addresses,
                         std::function<void()> interrupt)
    : group_(std::move(group)),
      rank_(rank),
      addresses_(std::move(addresses)),
      interrupt_(std::move(interrupt)) {
  status_.rank = rank;
}

void GroupHealth::set_status_addresses(std::vector<std::string> addresses) {
  status_addresses_ = std::move(addresses);
}

bool GroupHealth::BeginCall(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  if (!status_.failure.ok()) return false;
  status_.number = number;
  status_.in_call = true;
  return true;
}

void GroupHealth::EndCall() {
  absl::MutexLock lock(&mutex_);
  status_.in_call = false;
  // Only this call did not need the rank that has reported a failure meanwhile.
  if (!told_.empty()) Adopt(told_.front());
}

absl::Status GroupHealth::usable() const {
  absl::MutexLock lock(&mutex_);
  if (status_.failure.ok()) return absl::OkStatus();
  return absl::Status(status_.failure.code(),
                      absl::StrCat(status_.failure.message(), "; group '", group_,
                                   "' is broken: destroy it on every rank and connect again"));
}

GroupStatus GroupHealth::own() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

GroupStatus GroupHealth::Fail(const absl::Status& failure, int32_t at_fault) {
  absl::MutexLock lock(&mutex_);
  GroupStatus before = status_;
  if (before.failure.ok()) {
    status_.failure = failure;
    status_.at_fault = at_fault;
  }
  return before;
}

void GroupHealth::Adopt(const GroupStatus& told) {
  if (!status_.failure.ok()) return;
  const std::string& address = addresses_[static_cast<size_t>(told.rank)];
  status_.failure = absl::Status(
      told.failure.code(),
      absl::StrCat(RankText(told.rank, address), " reports: ", told.failure.message()));
  status_.at_fault = told.at_fault;
}

GroupHealth::Statuses GroupHealth::Ask(Deadline deadline) const {
  return ExchangeStatuses(status_addresses_, own(), deadline);
}

bool GroupHealth::Tell(absl::Duration time) {
  has_told_.store(true);
  return std::ranges::all_of(Ask(Deadline::In(time)), [](const auto& known) { return known.ok(); });
}

void GroupHealth::Conclude(Statuses statuses, uint64_t number, int waited_for,
                           absl::string_view what, absl::Duration time_to_tell) {
  std::vector<std::string> answering = status_addresses_;
  for (size_t r = 0; r < statuses.size(); ++r) {
    if (!statuses[r].ok()) answering[r].clear();
  }
  {
    absl::MutexLock lock(&mutex_);
    // A rank that reported its finding and then ended is not at fault.
    for (const GroupStatus& told : told_) statuses[static_cast<size_t>(told.rank)] = told;
  }
  const GroupVerdict verdict = FindFault(statuses, addresses_, rank_, number, waited_for, what);
  Fail(verdict.status, verdict.at_fault);
  // Notifies the other ranks before their transfers fail, and before this process may end.
  has_told_.store(true);
  ExchangeStatuses(answering, own(), Deadline::In(time_to_tell));
}

std::string GroupHealth::Exchange(absl::string_view told) {
  const absl::StatusOr<GroupStatus> other = GroupStatus::Decode(told);
  absl::MutexLock lock(&mutex_);
  const bool is_known =
      other.ok() && other->rank >= 0 && static_cast<size_t>(other->rank) < addresses_.size();
  // At most one from each rank, because a rank's first failure breaks the group.
  if (is_known && !other->failure.ok() && told_.size() < addresses_.size()) {
    told_.push_back(*other);
    // A rank that waits for other work looks at usable(). A running call finds the fault itself,
    // but may wait for a third rank, which makes no further call. It may also have all that it
    // needs of the rank that failed, if that had completed the call.
    if (!status_.in_call) {
      Adopt(*other);
    } else if (HasNotCompleted(*other, status_.number)) {
      interrupt_();
    }
  }
  return status_.Encode();
}

int GroupHealth::AsksAllowed(int rank, absl::Duration time) const {
  const auto at = static_cast<size_t>(rank);
  std::vector<std::string> asked(status_addresses_.size());
  asked[at] = status_addresses_[at];
  const GroupStatus own_status = own();
  const auto other = ExchangeStatuses(asked, own_status, Deadline::In(time))[at];
  if (absl::IsUnavailable(other.status())) return kAsksOfGone;
  if (!other.ok()) return kNoLimit;
  if (!HasNotCompleted(*other, own_status.number)) return kAsksOfCompleted;
  return other->failure.ok() ? kNoLimit : kAsksOfGone;
}

}  // namespace cairn
