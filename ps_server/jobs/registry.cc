#include "ps_server/jobs/registry.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// The charges must cover these objects, with the longest strings that a session may have.
static_assert(sizeof(Job) + sizeof(Session) + 5 * kMaxJobNameBytes + 1024 <= kJobChargeBytes);
static_assert(2 * sizeof(Session) + 2 * kMaxPositionBytes + kMaxOriginBytes + 3 * kMaxJobNameBytes +
                  kMaxTaskTypeBytes + 2 * 4 * kMaxGoneServers <=
              kWorkerChargeBytes);

// Leaves room for a later timeline and its incarnations, whatever a caller has proposed.
constexpr int64_t kLastErasable = kMaxIncarnation - (int64_t{2} << 32);

}  // namespace

Job::Job(absl::string_view name, Quota::Place place, Quota& workers, int64_t max_workers,
         const StepRole& role)
    : name_(name),
      place_(std::move(place)),
      workers_(workers),
      max_workers_(max_workers),
      made_(MonotonicNow()),
      cohort_(name, [this] { steps_.Wake(); }),
      steps_(name, &cohort_, role),
      variables_(std::make_shared<const VariableMap>()) {}

void Job::EndWaits(const absl::Status& why) {
  cohort_.Close(why);
  steps_.Stop(why);
}

std::shared_ptr<const VariableMap> Job::variables() const {
  absl::ReaderMutexLock lock(&mutex_);
  return variables_;
}

std::shared_ptr<const VariableMap> Job::VariablesWith(
    absl::Span<const std::shared_ptr<Variable>> more) const {
  auto map = std::make_shared<VariableMap>(*variables());
  for (const auto& variable : more) (*map)[variable->spec().name] = variable;
  return map;
}

void Job::SetVariables(std::shared_ptr<const VariableMap> variables) {
  absl::MutexLock lock(&mutex_);
  variables_.swap(variables);
}

std::shared_ptr<Session> Job::FindSession(int32_t worker) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = sessions_.find(worker);
  return found == sessions_.end() ? nullptr : found->second.session;
}

absl::StatusOr<std::shared_ptr<Session>> Job::AddSession(std::shared_ptr<Session> session,
                                                         Quota::For whom) {
  const int32_t worker = session->worker();
  ASSIGN_OR_RETURN(Quota::Place place,
                   workers_.Take(absl::StrCat("worker ", worker, " of job ", name_), whom));
  absl::MutexLock lock(&mutex_);
  const auto count = static_cast<int64_t>(sessions_.size());
  if (whom == Quota::For::kCaller && count >= max_workers_ && !sessions_.contains(worker)) {
    return WithReason(
        ResourceExhausted(workers_.server(), " keeps ", count, " workers of job ", name_,
                          ", worker ", worker, " would be one more; one job may have ",
                          max_workers_, " of the ", workers_.limit(),
                          " that --max_workers allows: drop the job (drop_job), or raise the flag"),
        wire::ErrorReason::LIMIT);
  }
  return sessions_.try_emplace(worker, Resident{std::move(session), std::move(place)})
      .first->second.session;
}

std::vector<std::shared_ptr<Session>> Job::sessions() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Session>> sessions;
  sessions.reserve(sessions_.size());
  for (const auto& [worker, resident] : sessions_) sessions.push_back(resident.session);
  return sessions;
}

std::shared_ptr<Session> Job::timeline_record() const {
  absl::ReaderMutexLock lock(&mutex_);
  return timeline_record_;
}

std::shared_ptr<Session> Job::AddTimelineRecord(std::shared_ptr<Session> record) {
  absl::MutexLock lock(&mutex_);
  if (timeline_record_ == nullptr) {
    timeline_record_ = std::move(record);
    begun_.store(timeline_record_->incarnation(), std::memory_order_release);
  }
  return timeline_record_;
}

int64_t Job::timeline() const {
  const std::shared_ptr<Session> record = timeline_record();
  if (record == nullptr) return 0;
  return record->left() ? -record->incarnation() : record->incarnation();
}

int64_t Job::LastIncarnation() const {
  absl::ReaderMutexLock lock(&mutex_);
  int64_t last = timeline_record_ == nullptr ? 0 : timeline_record_->incarnation();
  for (const auto& [worker, resident] : sessions_) {
    last = std::max(last, resident.session->incarnation());
  }
  return last;
}

bool Job::HasEarlierWorkers(int64_t timeline) const {
  absl::ReaderMutexLock lock(&mutex_);
  return std::ranges::any_of(sessions_, [timeline](const auto& entry) {
    return cairn::IsOfEarlierTimeline(entry.second.session->incarnation(), timeline);
  });
}

bool Job::Idle(bool shared, bool granting) const {
  if (steps_.active() || (shared && timeline() != 0)) return false;
  absl::ReaderMutexLock lock(&mutex_);
  if (!variables_->empty() || (granting && !sessions_.empty())) return false;
  return std::ranges::all_of(sessions_, [](const auto& entry) {
    const Session& session = *entry.second.session;
    return !session.leased() && session.applied() == 0 && !session.any_waiting();
  });
}

void Job::NoteCheckpoint() { checkpoint_ns_.store(absl::ToInt64Nanoseconds(MonotonicNow())); }

std::optional<absl::Duration> Job::SinceCheckpoint() const {
  const int64_t at = checkpoint_ns_.load();
  if (at == 0) return std::nullopt;
  return MonotonicNow() - absl::Nanoseconds(at);
}

absl::Duration Job::SinceSeen() const {
  absl::Duration since = MonotonicNow() - made_;
  absl::ReaderMutexLock lock(&mutex_);
  for (const auto& [worker, resident] : sessions_) {
    since = std::min(since, resident.session->SinceSeen());
  }
  return since;
}

Registry::Registry(absl::string_view server, const Limits& limits, MemoryBudget& budget,
                   const StepRole& role)
    : role_(role),
      job_quota_({.server = std::string(server),
                  .what = "jobs",
                  .flag = "--max_jobs",
                  .limit = limits.jobs,
                  .charge_bytes = kJobChargeBytes},
                 budget),
      worker_quota_({.server = std::string(server),
                     .what = "workers",
                     .flag = "--max_workers",
                     .limit = limits.workers,
                     .charge_bytes = kWorkerChargeBytes},
                    budget) {}

std::shared_ptr<Job> Registry::Find(absl::string_view name) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : found->second;
}

absl::StatusOr<std::shared_ptr<Job>> Registry::FindOrMake(absl::string_view name, Quota::For whom) {
  if (std::shared_ptr<Job> job = Find(name); job != nullptr) return job;
  ASSIGN_OR_RETURN(std::shared_ptr<Job> made, Make(name, whom));
  absl::MutexLock lock(&mutex_);
  if (!waits_ended_.ok()) made->EndWaits(waits_ended_);
  return jobs_.try_emplace(made->name(), std::move(made)).first->second;
}

void Registry::EndWaits(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (waits_ended_.ok()) waits_ended_ = why;
  }
  for (const std::shared_ptr<Job>& job : jobs()) job->EndWaits(why);
}

absl::StatusOr<std::shared_ptr<Job>> Registry::Make(absl::string_view name, Quota::For whom) {
  ASSIGN_OR_RETURN(Quota::Place place, job_quota_.Take(absl::StrCat("job ", name), whom));
  return std::make_shared<Job>(name, std::move(place), worker_quota_, max_workers_of_job(), role_);
}

Registry::Jobs::node_type Registry::NodeOf(std::shared_ptr<Job> job) {
  Jobs one;
  one.try_emplace(job->name(), std::move(job));
  return one.extract(one.begin());
}

std::shared_ptr<Job> Registry::Put(Jobs::node_type node) {
  absl::MutexLock lock(&mutex_);
  if (!waits_ended_.ok()) node.mapped()->EndWaits(waits_ended_);
  auto put = jobs_.insert(std::move(node));
  if (put.inserted) return nullptr;
  return std::exchange(put.position->second, std::move(put.node.mapped()));
}

std::vector<std::shared_ptr<Job>> Registry::jobs() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Job>> jobs;
  jobs.reserve(jobs_.size());
  for (const auto& [name, job] : jobs_) jobs.push_back(job);
  return jobs;
}

void Registry::Erase(absl::string_view name) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  const int64_t last = std::min(found->second->LastIncarnation(), kLastErasable);
  erased_[erased_count_++ % kKnownErased] = {.name_hash = absl::HashOf(name), .last = last};
  jobs_.erase(found);
}

int64_t Registry::LastErased(absl::string_view name) const {
  absl::ReaderMutexLock lock(&mutex_);
  int64_t last = 0;
  for (const Erased& erased : erased_) {
    if (erased.name_hash == absl::HashOf(name)) last = std::max(last, erased.last);
  }
  return last;
}

}  // namespace cairn
