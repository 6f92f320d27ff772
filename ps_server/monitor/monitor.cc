#include "ps_server/monitor/monitor.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/deadline.h"
#include "common/log.h"
#include "common/metrics/families.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/engine/engine.h"
#include "ps_server/monitor/page_files.h"
#include "ps_server/monitor/ps_metrics.h"
#include "ps_server/net/listener.h"
#include "thrift/job_state.h"

namespace cairn {
namespace {

// The query of a request for /status.json.
struct StatusQuery {
  int64_t after = 0;  // asks for samples with a number above this one
  std::string job;    // empty: the first job
};

// Parses "after=N&job=NAME"; both are optional. nullopt: malformed.
std::optional<StatusQuery> ParseQuery(absl::string_view text) {
  StatusQuery query;
  for (absl::string_view part : absl::StrSplit(text, '&', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&part, "job=")) {
      query.job = std::string(part);
    } else if (!absl::ConsumePrefix(&part, "after=") || !absl::SimpleAtoi(part, &query.after) ||
               query.after < 0) {
      return std::nullopt;
    }
  }
  return query;
}

}  // namespace

Monitor::Monitor(ClusterPlace place, const SecurityOptions& security)
    : place_(std::move(place)),
      peers_({.servers = place_.servers, .self = place_.server_index, .security = security}) {}

Monitor::~Monitor() {
  health_.reset();
  http_.reset();
  stop_.Stop();
  if (sampler_.joinable()) sampler_.join();
}

absl::Status Monitor::Open(const HttpOptions& options, const std::optional<HttpOptions>& health) {
  std::map<std::string, HttpPage> pages;
  pages["/healthz"] = [](absl::string_view) { return HttpReply{.body = "ok\n"}; };
  pages["/readyz"] = [this](absl::string_view) { return Ready(); };
  if (health.has_value()) {
    ASSIGN_OR_RETURN(health_, HttpServer::Start(*health, pages));
  }
  for (const PageFile& file : PageFiles()) {
    pages[std::string(file.path)] = [&file](absl::string_view) {
      return HttpReply{.content_type = std::string(file.content_type),
                       .body = std::string(file.text)};
    };
  }
  pages["/metrics"] = [this](absl::string_view) { return Metrics(); };
  pages["/status.json"] = [this](absl::string_view query) { return Status(query); };
  ASSIGN_OR_RETURN(http_, HttpServer::Start(options, std::move(pages)));
  return absl::OkStatus();
}

void Monitor::Serving(const Engine& engine, const Listener& listener) {
  {
    const absl::MutexLock lock(&mutex_);
    state_ = "serving";
    // The cluster file may have port 0: show the bound port.
    place_.servers[static_cast<size_t>(place_.server_index)] = listener.address();
    engine_ = &engine;
    listener_ = &listener;
  }
  absl::StatusOr<std::thread> sampler = StartThread([this] { SampleLoop(); });
  if (sampler.ok()) {
    sampler_ = *std::move(sampler);
  } else {
    LOG(WARNING) << "the status page has no charts: " << sampler.status().message();
  }
}

void Monitor::Stopping() {
  const absl::MutexLock lock(&mutex_);
  state_ = "stopping";
  engine_ = nullptr;
  listener_ = nullptr;
}

StatusReading Monitor::Read(StatisticsDetail detail) const {
  const absl::ReaderMutexLock lock(&mutex_);
  StatusReading reading{.place = place_, .state = state_};
  if (engine_ != nullptr) {
    reading.engine = engine_->ReadStatistics(detail);
    reading.listener = listener_->statistics();
  }
  return reading;
}

HttpReply Monitor::Metrics() const {
  Families families;
  const StatusReading reading = Read(StatisticsDetail::kMetrics);
  families.Gauge("cairn_ps_ready", "1: the server answers calls and can write.",
                 reading.engine.has_value() && reading.engine->failure.ok() ? 1 : 0);
  if (reading.engine.has_value()) {
    AddServerMetrics(*reading.engine, reading.listener, families);
  }
  AddProcessMetrics(families);
  return {.content_type = std::string(kMetricsTextType), .body = MetricsText(families.Take())};
}

HttpReply Monitor::Ready() const {
  const absl::ReaderMutexLock lock(&mutex_);
  if (engine_ == nullptr) return {.status = 503, .body = absl::StrCat(state_, "\n")};
  const absl::Status failure = engine_->failure();
  if (failure.ok()) return {.body = "ready\n"};
  return {.status = 503, .body = absl::StrCat(failure.message(), "\n")};
}

HttpReply Monitor::Status(absl::string_view query) const {
  const std::optional<StatusQuery> asked = ParseQuery(query);
  if (!asked.has_value()) {
    return {
        .status = 400,
        .body = "the query may have after=N, the number of a sample (0 or more), and job=NAME\n"};
  }
  StatusReading reading = Read(StatisticsDetail::kPage);
  {
    const absl::MutexLock lock(&history_mutex_);
    reading.samples = history_.After(asked->after);
    reading.last_sample = history_.last();
  }
  JobState state;
  if (reading.engine.has_value()) {
    const std::vector<JobStatistics>& jobs = reading.engine->jobs;
    const bool known =
        std::ranges::any_of(jobs, [&](const JobStatistics& job) { return job.name == asked->job; });
    reading.job = known ? asked->job : FirstJob(*reading.engine);
    if (!reading.job.empty()) reading.peers = peers_.Get(reading.job, reading.engine->members);
    state = StateOf(JobViewsOf(reading));
    const bool stalled = state.phase == JobPhase::kStalled;
    const std::optional<double> seconds = stalls_.Note(reading.job, stalled);
    if (!state.seconds.has_value()) state.seconds = seconds;
  }
  return {.content_type = "application/json; charset=utf-8", .body = StatusJson(reading, state)};
}

void Monitor::SampleLoop() {
  bool serves = true;
  do {
    // A sample for which there is no memory is left out.
    CatchBadAlloc([&] {
      const StatusReading reading = Read(StatisticsDetail::kSample);
      serves = reading.engine.has_value();
      if (!serves) return absl::OkStatus();
      const absl::MutexLock lock(&history_mutex_);
      history_.Add(*reading.engine, MonotonicNow(), absl::Now());
      return absl::OkStatus();
    }).IgnoreError();
  } while (serves && !stop_.WaitFor(kSampleInterval));
}

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Start(const HttpOptions& options,
                                                        ClusterPlace place,
                                                        const std::optional<HttpOptions>& health,
                                                        const SecurityOptions& security) {
  std::unique_ptr<Monitor> monitor(new Monitor(std::move(place), security));
  if (absl::Status status = monitor->Open(options, health); !status.ok()) return status;
  return monitor;
}

}  // namespace cairn
