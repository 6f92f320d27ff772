#include "ps_server/registry.h"

#include <utility>

namespace cairn {

Job::Job(absl::string_view name)
    : name_(name),
      cohort_(name, [this] { steps_.Wake(); }),
      steps_(name, &cohort_),
      variables_(std::make_shared<const VariableMap>()) {}

void Job::EndWaits(const absl::Status& why) {
  cohort_.Close(why);
  steps_.Stop(why);
}

std::shared_ptr<const VariableMap> Job::variables() const {
  absl::ReaderMutexLock lock(&mutex_);
  return variables_;
}

void Job::Add(absl::Span<const std::shared_ptr<Variable>> variables) {
  absl::MutexLock lock(&mutex_);
  auto map = std::make_shared<VariableMap>(*variables_);
  for (const auto& variable : variables) map->emplace(variable->spec().name, variable);
  variables_ = std::move(map);
}

std::shared_ptr<Session> Job::FindSession(int32_t worker) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = sessions_.find(worker);
  return found == sessions_.end() ? nullptr : found->second;
}

std::shared_ptr<Session> Job::AddSession(std::shared_ptr<Session> session) {
  absl::MutexLock lock(&mutex_);
  const int32_t worker = session->worker();
  return sessions_.emplace(worker, std::move(session)).first->second;
}

std::vector<std::shared_ptr<Session>> Job::sessions() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Session>> sessions;
  for (const auto& [worker, session] : sessions_) sessions.push_back(session);
  return sessions;
}

std::shared_ptr<Job> Registry::Find(absl::string_view name) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : found->second;
}

std::shared_ptr<Job> Registry::FindOrMake(absl::string_view name) {
  if (std::shared_ptr<Job> job = Find(name); job != nullptr) return job;
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<Job>& job = jobs_[std::string(name)];
  if (job == nullptr) job = std::make_shared<Job>(name);
  return job;
}

std::vector<std::shared_ptr<Job>> Registry::jobs() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Job>> jobs;
  for (const auto& [name, job] : jobs_) jobs.push_back(job);
  return jobs;
}

void Registry::Erase(absl::string_view name) {
  absl::MutexLock lock(&mutex_);
  jobs_.erase(std::string(name));
}

}  // namespace cairn
