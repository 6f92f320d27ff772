#include "worker/client/server_session.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

int64_t MonotonicNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The error without the server's name in front ("push to ps:1 (…): ps:1 (…) closed …"), for
// sentences that begin with it.
absl::string_view WithoutPeer(absl::string_view message, absl::string_view name) {
  const size_t at = message.find(name);
  if (at == absl::string_view::npos || message.substr(at + name.size(), 2) != ": ") return message;
  message.remove_prefix(at + name.size() + 2);
  if (message.substr(0, name.size()) == name && message.substr(name.size(), 1) == " ") {
    message.remove_prefix(name.size() + 1);
  }
  return message;
}

std::string ClockText(absl::Time time) {
  return absl::FormatTime("%H:%M:%S", time, absl::LocalTimeZone());
}

}  // namespace

ServerSession::ServerSession(int32_t index, std::string name, std::unique_ptr<ServerLink> link,
                             const ClientIdentity* identity)
    : index_(index), name_(std::move(name)), link_(std::move(link)), identity_(*identity) {}

Outcome ServerSession::Hello(int64_t incarnation, Deadline deadline, wire::HelloReply* reply) {
  Channel* channel = nullptr;
  Outcome outcome = link_->Take(deadline, &channel);
  if (channel == nullptr) return outcome;
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  request.job = identity_.job;
  request.task_type = identity_.task.substr(0, identity_.task.find(':'));
  request.worker = identity_.worker;
  request.incarnation = incarnation;
  request.origin = identity_.origin;
  outcome = channel->Call(
      "hello", [&](wire::ParameterServerIf& service) { service.hello(*reply, request); }, deadline);
  if (outcome.progress == Progress::kAnswered) {
    link_->Release(channel);
    if (outcome.status.ok()) outcome.status = CheckHello(*reply);
  } else {
    link_->Discard(channel);
  }
  return outcome;
}

absl::Status ServerSession::CheckHello(const wire::HelloReply& reply) const {
  const int32_t version = wire::g_cairn_constants.PROTOCOL_VERSION;
  if (reply.protocol_version != version) {
    return absl::FailedPreconditionError(
        absl::StrCat(name_, " speaks protocol version ", reply.protocol_version, ", this client ",
                     version, ": run servers and workers of the same release"));
  }
  if (reply.server_index != index_ || reply.server_count != identity_.server_count) {
    return absl::FailedPreconditionError(absl::StrCat(
        name_, " of ", identity_.server_count, " says that it is ps:", reply.server_index, " of ",
        reply.server_count, ": give servers and workers the same cluster file"));
  }
  return absl::OkStatus();
}

void ServerSession::Begin(const wire::HelloReply& reply, int64_t incarnation, int64_t last_part,
                          int64_t through) {
  incarnation_.store(incarnation, std::memory_order_relaxed);
  last_part_.store(last_part, std::memory_order_relaxed);
  through_.store(through, std::memory_order_relaxed);
  boot_id_.store(reply.state.boot_id, std::memory_order_release);
}

int64_t ServerSession::FillCaller(wire::Caller* caller) const {
  if (caller->job != identity_.job) caller->job = identity_.job;
  caller->worker = identity_.worker;
  if (!identity_.sequenced()) {
    caller->incarnation = caller->boot_id = caller->through = 0;
    return 0;
  }
  // The boot id first: `through` is true of the boot that it is read with or of an earlier one,
  // and Renew publishes a boot id only once it holds everything before.
  caller->boot_id = boot_id_.load(std::memory_order_acquire);
  caller->incarnation = incarnation_.load(std::memory_order_relaxed);
  caller->through = through_.load(std::memory_order_relaxed);
  return caller->boot_id;
}

bool ServerSession::PushAnswered(int64_t sequence, int64_t boot_id) {
  absl::MutexLock lock(&renew_mutex_);
  if (boot_id_.load(std::memory_order_relaxed) != boot_id) return false;
  last_part_.store(sequence, std::memory_order_relaxed);
  through_.store(sequence, std::memory_order_relaxed);
  return true;
}

void ServerSession::NoPart(int64_t sequence) {
  through_.store(sequence, std::memory_order_relaxed);
}

void ServerSession::ForgetPushes() {
  absl::MutexLock lock(&renew_mutex_);
  last_part_.store(0, std::memory_order_relaxed);
  through_.store(0, std::memory_order_relaxed);
}

Verdict ServerSession::Judge(Outcome* outcome, bool repeatable, int64_t boot_id,
                             Deadline deadline) {
  if (outcome->progress == Progress::kAnswered) {
    if (outcome->status.ok()) {
      NoteAnswer();
      return Verdict::kDone;
    }
    switch (ReasonOf(outcome->status)) {
      case wire::ErrorReason::REBOOTED: return Renew(outcome, boot_id, deadline);
      case wire::ErrorReason::STOPPING:
        NoteGone(outcome->status);
        return repeatable ? Verdict::kAgainLater : Verdict::kFail;
      case wire::ErrorReason::FENCED: outcome->status = Fenced(outcome->status); break;
      case wire::ErrorReason::REPLAY:
        outcome->status = PushesLost(ReplayAfterOf(outcome->status), "");
        break;
      default: NoteAnswer(); break;
    }
    return Verdict::kFail;
  }
  // Not a matter of time: a malformed address, a peer that speaks something else.
  if (!absl::IsUnavailable(outcome->status) && !absl::IsDeadlineExceeded(outcome->status)) {
    return Verdict::kFail;
  }
  NoteGone(outcome->status);
  if (outcome->progress == Progress::kUnknown && !repeatable) {
    outcome->status = absl::Status(
        outcome->status.code(),
        absl::StrCat(outcome->status.message(),
                     "; whether the server applied the push is not "
                     "known, and a push that is not sequenced is not sent twice: pull to see"));
    return Verdict::kFail;
  }
  return Verdict::kAgainLater;
}

Verdict ServerSession::Renew(Outcome* outcome, int64_t stale_boot_id, Deadline deadline) {
  absl::MutexLock lock(&renew_mutex_);
  if (boot_id_.load(std::memory_order_relaxed) != stale_boot_id) return Verdict::kAgain;
  wire::HelloReply reply;
  *outcome = Hello(incarnation_.load(std::memory_order_relaxed), deadline, &reply);
  if (!outcome->status.ok()) {
    if (ReasonOf(outcome->status) == wire::ErrorReason::FENCED) {
      outcome->status = Fenced(outcome->status);
      return Verdict::kFail;
    }
    if (outcome->progress == Progress::kAnswered &&
        ReasonOf(outcome->status) != wire::ErrorReason::STOPPING) {
      return Verdict::kFail;
    }
    NoteGone(outcome->status);
    return Verdict::kAgainLater;
  }
  NoteAnswer();
  if (reply.state.applied < last_part()) {
    outcome->status = PushesLost(reply.state.applied, reply.durability);
    return Verdict::kFail;
  }
  LOG(INFO) << name_ << " was restarted; it has every push acknowledged to " << identity_.task
            << " (sequence " << reply.state.applied << ", durability " << reply.durability << ")";
  boot_id_.store(reply.state.boot_id, std::memory_order_release);
  return Verdict::kAgain;
}

absl::Status ServerSession::Fenced(const absl::Status& error) const {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          error.message(), "; this process is incarnation ",
          incarnation_.load(std::memory_order_relaxed), " of ", identity_.task, " in job \"",
          identity_.job, "\" and must stop: the newer start goes on in its place")),
      wire::ErrorReason::FENCED);
}

absl::Status ServerSession::PushesLost(int64_t applied, absl::string_view durability) const {
  const int64_t first = applied + 1, last = last_part();
  const std::string pushes =
      first == last ? absl::StrCat("push ", first) : absl::StrCat("pushes ", first, "…", last);
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          name_, " came back without acknowledged ", pushes,
          durability.empty() ? "" : absl::StrCat(" (durability ", durability, ")"),
          "; replay is not in this version: start this task again, which computes them again, or "
          "with --fresh; servers with --durability log lose none")),
      wire::ErrorReason::REPLAY);
}

absl::Status ServerSession::GaveUp(const Outcome& outcome, bool deadline_passed) const {
  const absl::string_view error = WithoutPeer(outcome.status.message(), name_);
  const bool slow = outcome.status.code() == absl::StatusCode::kDeadlineExceeded;
  if (deadline_passed && slow) {
    return absl::DeadlineExceededError(
        absl::StrCat(name_, " did not answer before the deadline: ", error));
  }
  absl::MutexLock lock(&mutex_);
  return absl::UnavailableError(absl::StrCat(
      name_, " is gone since ", ClockText(gone_since_), ": ", error, "; gave up ",
      deadline_passed ? "at the call's deadline"
                      : absl::StrCat("after ", absl::FormatDuration(identity_.ps_wait)),
      ": start it again with the same data directory, then this task"));
}

void ServerSession::NoteAnswer() {
  last_answer_ns_.store(MonotonicNanos(), std::memory_order_relaxed);
  if (!gone_.load(std::memory_order_relaxed)) return;
  absl::MutexLock lock(&mutex_);
  if (!gone_.exchange(false)) return;
  const absl::Duration gone = std::max(absl::Now() - gone_since_, absl::Milliseconds(1));
  LOG(INFO) << name_ << " is back after "
            << absl::FormatDuration(absl::Trunc(gone, absl::Milliseconds(1)));
}

void ServerSession::NoteGone(const absl::Status& error) {
  if (gone_.load(std::memory_order_relaxed)) return;
  absl::MutexLock lock(&mutex_);
  if (gone_.exchange(true)) return;
  gone_since_ = absl::Now();
  LOG(WARNING) << name_ << (absl::IsDeadlineExceeded(error) ? " does not answer" : " is gone")
               << " since " << ClockText(gone_since_) << ": " << WithoutPeer(error.message(), name_)
               << "; waiting up to " << absl::FormatDuration(identity_.ps_wait);
}

absl::Duration ServerSession::SinceLastAnswer() const {
  return absl::Nanoseconds(MonotonicNanos() - last_answer_ns_.load(std::memory_order_relaxed));
}

}  // namespace cairn
