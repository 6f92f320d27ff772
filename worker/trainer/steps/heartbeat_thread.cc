#include "worker/trainer/steps/heartbeat_thread.h"

#include <utility>

#include "common/deadline.h"

namespace cairn {
namespace {

constexpr absl::Duration kBeatTimeout = absl::Seconds(2);

}  // namespace

HeartbeatThread::HeartbeatThread(std::unique_ptr<PsClient> client, int32_t worker)
    : client_(std::move(client)), entry_(worker), thread_([this] { Run(); }) {}

HeartbeatThread::~HeartbeatThread() {
  stop_.Stop();
  thread_.join();
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
