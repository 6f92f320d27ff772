#include "worker/client/impl/heartbeats.h"

#include <algorithm>

#include "common/deadline.h"
#include "common/log.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// A heartbeat is answered at once or is of no use; also bounds the time that a destructor waits
// for one.
constexpr absl::Duration kLongestTimeout = absl::Seconds(1);
constexpr absl::Duration kShortestTimeout = absl::Milliseconds(100);

}  // namespace

void Heartbeats::Start(absl::Duration lease) {
  interval_ = lease / 3;
  StartThreads();
}

size_t Heartbeats::StartThreads() {
  absl::MutexLock lock(&threads_mutex_);
  for (; !stopped_ && started_ < uses_.sessions.size(); ++started_) {
    ServerSession& session = uses_.sessions[started_];
    if (session.left()) continue;
    threads_.push_back(StartClientThread([this, &session] { Loop(session); }));
  }
  return started_;
}

void Heartbeats::Stop() {
  stop_.Stop();
  uses_.sessions.EndWaits();
  std::vector<ClientThread> threads;  // waits for their ends without the lock
  absl::MutexLock lock(&threads_mutex_);
  stopped_ = true;
  threads.swap(threads_);
}

void Heartbeats::Loop(ServerSession& session) {
  const absl::Duration timeout = std::clamp(interval_, kShortestTimeout, kLongestTimeout);
  const absl::Duration pause = std::min(interval_, uses_.longest_pause);
  // Until it has something of this worker durably there is no position that it has, too.
  bool has_position = !session.joined();
  do {  // at once: one that stops soon after its hello is to be missed too
    const absl::ReaderMutexLock lock(&mutex_);
    const absl::Status status = Beat(session, timeout);
    if (session.left()) return;
    if (!has_position && status.ok() && session.last_part() > 0) {
      int64_t durable = 0;
      uses_.calls.Flush(session.index(), timeout, Deadline::In(timeout), &durable).IgnoreError();
      has_position = durable > 0;
    }
    // A server that is gone is in the log, and no reason to end; calls wait for it. One that has
    // fenced this process tells every call so.
    if (ReasonOf(status) != wire::ErrorReason::FENCED) continue;
    LOG(ERROR) << status.message();
    uses_.flags.fenced.store(true);
    return;
  } while (!Pause(session, pause));
}

// The thread of ps:0 starts those of servers that join.
bool Heartbeats::Pause(const ServerSession& session, absl::Duration pause) {
  if (session.index() != 0) return stop_.WaitFor(pause);
  const Deadline end = Deadline::In(pause);
  for (size_t known = StartThreads(); !stop_.stopped() && !end.Expired(); known = StartThreads()) {
    uses_.sessions.WaitForMore(known, end);
  }
  return stop_.stopped();
}

wire::WorkerVitals Heartbeats::Vitals() const {
  wire::WorkerVitals vitals;
  vitals.__set_task(uses_.options.task.substr(0, kMaxTaskTypeBytes));
  const StalenessSummary staleness = uses_.staleness.Summary();
  if (!staleness.histogram.empty()) {
    vitals.__set_staleness_mean(staleness.mean);
    vitals.__set_staleness_max(staleness.max);
  }
  vitals.__set_retained_bytes(uses_.retention.bytes());
  vitals.__isset.servers_gone = true;
  uses_.sessions.ForEachLive([&](const ServerSession& session) {
    if (!session.gone() || vitals.servers_gone.size() >= kMaxGoneServers) return;
    vitals.servers_gone.push_back(session.index());
  });
  if (uses_.options.vitals == nullptr) return vitals;
  const TrainingVitals training = uses_.options.vitals();
  vitals.__set_steps(training.steps);
  vitals.__set_examples(training.examples);
  if (training.loss.has_value()) vitals.__set_loss(*training.loss);
  if (training.share_done.has_value()) vitals.__set_share_done(*training.share_done);
  if (training.seconds_left.has_value()) vitals.__set_seconds_left(*training.seconds_left);
  return vitals;
}

absl::Status Heartbeats::Beat(ServerSession& session, absl::Duration timeout) {
  wire::ServerState state;
  absl::Status status =
      uses_.fan_out.Call(session, "heartbeat", timeout, absl::ZeroDuration(), Deadline::In(timeout),
                         [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
                           wire::Caller beating = caller;
                           beating.__set_vitals(Vitals());
                           service.heartbeat(state, beating);
                         });
  if (!status.ok()) return status;
  session.Learn(state);
  uses_.membership.Heard(state);
  return status;
}

}  // namespace cairn
