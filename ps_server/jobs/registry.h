// Jobs by name: their variables and workers.
#pragma once

#include <algorithm>
#include <array>
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
#include "common/timeline.h"
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
  // `workers`: the registry's quota for sessions; must outlive this object. The job may use at most
  // `max_workers` of it.
  Job(absl::string_view name, Quota::Place place, Quota& workers, int64_t max_workers,
      const StepRole& role);

  const std::string& name() const { return name_; }
  Cohort& cohort() { return cohort_; }
  JobSteps& steps() { return steps_; }
  // Ends every wait for other workers, now and later, with the error `why`.
  void EndWaits(const absl::Status& why);
  std::shared_ptr<const VariableMap> variables() const;
  // Returns variables() with `more`, each replacing the variable of the same name. The result is
  // for SetVariables; no other call may set the variables in between.
  std::shared_ptr<const VariableMap> VariablesWith(
      absl::Span<const std::shared_ptr<Variable>> more) const;
  // Does not allocate: a change that is on disk already must not fail in memory.
  void SetVariables(std::shared_ptr<const VariableMap> variables);

  // nullptr: the worker has never said hello here.
  std::shared_ptr<Session> FindSession(int32_t worker) const;
  // Returns the worker's existing session, or else adds `session`. Errors as in Quota::Take; LIMIT
  // also if the job has as many workers as one job may have.
  absl::StatusOr<std::shared_ptr<Session>> AddSession(std::shared_ptr<Session> session,
                                                      Quota::For whom);
  // Ordered by worker.
  std::vector<std::shared_ptr<Session>> sessions() const;

  // The record of the timeline that this server holds (common/timeline.h); nullptr: none.
  std::shared_ptr<Session> timeline_record() const;
  // Returns the existing record, or else stores `record`, whose incarnation is the timeline.
  std::shared_ptr<Session> AddTimelineRecord(std::shared_ptr<Session> record);
  // 0: none. Negative: a restore began the timeline, and no worker has said hello since.
  int64_t timeline() const;
  // The highest incarnation of its workers, or its timeline, if that is higher.
  int64_t LastIncarnation() const;
  // IsOfEarlierTimeline for the timeline that this server holds. Takes no lock.
  bool IsOfEarlierTimeline(int64_t incarnation) const {
    return cairn::IsOfEarlierTimeline(incarnation, begun_.load(std::memory_order_acquire));
  }
  // Whether a worker's incarnation is of a timeline earlier than `timeline`.
  bool HasEarlierWorkers(int64_t timeline) const;

  // Whether the job can be forgotten without loss: it has no variables, its workers are away, and
  // none has pushed anything. `shared`: the cluster has other servers, which would take this server
  // for one that lost the job. `granting`: this server grants incarnations for other servers too,
  // so no worker with an incarnation may be forgotten.
  bool Idle(bool shared, bool granting) const;
  // Time since one of its workers was last seen, or since the job was created.
  absl::Duration SinceSeen() const;

  // Records that a checkpoint of the job has ended on this server.
  void NoteCheckpoint();
  // nullopt: no checkpoint since the server's start.
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
  std::shared_ptr<Session> timeline_record_;
  std::atomic<int64_t> begun_{0};  // the timeline; 0: none
};

// Thread safety: as Job. Must outlive the jobs that it creates.
class Registry {
 public:
  struct Limits {
    int64_t jobs = 0;
    int64_t workers = 0;  // of all jobs together
  };
  // `server`: "ps:0", for messages. `budget` must outlive this object.
  Registry(absl::string_view server, const Limits& limits, MemoryBudget& budget,
           const StepRole& role = {});

  // nullptr: the job does not exist.
  std::shared_ptr<Job> Find(absl::string_view name) const;
  // Errors as Quota::Take.
  absl::StatusOr<std::shared_ptr<Job>> FindOrMake(absl::string_view name, Quota::For whom);
  // Creates a job that Find does not return before Put.
  absl::StatusOr<std::shared_ptr<Job>> Make(absl::string_view name, Quota::For whom);
  using Jobs = std::map<std::string, std::shared_ptr<Job>, std::less<>>;
  // The argument for Put, which does not allocate: a change that is on disk already must not fail
  // in memory.
  static Jobs::node_type NodeOf(std::shared_ptr<Job> job);
  // Replaces the job of the same name and returns the replaced job; nullptr: there was none.
  std::shared_ptr<Job> Put(Jobs::node_type node);
  // Ordered by name.
  std::vector<std::shared_ptr<Job>> jobs() const;
  // Ends every wait for other workers (Job::EndWaits) of all jobs, also of those made later.
  void EndWaits(const absl::Status& why);
  // Requests that hold the job continue with it; Find no longer returns it. Does not allocate.
  void Erase(absl::string_view name);
  // The highest incarnation, or timeline, that an erased job of this name had; 0: none. Knows the
  // last kKnownErased jobs that were erased since the server's start.
  int64_t LastErased(absl::string_view name) const;
  static constexpr size_t kKnownErased = 256;

  // Whether callers cannot create another job, or cannot create another worker.
  bool full() const { return job_quota_.full() || worker_quota_.full(); }
  int64_t max_workers_of_job() const {
    const int64_t limit = worker_quota_.limit();
    return std::min(limit, std::max<int64_t>(limit / 2, kMinWorkersLimitOfJob));
  }

 private:
  const StepRole role_;
  Quota job_quota_;
  Quota worker_quota_;
  mutable absl::Mutex mutex_;
  struct Erased {
    size_t name_hash = 0;
    int64_t last = 0;
  };
  Jobs jobs_;
  std::array<Erased, kKnownErased> erased_{};  // a ring
  size_t erased_count_ = 0;
  absl::Status waits_ended_;  // not OK: the argument of EndWaits
};

}  // namespace cairn
