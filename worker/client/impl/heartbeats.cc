#include "worker/client/impl/heartbeats.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/catch_exceptions.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/interruption.h"
#include "common/log.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// A late heartbeat is useless, so attempts are short. The limit also bounds how long Stop waits:
// other calls of the threads end soon after it.
constexpr absl::Duration kLongestTimeout = absl::Seconds(1);
constexpr absl::Duration kShortestTimeout = absl::Milliseconds(100);
// Limits a refresh of the list of servers; the next heartbeat asks for another one.
constexpr absl::Duration kRefreshTimeout = absl::Seconds(5);

bool IsStopped(void* stop) { return static_cast<const StopFlag*>(stop)->stopped(); }

}  // namespace

absl::Status Heartbeats::Start(absl::Duration lease) {
  interval_ = lease / 3;
  size_t known = 0;
  if (StartThreads(&known)) return absl::OkStatus();
  Stop();
  return ResourceExhausted(deps_.options.task, ": the system refuses a thread for the heartbeats; ",
                           known + 1, " are needed, one for each server and one for the list of ",
                           "servers: raise the limit of threads (ulimit -u, pids.max)");
}

bool Heartbeats::StartThreads(size_t* known) {
  absl::MutexLock lock(&threads_mutex_);
  *known = deps_.sessions.size();
  if (!stopped_ && threads_.empty()) {
    ClientThread thread = StartClientThread([this] { RefreshLoop(); });
    if (thread == nullptr) return false;
    threads_.push_back(std::move(thread));
  }
  for (; !stopped_ && started_ < *known; ++started_) {
    ServerSession& session = deps_.sessions[started_];
    if (session.departed()) continue;
    ClientThread thread = StartClientThread([this, &session] { Loop(session); });
    if (thread == nullptr) return false;
    threads_.push_back(std::move(thread));
  }
  return true;
}

void Heartbeats::Stop() {
  stop_.Stop();
  Resume();
  deps_.sessions.EndWaits();
  std::vector<ClientThread> threads;  // destroyed, and so joined, after the lock is released
  absl::MutexLock lock(&threads_mutex_);
  stopped_ = true;
  threads.swap(threads_);
}

void Heartbeats::Loop(ServerSession& session) {
  const absl::Duration timeout = std::clamp(interval_, kShortestTimeout, kLongestTimeout);
  const absl::Duration pause = std::min(interval_, deps_.longest_pause);
  // A server that joined stores no position of this worker until a part of it is durable there.
  // Until then no position is common to all servers, so one flush follows the first part.
  bool has_position = !session.joined();
  do {  // the first at once, so that a worker that dies right after hello is missed
    if (!BeginBeat()) return;
    const absl::Cleanup end = [this] { EndBeat(); };
    const absl::Status status = Beat(session, timeout);
    if (session.departed()) return;
    if (!has_position && status.ok() && session.last_part() > 0) {
      int64_t durable = 0;
      const Interruption until_stop(IsStopped, &stop_);
      deps_.calls.Flush(session.index(), timeout, Deadline::In(timeout), &durable).IgnoreError();
      has_position = durable > 0;
    }
    // A server that does not answer does not end the loop: its session logs it, and calls wait for
    // it. FENCED ends it, because every call of this process fails from then on.
    if (ReasonOf(status) != wire::ErrorReason::FENCED) continue;
    LOG(ERROR) << status.message();
    deps_.flags.fenced.store(true);
    return;
  } while (!Pause(session, pause));
}

// A server of the new list may not answer, so no heartbeat waits for the refresh.
void Heartbeats::RefreshLoop() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      while (!newer_list_ && !stop_.stopped()) {
        changed_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
      }
      newer_list_ = false;
    }
    if (!BeginBeat()) return;
    const absl::Cleanup end = [this] { EndBeat(); };
    const Interruption until_stop(IsStopped, &stop_);
    const absl::Status known = deps_.membership.Refresh(Deadline::In(kRefreshTimeout));
    if (!known.ok()) LOG(WARNING) << "cannot refresh the list of servers: " << known.message();
  }
}

absl::Status Heartbeats::HoldBack(Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  held_back_ = true;
  while (beats_ > 0 && !deadline.Expired()) changed_.WaitUntil(&mutex_, deadline);
  if (beats_ == 0) return absl::OkStatus();
  held_back_ = false;
  changed_.SignalAll();
  return DeadlineExceeded("drop_job: ", beats_, " heartbeats of ", deps_.options.task,
                          " were under way until the deadline; nothing was dropped");
}

void Heartbeats::Resume() {
  absl::MutexLock lock(&mutex_);
  held_back_ = false;
  changed_.SignalAll();
}

bool Heartbeats::BeginBeat() {
  absl::MutexLock lock(&mutex_);
  while (held_back_ && !stop_.stopped()) {
    changed_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
  }
  if (stop_.stopped()) return false;
  ++beats_;
  return true;
}

void Heartbeats::EndBeat() {
  absl::MutexLock lock(&mutex_);
  --beats_;
  changed_.SignalAll();
}

// The thread of ps:0 also starts the threads of servers that join. A thread that the system refuses
// is tried again after the pause.
bool Heartbeats::Pause(const ServerSession& session, absl::Duration pause) {
  if (session.index() != 0) return stop_.WaitFor(pause);
  const Deadline end = Deadline::In(pause);
  while (!stop_.stopped() && !end.Expired()) {
    size_t known = 0;
    (void)StartThreads(&known);
    deps_.sessions.WaitForMore(known, end);
  }
  return stop_.stopped();
}

wire::WorkerVitals Heartbeats::Vitals() const {
  wire::WorkerVitals vitals;
  vitals.__set_task(deps_.options.task.substr(0, kMaxTaskTypeBytes));
  const StalenessSummary staleness = deps_.staleness.Summary();
  if (!staleness.histogram.empty()) {
    vitals.__set_staleness_mean(staleness.mean);
    vitals.__set_staleness_max(staleness.max);
  }
  vitals.__set_retained_bytes(deps_.retention.bytes());
  vitals.__isset.servers_gone = vitals.__isset.servers_replaced = true;
  deps_.sessions.ForEachLive([&](const ServerSession& session) {
    if (!session.down() || vitals.servers_gone.size() >= kMaxGoneServers) return;
    vitals.servers_gone.push_back(session.index());
    if (session.replaced()) vitals.servers_replaced.push_back(session.index());
  });
  if (deps_.options.vitals == nullptr) return vitals;
  const absl::StatusOr<TrainingVitals> training = CatchExceptions(
      "vitals", [this]() -> absl::StatusOr<TrainingVitals> { return deps_.options.vitals(); });
  if (!training.ok()) {
    if (!vitals_failed_.exchange(true)) {
      LOG(ERROR) << deps_.options.task << ": " << training.status().message()
                 << "; heartbeats are sent without the training's progress";
    }
    return vitals;
  }
  vitals.__set_steps(training->steps);
  vitals.__set_examples(training->examples);
  if (training->loss.has_value()) vitals.__set_loss(*training->loss);
  if (training->share_done.has_value()) vitals.__set_share_done(*training->share_done);
  if (training->seconds_left.has_value()) vitals.__set_seconds_left(*training->seconds_left);
  return vitals;
}

absl::Status Heartbeats::Beat(ServerSession& session, absl::Duration timeout) {
  wire::ServerState state;
  absl::Status status =
      deps_.fan_out.Call(session, "heartbeat", timeout, absl::ZeroDuration(), Deadline::In(timeout),
                         [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
                           wire::Caller beating = caller;
                           beating.__set_vitals(Vitals());
                           service.heartbeat(state, beating);
                         });
  if (!status.ok()) return status;
  session.Learn(state);
  if (deps_.membership.IsOlderThan(state)) {
    absl::MutexLock lock(&mutex_);
    newer_list_ = true;
    changed_.SignalAll();
  }
  return status;
}

}  // namespace cairn
