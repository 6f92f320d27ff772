#include "ps_server/jobs/session.h"

#include <algorithm>

#include "common/deadline.h"

namespace cairn {

Session::Session(absl::string_view job, int32_t worker, bool applied_is_durable)
    : Session(WorkerRecord{.job = std::string(job), .worker = worker}, applied_is_durable) {}

Session::Session(const WorkerRecord& record, bool applied_is_durable)
    : job_(record.job),
      worker_(record.worker),
      applied_is_durable_(applied_is_durable),
      incarnation_(record.incarnation),
      applied_(record.sequence),
      position_(record.position),
      durable_(record),
      left_(record.left),
      seen_(MonotonicNow()) {}

int64_t Session::incarnation() const {
  absl::MutexLock lock(&mutex_);
  return incarnation_;
}

int64_t Session::applied() const {
  absl::MutexLock lock(&mutex_);
  return std::max(applied_, through_);
}

void Session::SetLeft(bool left) {
  absl::MutexLock lock(&mutex_);
  left_ = left;
}

bool Session::left() const {
  absl::MutexLock lock(&mutex_);
  return left_;
}

int64_t Session::durable_incarnation() const {
  absl::MutexLock lock(&mutex_);
  return durable_.incarnation;
}

void Session::RaiseLocked(int64_t incarnation) {
  if (incarnation <= incarnation_) return;
  awaits_hello_ = true;
  // No start follows up the sequences that the previous start left waiting, and sequences without a
  // part here may have one when they are computed again.
  waiting_.clear();
  through_ = 0;
  NoteCaughtUp();  // the new start computes again what is missing
  counts_on_specs_.store(false, std::memory_order_relaxed);
  vitals_ = {};
  vitals_at_ = -absl::InfiniteDuration();
  incarnation_ = incarnation;
}

void Session::Admit(int64_t incarnation, absl::string_view origin, int64_t start) {
  absl::MutexLock lock(&mutex_);
  if (incarnation > incarnation_ && start_ != 0) {
    std::copy_backward(replaced_starts_.begin(), replaced_starts_.end() - 1,
                       replaced_starts_.end());
    replaced_starts_[0] = start_;
  }
  RaiseLocked(incarnation);
  origin_ = std::string(origin);
  start_ = start;
  left_ = false;
  only_fenced_ = false;
}

void Session::NoteJoined() {
  absl::MutexLock lock(&mutex_);
  awaits_hello_ = false;
}

bool Session::WasReplaced(int64_t start) const {
  absl::MutexLock lock(&mutex_);
  return start != 0 && std::ranges::count(replaced_starts_, start) > 0;
}

void Session::Fence(int64_t incarnation) {
  absl::MutexLock lock(&mutex_);
  if (incarnation <= incarnation_) return;
  if (incarnation_ == 0) only_fenced_ = true;
  RaiseLocked(incarnation);
  start_ = 0;
}

bool Session::only_fenced() const {
  absl::MutexLock lock(&mutex_);
  return only_fenced_;
}

bool Session::awaits_hello() const {
  absl::MutexLock lock(&mutex_);
  return awaits_hello_;
}

int64_t Session::start() const {
  absl::MutexLock lock(&mutex_);
  return start_;
}

std::string Session::holder() const {
  absl::MutexLock lock(&mutex_);
  return awaits_hello_ ? "not joined here yet" : origin_;
}

std::string Session::origin() const {
  absl::MutexLock lock(&mutex_);
  return origin_;
}

void Session::Applied(int64_t sequence, absl::string_view position) {
  absl::MutexLock lock(&mutex_);
  if (sequence <= applied_) return;
  position_.assign(position.data(), position.size());  // first, because it may throw
  applied_ = sequence;
}

void Session::Closed(int64_t sequence, std::string position) {
  absl::MutexLock lock(&mutex_);
  while (!waiting_.empty() && waiting_.front() <= sequence) waiting_.pop_front();
  if (sequence <= applied_) return;
  applied_ = sequence;
  if (!position.empty()) position_ = std::move(position);
}

void Session::AddWaiting(int64_t sequence) {
  absl::MutexLock lock(&mutex_);
  if (sequence <= std::max(applied_, through_) ||
      (!waiting_.empty() && sequence <= waiting_.back()))
    return;
  waiting_.push_back(sequence);
}

int64_t Session::reached() const {
  absl::MutexLock lock(&mutex_);
  const int64_t applied = std::max(applied_, through_);
  return waiting_.empty() ? applied : std::max(applied, waiting_.back());
}

bool Session::any_waiting() const {
  absl::MutexLock lock(&mutex_);
  return !waiting_.empty();
}

void Session::Through(int64_t through) {
  absl::MutexLock lock(&mutex_);
  if (!waiting_.empty()) through = std::min(through, waiting_.front() - 1);
  through_ = std::max(through_, through);
}

void Session::Renew(absl::Duration lease) {
  absl::MutexLock lock(&mutex_);
  RenewLocked(lease);
}

void Session::RenewLocked(absl::Duration lease) {
  leased_ = true;
  seen_ = MonotonicNow();
  lease_until_ = seen_ + lease;
}

void Session::EndLease() {
  absl::MutexLock lock(&mutex_);
  leased_ = false;
}

void Session::ExtendLease(absl::Duration lease) {
  absl::MutexLock lock(&mutex_);
  lease_until_ = MonotonicNow() + lease;
}

bool Session::leased() const {
  absl::MutexLock lock(&mutex_);
  return leased_;
}

bool Session::LeaseRanOut() {
  absl::MutexLock lock(&mutex_);
  if (!leased_ || MonotonicNow() < lease_until_) return false;
  leased_ = false;
  return true;
}

void Session::Beat(absl::Duration lease, const wire::WorkerVitals& vitals) {
  absl::MutexLock lock(&mutex_);
  vitals_ = vitals;
  vitals_at_ = MonotonicNow();
  if (!left_ || leased_) RenewLocked(lease);
}

std::pair<wire::WorkerVitals, absl::Duration> Session::vitals() const {
  absl::MutexLock lock(&mutex_);
  return {vitals_, MonotonicNow() - vitals_at_};
}

absl::Duration Session::SinceSeen() const {
  absl::MutexLock lock(&mutex_);
  return MonotonicNow() - seen_;
}

void Session::Fill(wire::ServerState& state) const {
  absl::MutexLock lock(&mutex_);
  state.applied = std::max(applied_, through_);
  state.durable = applied_is_durable_ ? applied_ : durable_.sequence;
}

std::string Session::position() const {
  absl::MutexLock lock(&mutex_);
  return applied_is_durable_ ? position_ : durable_.position;
}

int64_t Session::durable_sequence_if_away() const {
  absl::MutexLock lock(&mutex_);
  return leased_ ? 0 : durable_.sequence;
}

bool Session::Note(WorkerRecord& record) const {
  absl::MutexLock lock(&mutex_);
  if (durable_.sequence == applied_ && durable_.incarnation == incarnation_ &&
      durable_.left == left_) {
    return false;
  }
  record = {.job = job_,
            .worker = worker_,
            .incarnation = incarnation_,
            .sequence = applied_,
            .position = position_,
            .left = left_};
  return true;
}

WorkerRecord Session::NoteIncarnation() const {
  absl::MutexLock lock(&mutex_);
  WorkerRecord record = durable_;
  record.incarnation = incarnation_;
  record.left = left_;
  return record;
}

void Session::Published(const WorkerRecord& record) {
  absl::MutexLock lock(&mutex_);
  // Snapshots end in order, but a hello may have stored its incarnation in between.
  if (record.incarnation >= durable_.incarnation && record.sequence >= durable_.sequence) {
    durable_ = record;
  }
}

}  // namespace cairn
