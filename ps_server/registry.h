// Jobs by name: their variables and workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ps_server/cohort.h"
#include "ps_server/job_steps.h"
#include "ps_server/quota.h"
#include "ps_server/session.h"
#include "ps_server/variable.h"

namespace cairn {

// Variables of a job by name, as they were at one moment; a request works on one such map.
using VariableMap = absl::flat_hash_map<std::string, std::shared_ptr<Variable>>;

// Thread safety: every method may be called from several threads at once; lookups share their lock.
class Job {
 public:
  // `workers`: of the registry, for sessions; outlives this.
  Job(absl::string_view name, Quota::Place place, Quota& workers);

  const std::string& name() const { return name_; }
  Cohort& cohort() { return cohort_; }
  JobSteps& steps() { return steps_; }
  // Ends every wait for other workers, now and later, with `why`.
  void EndWaits(const absl::Status& why);
  std::shared_ptr<const VariableMap> variables() const;
  // Variables of names not there yet.
  void Add(absl::Span<const std::shared_ptr<Variable>> variables);
  // Instead of the one of its name.
  void Replace(std::shared_ptr<Variable> variable);

  // nullptr: never said hello here.
  std::shared_ptr<Session> FindSession(int32_t worker) const;
  // The one there is for its worker, else `session`. Errors as Quota::Take.
  absl::StatusOr<std::shared_ptr<Session>> AddSession(std::shared_ptr<Session> session,
                                                      Quota::For whom);
  // In the order of their workers.
  std::vector<std::shared_ptr<Session>> sessions() const;

  // Whether nothing would be lost with it: it has no variables, its workers are away, and none has
  // pushed anything. `granting`: this server's incarnations are those of other servers too, so that
  // whoever was granted one must not be forgotten.
  bool Idle(bool granting) const;
  // Since one of its workers was seen, or since it was made.
  absl::Duration SinceSeen() const;

 private:
  struct Resident {
    std::shared_ptr<Session> session;
    Quota::Place place;
  };

  const std::string name_;
  const Quota::Place place_;
  Quota& workers_;
  const absl::Duration made_;  // on the monotonic clock
  Cohort cohort_;
  JobSteps steps_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const VariableMap> variables_;
  absl::flat_hash_map<int32_t, Resident> sessions_;
};

// Thread safety: as Job. Outlives the jobs that it makes.
class Registry {
 public:
  struct Limits {
    int64_t jobs = 0;
    int64_t workers = 0;  // of all jobs together
  };
  // `server`: "ps:0", for messages. `budget` outlives this.
  Registry(absl::string_view server, const Limits& limits, MemoryBudget& budget);

  // nullptr: no such job.
  std::shared_ptr<Job> Find(absl::string_view name) const;
  // Errors as Quota::Take.
  absl::StatusOr<std::shared_ptr<Job>> FindOrMake(absl::string_view name, Quota::For whom);
  // One that nobody finds before Put.
  absl::StatusOr<std::shared_ptr<Job>> Make(absl::string_view name, Quota::For whom);
  // Instead of the one of its name, if there is one: as after Erase.
  void Put(std::shared_ptr<Job> job);
  // By name.
  std::vector<std::shared_ptr<Job>> jobs() const;
  // Requests that hold the job go on with it; nobody finds it any more.
  void Erase(absl::string_view name);

  // Whether callers may make no more of one or the other.
  bool full() const { return job_quota_.full() || worker_quota_.full(); }
  int64_t max_workers() const { return worker_quota_.limit(); }

 private:
  Quota job_quota_;
  Quota worker_quota_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Job>> jobs_;
};

}  // namespace cairn
