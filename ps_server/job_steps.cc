#include "ps_server/job_steps.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/log.h"
#include "common/status.h"
#include "common/time_text.h"
#include "ps_server/push.h"
#include "ps_server/sequencing.h"
#include "ps_server/server_core.h"
#include "ps_server/step_mean.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// Decisions that nobody needs any more are deleted from the disk so many at a time: each deletion
// is a range that later reads step over.
constexpr int64_t kDecisionsPerDeletion = 256;

bool IsCoordinator(const ServerCore& core) { return core.options.server_index == 0; }

wire::StepDecision ToWire(const DecisionRecord& record) {
  wire::StepDecision decision;
  decision.step = record.step;
  for (const NamedContribution& name : record.contributions) {
    wire::Contribution& named = decision.contributions.emplace_back();
    named.worker = name.worker;
    named.incarnation = name.incarnation;
    named.sequence = name.sequence;
    named.rows = name.rows;
  }
  return decision;
}

DecisionRecord FromWire(const wire::StepDecision& decision, const std::string& job) {
  DecisionRecord record;
  record.job = job;
  record.step = decision.step;
  for (const wire::Contribution& named : decision.contributions) {
    NamedContribution& name = record.contributions.emplace_back();
    name.worker = named.worker;
    name.incarnation = named.incarnation;
    name.sequence = named.sequence;
    name.rows = named.rows;
  }
  return record;
}

// Whether this server has anything of the job.
bool AnyRows(const Job& job) {
  const auto variables = job.variables();
  return std::any_of(variables->begin(), variables->end(),
                     [](const auto& variable) { return !variable.second->shards().empty(); });
}

SyncSteps::Missing WhyMissing(const Job& job, bool any_rows, const NamedContribution& name) {
  const std::shared_ptr<Session> session = job.FindSession(name.worker);
  // Its worker pushed it before it knew of this server, or this one has nothing of the job.
  if (session == nullptr || !any_rows) return SyncSteps::Missing::kNoPart;
  // A newer start of the worker computes again what is not applied everywhere.
  if (session->left()) return SyncSteps::Missing::kLost;
  return session->applied() < name.sequence ? SyncSteps::Missing::kAwaited
                                            : SyncSteps::Missing::kNoPart;
}

}  // namespace

void JobSteps::Load(const ServerCore& core, const WorkerRecord& closed,
                    std::vector<DecisionRecord> decisions) {
  absl::MutexLock lock(&mutex_);
  session_ = std::make_shared<Session>(closed, core.applied_is_durable());
  if (!IsCoordinator(core)) steps_.KeepNoClosedDecisions();
  steps_.Begin(closed.sequence, std::move(decisions));
  active_.store(true, std::memory_order_release);
}

std::shared_ptr<Session> JobSteps::Begin(const ServerCore& core, int64_t after) {
  absl::MutexLock lock(&mutex_);
  if (session_ != nullptr) return session_;
  session_ = std::make_shared<Session>(job_, kStepWorker, core.applied_is_durable());
  session_->Admit(/*incarnation=*/1, "steps");  // so that there is a record, also of step 0
  if (!IsCoordinator(core)) {
    steps_.KeepNoClosedDecisions();
    steps_.Begin(after, {});
    if (after > 0) session_->Applied(after, "");
  }
  active_.store(true, std::memory_order_release);
  return session_;
}

int64_t JobSteps::open() const {
  absl::MutexLock lock(&mutex_);
  return steps_.open();
}

std::shared_ptr<Session> JobSteps::session() const {
  absl::MutexLock lock(&mutex_);
  return session_;
}

void JobSteps::Fill(wire::ServerState& state) const {
  if (!active()) return;
  wire::ServerState steps;
  session()->Fill(steps);
  state.closed_step = steps.applied;
  state.durable_step = steps.durable;
}

void JobSteps::Restart(const ServerCore& core, int32_t worker) {
  if (!active() || !IsCoordinator(core)) return;
  const absl::MutexLock deciding(&deciding_);
  absl::MutexLock lock(&mutex_);
  steps_.Restart(worker);
}

int64_t JobSteps::LastNamed(const ServerCore& core, int32_t worker) const {
  if (!active() || !IsCoordinator(core)) return 0;
  const absl::MutexLock deciding(&deciding_);
  absl::MutexLock lock(&mutex_);
  return steps_.LastNamed(worker);
}

int64_t JobSteps::closed() const {
  absl::MutexLock lock(&mutex_);
  return steps_.closed();
}

int64_t JobSteps::decided() const {
  absl::MutexLock lock(&mutex_);
  return steps_.decided();
}

int64_t JobSteps::LastBegun(absl::string_view variable) const {
  absl::MutexLock lock(&mutex_);
  const int64_t pending = steps_.LastPending([&](const PendingContribution& contribution) {
    const std::vector<wire::PushItem>& items = contribution.parts->items;
    return std::any_of(items.begin(), items.end(),
                       [&](const wire::PushItem& item) { return item.variable == variable; });
  });
  return std::max(steps_.decided(), pending);
}

SyncSteps::Added JobSteps::Add(PendingContribution contribution, bool replaces) {
  const absl::MutexLock deciding(&deciding_);
  absl::MutexLock lock(&mutex_);
  return steps_.Add(std::move(contribution), replaces);
}

absl::Status JobSteps::Learn(ServerCore& core, absl::Span<const wire::StepDecision> decisions) {
  if (decisions.empty()) return absl::OkStatus();
  if (!active()) {
    return absl::FailedPreconditionError(
        absl::StrCat(core.name, ": decisions of steps of job ", job_,
                     ", which is not synchronous here: say hello with that consistency first"));
  }
  const absl::MutexLock deciding(&deciding_);
  for (const wire::StepDecision& decision : decisions) {
    if (decision.step != decided() + 1) continue;
    DecisionRecord record = FromWire(decision, job_);
    if (IsCoordinator(core)) {
      // Its disk came back older than what it had told: what was told holds.
      LOG(WARNING) << core.name << ": takes the decision of step " << decision.step << " of job "
                   << job_ << " from a worker, its disk has lost it";
      RETURN_IF_ERROR(Store(core, record));
    }
    absl::MutexLock lock(&mutex_);
    steps_.Learn(std::move(record));
  }
  return absl::OkStatus();
}

absl::Status JobSteps::Store(ServerCore& core, const DecisionRecord& decision) {
  if (core.options.durability == Durability::kOff) return absl::OkStatus();
  const WaitBoard::Waiting waiting(&core.waits, "epoch",
                                   absl::StrCat("the decision of step ", decision.step,
                                                " to be written to ", core.options.directory));
  // Where it leaves workers out another one could take its place: all whom it was told may be gone
  // when the machine comes back without it.
  const bool sync = core.options.durability == Durability::kLogSync ||
                    cohort_.settings().replicas_to_aggregate > 0;
  absl::Status stored = core.store->PutDecision(decision, sync);
  return stored.ok() ? stored : core.flusher.Refuse(stored);
}

absl::Status JobSteps::Decide(ServerCore& core, int64_t below) {
  const std::vector<QuorumMember> quorum = cohort_.Quorum();
  const int32_t aggregate = cohort_.settings().replicas_to_aggregate;
  const absl::MutexLock deciding(&deciding_);
  for (;;) {
    std::optional<DecisionRecord> decision;
    {
      absl::MutexLock lock(&mutex_);
      if (steps_.open() < below) decision = steps_.Decide(quorum, aggregate);
    }
    if (!decision) return absl::OkStatus();
    decision->job = job_;
    CAIRN_CRASH_POINT("decision: made, not stored");
    RETURN_IF_ERROR(Store(core, *decision));
    CAIRN_CRASH_POINT("decision: stored");
    absl::MutexLock lock(&mutex_);
    steps_.Learn(*std::move(decision));
  }
}

absl::Status JobSteps::CloseSteps(ServerCore& core, const Admitted& admitted) {
  for (;;) {
    std::optional<SyncSteps::Closing> next;
    {
      absl::MutexLock lock(&mutex_);
      if (closing_) return absl::OkStatus();  // that thread looks again when it is done
      next =
          steps_.NextClosing([&, any_rows = AnyRows(*admitted.job)](const NamedContribution& name) {
            return WhyMissing(*admitted.job, any_rows, name);
          });
      awaited_.clear();
      if (!next) return absl::OkStatus();
      for (const NamedContribution* name : next->awaited) awaited_.push_back(*name);
      if (!awaited_.empty()) return absl::OkStatus();
      closing_ = true;
    }
    const absl::Cleanup closed = [&] {
      {
        absl::MutexLock lock(&mutex_);
        closing_ = false;
      }
      Wake();
    };
    RETURN_IF_ERROR(CloseOne(core, admitted, *std::move(next)));
  }
}

absl::Status JobSteps::CloseOne(ServerCore& core, const Admitted& admitted,
                                SyncSteps::Closing closing) {
  const int64_t step = closing.decision->step;
  CAIRN_CRASH_POINT("step: before it closes");
  for (const NamedContribution* name : closing.lost) {
    core.counters.Add(Counter::kContributionsLost);
    LOG(WARNING) << core.name << ": step " << step << " of job " << job_ << " closes without push "
                 << name->sequence << " of worker " << name->worker
                 << ", which counts for it: this server was restarted without it, and its worker "
                    "is gone";
  }
  if (!closing.present.empty()) {
    // All there are by now: other workers may have made some since this call came.
    const std::shared_ptr<const VariableMap> variables = admitted.job->variables();
    ASSIGN_OR_RETURN(const StepMean mean,
                     MeanOf(core.budget, *variables, closing.present, closing.rows_elsewhere,
                            cohort_.settings().sync_mean));
    const absl::Status applied =
        ApplyStep(core, *variables, mean.items, {.worker = kStepWorker, .sequence = step});
    if (MayPass(applied)) return applied;
    if (!applied.ok()) {
      LOG(ERROR) << core.name << ": step " << step << " of job " << job_
                 << " closes without an update: " << applied.message();
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    CAIRN_CRASH_POINT("step: mean applied, not closed");
    absl::MutexLock notes(&notes_mutex_);
    SyncSteps::Closed closed = steps_.Close();
    for (NamedContribution& name : closed.named) {
      const std::shared_ptr<Session> session = admitted.job->FindSession(name.worker);
      if (session != nullptr) session->Closed(name.sequence, std::move(name.position));
    }
    for (NamedContribution& name : closed.dropped) {
      const std::shared_ptr<Session> session = admitted.job->FindSession(name.worker);
      // To a newer start, which does not know of it, that sequence may be another push.
      if (session == nullptr || session->incarnation() > name.incarnation) continue;
      session->Closed(name.sequence, std::move(name.position));
    }
    session_->Applied(step, "");
    core.counters.Add(Counter::kContributionsDropped, static_cast<int64_t>(closed.dropped.size()));
  }
  core.counters.Add(Counter::kSteps);
  CAIRN_CRASH_POINT("step: closed");
  return AwaitPromised(core);
}

bool JobSteps::Ready(const ServerCore& core, int64_t step) const {
  if (closing_ || steps_.closed() < step - 1) return false;
  return !IsCoordinator(core) || steps_.closed() == steps_.decided();
}

absl::Status JobSteps::Await(ServerCore& core, const Admitted& admitted,
                             const wire::PullRequest& request, wire::PullReply& reply) {
  Session& session = *admitted.session;
  const Deadline deadline = Deadline::In(absl::Seconds(request.wait_seconds));
  if (IsCoordinator(core) && request.members_version == core.members.version()) {
    RETURN_IF_ERROR(Forget(core, request.all_durable_step));
  }
  std::optional<std::list<Waiter>::iterator> waiter;
  const auto done = absl::MakeCleanup([&] {
    if (!waiter) return;
    absl::MutexLock lock(&mutex_);
    waiters_.erase(*waiter);
  });
  for (;;) {
    const int64_t seen = generation();
    if (IsCoordinator(core)) RETURN_IF_ERROR(Decide(core, request.step));
    RETURN_IF_ERROR(CloseSteps(core, admitted));
    {
      absl::MutexLock lock(&mutex_);
      if (IsCoordinator(core) && request.step > steps_.open() + 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            "pull on ", core.name, ": worker ", session.worker(), " of job ", job_, " begins step ",
            request.step, ", but step ", steps_.open(), " is open: begin that one"));
      }
      if (Ready(core, request.step)) {
        reply.step = steps_.closed() + 1;
        FillDecisions(request, reply);
        return absl::OkStatus();
      }
      if (!waiter) {
        waiter = waiters_.insert(
            waiters_.end(),
            {.worker = session.worker(), .step = request.step, .since = MonotonicNow()});
      }
    }
    {
      absl::MutexLock lock(&wake_mutex_);
      RETURN_IF_ERROR(stopped_);
    }
    RETURN_IF_ERROR(CheckIncarnation(core, session, request.caller.incarnation));
    if (session.stopped()) RETURN_IF_ERROR(cohort_.Check(session));
    if (deadline.Expired()) {
      return WithReason(absl::DeadlineExceededError(WaitText(**waiter, FindMissing())),
                        wire::ErrorReason::WAIT_EXPIRED);
    }
    WaitForWake(seen, deadline);
  }
}

absl::Status JobSteps::AwaitNoneWaiting(ServerCore& core, const Admitted& admitted,
                                        int64_t incarnation, Deadline deadline) {
  Session& session = *admitted.session;
  const absl::Duration since = MonotonicNow();
  const WaitBoard::Waiting waiting(&core.waits, "step", "the steps of its contributions to close");
  for (;;) {
    const int64_t seen = generation();
    RETURN_IF_ERROR(CloseSteps(core, admitted));
    if (!session.any_waiting()) return absl::OkStatus();
    {
      absl::MutexLock lock(&wake_mutex_);
      RETURN_IF_ERROR(stopped_);
    }
    RETURN_IF_ERROR(CheckIncarnation(core, session, incarnation));
    if (deadline.Expired()) {
      const Waiter waiter{.worker = session.worker(), .since = since};
      return WithReason(absl::DeadlineExceededError(WaitText(waiter, FindMissing())),
                        wire::ErrorReason::WAIT_EXPIRED);
    }
    WaitForWake(seen, deadline);
  }
}

JobSteps::MissingText JobSteps::FindMissing() const {
  const std::vector<QuorumMember> quorum = cohort_.Quorum();
  absl::MutexLock lock(&mutex_);
  MissingText missing;
  if (!awaited_.empty()) {
    missing.waits_for = "contribution";
    missing.what = absl::StrCat("step ", steps_.closed() + 1,
                                " is decided, and this server, which was restarted, waits to be "
                                "sent again what counts for it");
    for (const NamedContribution& name : awaited_) missing.workers.push_back(name.worker);
  } else {
    missing.waits_for = "step";
    missing.what = absl::StrCat("step ", steps_.open(), " is open for contributions");
    missing.workers = steps_.Undecided(quorum);
  }
  return missing;
}

std::string JobSteps::WaitText(const Waiter& waiter, const MissingText& missing) const {
  const std::string what =
      waiter.step > 0 ? absl::StrCat("to begin step ", waiter.step) : "for its steps to close";
  return absl::StrCat("worker ", waiter.worker, " of job ", job_, " has waited ",
                      DurationText(MonotonicNow() - waiter.since), " ", what, ": ", missing.what,
                      missing.workers.empty()
                          ? "; nobody is missing any more"
                          : absl::StrCat("; missing: ", cohort_.Describe(missing.workers)));
}

void JobSteps::FillDecisions(const wire::PullRequest& request, wire::PullReply& reply) const {
  reply.decisions.clear();
  if (request.decisions_after < 0) return;
  for (const DecisionRecord* decision : steps_.DecisionsAfter(
           request.decisions_after, kMaxDecisionsPerCall, kMaxContributionsPerCall)) {
    reply.decisions.push_back(ToWire(*decision));
  }
}

absl::Status JobSteps::Forget(ServerCore& core, int64_t all_durable_step) {
  int64_t step = all_durable_step;
  for (const QuorumMember& member : cohort_.Quorum()) {
    // It may have contributed to the step before the one it has announced, and has yet to be told
    // whether that counts.
    if (member.counts) step = std::min(step, member.announced - 2);
  }
  {
    absl::MutexLock lock(&mutex_);
    steps_.Forget(step);
    step = steps_.forgotten();
    if (step - dropped_on_disk_ < kDecisionsPerDeletion) return absl::OkStatus();
    dropped_on_disk_ = step;
  }
  const absl::Status dropped = core.store->DropDecisions(job_, step);
  return dropped.ok() ? dropped : core.flusher.Refuse(dropped);
}

int64_t JobSteps::generation() const {
  absl::MutexLock lock(&wake_mutex_);
  return generation_;
}

void JobSteps::Wake() {
  absl::MutexLock lock(&wake_mutex_);
  ++generation_;
  wake_.SignalAll();
}

void JobSteps::Stop(const absl::Status& why) {
  absl::MutexLock lock(&wake_mutex_);
  if (stopped_.ok()) stopped_ = why;
  ++generation_;
  wake_.SignalAll();
}

void JobSteps::WaitForWake(int64_t generation, Deadline deadline) {
  absl::MutexLock lock(&wake_mutex_);
  while (generation_ == generation && !deadline.Expired()) {
    wake_.WaitUntil(&wake_mutex_, deadline);
  }
}

std::vector<JobSteps::Waiter> JobSteps::Waiters() const {
  absl::MutexLock lock(&mutex_);
  return {waiters_.begin(), waiters_.end()};
}

void JobSteps::CountWaits(std::map<std::string, int64_t>& counts) const {
  const size_t waiting = Waiters().size();
  if (waiting > 0) counts[std::string(FindMissing().waits_for)] += static_cast<int64_t>(waiting);
}

size_t JobSteps::FillWhy(wire::WhyReply& reply, size_t most_waits) const {
  std::vector<Waiter> waiters = Waiters();
  const size_t count = waiters.size();
  if (count > most_waits) waiters.resize(most_waits);
  if (waiters.empty()) return count;
  const MissingText missing = FindMissing();
  const std::vector<wire::WorkerStanding> standings = cohort_.StandingsOf(missing.workers);
  for (const Waiter& waiter : waiters) {
    wire::WaitingCall& call = reply.waiting.emplace_back();
    call.worker = waiter.worker;
    call.waits_for = std::string(missing.waits_for);
    call.seconds = absl::ToDoubleSeconds(MonotonicNow() - waiter.since);
    call.text = WaitText(waiter, missing);
    call.missing = standings;
  }
  return count;
}

}  // namespace cairn
