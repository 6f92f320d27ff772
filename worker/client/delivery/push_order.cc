#include "worker/client/delivery/push_order.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "worker/client/delivery/position.h"
#include "worker/client/delivery/retained_call.h"

namespace cairn {
namespace {

// Only a new start, which asks every server, can find out which servers have the push.
absl::Status OutcomeUnknown(int64_t sequence, absl::string_view cause) {
  return FailedPrecondition(
      "push: it is unknown which servers have push ", sequence,
      ", so no push can follow it; restart this task: it resumes exactly. Cause: ", cause);
}

std::string Holder(absl::string_view waits_for) {
  return absl::StrCat("another push of this client, which waits for ", waits_for);
}

}  // namespace

void PushOrder::Reset(int64_t sequence, std::string position) {
  next_ = sequence + 1;
  unsettled_ = false;
  settled_.store(sequence);
  position_ = std::move(position);
  broken_ = absl::OkStatus();
}

absl::Status PushOrder::Acquire(Deadline deadline) {
  return lock_.Acquire("push", Holder("its servers"), deadline);
}

void PushOrder::WaitsFor(absl::string_view what) { lock_.SetHolder(Holder(what)); }

absl::Status PushOrder::Number(absl::Span<Exchange* const> exchanges,
                               const absl::string_view* position) {
  if (broken_.ok() && unsettled_) {
    broken_ = OutcomeUnknown(next_, "an exception ended its delivery");
  }
  if (!broken_.ok()) return broken_;
  if (position == nullptr || position->empty()) {
    numbered_position_ = position_;
  } else {
    numbered_position_.assign(position->data(), position->size());
  }
  return NumberAgain(exchanges);
}

absl::Status PushOrder::NumberAgain(absl::Span<Exchange* const> exchanges) {
  last_part_.resize(sessions_.size());
  for (size_t s = 0; s < last_part_.size(); ++s) last_part_[s] = sessions_[s].last_part();
  for (Exchange* exchange : exchanges) {
    if (Updates(*exchange)) last_part_[exchange->session->index()] = next_;
  }
  EncodePosition(next_, last_part_, numbered_position_, &encoded_);
  if (encoded_.size() > kMaxPositionBytes) {
    return InvalidArgument("push: the position has ", numbered_position_.size(),
                           " bytes and the client's "
                           "record beside it ",
                           encoded_.size() - numbered_position_.size(), "; ", kMaxPositionBytes,
                           " are allowed together");
  }
  for (Exchange* exchange : exchanges) {
    if (!Updates(*exchange)) continue;
    wire::Sequence& sequence = SequenceOf(exchange->call);
    sequence.sequence = next_;
    // Unchanged where the server has this number already.
    const int64_t last_part = exchange->session->last_part();
    if (last_part < next_) sequence.after = last_part;
    sequence.position = encoded_;
  }
  unsettled_ = true;
  return absl::OkStatus();
}

bool PushOrder::Answered(const Exchange& exchange) {
  return exchange.session->PushAnswered(exchange.call, exchange.boot_id);
}

void PushOrder::Settle(absl::Span<Exchange* const> exchanges, const absl::Status& status) {
  bool sent = false, unknown = false;
  for (const Exchange* exchange : exchanges) {
    if (!Updates(*exchange)) continue;
    sent = sent || exchange->sent;
    unknown = unknown || !exchange->done || exchange->outcome.progress != Progress::kAnswered;
  }
  if (!sent) {  // no server has seen the number: the next push reuses it
    unsettled_ = false;
    return;
  }
  if (ReasonOf(status) == wire::ErrorReason::FENCED) {
    // Servers that the newer start has not said hello to would still accept pushes, under the newer
    // start's numbers.
    broken_ = status;
    return;
  }
  if (unknown) {
    broken_ = OutcomeUnknown(next_, status.message());
    return;
  }
  // The number is void on servers that refused their part, as on servers without one.
  settled_.store(next_);
  for (size_t s = 0; s < sessions_.size(); ++s) sessions_[s].NoPart(next_);
  position_.swap(numbered_position_);
  ++next_;
  unsettled_ = false;
}

}  // namespace cairn
