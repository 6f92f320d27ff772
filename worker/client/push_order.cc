#include "worker/client/push_order.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "thrift/limits.h"
#include "worker/client/position.h"

namespace cairn {
namespace {

bool Updates(const Exchange& exchange) { return exchange.call.kind != CallKind::kPull; }

}  // namespace

void PushOrder::Reset(int64_t sequence, std::string position) {
  next_ = sequence + 1;
  position_ = std::move(position);
  broken_ = absl::OkStatus();
}

absl::Status PushOrder::TakeTurn(Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  if (!free_ && !mutex_.AwaitWithTimeout(absl::Condition(&free_), deadline.Remaining())) {
    return absl::DeadlineExceededError(
        "push: another push of this client was under way until the deadline");
  }
  free_ = false;
  return absl::OkStatus();
}

void PushOrder::EndTurn() {
  absl::MutexLock lock(&mutex_);
  free_ = true;
}

absl::Status PushOrder::Number(absl::Span<Exchange* const> exchanges,
                               const absl::string_view* position) {
  if (!broken_.ok()) return broken_;
  if (position == nullptr) {
    numbered_position_ = position_;
  } else {
    numbered_position_.assign(position->data(), position->size());
  }
  last_part_.resize(sessions_.size());
  for (size_t s = 0; s < sessions_.size(); ++s) last_part_[s] = sessions_[s]->last_part();
  for (Exchange* exchange : exchanges) {
    if (Updates(*exchange)) last_part_[exchange->session->index()] = next_;
  }
  EncodePosition(next_, last_part_, numbered_position_, &encoded_);
  if (encoded_.size() > kMaxPositionBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("push: the position has ", numbered_position_.size(),
                     " bytes and the client's "
                     "record beside it ",
                     encoded_.size() - numbered_position_.size(), "; ", kMaxPositionBytes,
                     " are allowed together"));
  }
  for (Exchange* exchange : exchanges) {
    if (!Updates(*exchange)) continue;
    DataCall& call = exchange->call;
    wire::Sequence& sequence =
        call.kind == CallKind::kAssign ? call.assign.sequence : call.request.push.sequence;
    sequence.sequence = next_;
    sequence.after = exchange->session->last_part();
    sequence.position = encoded_;
  }
  return absl::OkStatus();
}

bool PushOrder::Answered(const Exchange& exchange) {
  return exchange.session->PushAnswered(next_, exchange.boot_id);
}

void PushOrder::Settle(absl::Span<Exchange* const> exchanges, const absl::Status& status) {
  bool sent = false, unknown = false;
  for (const Exchange* exchange : exchanges) {
    if (!Updates(*exchange)) continue;
    sent = sent || exchange->sent;
    unknown = unknown || !exchange->done || exchange->outcome.progress != Progress::kAnswered;
  }
  if (!sent) return;  // no server can have seen the number: the next push takes it
  if (unknown) {
    // Some servers may have the push and others not. Only a new start, which asks them, can tell.
    broken_ = absl::FailedPreconditionError(
        absl::StrCat("push: the fate of push ", next_,
                     " is not known, so none can follow it; "
                     "start this task again, it resumes exactly. The cause: ",
                     status.message()));
    return;
  }
  // For servers that refused their part, as for those that had none, the number is void.
  for (const std::unique_ptr<ServerSession>& session : sessions_) session->NoPart(next_);
  position_.swap(numbered_position_);
  ++next_;
}

}  // namespace cairn
