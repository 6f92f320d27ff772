// The HTTP pages of a server for operators: /, /status.json, /metrics, /healthz, /readyz.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/config/security_options.h"
#include "common/deadline.h"
#include "common/http/http_server.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/core/statistics.h"
#include "ps_server/monitor/history.h"
#include "ps_server/monitor/peers.h"
#include "ps_server/monitor/status_json.h"
#include "ps_server/net/listener_options.h"

namespace cairn {

class Engine;
class Listener;

// Measures how long each job has been stalled. A stall begins with the first call of Note that
// reports it.
// Thread safety: every method may be called from several threads at once.
class StallClock {
 public:
  // Seconds since `job` stalled; nullopt: it is not stalled.
  std::optional<double> Note(const std::string& job, bool stalled) {
    const absl::MutexLock lock(&mutex_);
    if (!stalled) {
      since_.erase(job);
      return std::nullopt;
    }
    const absl::Duration now = MonotonicNow();
    return absl::ToDoubleSeconds(now - since_.emplace(job, now).first->second);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, absl::Duration> since_ ABSL_GUARDED_BY(mutex_);
};

// Answers from its start on, also while the engine opens and while it writes its last snapshot. It
// reads the engine only between Serving and Stopping: once a second, and for each request.
// Thread safety: every method may be called from several threads at once.
class Monitor {
 public:
  // `health`: a second address for /healthz and /readyz, with its own threads. `security`:
  // credentials for calls to the other servers, which the monitor makes while its page is open.
  // Errors as HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<Monitor>> Start(const HttpOptions& options,
                                                        ClusterPlace place,
                                                        const std::optional<HttpOptions>& health,
                                                        const SecurityOptions& security);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  const std::string& address() const { return http_->address(); }
  std::string health_address() const {  // empty: none
    return health_ == nullptr ? "" : health_->address();
  }

  // Called when the server is ready. Both arguments must live until this object is destroyed, or
  // until Stopping returns.
  void Serving(const Engine& engine, const Listener& listener);
  // Called when the server is no longer ready. After it returns, the arguments of Serving are not
  // used.
  void Stopping();

 private:
  Monitor(ClusterPlace place, const SecurityOptions& security);
  absl::Status Open(const HttpOptions& options, const std::optional<HttpOptions>& health);
  // Place, state and statistics of one moment; the rest is empty.
  StatusReading Read(StatisticsDetail detail) const;
  HttpReply Metrics() const;
  HttpReply Ready() const;
  HttpReply Status(absl::string_view query) const;
  void SampleLoop();

  // Held shared by readers of the engine, exclusively by Serving and Stopping.
  mutable absl::Mutex mutex_;
  ClusterPlace place_ ABSL_GUARDED_BY(mutex_);
  std::string state_ ABSL_GUARDED_BY(mutex_) = "opening";
  const Engine* engine_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while it serves
  const Listener* listener_ ABSL_GUARDED_BY(mutex_) = nullptr;

  mutable Peers peers_;
  mutable StallClock stalls_;

  mutable absl::Mutex history_mutex_;
  History history_ ABSL_GUARDED_BY(history_mutex_);

  StopFlag stop_;
  std::thread sampler_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<HttpServer> health_;
};

}  // namespace cairn
