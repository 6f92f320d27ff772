// Jobs by name: their variables and workers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ps_server/base/quota.h"
#include "ps_server/jobs/cohort.h"
#include "ps_server/jobs/job_steps.h"
#include "ps_server/jobs/session.h"
#include "ps_server/rows/variable.h"
#include "thrift/number_limits.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once; lookups share their lock.
class Job {
 public:
  // `workers`: of the registry, for sessions; outlives this. At most `max_workers` of them are this
  // job's.
  Job(absl::string_view name, Quota::Place place, Quota& workers, int64_t max_workers,
      const StepRole& role);

  const std::string& name() const { return name_; }
  Cohort& cohort() { return cohort_; }
  JobSteps& steps() { return steps_; }
  // Ends every wait for other workers, now and later, with `why`.
  void EndWaits(const absl::Status& why);
  std::shared_ptr<const VariableMap> variables() const;
  // variables() and `more`, each instead of the one of its name. For SetVariables; nothing else may
  // set them in between.
  std::shared_ptr<const VariableMap> VariablesWith(
      absl::Span<const std::shared_ptr<Variable>> more) const;
  // Allocates nothing: memory follows what was written to disk before.
  void SetVariables(std::shared_ptr<const VariableMap> variables);

  // nullptr: never said hello here.
  std::shared_ptr<Session> FindSession(int32_t worker) const;
  // The one there is for its worker, else `session`. Errors as Quota::Take; LIMIT also where the
  // job has as many as one may have.
  absl::StatusOr<std::shared_ptr<Session>> AddSession(std::shared_ptr<Session> session,
                                                      Quota::For whom);
  // In the order of their workers.
  std::vector<std::shared_ptr<Session>> sessions() const;

  // The record of the timeline that this server holds (common/timeline.h); nullptr: none.
  std::shared_ptr<Session> life() const;
  // The one there is, else `life`, whose incarnation is the timeline.
  std::shared_ptr<Session> AddLife(std::shared_ptr<Session> life);
  // 0: none. Negative: a restore has begun it, and no worker has said hello since.
  int64_t timeline() const;

  // Whether nothing would be lost with it: it has no variables, its workers are away, and none has
  // pushed anything. `shared`: the cluster has other servers, which would take this one for a
  // server that lost the job. `granting`: this server's incarnations are those of other servers
  // too, so that whoever was granted one must not be forgotten.
  bool Idle(bool shared, bool granting) const;
  // Since one of its workers was seen, or since it was made.
  absl::Duration SinceSeen() const;

  // A checkpoint of the job has ended here.
  void NoteCheckpoint();
  // nullopt: none since the server's start.
  std::optional<absl::Duration> SinceCheckpoint() const;

 private:
  struct Resident {
    std::shared_ptr<Session> session;
    Quota::Place place;
  };

  const std::string name_;
  const Quota::Place place_;
  Quota& workers_;
  const int64_t max_workers_;
  const absl::Duration made_;              // on the monotonic clock
  std::atomic<int64_t> checkpoint_ns_{0};  // the same clock; 0: none
  Cohort cohort_;
  JobSteps steps_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const VariableMap> variables_;
  std::map<int32_t, Resident> sessions_;
  std::shared_ptr<Session> life_;
};

// Thread safety: as Job. Outlives the jobs that it makes.
class Registry {
 public:
  struct Limits {
    int64_t jobs = 0;
    int64_t workers = 0;  // of all jobs together
  };
  // `server`: "ps:0", for messages. `budget` outlives this.
  Registry(absl::string_view server, const Limits& limits, MemoryBudget& budget,
           const StepRole& role = {});

  // nullptr: no such job.
  std::shared_ptr<Job> Find(absl::string_view name) const;
  // Errors as Quota::Take.
  absl::StatusOr<std::shared_ptr<Job>> FindOrMake(absl::string_view name, Quota::For whom);
  // One that nobody finds before Put.
  absl::StatusOr<std::shared_ptr<Job>> Make(absl::string_view name, Quota::For whom);
  using Jobs = std::map<std::string, std::shared_ptr<Job>, std::less<>>;
  // For Put, which allocates nothing: memory follows what was written to disk before.
  static Jobs::node_type NodeOf(std::shared_ptr<Job> job);
  // Instead of the one of its name, which it returns; nullptr: there was none.
  std::shared_ptr<Job> Put(Jobs::node_type node);
  // By name.
  std::vector<std::shared_ptr<Job>> jobs() const;
  // Requests that hold the job go on with it; nobody finds it any more.
  void Erase(absl::string_view name);

  // Whether callers may make no more of one or the other.
  bool full() const { return job_quota_.full() || worker_quota_.full(); }
  int64_t max_workers_of_job() const {
    const int64_t limit = worker_quota_.limit();
    return std::min(limit, std::max<int64_t>(limit / 2, kLeastMaxWorkersOfJob));
  }

 private:
  const StepRole role_;
  Quota job_quota_;
  Quota worker_quota_;
  mutable absl::Mutex mutex_;
  Jobs jobs_;
};

}  // namespace cairn
