#include "worker/trainer/steps/heartbeat_thread.h"

#include <utility>

#include "common/deadline.h"
#include "common/start_thread.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kBeatTimeout = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<HeartbeatThread>> HeartbeatThread::Start(
    std::unique_ptr<PsClient> client, int32_t worker) {
  std::unique_ptr<HeartbeatThread> started(new HeartbeatThread(std::move(client), worker));
  absl::StatusOr<std::thread> thread = StartThread([self = started.get()] { self->Run(); });
  if (!thread.ok()) return Annotate(thread.status(), "heartbeats to the roster");
  started->thread_ = *std::move(thread);
  return started;
}

HeartbeatThread::HeartbeatThread(std::unique_ptr<PsClient> client, int32_t worker)
    : client_(std::move(client)), entry_(worker) {}

HeartbeatThread::~HeartbeatThread() {
  stop_.Stop();
  if (thread_.joinable()) thread_.join();
}

void HeartbeatThread::Run() {
  do {
    RosterGradient gradient;
    // The training itself waits for a lost server and reports it.
    client_->Push({entry_.Source(MonotonicNow(), 0, &gradient)}, "", Deadline::In(kBeatTimeout))
        .IgnoreError();
  } while (!stop_.WaitFor(RosterEntry::kBeatInterval));
}

}  // namespace cairn
