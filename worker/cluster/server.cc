#include "worker/cluster/server.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "ps_server/engine/engine.h"
#include "ps_server/engine/process_setup.h"
#include "ps_server/net/listener.h"

namespace cairn {
namespace {

struct Task {
  std::string address;
  EngineOptions engine;
  ListenerOptions listener;
};

class ClusterEngineServer : public Server {
 public:
  explicit ClusterEngineServer(Task task) : task_(std::move(task)), target_(task_.address) {}
  ~ClusterEngineServer() override { (void)Stop(); }

  std::string target() const override {
    absl::MutexLock lock(&mutex_);
    return target_;
  }

  absl::Status Start() override {
    absl::MutexLock lock(&mutex_);
    if (state_ == State::kStarted) return absl::OkStatus();
    if (state_ == State::kStopped) {
      return FailedPrecondition("server ", target_,
                                " was stopped; make a new one on its directory to continue");
    }
    // Sets both or neither, so that a failed Start can be retried.
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Open(task_.engine));
    ASSIGN_OR_RETURN(listener_, Listener::Start(*engine, task_.listener));
    engine_ = std::move(engine);
    target_ = listener_->address();
    state_ = State::kStarted;
    return absl::OkStatus();
  }

  absl::Status Stop() override {
    absl::MutexLock lock(&mutex_);
    if (state_ != State::kStarted) {
      state_ = State::kStopped;
      return absl::OkStatus();
    }
    listener_->Stop();
    listener_.reset();
    absl::Status closed = engine_->Close();
    engine_.reset();
    state_ = State::kStopped;
    ended_.SignalAll();
    return closed;
  }

  absl::Status Join(Deadline deadline) const override {
    absl::MutexLock lock(&mutex_);
    while (state_ == State::kStarted && !deadline.Expired()) ended_.WaitUntil(&mutex_, deadline);
    if (state_ != State::kStarted) return absl::OkStatus();
    return DeadlineExceeded("join: server ", target_, " is still running; call Stop");
  }

 private:
  enum class State { kNew, kStarted, kStopped };

  const Task task_;
  mutable absl::Mutex mutex_;
  mutable MonotonicCondVar ended_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  std::string target_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Engine> engine_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Listener> listener_ ABSL_GUARDED_BY(mutex_);  // destroyed before its engine
};

absl::StatusOr<std::string> JobOf(const ClusterSpec& cluster, const ServerOptions& options) {
  const std::vector<std::string> jobs = cluster.jobs();
  if (!options.job_name && jobs.size() != 1) {
    return InvalidArgument("server: must specify an explicit job_name, one of [",
                           absl::StrJoin(jobs, ", "), "]");
  }
  std::string job = options.job_name.value_or(jobs.empty() ? "" : jobs[0]);
  const std::string servers = cluster.has_job("ps") ? "ps" : jobs.size() == 1 ? jobs[0] : "ps";
  if (job == servers) return job;
  return InvalidArgument("server: job_name is \"", job, "\"; only tasks of job \"", servers,
                         "\" are servers; other tasks need none");
}

absl::StatusOr<int32_t> TaskOf(const ClusterSpec& cluster, const std::string& job,
                               const ServerOptions& options) {
  if (options.task_index) return *options.task_index;
  ASSIGN_OR_RETURN(const std::vector<int32_t> tasks, cluster.task_indices(job));
  if (tasks.size() == 1) return tasks[0];
  return InvalidArgument("server: must specify an explicit task_index because job \"", job,
                         "\" has ", tasks.size(), " tasks");
}

absl::Status SplitAddress(const std::string& address, ListenerOptions* listener) {
  absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return Annotate(parsed.status(), "server");
  listener->host = parsed->host == "localhost" ? "127.0.0.1" : std::move(parsed->host);
  listener->port = parsed->port;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ClusterSpec& cluster,
                                                       const ServerOptions& options) {
  ASSIGN_OR_RETURN(const std::string job, JobOf(cluster, options));
  ASSIGN_OR_RETURN(const int32_t index, TaskOf(cluster, job, options));
  Task task;
  ASSIGN_OR_RETURN(task.address, cluster.task_address(job, index));
  RETURN_IF_ERROR(SplitAddress(task.address, &task.listener));
  task.listener.security = options.security;
  task.engine.directory = options.data_directory;
  task.engine.server_index = index;
  task.engine.server_count = cluster.task_count(job);
  ASSIGN_OR_RETURN(task.engine.durability, DurabilityFromName(options.durability));
  const int64_t budget = options.memory_budget_bytes;
  task.engine.memory_budget_bytes = budget == 0 ? DefaultMemoryBudgetBytes() : budget;
  if (options.keep_all_rows) task.engine.row_rules_interval = absl::InfiniteDuration();
  auto server = std::make_unique<ClusterEngineServer>(std::move(task));
  if (options.start) RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<Server>(std::move(server));
}

absl::StatusOr<std::unique_ptr<Server>> Server::CreateLocal(const std::string& data_directory,
                                                            bool start) {
  return Create(ClusterSpec::FromLists({{"local", {"127.0.0.1:0"}}}),
                {.data_directory = data_directory, .start = start});
}

}  // namespace cairn
