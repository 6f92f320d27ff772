#include "ps_server/jobs/job_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/time_text.h"
#include "ps_server/jobs/step_mean.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// Decisions that no worker needs any more are deleted from the disk in batches of this size: each
// deletion is a range that later reads have to skip.
constexpr int64_t kDecisionsPerDeletion = 256;

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

}  // namespace

void JobSteps::Load(const WorkerRecord& closed, std::vector<DecisionRecord> decisions) {
  absl::MutexLock lock(&mutex_);
  session_ = std::make_shared<Session>(closed, role_.applied_is_durable);
  if (!role_.coordinator) steps_.KeepNoClosedDecisions();
  steps_.Begin(closed.sequence, std::move(decisions));
  active_.store(true, std::memory_order_release);
}

std::shared_ptr<Session> JobSteps::Begin(int64_t after) {
  absl::MutexLock lock(&mutex_);
  if (session_ != nullptr) return session_;
  session_ = std::make_shared<Session>(job_, kStepWorker, role_.applied_is_durable);
  session_->Admit(/*incarnation=*/1, "steps");  // so that a record exists, also of step 0
  if (!role_.coordinator) {
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

void JobSteps::Restart(int32_t worker) {
  if (!active() || !role_.coordinator) return;
  absl::MutexLock lock(&mutex_);
  steps_.Restart(worker);
}

int64_t JobSteps::LastNamed(int32_t worker) const {
  if (!active() || !role_.coordinator) return 0;
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
    return std::ranges::any_of(
        items, [&](const wire::PushItem& item) { return item.variable == variable; });
  });
  return std::max(steps_.decided(), pending);
}

SyncSteps::Added JobSteps::Add(PendingContribution contribution, bool replaces) {
  absl::MutexLock lock(&mutex_);
  return steps_.Add(std::move(contribution), replaces);
}

std::optional<DecisionRecord> JobSteps::NextDecision(absl::Span<const QuorumMember> quorum,
                                                     int64_t below) const {
  const int32_t aggregate = cohort_.settings().replicas_to_aggregate;
  absl::MutexLock lock(&mutex_);
  if (steps_.open() >= below) return std::nullopt;
  std::optional<DecisionRecord> decision = steps_.Decide(quorum, aggregate);
  if (decision) decision->job = job_;
  return decision;
}

void JobSteps::Learn(DecisionRecord decision) {
  absl::MutexLock lock(&mutex_);
  steps_.Learn(std::move(decision));
}

std::optional<int64_t> JobSteps::Forget(int64_t all_durable_step) {
  int64_t step = all_durable_step;
  for (const QuorumMember& member : cohort_.Quorum()) {
    // The member may have contributed to the step before the announced one without having learned
    // yet whether the contribution counts.
    if (member.counts) step = std::min(step, member.announced - 2);
  }
  absl::MutexLock lock(&mutex_);
  steps_.Forget(step);
  if (steps_.forgotten() - dropped_on_disk_ < kDecisionsPerDeletion) return std::nullopt;
  dropped_on_disk_ = steps_.forgotten();
  return dropped_on_disk_;
}

std::optional<SyncSteps::Closing> JobSteps::BeginClosing(
    absl::FunctionRef<SyncSteps::Missing(const NamedContribution&)> missing) {
  absl::MutexLock lock(&mutex_);
  if (closing_) return std::nullopt;
  std::optional<SyncSteps::Closing> next = steps_.NextClosing(missing);
  awaited_.clear();
  if (!next) return std::nullopt;
  for (const NamedContribution* name : next->awaited) awaited_.push_back(*name);
  if (!awaited_.empty()) return std::nullopt;
  closing_ = true;
  return next;
}

int64_t JobSteps::Close(int64_t step,
                        absl::FunctionRef<std::shared_ptr<Session>(int32_t worker)> session_of) {
  absl::MutexLock lock(&mutex_);
  CAIRN_CRASH_POINT("step: mean applied, not closed");
  absl::MutexLock notes(&notes_mutex_);
  SyncSteps::Closed closed = steps_.Close();
  for (NamedContribution& name : closed.named) {
    const std::shared_ptr<Session> session = session_of(name.worker);
    if (session != nullptr) session->Closed(name.sequence, std::move(name.position));
  }
  for (NamedContribution& name : closed.dropped) {
    const std::shared_ptr<Session> session = session_of(name.worker);
    // A newer start of the worker does not know the dropped push, and may use its sequence for
    // another one.
    if (session == nullptr || session->incarnation() > name.incarnation) continue;
    session->Closed(name.sequence, std::move(name.position));
  }
  session_->Applied(step, "");
  return static_cast<int64_t>(closed.dropped.size());
}

void JobSteps::EndClosing() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = false;
  }
  Wake();
}

absl::StatusOr<bool> JobSteps::TryBegin(int32_t worker, const wire::PullRequest& request,
                                        wire::PullReply& reply) const {
  absl::MutexLock lock(&mutex_);
  if (role_.coordinator && request.step > steps_.open() + 1) {
    return InvalidArgument("worker ", worker, " of job ", job_, " begins step ", request.step,
                           ", but step ", steps_.open(), " is open: begin that one");
  }
  if (closing_ || steps_.closed() < request.step - 1) return false;
  if (role_.coordinator && steps_.closed() != steps_.decided()) return false;
  reply.step = steps_.closed() + 1;
  reply.decisions.clear();
  if (request.decisions_after < 0) return true;
  for (const DecisionRecord* decision : steps_.DecisionsAfter(
           request.decisions_after, kMaxDecisionsPerCall, kMaxContributionsPerCall)) {
    reply.decisions.push_back(ToWire(*decision));
  }
  return true;
}

JobSteps::Waiters::iterator JobSteps::AddWaiter(const Waiter& waiter) {
  absl::MutexLock lock(&mutex_);
  return waiters_.insert(waiters_.end(), waiter);
}

void JobSteps::RemoveWaiter(Waiters::iterator waiter) {
  absl::MutexLock lock(&mutex_);
  waiters_.erase(waiter);
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

std::string JobSteps::WaitText(const Waiter& waiter) const {
  const MissingText missing = FindMissing();
  return WaitText(waiter, missing, cohort_.Describe(missing.workers));
}

std::string JobSteps::WaitText(const Waiter& waiter, const MissingText& missing,
                               absl::string_view names) const {
  const std::string what =
      waiter.step > 0 ? absl::StrCat("to begin step ", waiter.step) : "for its steps to close";
  return absl::StrCat("worker ", waiter.worker, " of job ", job_, " has waited ",
                      DurationText(MonotonicNow() - waiter.since), " ", what, ": ", missing.what,
                      missing.workers.empty() ? "; no worker is missing any more"
                                              : absl::StrCat("; missing: ", names));
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

absl::Status JobSteps::stopped() const {
  absl::MutexLock lock(&wake_mutex_);
  return stopped_;
}

void JobSteps::WaitForWake(int64_t generation, Deadline deadline) {
  absl::MutexLock lock(&wake_mutex_);
  while (generation_ == generation && !deadline.Expired()) {
    wake_.WaitUntil(&wake_mutex_, deadline);
  }
}

std::vector<JobSteps::Waiter> JobSteps::waiters() const {
  absl::MutexLock lock(&mutex_);
  return {waiters_.begin(), waiters_.end()};
}

void JobSteps::CountWaits(std::map<std::string, int64_t>& counts) const {
  const size_t waiting = waiters().size();
  if (waiting > 0) counts[std::string(FindMissing().waits_for)] += static_cast<int64_t>(waiting);
}

size_t JobSteps::FillWhy(wire::WhyReply& reply, size_t most_waits) const {
  std::vector<Waiter> waiters = this->waiters();
  const size_t count = waiters.size();
  if (count > most_waits) waiters.resize(most_waits);
  if (waiters.empty()) return count;
  const MissingText missing = FindMissing();
  const size_t listed = std::min(missing.workers.size(), MissingPerCall(waiters.size()));
  const std::vector<wire::WorkerStanding> standings =
      cohort_.StandingsOf(absl::MakeConstSpan(missing.workers).subspan(0, listed));
  const std::string names = cohort_.Describe(missing.workers);
  for (const Waiter& waiter : waiters) {
    wire::WaitingCall& call = reply.waiting.emplace_back();
    call.worker = waiter.worker;
    call.waits_for = std::string(missing.waits_for);
    call.seconds = absl::ToDoubleSeconds(MonotonicNow() - waiter.since);
    call.text = WaitText(waiter, missing, names);
    call.missing = standings;
    SetMoreMissing(missing.workers.size() - listed, call);
  }
  return count;
}

}  // namespace cairn
