#include "common/interruption.h"

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

bool Interruption::Check(int64_t now_ns) {
  Interruption* const self = of_this_thread;
  if (self == nullptr) return false;
  if (self->interrupted_ || checking) return self->interrupted_;
  if (self->next_check_ns_ == 0) {
    // At the first check, only start the interval: a call that is soon over is never interrupted.
    self->next_check_ns_ = now_ns + absl::ToInt64Nanoseconds(kInterval);
  }
  if (now_ns < self->next_check_ns_) return false;
  self->next_check_ns_ = now_ns + absl::ToInt64Nanoseconds(kInterval);
  checking = true;
  self->interrupted_ = self->requested_(self->context_);
  checking = false;
  return self->interrupted_;
}

}  // namespace cairn
