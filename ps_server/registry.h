// Jobs by name: their variables and workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps_server/cohort.h"
#include "ps_server/job_steps.h"
#include "ps_server/session.h"
#include "ps_server/variable.h"

namespace cairn {

// Variables of a job by name, as they were at one moment; a request works on one such map.
using VariableMap = absl::flat_hash_map<std::string, std::shared_ptr<Variable>>;

// Thread safety: every method may be called from several threads at once; lookups share their lock.
class Job {
 public:
  explicit Job(absl::string_view name);

  const std::string& name() const { return name_; }
  Cohort& cohort() { return cohort_; }
  JobSteps& steps() { return steps_; }
  // Ends every wait for other workers, now and later, with `why`.
  void EndWaits(const absl::Status& why);
  std::shared_ptr<const VariableMap> variables() const;
  // Variables of names not there yet.
  void Add(absl::Span<const std::shared_ptr<Variable>> variables);

  // nullptr: never said hello here.
  std::shared_ptr<Session> FindSession(int32_t worker) const;
  // The one there is for its worker, else `session`.
  std::shared_ptr<Session> AddSession(std::shared_ptr<Session> session);
  std::vector<std::shared_ptr<Session>> sessions() const;

 private:
  const std::string name_;
  Cohort cohort_;
  JobSteps steps_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const VariableMap> variables_;
  absl::flat_hash_map<int32_t, std::shared_ptr<Session>> sessions_;
};

// Thread safety: as Job.
class Registry {
 public:
  // nullptr: no such job.
  std::shared_ptr<Job> Find(absl::string_view name) const;
  std::shared_ptr<Job> FindOrMake(absl::string_view name);
  std::vector<std::shared_ptr<Job>> jobs() const;
  // Requests that hold the job go on with it; nobody finds it any more.
  void Erase(absl::string_view name);

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Job>> jobs_;
};

}  // namespace cairn
