#include "common/interruption.h"

#include <utility>

namespace cairn {
namespace {

thread_local Interruption* of_this_thread = nullptr;
thread_local bool checking = false;  // `requested` of a scope of this thread is running

}  // namespace

Interruption::Interruption(Requested requested, void* context)
    : requested_(requested), context_(context), outer_(of_this_thread) {
  of_this_thread = requested == nullptr || checking ? nullptr : this;
}

Interruption::~Interruption() { of_this_thread = outer_; }

absl::Duration Interruption::LongestWait() {
  return of_this_thread == nullptr ? absl::InfiniteDuration() : kInterval;
}

bool Interruption::Interrupted(int64_t now_ns) {
  Interruption* const self = of_this_thread;
  if (self == nullptr) return false;
  if (self->next_check_ns_ == 0) {
    // Only start the interval: a call that is soon over is never interrupted.
    self->next_check_ns_ = now_ns + absl::ToInt64Nanoseconds(kInterval);
  }
  return self->interrupted_;
}

void Interruption::Check(int64_t now_ns) {
  if (Interrupted(now_ns) || checking) return;
  Interruption* const self = of_this_thread;
  if (self == nullptr || now_ns < self->next_check_ns_) return;
  self->next_check_ns_ = now_ns + absl::ToInt64Nanoseconds(kInterval);
  CheckNow();
}

void Interruption::CheckNow() {
  Interruption* const self = of_this_thread;
  if (self == nullptr || self->interrupted_ || checking) return;
  checking = true;
  self->interrupted_ = self->requested_(self->context_);
  checking = false;
}

Interruption* Interruption::Exchange(Interruption* scope) {
  return std::exchange(of_this_thread, scope);
}

}  // namespace cairn
