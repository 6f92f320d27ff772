#include "ps_server/jobs/cohort.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/time_text.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// Workers report their vitals more often than this; older reports may be out of date.
constexpr absl::Duration kFreshVitals = absl::Seconds(2);

std::string AndMore(size_t workers) {
  return workers > kMaxNamedWorkers
             ? absl::StrCat(" and ", workers - kMaxNamedWorkers, " more workers")
             : "";
}

}  // namespace

absl::string_view Cohort::StateName(WorkerState state) {
  switch (state) {
    case WorkerState::kReturning: return "returning";
    case WorkerState::kJoining: return "joining";
    case WorkerState::kLive: return "live";
    case WorkerState::kFinished: return "finished";
    case WorkerState::kLeft: return "left";
    case WorkerState::kLost: return "lost";
  }
  return "";
}

absl::Status Cohort::Agree(const Consistency& wanted, int32_t worker) const {
  absl::MutexLock lock(&mutex_);
  return AgreeLocked(wanted, worker);
}

absl::Status Cohort::AgreeLocked(const Consistency& wanted, int32_t worker) const {
  if (settings_ == wanted) return absl::OkStatus();
  for (const auto& [other, member] : members_) {
    const bool live = member.state == WorkerState::kLive ||
                      member.state == WorkerState::kFinished ||
                      member.state == WorkerState::kJoining;
    if (!live || other == worker || !member.has_settings) continue;
    return WithReason(FailedPrecondition("worker ", worker, " of job ", job_,
                                         " asks for consistency \"", ConsistencyText(wanted),
                                         "\", but worker ", other, " (", member.session->origin(),
                                         ", last seen ", DurationText(member.session->SinceSeen()),
                                         " ago) trains it with \"", ConsistencyText(settings_),
                                         "\": give all workers the same `strategy` section"),
                      wire::ErrorReason::CONSISTENCY_CONFLICT);
  }
  return absl::OkStatus();
}

void Cohort::Return(std::shared_ptr<Session> session) {
  absl::MutexLock lock(&mutex_);
  const int32_t worker = session->worker();
  const WorkerState state = session->left() ? WorkerState::kLeft : WorkerState::kReturning;
  Member& member = members_[worker];
  member.session = std::move(session);
  Place(member, state, 0);
}

absl::StatusOr<int64_t> Cohort::Join(std::shared_ptr<Session> session, const Hello& hello) {
  absl::MutexLock lock(&mutex_);
  const int32_t worker = session->worker();
  if (hello.consistency) {
    RETURN_IF_ERROR(AgreeLocked(*hello.consistency, worker));
    settings_ = *hello.consistency;
  }
  if (hello.expected_workers > 0) expected_workers_ = hello.expected_workers;
  if (hello.fresh) AwaitEveryoneAgain();
  const int64_t slowest = SlowestBut(worker);
  const auto [found, is_new] = members_.try_emplace(worker);
  Member& member = found->second;
  if (is_new) member.session = session;  // first, because Place may throw
  const bool was_there = !is_new && !hello.fresh && member.state != WorkerState::kLost &&
                         member.state != WorkerState::kLeft &&
                         member.state != WorkerState::kJoining;
  // Under sync, contributions from before may be missing here: the worker announces its step again
  // once they are here.
  int64_t step = was_there ? member.step : 0;
  if (settings_.mode != ConsistencyMode::kSync) {
    step = std::max({hello.step, was_there || hello.keeps_step ? step : slowest, int64_t{0}});
  }
  if (hello.fresh) member.largest_gap = 0;
  const bool steps = hello.consistency && hello.step >= 0;
  const bool joins = !was_there && !hello.keeps_step && slowest < 0 &&
                     settings_.mode == ConsistencyMode::kSsp && AnyReturningBut(worker);
  Place(member,
        !steps  ? WorkerState::kFinished
        : joins ? WorkerState::kJoining
                : WorkerState::kLive,
        step);
  member.has_settings = hello.consistency.has_value();
  member.awaited = false;
  member.loss = absl::OkStatus();
  session->set_stopped(false);
  session->SetLeft(false);  // its earlier lease may have run out since this start was admitted
  session->NoteJoined();
  member.session = std::move(session);
  Changed();
  return member.step;
}

bool Cohort::AnyReturningBut(int32_t worker) const {
  return LowestBut(worker, WorkerState::kReturning) >= 0;
}

void Cohort::Place(Member& member, WorkerState state, int64_t step) {
  // First, because it may throw: no call would wait for a member without a place.
  ++places_[static_cast<size_t>(state)][step];
  if (member.placed) {
    Steps& before = places_[static_cast<size_t>(member.state)];
    const auto found = before.find(member.step);
    if (--found->second == 0) before.erase(found);
  }
  member.placed = true;
  member.state = state;
  member.step = step;
}

int64_t Cohort::LowestBut(int32_t worker, WorkerState state) const {
  const Steps& steps = At(state);
  if (steps.empty()) return -1;
  auto lowest = steps.begin();
  const auto own = members_.find(worker);
  const bool is_own = own != members_.end() && own->second.placed && own->second.state == state &&
                      own->second.step == lowest->first;
  if (is_own && lowest->second == 1) ++lowest;
  return lowest == steps.end() ? -1 : lowest->first;
}

void Cohort::PlaceJoining() {
  if (At(WorkerState::kJoining).empty()) return;
  for (auto& [worker, member] : members_) {
    if (member.state != WorkerState::kJoining || AnyReturningBut(worker)) continue;
    if (SlowestBut(worker) < 0) {
      Place(member, WorkerState::kLive, member.step);  // there is no other worker to keep step with
    } else {
      member.session->set_stopped(true);
    }
  }
}

void Cohort::Changed() {
  PlaceJoining();
  changed_.SignalAll();
  if (notify_) notify_();
}

void Cohort::AwaitEveryoneAgain() {
  for (const auto& [worker, member] : members_) {
    if (member.state != WorkerState::kLeft && member.state != WorkerState::kLost) return;
  }
  for (auto& [worker, member] : members_) member.awaited = true;
}

void Cohort::Leave(int32_t worker) {
  absl::MutexLock lock(&mutex_);
  const auto found = members_.find(worker);
  if (found == members_.end()) return;
  Place(found->second, WorkerState::kLeft, found->second.step);
  Changed();
}

absl::Status Cohort::LossOf(const Member& lost) const {
  const Session& session = *lost.session;
  const std::string last =
      lost.state == WorkerState::kReturning
          ? "which this server knew before its start, has not said hello since"
          : absl::StrCat("(", session.origin(), ") is lost: last seen at ",
                         TimeOfDayText(absl::Now() - session.SinceSeen()), ", at step ", lost.step);
  return WithReason(
      Aborted("worker ", session.worker(), " of job ", job_, " ", last,
              ", and on_worker_loss is fail: start all workers of the job again, they resume"),
      wire::ErrorReason::WORKER_LOST);
}

void Cohort::Fail(const absl::Status& loss) {
  for (auto& [worker, member] : members_) {
    if (member.state == WorkerState::kLeft || member.state == WorkerState::kLost) continue;
    member.loss = loss;
    member.session->set_stopped(true);
  }
}

void Cohort::Lose(int32_t worker) {
  absl::MutexLock lock(&mutex_);
  const auto found = members_.find(worker);
  if (found == members_.end() || found->second.state == WorkerState::kLeft) return;
  Member& lost = found->second;
  if (lost.session->leased()) return;  // a call or heartbeat arrived in the meantime
  // No worker waits for one that takes no more steps.
  if (Counts(lost) && settings_.on_worker_loss == WorkerLoss::kFail) Fail(LossOf(lost));
  Place(lost, WorkerState::kLost, lost.step);
  lost.session->set_stopped(true);
  lost.session->SetLeft(true);
  Changed();
}

absl::Status Cohort::Check(const Session& session) {
  absl::MutexLock lock(&mutex_);
  const auto found = members_.find(session.worker());
  if (found == members_.end()) return absl::OkStatus();
  return CheckMember(found->second);
}

absl::Status Cohort::CheckMember(Member& member) {
  if (!member.loss.ok()) return member.loss;
  if (member.state == WorkerState::kJoining && member.session->stopped()) {
    return WithReason(
        FailedPrecondition(
            "worker ", member.session->worker(), " of job ", job_,
            " joined before this server knew at which step the others are: say hello again"),
        wire::ErrorReason::LEASE_ENDED);
  }
  if (member.state != WorkerState::kLost) return absl::OkStatus();
  Session& session = *member.session;
  const std::string who = absl::StrCat(
      "worker ", session.worker(), " of job ", job_, " (", session.origin(),
      ") was not heard of for ", DurationText(session.SinceSeen()), " and its lease has ended");
  if (settings_.mode == ConsistencyMode::kAsync) {
    LOG(INFO) << who << "; it is back";
    Place(member, member.has_settings ? WorkerState::kLive : WorkerState::kFinished, member.step);
    session.SetLeft(false);
    session.set_stopped(false);
    return absl::OkStatus();
  }
  return WithReason(FailedPrecondition(who, ", so others went on without it: say hello again"),
                    wire::ErrorReason::LEASE_ENDED);
}

bool Cohort::AnyMissing(int32_t worker, int64_t step) const {
  const int64_t needed = step - settings_.staleness_bound_steps;
  for (const WorkerState counts :
       {WorkerState::kLive, WorkerState::kReturning, WorkerState::kJoining}) {
    const int64_t lowest = LowestBut(worker, counts);
    if (lowest >= 0 && lowest < needed) return true;
  }
  return false;
}

std::vector<const Cohort::Member*> Cohort::SlowestFirst() const {
  std::vector<const Member*> members;
  for (const auto& [worker, member] : members_) {
    if (Counts(member)) members.push_back(&member);
  }
  std::ranges::stable_sort(members,
                           [](const Member* a, const Member* b) { return a->step < b->step; });
  return members;
}

Cohort::MissingMembers Cohort::Missing(const std::vector<const Member*>& slowest_first,
                                       const Waiter& waiter, size_t most) const {
  const int64_t needed = waiter.step - settings_.staleness_bound_steps;
  const auto end =
      std::partition_point(slowest_first.begin(), slowest_first.end(),
                           [&](const Member* member) { return member->step < needed; });
  MissingMembers missing{.count = static_cast<size_t>(end - slowest_first.begin())};
  const auto own = members_.find(waiter.worker);
  const Member* const self = own == members_.end() ? nullptr : &own->second;
  if (self != nullptr && Counts(*self) && self->step < needed) --missing.count;
  for (auto at = slowest_first.begin(); at != end && missing.listed.size() < most; ++at) {
    if (*at != self) missing.listed.push_back(*at);
  }
  return missing;
}

std::string Cohort::Text(const Member& member) {
  const Session& session = *member.session;
  const std::string seen = DurationText(session.SinceSeen());
  if (member.state == WorkerState::kReturning) {
    return absl::StrCat("worker ", session.worker(),
                        ", which has not said hello since this server was started ", seen, " ago");
  }
  if (member.state == WorkerState::kLeft || member.state == WorkerState::kLost) {
    return absl::StrCat("worker ", session.worker(),
                        ", which has not said hello since all workers left or were lost");
  }
  const auto [vitals, ago] = session.vitals();
  std::string text =
      absl::StrCat("worker ", session.worker(), " (", session.origin(), "), which is at step ",
                   member.step, " and was last seen ", seen, " ago");
  if (ago >= kFreshVitals || vitals.servers_gone.empty()) return text;
  absl::StrAppend(&text,
                  " and gets no answer from ps:", absl::StrJoin(vitals.servers_gone, ", ps:"));
  if (vitals.servers_replaced.empty()) return text;
  absl::StrAppend(&text, " (another server answers at the address of ps:",
                  absl::StrJoin(vitals.servers_replaced, ", ps:"), ")");
  return text;
}

std::vector<QuorumMember> Cohort::Quorum() const {
  absl::MutexLock lock(&mutex_);
  std::vector<QuorumMember> quorum;
  for (const auto& [worker, member] : members_) {
    const bool expected = member.awaited && worker < expected_workers_;
    quorum.push_back(
        {.worker = worker, .announced = member.step, .counts = Counts(member) || expected});
  }
  for (int32_t worker = 0; worker < expected_workers_; ++worker) {
    if (!members_.contains(worker)) quorum.push_back({.worker = worker, .counts = true});
  }
  return quorum;
}

std::string Cohort::Describe(absl::Span<const int32_t> workers) const {
  absl::MutexLock lock(&mutex_);
  const std::string names = absl::StrJoin(
      workers.subspan(0, kMaxNamedWorkers), ", ", [this](std::string* out, int32_t worker) {
        mutex_.AssertHeld();
        const auto member = members_.find(worker);
        absl::StrAppend(out,
                        member != members_.end()
                            ? Text(member->second)
                            : absl::StrCat("worker ", worker, ", which has not said hello yet"));
      });
  return absl::StrCat(names, AndMore(workers.size()));
}

std::vector<wire::WorkerStanding> Cohort::StandingsOf(absl::Span<const int32_t> workers) const {
  std::vector<Seen> seen;
  {
    absl::MutexLock lock(&mutex_);
    for (const int32_t worker : workers) {
      if (const auto member = members_.find(worker); member != members_.end()) {
        seen.push_back(See(worker, member->second));
      } else {
        wire::WorkerStanding& standing = seen.emplace_back().standing;
        standing.worker = worker;
        standing.state = "expected";
      }
    }
  }
  return Complete(std::move(seen));
}

Consistency Cohort::settings() const {
  absl::MutexLock lock(&mutex_);
  return settings_;
}

bool Cohort::any_live() const {
  absl::MutexLock lock(&mutex_);
  return !At(WorkerState::kLive).empty();
}

std::string Cohort::WaitText(const Waiter& waiter, const MissingMembers& missing) const {
  const auto named = absl::MakeConstSpan(missing.listed).subspan(0, kMaxNamedWorkers);
  const std::string names = absl::StrJoin(named, ", ", [](std::string* out, const Member* member) {
    absl::StrAppend(out, Text(*member));
  });
  return absl::StrCat(
      "worker ", waiter.worker, " of job ", job_, " has waited ",
      DurationText(MonotonicNow() - waiter.since), " to begin step ", waiter.step,
      ": staleness_bound_steps ", settings_.staleness_bound_steps,
      " asks every other worker for step ", waiter.step - settings_.staleness_bound_steps,
      missing.count == 0 ? "; no worker is missing any more"
                         : absl::StrCat("; missing: ", names, AndMore(missing.count)));
}

void Cohort::NoteGap(Member& member, int64_t step) {
  if (member.state != WorkerState::kLive) return;
  const int64_t slowest = SlowestBut(member.session->worker());
  if (slowest < 0) return;
  member.largest_gap = std::max(member.largest_gap, step - slowest);
  largest_gap_ = std::max(largest_gap_, member.largest_gap);
}

void Cohort::Announce(Member& member, int64_t step) {
  const WorkerState state = step < 0                                ? WorkerState::kFinished
                            : member.state == WorkerState::kJoining ? WorkerState::kJoining
                                                                    : WorkerState::kLive;
  if (step <= member.step && state == member.state) return;
  if (member.state == WorkerState::kLeft) member.session->SetLeft(false);
  Place(member, state, std::max(member.step, step));
  Changed();
}

absl::Status Cohort::CheckPlace(const Session& session, int64_t incarnation,
                                const Member& member) const {
  if (session.incarnation() == incarnation && member.session.get() == &session) {
    return absl::OkStatus();
  }
  return WithReason(
      FailedPrecondition("worker ", session.worker(), " of job ", job_, ": a newer start (",
                         member.session->holder(), ") has taken its place: this process must stop"),
      wire::ErrorReason::FENCED);
}

absl::Status Cohort::Await(const Session& session, int64_t incarnation, int64_t step,
                           Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  const auto found = members_.find(session.worker());
  if (found == members_.end()) return absl::OkStatus();  // the job was dropped in the meantime
  Member& member = found->second;                        // stays: members are never erased
  RETURN_IF_ERROR(CheckPlace(session, incarnation, member));
  RETURN_IF_ERROR(CheckMember(member));
  Announce(member, step);
  if (step < 0) return absl::OkStatus();
  if (settings_.mode == ConsistencyMode::kSsp) {
    RETURN_IF_ERROR(AwaitOthers(session, incarnation, step, deadline, member));
  }
  if (settings_.mode != ConsistencyMode::kSync) NoteGap(member, step);
  return absl::OkStatus();
}

absl::Status Cohort::AwaitOthers(const Session& session, int64_t incarnation, int64_t step,
                                 Deadline deadline, Member& member) {
  const int32_t worker = session.worker();
  if (closed_.ok() && !AnyMissing(worker, step)) return absl::OkStatus();
  const auto waiter =
      waiters_.insert(waiters_.end(), {.worker = worker, .step = step, .since = MonotonicNow()});
  const auto done = absl::MakeCleanup([&] {
    mutex_.AssertHeld();
    waiters_.erase(waiter);
  });
  for (;;) {
    if (!closed_.ok()) return closed_;
    RETURN_IF_ERROR(CheckMember(member));
    RETURN_IF_ERROR(CheckPlace(session, incarnation, member));
    if (!AnyMissing(worker, step)) return absl::OkStatus();
    if (deadline.Expired()) {
      return WithReason(absl::DeadlineExceededError(
                            WaitText(*waiter, Missing(SlowestFirst(), *waiter, kMaxNamedWorkers))),
                        wire::ErrorReason::WAIT_EXPIRED);
    }
    changed_.WaitUntil(&mutex_, deadline);
  }
}

void Cohort::Close(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = why;
  Changed();
}

Cohort::Seen Cohort::See(int32_t worker, const Member& member) {
  Seen seen{.session = member.session};
  seen.standing.worker = worker;
  seen.standing.state = std::string(StateName(member.state));
  seen.standing.step = member.step;
  seen.standing.largest_step_gap = member.largest_gap;
  return seen;
}

std::vector<Cohort::Seen> Cohort::SeeMembers() const {
  std::vector<Seen> seen;
  seen.reserve(members_.size());
  for (const auto& [worker, member] : members_) seen.push_back(See(worker, member));
  return seen;
}

std::vector<wire::WorkerStanding> Cohort::Complete(std::vector<Seen> seen) {
  std::vector<wire::WorkerStanding> standings;
  standings.reserve(seen.size());
  for (auto& [standing, session] : seen) {
    if (session == nullptr) {  // the worker has not said hello yet
      standings.push_back(std::move(standing));
      continue;
    }
    standing.origin = session->origin();
    standing.seconds_since_seen = absl::ToDoubleSeconds(session->SinceSeen());
    if (const auto [vitals, ago] = session->vitals(); ago < absl::InfiniteDuration()) {
      standing.__set_vitals(vitals);
      standing.seconds_since_vitals = absl::ToDoubleSeconds(ago);
    }
    wire::ServerState state;
    session->Fill(state);
    standing.applied = state.applied;
    standing.durable = state.durable;
    standings.push_back(std::move(standing));
  }
  return standings;
}

std::vector<wire::WorkerStanding> Cohort::Standings() const {
  std::vector<Seen> seen;
  {
    absl::MutexLock lock(&mutex_);
    seen = SeeMembers();
  }
  return Complete(std::move(seen));
}

size_t Cohort::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiters_.size();
}

size_t Cohort::FillWhy(wire::WhyReply& reply, size_t most_waits) const {
  size_t count = 0;
  std::vector<Seen> seen;
  std::vector<std::vector<int32_t>> missing;  // by call
  {
    absl::MutexLock lock(&mutex_);
    count = waiters_.size();
    seen = SeeMembers();
    const std::vector<const Member*> slowest_first = SlowestFirst();
    const size_t most_missing = MissingPerCall(std::min(count, most_waits));
    const absl::Duration now = MonotonicNow();
    for (const Waiter& waiter : waiters_) {
      if (missing.size() == most_waits) break;
      const MissingMembers members = Missing(slowest_first, waiter, most_missing);
      wire::WaitingCall& call = reply.waiting.emplace_back();
      call.worker = waiter.worker;
      call.waits_for = "step";
      call.seconds = absl::ToDoubleSeconds(now - waiter.since);
      call.text = WaitText(waiter, members);
      SetMoreMissing(members.count - members.listed.size(), call);
      std::vector<int32_t>& workers = missing.emplace_back();
      for (const Member* member : members.listed) workers.push_back(member->session->worker());
      std::ranges::sort(workers);
    }
    reply.largest_step_gap = largest_gap_;
  }
  reply.workers = Complete(std::move(seen));
  const size_t first = reply.waiting.size() - missing.size();
  for (size_t i = 0; i < missing.size(); ++i) {
    auto at = reply.workers.begin();
    for (const int32_t worker : missing[i]) {  // both are ordered by worker
      at = std::lower_bound(at, reply.workers.end(), worker,
                            [](const auto& standing, int32_t w) { return standing.worker < w; });
      if (at != reply.workers.end()) reply.waiting[first + i].missing.push_back(*at);
    }
  }
  return count;
}

}  // namespace cairn
