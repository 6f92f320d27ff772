#include "ps_server/monitor/monitor.h"

#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/deadline.h"
#include "common/metrics/families.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "ps_server/monitor/history.h"
#include "ps_server/monitor/page_files.h"
#include "ps_server/monitor/ps_metrics.h"

namespace cairn {
namespace {

// "after=N" of /status.json; nullopt: malformed.
std::optional<int64_t> AfterOf(absl::string_view query) {
  if (query.empty()) return 0;
  int64_t after = 0;
  if (!absl::ConsumePrefix(&query, "after=") || !absl::SimpleAtoi(query, &after) || after < 0) {
    return std::nullopt;
  }
  return after;
}

class MonitorImpl final : public Monitor {
 public:
  explicit MonitorImpl(ClusterPlace place) : place_(std::move(place)) {}
  ~MonitorImpl() override {
    http_.reset();
    stop_.Stop();
    if (sampler_.joinable()) sampler_.join();
  }

  absl::Status Start(const HttpOptions& options);
  const std::string& address() const override { return http_->address(); }
  void Serving(const Engine& engine, const Listener& listener) override;
  void Stopping() override;

 private:
  struct Figures {
    EngineFigures engine;
    ListenerFigures listener;
  };
  // All of one moment.
  struct Reading {
    ClusterPlace place;
    std::string state;
    std::optional<Figures> serving;  // nullopt: it does not
  };

  Reading Read(FigureDetail detail) const;
  HttpReply Metrics() const;
  HttpReply Ready() const;
  HttpReply Status(absl::string_view query) const;
  void SampleLoop();

  // Shared by whoever reads the engine; alone: its coming and going.
  mutable absl::Mutex mutex_;
  ClusterPlace place_ ABSL_GUARDED_BY(mutex_);
  std::string state_ ABSL_GUARDED_BY(mutex_) = "opening";
  const Engine* engine_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while it serves
  const Listener* listener_ ABSL_GUARDED_BY(mutex_) = nullptr;

  mutable absl::Mutex history_mutex_;
  History history_ ABSL_GUARDED_BY(history_mutex_);

  StopFlag stop_;
  std::thread sampler_;
  std::unique_ptr<HttpServer> http_;
};

absl::Status MonitorImpl::Start(const HttpOptions& options) {
  std::map<std::string, HttpPage> pages;
  for (const PageFile& file : PageFiles()) {
    pages[std::string(file.path)] = [&file](absl::string_view) {
      return HttpReply{.content_type = std::string(file.content_type),
                       .body = std::string(file.text)};
    };
  }
  pages["/healthz"] = [](absl::string_view) { return HttpReply{.body = "ok\n"}; };
  pages["/readyz"] = [this](absl::string_view) { return Ready(); };
  pages["/metrics"] = [this](absl::string_view) { return Metrics(); };
  pages["/status.json"] = [this](absl::string_view query) { return Status(query); };
  ASSIGN_OR_RETURN(http_, HttpServer::Start(options, std::move(pages)));
  return absl::OkStatus();
}

void MonitorImpl::Serving(const Engine& engine, const Listener& listener) {
  {
    const absl::MutexLock lock(&mutex_);
    state_ = "serving";
    // The cluster file may say port 0.
    place_.servers[static_cast<size_t>(place_.server_index)] = listener.address();
    engine_ = &engine;
    listener_ = &listener;
  }
  sampler_ = std::thread([this] { SampleLoop(); });
}

void MonitorImpl::Stopping() {
  const absl::MutexLock lock(&mutex_);
  state_ = "stopping";
  engine_ = nullptr;
  listener_ = nullptr;
}

MonitorImpl::Reading MonitorImpl::Read(FigureDetail detail) const {
  const absl::ReaderMutexLock lock(&mutex_);
  Reading reading{.place = place_, .state = state_};
  if (engine_ != nullptr) reading.serving = {engine_->Figures(detail), listener_->figures()};
  return reading;
}

HttpReply MonitorImpl::Metrics() const {
  Families families;
  const std::optional<Figures> serving = Read(FigureDetail::kMetrics).serving;
  families.Gauge("cairn_ps_ready", "1: it answers calls and can write.",
                 serving.has_value() && serving->engine.failure.ok() ? 1 : 0);
  if (serving.has_value()) AddServerMetrics(serving->engine, serving->listener, families);
  AddProcessMetrics(families);
  return {.content_type = std::string(kMetricsTextType), .body = MetricsText(families.Take())};
}

HttpReply MonitorImpl::Ready() const {
  const absl::ReaderMutexLock lock(&mutex_);
  if (engine_ == nullptr) return {.status = 503, .body = absl::StrCat(state_, "\n")};
  const absl::Status failure = engine_->failure();
  if (failure.ok()) return {.body = "ready\n"};
  return {.status = 503, .body = absl::StrCat(failure.message(), "\n")};
}

HttpReply MonitorImpl::Status(absl::string_view query) const {
  const std::optional<int64_t> after = AfterOf(query);
  if (!after.has_value()) {
    return {.status = 400, .body = "after= takes the number of a sample, 0 or more\n"};
  }
  const Reading reading = Read(FigureDetail::kPage);
  std::vector<Sample> samples;
  int64_t last = 0;
  {
    const absl::MutexLock lock(&history_mutex_);
    samples = history_.After(*after);
    last = history_.last();
  }
  const bool serves = reading.serving.has_value();
  return {
      .content_type = "application/json; charset=utf-8",
      .body = StatusJson(reading.place, reading.state, serves ? &reading.serving->engine : nullptr,
                         serves ? reading.serving->listener : ListenerFigures(), samples, last)};
}

void MonitorImpl::SampleLoop() {
  do {
    const std::optional<Figures> serving = Read(FigureDetail::kSample).serving;
    if (!serving.has_value()) return;
    const absl::MutexLock lock(&history_mutex_);
    history_.Add(serving->engine, MonotonicNow(), absl::Now());
  } while (!stop_.WaitFor(kSampleInterval));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Start(const HttpOptions& options,
                                                        ClusterPlace place) {
  auto monitor = std::make_unique<MonitorImpl>(std::move(place));
  if (absl::Status status = monitor->Start(options); !status.ok()) return status;
  return monitor;
}

}  // namespace cairn
