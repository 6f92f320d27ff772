#include "ps_server/core/job_catalog.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"

namespace cairn {

absl::StatusOr<ExclusiveSlot::Held> JobCatalog::TakeSlot(absl::string_view what) {
  const WaitBoard::Waiting waiting(&waits_, "create",
                                   "another create_variables, drop_job or restore to end");
  return slot_.Take(absl::StrCat(info_.name, ": ", what), info_.options.disk_wait);
}

absl::Status JobCatalog::WriteRecord(const Job& job, absl::FunctionRef<absl::Status()> write) {
  return flusher_.BetweenStripes([&]() -> absl::Status {
    if (registry_.Find(job.name()).get() != &job) {
      return absl::FailedPreconditionError("the job was dropped or restored meanwhile");
    }
    // The evictor must not write stripes again that have just been removed.
    const absl::Status written = evictor_.Exclusively(write);
    return written.ok() ? written : flusher_.Refuse(written);
  });
}

absl::Status JobCatalog::Add(Job& job, const std::shared_ptr<Variable>& variable) {
  auto variables = job.VariablesWith({variable});
  CAIRN_CRASH_POINT("create: before a variable");
  const absl::Status written = store_.PutVariable(variable->record());
  if (!written.ok()) {
    return Annotate(flusher_.Refuse(written), absl::StrCat("create on ", info_.name));
  }
  job.SetVariables(std::move(variables));
  return absl::OkStatus();
}

absl::Status JobCatalog::Drop(const std::string& name) {
  std::shared_ptr<Job> job;
  const auto drop = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    job = registry_.Find(name);
    // Otherwise a decision could be stored after the job's others have been deleted.
    std::optional<TracedLock> deciding;
    if (job != nullptr) {
      deciding.emplace(&job->steps().deciding(), &waits_, "epoch", "a decision to be written");
    }
    CAIRN_CRASH_POINT("drop: begun");
    if (const absl::Status dropped = store_.DropJob(name); !dropped.ok()) {
      return flusher_.Refuse(dropped);
    }
    CAIRN_CRASH_POINT("drop: gone on disk");
    if (job != nullptr) job->steps().EndDecisions();
    registry_.Erase(name);
    moves_.EraseJob(name);
    return absl::OkStatus();
  };
  // A running epoch would write stripes of the job again.
  RETURN_IF_ERROR(flusher_.Exclusively([&] { return evictor_.Exclusively(drop); }));
  if (job != nullptr) {
    job->EndWaits(
        FailedPrecondition("job ", name, " was dropped meanwhile: start this task again"));
  }
  return absl::OkStatus();
}

// The idle job whose workers have been away longest, and for at least a lease; nullptr: none.
std::shared_ptr<Job> JobCatalog::LongestIdle() const {
  const bool shared = info_.options.server_count > 1 || members_.version() > 0;
  const bool granting = shared && info_.index() == 0;
  std::shared_ptr<Job> longest;
  absl::Duration since = info_.options.lease;
  for (const std::shared_ptr<Job>& job : registry_.jobs()) {
    const absl::Duration seen = job->SinceSeen();
    if (seen <= since || !job->Idle(shared, granting)) continue;
    longest = job;
    since = seen;
  }
  return longest;
}

absl::Status JobCatalog::DropIdleJobs() {
  constexpr int kMaxJobs = 16;  // each costs a sync
  for (int tries = 0; tries < kMaxJobs && registry_.full(); ++tries) {
    const std::shared_ptr<Job> idle = LongestIdle();
    if (idle == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(Drop(idle->name()));
    LOG(INFO) << info_.name << " forgot job " << idle->name()
              << ", which has no variables and whose workers are away, to make room";
  }
  return absl::OkStatus();
}

absl::Status JobCatalog::DropOtherTimeline(const std::string& name, int64_t timeline) {
  const auto other = [&] {
    const std::shared_ptr<Job> job = registry_.Find(name);
    const int64_t held = job == nullptr ? 0 : std::abs(job->timeline());
    return held != 0 && held != timeline ? job : nullptr;
  };
  if (other() == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, TakeSlot(absl::StrCat("hello of job ", name)));
  const std::shared_ptr<Job> job = other();
  if (job == nullptr) return absl::OkStatus();
  if (job->variables()->empty()) return Drop(name);
  return FailedPrecondition(
      "hello to ", info_.name, ": it holds job ", name, " as it began at ",
      TimelineText(std::abs(job->timeline())), ", ps:0 as it began at ", TimelineText(timeline),
      ": one of the two was started on another directory; start it on its own --data_dir, or drop "
      "the job (--fresh)");
}

absl::Status JobCatalog::DropEarlierWorkers(const std::string& name, int64_t timeline) {
  const auto has_only_them = [&] {
    const std::shared_ptr<Job> job = registry_.Find(name);
    return job != nullptr && job->timeline() == 0 && job->variables()->empty() &&
           job->HasEarlierWorkers(timeline);
  };
  if (!has_only_them()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, TakeSlot(absl::StrCat("hello of job ", name)));
  return has_only_them() ? Drop(name) : absl::OkStatus();
}

}  // namespace cairn
