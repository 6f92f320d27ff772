#include "ps_server/session.h"

#include <algorithm>

#include "absl/time/clock.h"

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
      durable_(record) {}

int64_t Session::incarnation() const {
  absl::MutexLock lock(&mutex_);
  return incarnation_;
}

int64_t Session::applied() const {
  absl::MutexLock lock(&mutex_);
  return applied_;
}

int64_t Session::durable_incarnation() const {
  absl::MutexLock lock(&mutex_);
  return durable_.incarnation;
}

void Session::Admit(int64_t incarnation, absl::string_view origin) {
  absl::MutexLock lock(&mutex_);
  incarnation_ = std::max(incarnation_, incarnation);
  origin_ = std::string(origin);
}

std::string Session::origin() const {
  absl::MutexLock lock(&mutex_);
  return origin_;
}

void Session::Applied(int64_t sequence, absl::string_view position) {
  absl::MutexLock lock(&mutex_);
  if (sequence <= applied_) return;
  applied_ = sequence;
  position_ = std::string(position);
}

void Session::Through(int64_t through) {
  absl::MutexLock lock(&mutex_);
  if (through <= applied_) return;
  applied_ = through;
  position_.clear();
}

void Session::Renew(absl::Duration lease) {
  absl::MutexLock lock(&mutex_);
  leased_ = true;
  lease_until_ = absl::Now() + lease;
}

void Session::EndLease() {
  absl::MutexLock lock(&mutex_);
  leased_ = false;
}

bool Session::LeaseRanOut() {
  absl::MutexLock lock(&mutex_);
  if (!leased_ || absl::Now() < lease_until_) return false;
  leased_ = false;
  return true;
}

void Session::Fill(wire::ServerState& state) const {
  absl::MutexLock lock(&mutex_);
  state.applied = applied_;
  state.durable = applied_is_durable_ ? applied_ : durable_.sequence;
}

std::string Session::position() const {
  absl::MutexLock lock(&mutex_);
  return applied_is_durable_ ? position_ : durable_.position;
}

bool Session::Note(WorkerRecord& record) const {
  absl::MutexLock lock(&mutex_);
  if (durable_.sequence == applied_ && durable_.incarnation == incarnation_) return false;
  record = {.job = job_,
            .worker = worker_,
            .incarnation = incarnation_,
            .sequence = applied_,
            .position = position_};
  return true;
}

WorkerRecord Session::NoteIncarnation() const {
  absl::MutexLock lock(&mutex_);
  WorkerRecord record = durable_;
  record.incarnation = incarnation_;
  return record;
}

void Session::Published(const WorkerRecord& record) {
  absl::MutexLock lock(&mutex_);
  if (record.incarnation > durable_.incarnation || record.sequence > durable_.sequence) {
    durable_ = record;
  }
}

}  // namespace cairn
