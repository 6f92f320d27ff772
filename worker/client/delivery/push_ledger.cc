#include "worker/client/delivery/push_ledger.h"

#include <algorithm>
#include <utility>

namespace cairn {

void PushLedger::Begin(int64_t boot_id, int64_t last_part, int64_t through) {
  boot_id_ = boot_id;
  last_part_ = released_ = last_part;
  through_ = through;
  bytes_ = 0;
  retained_.clear();
}

absl::Time PushLedger::oldest_since() const {
  return retained_.empty() ? absl::InfiniteFuture() : retained_.front().since;
}

int64_t PushLedger::Acknowledged(RetainedPart part) {
  last_part_ = through_ = part.sequence;
  bytes_ += part.bytes;
  if (retained_.empty() || retained_.back().sequence != part.sequence) {
    retained_.push_back(std::move(part));
    return 0;
  }
  const int64_t before = retained_.back().bytes;
  bytes_ -= before;
  retained_.back() = std::move(part);
  return before;
}

void PushLedger::AcknowledgedUnretained(int64_t sequence) {
  last_part_ = through_ = sequence;
  // Applies also while older parts are retained: without this part they cannot complete a restarted
  // server.
  released_ = sequence;
}

void PushLedger::NoPart(int64_t sequence) { through_ = std::max(through_, sequence); }

std::vector<RetainedPart> PushLedger::TakeDurable(int64_t durable) {
  std::vector<RetainedPart> taken;
  while (!retained_.empty() && retained_.front().sequence <= durable) {
    released_ = std::max(released_, retained_.front().sequence);
    bytes_ -= retained_.front().bytes;
    taken.push_back(std::move(retained_.front()));
    retained_.pop_front();
  }
  return taken;
}

void PushLedger::EndRenewal(int64_t boot_id) {
  boot_id_ = boot_id;
  renewing_ = false;
}

ReplayPlan PushLedger::PlanReplay(int64_t boot_id, int64_t applied) const {
  const bool same_boot = boot_id == boot_id_;
  ReplayPlan plan;
  if (applied < released_ || (same_boot && applied < last_part_)) {
    plan.first_lost = applied + 1;
    plan.last_lost = same_boot ? last_part_ : released_;
    return plan;
  }
  for (const RetainedPart& part : retained_) {
    if (part.sequence > applied) plan.parts.push_back(part);
  }
  return plan;
}

}  // namespace cairn
