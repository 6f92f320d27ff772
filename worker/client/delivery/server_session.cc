#include "worker/client/delivery/server_session.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/interruption.h"
#include "common/log.h"
#include "common/status.h"
#include "common/time_text.h"
#include "common/timeline.h"
#include "thrift/ParameterServer.h"
#include "thrift/cairn_constants.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "worker/client/delivery/retained_call.h"
#include "worker/client/routing/client_variable.h"
#include "worker/client/routing/moved_parts.h"

namespace cairn {
namespace {

// Limit of map changes that one replayed push may run into.
constexpr int kMostCuts = 1000;

// Removes the server's name from the front of an error ("push to ps:1 (…): ps:1 (…) closed …"), for
// messages that begin with the name.
absl::string_view WithoutPeer(absl::string_view message, absl::string_view name) {
  const size_t at = message.find(name);
  if (at == absl::string_view::npos || message.substr(at + name.size(), 2) != ": ") return message;
  message.remove_prefix(at + name.size() + 2);
  if (message.substr(0, name.size()) == name && message.substr(name.size(), 1) == " ") {
    message.remove_prefix(name.size() + 1);
  }
  return message;
}

}  // namespace

absl::Status FencedError(const std::string& task) {
  return WithReason(
      FailedPrecondition(task,
                         " is fenced: a newer start has replaced it, the job was dropped, or a "
                         "server moved its rows away while it held this worker for lost. This "
                         "process must stop; restart it: it resumes exactly"),
      wire::ErrorReason::FENCED);
}

ServerSession::ServerSession(int32_t index, std::string name, std::unique_ptr<ServerLink> link,
                             const ClientIdentity* identity)
    : index_(index), name_(std::move(name)), link_(std::move(link)), identity_(*identity) {}

Outcome ServerSession::Hello(int64_t incarnation, int64_t timeline, Deadline deadline,
                             wire::HelloReply* reply, bool joins) {
  Channel* channel = nullptr;
  Outcome outcome = link_->Take(deadline, &channel);
  if (channel == nullptr) return outcome;
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  request.job = identity_.job;
  request.task_type = identity_.task.substr(0, identity_.task.find(':'));
  request.worker = identity_.worker;
  request.incarnation = incarnation;
  request.timeline = timeline;
  if (timeline == 0 && timeline_ != 0) request.__set_known_timeline(timeline_);
  request.origin = identity_.origin;
  request.start = identity_.start;
  if (identity_.sequenced() && identity_.clock != nullptr) {
    request.__set_consistency(ToWire(identity_.consistency));
    request.step = identity_.clock->Announced();
    request.expected_workers = identity_.expected_workers;
    request.keeps_step = joins;
    if (identity_.synchronous() && joined_.load(std::memory_order_relaxed)) {
      request.begins_after_step = identity_.steps->last_decided();
    }
  }
  outcome = channel->Call(
      "hello", [&](wire::ParameterServerIf& service) { service.hello(*reply, request); }, deadline);
  const bool is_answer = outcome.progress == Progress::kAnswered && outcome.status.ok();
  if (is_answer) outcome.status = CheckHello(*reply);
  // Another server answered: nothing reached ps:index_.
  if (is_answer && absl::IsUnavailable(outcome.status)) outcome.progress = Progress::kNotSent;
  link_->Return(channel, outcome.progress);
  if (is_answer && outcome.status.ok() && identity_.clock != nullptr && !joins) {
    identity_.clock->RaiseTo(reply->step);
  }
  return outcome;
}

absl::Status ServerSession::CheckHello(const wire::HelloReply& reply) {
  const int32_t version = wire::g_cairn_constants.PROTOCOL_VERSION;
  if (reply.protocol_version != version) {
    return FailedPrecondition(name_, " speaks protocol version ", reply.protocol_version,
                              ", this client ", version,
                              ": run servers and workers of the same release");
  }
  int32_t most = identity_.most_servers == nullptr ? 0 : identity_.most_servers->load();
  if (index_ == 0 && reply.__isset.members) most = reply.members.server_count;
  // Cluster files may differ by servers that joined or left after they were written. The file of a
  // restarted server may also list a server that is about to join.
  const bool greeted = boot_id_.load(std::memory_order_relaxed) != 0;
  const bool same = most > 0  ? std::max(reply.server_count, identity_.server_count) <= most
                    : greeted ? reply.server_count >= identity_.server_count
                              : reply.server_count == identity_.server_count;
  if (reply.server_index == index_ && same) return absl::OkStatus();
  // This address was right before, so another server took it while this one was down.
  if (greeted) return OtherServer(reply);
  return FailedPrecondition(
      name_, " of ", most > 0 ? most : identity_.server_count,
      " says that it is ps:", reply.server_index, " of ", reply.server_count,
      ": give servers and workers the same cluster file (one more server joins a running cluster "
      "by cairnctl servers add)");
}

absl::Status ServerSession::OtherServer(const wire::HelloReply& reply) {
  replaced_.store(true, std::memory_order_relaxed);
  const absl::Status status = Unavailable(
      "another server answers there, which says that it is ps:", reply.server_index, " of ",
      reply.server_count, ": end it, and start ps:", index_, " at its address again");
  if (!logged_other_server_.exchange(true)) {
    LOG(WARNING) << name_ << ": " << status.message() << "; waiting up to "
                 << absl::FormatDuration(identity_.ps_wait);
  }
  return status;
}

void ServerSession::Begin(const wire::HelloReply& reply, int64_t incarnation, int64_t last_part,
                          int64_t through) {
  absl::MutexLock lock(&push_mutex_);
  if (identity_.retention != nullptr) identity_.retention->Drop(ledger_.bytes());
  // Under sync a server may lack contributions up to `last_part`; the steps' decisions settle
  // those.
  const int64_t held =
      identity_.synchronous() ? std::min(last_part, reply.state.durable) : last_part;
  ledger_.Begin(reply.state.boot_id, held, through);
  incarnation_.store(incarnation, std::memory_order_relaxed);
  timeline_.store(reply.timeline, std::memory_order_relaxed);
  had_at_start_.store(reply.state.durable, std::memory_order_relaxed);
  NoteSteps(reply.state);
  PublishLedger();
  greeted_.store(true, std::memory_order_release);
}

void ServerSession::NoteSteps(const wire::ServerState& state) {
  closed_step_.store(state.closed_step, std::memory_order_relaxed);
  durable_step_.store(state.durable_step, std::memory_order_relaxed);
}

void ServerSession::FillSteps(DataCall* call) const {
  if (!identity_.synchronous()) return;
  const StepBook& steps = *identity_.steps;
  if (call->kind == CallKind::kPush && call->request.push.step > 0) {
    call->request.push.decisions = steps.Decisions(closed_step(), call->request.push.step - 1);
  } else if (call->kind == CallKind::kPull && call->step > 0) {
    wire::PullRequest& pull = call->request.pull;
    pull.step = call->step;
    pull.decisions = steps.Decisions(closed_step(), steps.last_decided());
    if (index_ == 0) {
      pull.decisions_after = steps.last_decided();
    } else if (!pull.decisions.empty()) {
      // Decisions for a server that is far behind may not fit in one call: announce only the step
      // after the last decision sent.
      pull.step = std::min(pull.step, pull.decisions.back().step + 1);
    }
  }
}

int64_t ServerSession::FillCaller(wire::Caller* caller) const {
  if (caller->job != identity_.job) caller->job = identity_.job;
  const bool greeted = greeted_.load(std::memory_order_acquire);
  caller->worker = greeted ? identity_.worker : -1;
  if (!identity_.sequenced() || !greeted) {
    caller->incarnation = caller->boot_id = caller->through = 0;
    if (const int64_t maps = identity_.timeline_of_maps(); maps != 0) caller->__set_timeline(maps);
    return 0;
  }
  // Read the boot id first: `through` is valid for that boot or an earlier one, because Renew
  // publishes a boot id only once that boot has every earlier part.
  caller->boot_id = boot_id_.load(std::memory_order_acquire);
  caller->incarnation = incarnation_.load(std::memory_order_relaxed);
  caller->through = through_.load(std::memory_order_relaxed);
  return caller->boot_id;
}

void ServerSession::PublishLedger() {
  last_part_.store(ledger_.last_part(), std::memory_order_relaxed);
  through_.store(ledger_.through(), std::memory_order_relaxed);
  oldest_.store(ledger_.oldest(), std::memory_order_relaxed);
  boot_id_.store(ledger_.boot_id(), std::memory_order_release);
}

bool ServerSession::PushAnswered(const DataCall& call, int64_t boot_id) {
  const int64_t sequence = SequenceOf(call).sequence;
  const int64_t durable = call.reply.push.state.durable;
  Retention* const retention = identity_.retention;
  bool retain = retention != nullptr && durable < sequence;
  RetainedPart part;
  if (retain) part = RetainPart(call);
  std::vector<RetainedPart> freed;  // without the lock
  {
    absl::MutexLock lock(&push_mutex_);
    if (!ledger_.Counts(boot_id)) return false;
    retain = retain && !departed();
    NoteSteps(call.reply.push.state);
    freed = TakeDurable(durable);
    if (retain) {
      retention->Add(part.bytes);
      retention->Drop(ledger_.Acknowledged(std::move(part)));
    } else {
      ledger_.AcknowledgedUnretained(sequence);
    }
    PublishLedger();
  }
  return true;
}

void ServerSession::NoPart(int64_t sequence) {
  absl::MutexLock lock(&push_mutex_);
  ledger_.NoPart(sequence);
  PublishLedger();
}

void ServerSession::ForgetPushes() {
  absl::MutexLock lock(&push_mutex_);
  if (identity_.retention != nullptr) identity_.retention->Drop(ledger_.bytes());
  ledger_.Begin(ledger_.boot_id(), 0, 0);
  had_at_start_.store(0, std::memory_order_relaxed);
  PublishLedger();
}

void ServerSession::SetDeparted() {
  {
    absl::MutexLock lock(&push_mutex_);
    departed_.store(true, std::memory_order_release);
  }
  ForgetPushes();
}

void ServerSession::Learn(const wire::ServerState& state) {
  if (state.closed_step > closed_step() || state.durable_step > durable_step()) {
    absl::MutexLock lock(&push_mutex_);
    // Replies may arrive out of order.
    if (ledger_.Counts(state.boot_id) && state.closed_step >= closed_step() &&
        state.durable_step >= durable_step()) {
      NoteSteps(state);
    }
  }
  const int64_t oldest = oldest_.load(std::memory_order_relaxed);
  if (oldest == 0 || state.durable < oldest) return;
  std::vector<RetainedPart> freed;  // without the lock
  {
    absl::MutexLock lock(&push_mutex_);
    if (state.boot_id != ledger_.boot_id()) return;
    freed = TakeDurable(state.durable);
    PublishLedger();
  }
}

// Updates the retention under the lock, so that a push that finds no room also finds the server
// that holds it.
std::vector<RetainedPart> ServerSession::TakeDurable(int64_t durable) {
  std::vector<RetainedPart> parts = ledger_.TakeDurable(durable);
  int64_t bytes = 0;
  for (const RetainedPart& part : parts) bytes += part.bytes;
  if (bytes > 0) identity_.retention->Drop(bytes);
  return parts;
}

int64_t ServerSession::retained_bytes() const {
  absl::MutexLock lock(&push_mutex_);
  return ledger_.bytes();
}

absl::Time ServerSession::retained_since() const {
  absl::MutexLock lock(&push_mutex_);
  return ledger_.oldest_since();
}

RetryDecision ServerSession::ClassifyOutcome(Outcome* outcome, bool repeatable, int64_t boot_id,
                                             Deadline deadline, bool slow_is_down) {
  const bool served = outcome->progress == Progress::kAnswered && outcome->status.ok();
  // A signal that has ended the server may be this thread's too. Its handler runs here, where the
  // thread holds no lock, and not in the log function.
  if (!served) Interruption::CheckNow();
  if (!served && identity_.fenced != nullptr && identity_.fenced->load()) {
    *outcome = {Progress::kAnswered, FencedError(identity_.task)};
    return RetryDecision::kFail;
  }
  if (departed() && !served) {
    *outcome = {Progress::kAnswered,
                MovedError(absl::StrCat(name_, " has left the cluster: its rows moved"), {})};
    return RetryDecision::kFail;
  }
  if (outcome->progress == Progress::kAnswered) {
    if (outcome->status.ok()) {
      NoteAnswer();
      return RetryDecision::kDone;
    }
    switch (ReasonOf(outcome->status)) {
      case wire::ErrorReason::LEASE_ENDED:
        LOG(WARNING) << outcome->status.message();
        return Renew(outcome, boot_id, deadline);
      case wire::ErrorReason::REBOOTED:
      case wire::ErrorReason::REPLAY: return Renew(outcome, boot_id, deadline);
      case wire::ErrorReason::WAIT_EXPIRED:
        NoteAnswer();
        LOG(WARNING) << outcome->status.message();
        return RetryDecision::kAgain;
      case wire::ErrorReason::BUSY:  // refused unread: every call may be retried
        NoteAnswer();
        return RetryDecision::kAgainLater;
      case wire::ErrorReason::STOPPING:
        NoteDown(outcome->status);
        return repeatable ? RetryDecision::kAgainLater : RetryDecision::kFail;
      case wire::ErrorReason::FENCED: outcome->status = Fenced(outcome->status); break;
      default: NoteAnswer(); break;
    }
    return RetryDecision::kFail;
  }
  // Permanent errors: for example a malformed address, or a peer with another protocol.
  if (!absl::IsUnavailable(outcome->status) && !absl::IsDeadlineExceeded(outcome->status)) {
    return RetryDecision::kFail;
  }
  replaced_.store(false, std::memory_order_relaxed);
  if (slow_is_down || !absl::IsDeadlineExceeded(outcome->status)) NoteDown(outcome->status);
  if (outcome->progress == Progress::kUnknown && !repeatable) {
    outcome->status = absl::Status(
        outcome->status.code(),
        absl::StrCat(outcome->status.message(),
                     "; it is unknown whether the server applied the push. Pushes without a "
                     "sequence are not retried: pull the rows to find out"));
    return RetryDecision::kFail;
  }
  return RetryDecision::kAgainLater;
}

RetryDecision ServerSession::Renew(Outcome* outcome, int64_t stale_boot_id, Deadline deadline) {
  {
    absl::MutexLock lock(&push_mutex_);
    while (ledger_.renewing() && !deadline.Expired()) renewed_.WaitUntil(&push_mutex_, deadline);
    if (ledger_.renewing()) {
      *outcome = {
          Progress::kAnswered,
          Unavailable(name_, " was restarted and is being sent the pushes it does not have since ",
                      TimeOfDayText(renewing_since_))};
      NoteDown(outcome->status);
      return RetryDecision::kAgainLater;
    }
    if (ledger_.boot_id() != stale_boot_id) return RetryDecision::kAgain;
    ledger_.BeginRenewal();
    renewing_since_ = absl::Now();
  }
  absl::Cleanup give_up = [this] {
    absl::MutexLock lock(&push_mutex_);
    ledger_.GiveUpRenewal();
    renewed_.SignalAll();
  };
  const RetryDecision decision = HelloAgain(outcome, deadline);
  if (decision == RetryDecision::kAgain) std::move(give_up).Cancel();
  return decision;
}

RetryDecision ServerSession::HelloAgain(Outcome* outcome, Deadline deadline) {
  wire::HelloReply reply;
  // Sends no timeline: a server that lost the job must not adopt it from this hello.
  *outcome = Hello(incarnation_.load(std::memory_order_relaxed), 0, deadline, &reply);
  if (outcome->status.ok()) outcome->status = CheckTimeline(reply);
  if (!outcome->status.ok()) return ClassifyRenewal(outcome);
  NoteAnswer();
  ReplayPlan plan;
  {
    absl::MutexLock lock(&push_mutex_);
    // Contributions wait unapplied for their steps, so a server may lack some without a restart,
    // and without having lost them.
    const int64_t boot_id = identity_.synchronous() ? 0 : reply.state.boot_id;
    plan = ledger_.PlanReplay(boot_id, reply.state.applied);
  }
  if (plan.first_lost > 0) {
    outcome->status = PushesLost(plan, reply);
    return RetryDecision::kFail;
  }
  CAIRN_CRASH_POINT("replay: said hello");
  const RetryDecision replayed = Replay(plan, reply, outcome, deadline);
  if (replayed != RetryDecision::kAgain) return replayed;
  {
    absl::MutexLock lock(&push_mutex_);
    NoteSteps(reply.state);
    ledger_.EndRenewal(reply.state.boot_id);
    renewed_.SignalAll();
    PublishLedger();
  }
  CAIRN_CRASH_POINT("replay: done");
  Learn(reply.state);
  return RetryDecision::kAgain;
}

// No other numbered call reaches this server during the replay: it answers REBOOTED to them.
RetryDecision ServerSession::Replay(const ReplayPlan& plan, const wire::HelloReply& hello,
                                    Outcome* outcome, Deadline deadline) {
  const absl::Duration start = MonotonicNow();
  int64_t bytes = 0;
  int64_t last_sent_step = hello.state.closed_step;
  for (const RetainedPart& part : plan.parts) {
    const absl::Duration sent = MonotonicNow();
    CAIRN_CRASH_POINT("replay: before a push");
    *outcome = Resend(part, hello.state.boot_id, deadline, &last_sent_step);
    for (int cuts = 0; ReasonOf(outcome->status) == wire::ErrorReason::MOVED && cuts < kMostCuts;
         ++cuts) {
      const absl::Status cut = RemoveMovedRows(outcome->status, part.call.get());
      if (!cut.ok()) {
        *outcome = {Progress::kAnswered, cut};
        break;
      }
      *outcome = Resend(part, hello.state.boot_id, deadline, &last_sent_step);
    }
    if (!outcome->status.ok()) {
      if (outcome->progress == Progress::kAnswered) {
        outcome->status = Annotate(
            outcome->status, absl::StrCat(name_, " was restarted without push ", part.sequence,
                                          " of ", identity_.task, ", and replaying it failed"));
      }
      return ClassifyRenewal(outcome);
    }
    const int64_t sent_bytes = UpdateBytes(*part.call);
    bytes += sent_bytes;
    identity_.retention->CountReplayed(sent_bytes, MonotonicNow() - sent);
  }
  const std::string durability = absl::StrCat(" (durability ", hello.durability, ")");
  if (plan.parts.empty()) {
    const bool same_boot = hello.state.boot_id == boot_id_.load(std::memory_order_relaxed);
    LOG(INFO) << name_ << (same_boot ? " has taken this worker back" : " was restarted")
              << "; it has every push acknowledged to " << identity_.task << durability;
  } else {
    LOG(INFO) << name_ << " was restarted and had sequence " << hello.state.applied << " of "
              << identity_.task << durability << "; replayed " << plan.parts.size() << " pushes, "
              << bytes << " bytes, in " << DurationText(MonotonicNow() - start);
  }
  return RetryDecision::kAgain;
}

// Rows that moved to another server took along, durably, every update that was acknowledged to this
// worker (ps_server/MOVES.md).
absl::Status ServerSession::RemoveMovedRows(const absl::Status& moved, DataCall* call) const {
  ClientVariableMap newer;
  for (const wire::VariableSpec& wire : MovedOf(moved)) {
    ASSIGN_OR_RETURN(VariableSpec spec, FromWire(wire, index_, kMaxServers));
    newer.Insert(std::move(spec));
  }
  const auto find = [&](absl::string_view name) { return newer.Find(name); };
  return WithUpdate(*call, [&](auto& update) -> absl::Status {
    ASSIGN_OR_RETURN(auto parts, RepartitionItems(update.items, index_, find));
    update.items = std::move(parts.here);
    return absl::OkStatus();
  });
}

Outcome ServerSession::Resend(const RetainedPart& part, int64_t boot_id, Deadline deadline,
                              int64_t* last_sent_step) {
  Channel* channel = nullptr;
  Outcome outcome = link_->Take(deadline, &channel);
  if (channel == nullptr) return outcome;
  DataCall& call = *part.call;
  wire::Caller& caller = WithUpdate(
      call, [](auto& update) -> auto& { return update.caller; });
  FillCaller(&caller);
  caller.boot_id = boot_id;
  caller.through = PushLedger::ThroughOf(part);
  if (identity_.synchronous() && call.kind == CallKind::kPush && call.request.push.step > 0) {
    wire::PushRequest& push = call.request.push;
    push.decisions = identity_.steps->Decisions(*last_sent_step, push.step);
    if (!push.decisions.empty()) *last_sent_step = push.decisions.back().step;
  }
  outcome = channel->Send(call, deadline);
  if (outcome.progress == Progress::kAnswered && outcome.status.ok()) {
    outcome = channel->Receive(call, deadline);
  }
  link_->Return(channel, outcome.progress);
  return outcome;
}

// Decides how to continue after a failed hello or replay.
RetryDecision ServerSession::ClassifyRenewal(Outcome* outcome) {
  const wire::ErrorReason::type reason = ReasonOf(outcome->status);
  if (reason == wire::ErrorReason::FENCED) {
    outcome->status = Fenced(outcome->status);
    return RetryDecision::kFail;
  }
  if (reason == wire::ErrorReason::BUSY) return RetryDecision::kAgainLater;
  // REBOOTED and LEASE_ENDED: the server restarted, or the lease ended, once more. WAIT_EXPIRED: an
  // update follows contributions whose steps wait for other workers' replays.
  if (outcome->progress == Progress::kAnswered && reason != wire::ErrorReason::STOPPING &&
      reason != wire::ErrorReason::REBOOTED && reason != wire::ErrorReason::LEASE_ENDED &&
      reason != wire::ErrorReason::WAIT_EXPIRED) {
    return RetryDecision::kFail;
  }
  NoteDown(outcome->status);
  return RetryDecision::kAgainLater;
}

absl::Status ServerSession::Fenced(const absl::Status& error) const {
  return WithReason(
      FailedPrecondition(error.message(), "; this process is incarnation ",
                         incarnation_.load(std::memory_order_relaxed), " of ", identity_.task,
                         " in job \"", identity_.job, "\" and must stop"),
      wire::ErrorReason::FENCED);
}

absl::Status ServerSession::PushesLost(const ReplayPlan& plan,
                                       const wire::HelloReply& hello) const {
  const std::string pushes = plan.first_lost == plan.last_lost
                                 ? absl::StrCat("push ", plan.first_lost)
                                 : absl::StrCat("pushes ", plan.first_lost, "…", plan.last_lost);
  const bool same_boot = hello.state.boot_id == boot_id_.load(std::memory_order_relaxed);
  const absl::string_view why =
      same_boot                        ? ": the job was dropped there"
      : identity_.retention == nullptr ? " (this client retains none)"
      : hello.durability == "off"
          ? " (durability off, where an acknowledged push survives a clean exit only)"
          : ", which were durable: another server has its address, or it runs on another "
            "directory or on an older copy of it";
  return WithReason(
      FailedPrecondition(
          name_, " came back without acknowledged ", pushes, " of ", identity_.task, why,
          ". They are lost: restart the server on its previous directory, or restart this task, "
          "which recomputes them, or start over with --fresh"),
      wire::ErrorReason::REPLAY);
}

absl::Status ServerSession::CheckTimeline(const wire::HelloReply& hello) const {
  const int64_t held = timeline_.load(std::memory_order_relaxed);
  // A server that holds nothing of the job is found by its lost pushes or variables instead.
  if (held == 0 || hello.timeline == 0 || hello.timeline == held) return absl::OkStatus();
  return WithReason(
      FailedPrecondition(name_, " holds job \"", identity_.job, "\" as it began at ",
                         TimelineText(hello.timeline), ", ", identity_.task,
                         " trains it as it began at ", TimelineText(held),
                         ": the job was dropped, or the server started on another directory; start "
                         "the server on its own --data_dir, then this task"),
      wire::ErrorReason::FENCED);
}

absl::Status ServerSession::GiveUpError(const Outcome& outcome, bool deadline_passed) const {
  // The error names the missing workers.
  if (ReasonOf(outcome.status) == wire::ErrorReason::WAIT_EXPIRED) return outcome.status;
  // The server answers, and its error says why it refuses.
  if (ReasonOf(outcome.status) == wire::ErrorReason::BUSY) {
    return Annotate(outcome.status,
                    absl::StrCat("gave up at the call's deadline or after ps_wait, ",
                                 absl::FormatDuration(identity_.ps_wait)));
  }
  const absl::string_view error = WithoutPeer(outcome.status.message(), name_);
  const bool slow = outcome.status.code() == absl::StatusCode::kDeadlineExceeded;
  if (deadline_passed && slow) {
    return DeadlineExceeded(name_, " did not answer before the deadline: ", error);
  }
  absl::MutexLock lock(&mutex_);
  return Unavailable(
      name_, " has been down since ", TimeOfDayText(down_since_), ": ", error, "; gave up ",
      deadline_passed ? "at the call's deadline"
                      : absl::StrCat("after ", absl::FormatDuration(identity_.ps_wait)),
      ": restart it with the same data directory, then this task");
}

void ServerSession::NoteAnswer() {
  if (!down_.load(std::memory_order_relaxed)) return;
  absl::MutexLock lock(&mutex_);
  if (!down_.exchange(false)) return;
  replaced_.store(false);
  logged_other_server_.store(false);
  const absl::Duration outage = std::max(absl::Now() - down_since_, absl::Milliseconds(1));
  LOG(INFO) << name_ << " is back after " << DurationText(outage);
}

void ServerSession::NoteDown(const absl::Status& error) {
  if (down_.load(std::memory_order_relaxed)) return;
  absl::MutexLock lock(&mutex_);
  if (down_.exchange(true)) return;
  down_since_ = absl::Now();
  const absl::string_view what = absl::IsDeadlineExceeded(error) ? " has not answered"
                                 : ReasonOf(error) == wire::ErrorReason::STOPPING
                                     ? " has refused calls"
                                     : " has been down";
  LOG(WARNING) << name_ << what << " since " << TimeOfDayText(down_since_) << ": "
               << WithoutPeer(error.message(), name_) << "; waiting up to "
               << absl::FormatDuration(identity_.ps_wait);
}

}  // namespace cairn
