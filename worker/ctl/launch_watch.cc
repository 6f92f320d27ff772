#include "worker/ctl/launch_watch.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/deadline.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "thrift/job_state.h"
#include "worker/trainer/reports/progress.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookForWorkers = absl::Milliseconds(200);

bool AllRefuse(const std::vector<ServerView>& servers) {
  return std::ranges::all_of(servers,
                             [](const ServerView& server) { return IsRefusal(server.status); });
}

}  // namespace

std::string ProgressLine(const std::vector<ServerView>& servers, absl::Duration now,
                         LaunchSample* sample) {
  const std::vector<wire::WorkerStanding> workers = WorkersOf(servers);
  std::string line = StateOf(JobViewsOf(servers)).Sentence();
  const LaunchSample before = std::exchange(*sample, {.at = now});
  std::optional<int64_t> examples;
  for (const wire::WorkerStanding& worker : workers) {
    if (!worker.vitals.__isset.examples) continue;
    sample->examples[worker.worker] = worker.vitals.examples;
    const auto known = before.examples.find(worker.worker);
    if (known == before.examples.end() || worker.vitals.examples < known->second) continue;
    examples = examples.value_or(0) + worker.vitals.examples - known->second;
  }
  const double seconds = absl::ToDoubleSeconds(now - before.at);
  std::vector<std::string> rest;
  if (examples.has_value() && seconds > 0) {
    rest.push_back(absl::StrFormat("%.0f rows/s", static_cast<double>(*examples) / seconds));
  }
  if (const std::optional<double> loss = MeanLoss(workers); loss.has_value()) {
    rest.push_back(absl::StrFormat("loss %.4g", PrintableLoss(*loss)));
  }
  for (size_t i = 0; i < rest.size(); ++i) absl::StrAppend(&line, i == 0 ? "; " : ", ", rest[i]);
  return line;
}

bool HaveJoined(const std::vector<ServerView>& servers, size_t workers) {
  size_t joined = 0;
  for (const wire::WorkerStanding& worker : WorkersOf(servers)) {
    // With an earlier launch's --state, workers are "returning", "left" or "lost" until they call
    // hello. Only a worker that has called hello since the servers' start has an origin.
    const bool came_before =
        worker.origin.empty() && (worker.state == "left" || worker.state == "lost");
    if (worker.state != "expected" && worker.state != "returning" && !came_before) ++joined;
  }
  return joined >= workers;
}

absl::StatusOr<std::unique_ptr<LaunchWatch>> LaunchWatch::Start(Target target, size_t workers,
                                                                absl::Duration progress_interval) {
  std::unique_ptr<LaunchWatch> watch(
      new LaunchWatch(std::move(target), workers, progress_interval));
  absl::StatusOr<std::thread> thread = StartThread([self = watch.get()] { self->Run(); });
  if (!thread.ok()) return Annotate(thread.status(), "watching the job");
  watch->thread_ = *std::move(thread);
  return watch;
}

LaunchWatch::LaunchWatch(Target target, size_t workers, absl::Duration progress_interval)
    : target_(std::move(target)),
      workers_(workers),
      progress_interval_(progress_interval),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

LaunchWatch::~LaunchWatch() {
  stop_.Stop();
  if (thread_.joinable()) thread_.join();
}

LaunchWatch::News LaunchWatch::Take() {
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
  const absl::MutexLock lock(&mutex_);
  return std::exchange(news_, {.ready = news_.ready, .lines = {}});
}

void LaunchWatch::Tell(bool ready, std::string line) {
  {
    const absl::MutexLock lock(&mutex_);
    news_.ready = news_.ready || ready;
    if (!line.empty()) news_.lines.push_back(std::move(line));
  }
  eventfd_write(event_.get(), 1);
}

void LaunchWatch::Run() {
  LaunchSample sample;
  bool ready = false;
  do {
    const std::vector<ServerView> servers = AskServers(target_);
    if (AllRefuse(servers)) {
      Tell(true, absl::StrCat("no progress is shown: ", servers.front().status.message()));
      return;
    }
    if (ready) {
      Tell(true, ProgressLine(servers, MonotonicNow(), &sample));
    } else if (HaveJoined(servers, workers_)) {
      ready = true;
      ProgressLine(servers, MonotonicNow(), &sample);
      Tell(true, "");
      if (progress_interval_ == absl::ZeroDuration()) return;
    }
  } while (!stop_.WaitFor(ready ? progress_interval_ : kLookForWorkers));
}

}  // namespace cairn
