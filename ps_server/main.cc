// cairn-ps: one parameter server.
#include <glog/logging.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/config/cli.h"
#include "common/config/cluster_config.h"
#include "common/deadline.h"
#include "common/http/http_flags.h"
#include "common/log.h"
#include "common/process_start.h"
#include "common/status.h"
#include "ps_server/engine/engine.h"
#include "ps_server/engine/process_setup.h"
#include "ps_server/monitor/monitor.h"
#include "ps_server/net/listener.h"
#include "ps_server/server_config.h"
#include "ps_server/service_manager.h"

namespace cairn {
namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

// Blocks the signals that stop the server, in this thread and in all threads that it starts later,
// so that sigwait receives them.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  // Sent when the terminal closes. nohup ignores it.
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed connection is an error of its call
  return signals;
}

// Raises the limit of open files: one for each connection, and kOthers for RocksDB, the log and
// HTTP.
void AllowDescriptors(int32_t max_connections) {
  constexpr rlim_t kOthers = 512;
  const rlim_t wanted = static_cast<rlim_t>(max_connections) + kOthers;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == wanted) return;
  LOG(WARNING) << "--max_connections " << max_connections << " needs " << wanted
               << " open files, and " << limit.rlim_cur
               << " are allowed: raise the hard limit (ulimit -Hn, systemd's LimitNOFILE)";
}

// The credentials with which this server calls the other servers, for its status page.
SecurityOptions ClientSide(SecurityOptions security) {
  security.accepted_tokens.clear();
  return security;
}

// The URL at which browsers on other hosts reach the page, also if it listens on every address of
// this host.
std::string StatusPageUrl(const ServerConfig& config, const std::string& bound) {
  const absl::StatusOr<HostPort> page = ParseHostPort(bound);
  const absl::StatusOr<HostPort> own =
      ParseHostPort(config.servers[static_cast<size_t>(config.engine.server_index)]);
  const bool everywhere = page.ok() && (page->host == "0.0.0.0" || page->host == "::");
  if (!everywhere || !own.ok()) return absl::StrCat("http://", bound, "/");
  return absl::StrCat("http://", HostPortText(own->host, page->port), "/");
}

// Starts the HTTP pages if they are enabled: before the engine opens its files, so that they show
// that too. They stay until the engine has closed them.
absl::StatusOr<std::unique_ptr<Monitor>> StartMonitor(const ServerConfig& config) {
  if (!config.http.has_value()) return std::unique_ptr<Monitor>();
  const std::string& port_file = config.http->port_file;
  if (!port_file.empty()) unlink(port_file.c_str());
  ASSIGN_OR_RETURN(
      std::unique_ptr<Monitor> monitor,
      Monitor::Start(config.http->server,
                     {.server_index = config.engine.server_index, .servers = config.servers},
                     config.health, ClientSide(config.listener.security)));
  LOG(INFO) << "ps:" << config.engine.server_index << " has its status page at http://"
            << monitor->address() << "/";
  if (config.health.has_value()) {
    LOG(INFO) << "probes are answered at http://" << monitor->health_address() << "/healthz";
  }
  if (!port_file.empty()) {
    RETURN_IF_ERROR(WriteAddressFile("http_port_file", port_file, monitor->address()));
  }
  return monitor;
}

absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const EngineOptions& options) {
  const LongPhase opening(absl::StrCat("STATUS=opens ", options.directory));
  return Engine::Open(options);
}

// Serves until the last worker has left, another signal arrives, or `longest` has passed.
void Linger(const Engine& engine, absl::Duration longest, const sigset_t& stop_signals) {
  const Deadline deadline = Deadline::In(longest);
  constexpr timespec kLookAgain = {.tv_sec = 0, .tv_nsec = 20'000'000};
  if (engine.live_workers() == 0 || deadline.Expired()) return;
  LOG(INFO) << "keeps serving for at most " << longest << ", until " << engine.live_workers()
            << " workers have left";
  while (engine.live_workers() > 0 && !deadline.Expired() &&
         sigtimedwait(&stop_signals, nullptr, &kLookAgain) < 0) {
  }
}

// Waits for a signal, and returns it. Returns 0 once process `parent` (0: none), which started this
// one, has ended. getppid stays the same when only the thread that started this process ends.
int WaitToStop(const sigset_t& stop_signals, pid_t parent) {
  constexpr timespec kInterval = {.tv_sec = 0, .tv_nsec = 500'000'000};
  while (parent == 0 || getppid() == parent) {
    const int signal = sigtimedwait(&stop_signals, nullptr, parent == 0 ? nullptr : &kInterval);
    if (signal > 0) return signal;
  }
  return 0;
}

absl::Status Serve(ServerConfig config, const sigset_t& stop_signals) {
  // A drained server stops as after SIGINT, which does not linger.
  config.engine.drained = [] { kill(getpid(), SIGINT); };
  AllowDescriptors(config.listener.max_connections);
  // The file of an earlier run may name another port.
  if (!config.port_file.empty()) unlink(config.port_file.c_str());
  ASSIGN_OR_RETURN(const std::unique_ptr<Monitor> monitor, StartMonitor(config));
  if (monitor != nullptr) {
    config.engine.status_page = StatusPageUrl(config, monitor->address());
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, OpenEngine(config.engine));
  ASSIGN_OR_RETURN(const std::unique_ptr<Listener> listener,
                   Listener::Start(*engine, config.listener));
  LOG(INFO) << "ps:" << config.engine.server_index << " serves on " << listener->address()
            << ", durability " << DurabilityName(config.engine.durability);
  absl::Status status;
  if (monitor != nullptr) monitor->Serving(*engine, *listener);
  if (!config.port_file.empty()) {
    status = WriteAddressFile("port_file", config.port_file, listener->address());
  }
  if (status.ok()) {
    TellReady(absl::StrCat("serves on ", listener->address()));
    const int signal = WaitToStop(stop_signals, config.parent_pid);
    if (signal == SIGTERM) Linger(*engine, config.linger, stop_signals);
    LOG(INFO) << (signal != 0 ? absl::StrCat("got ", strsignal(signal))
                              : absl::StrCat("process ", config.parent_pid,
                                             ", which started this server, has ended"))
              << ": writing everything, then ending";
  }
  if (monitor != nullptr) monitor->Stopping();
  const LongPhase ending("STOPPING=1\nSTATUS=writes everything");
  listener->Stop();
  const absl::Status closed = engine->Close();
  return status.ok() ? closed : status;
}

int Main(int argc, char** argv) {
  PrepareProcess("cairn-ps");
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  cairn::LogToGlog();
  const absl::StatusOr<ServerConfig> config =
      ReadServerConfig(absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc - 1)));
  if (!config.ok()) {
    std::fprintf(stderr, "cairn-ps: %s\n", std::string(config.status().message()).c_str());
    return kBadInput;
  }
  if (!config->text.empty()) return PrintText(config->text);
  SetUpServerProcess(config->engine.memory_budget_bytes);
  const sigset_t stop_signals = BlockStopSignals();
  const absl::Status status = Serve(*config, stop_signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cairn-ps: %s: %s\n", std::string(CodeName(status.code())).c_str(),
               std::string(status.message()).c_str());
  // The limits of some flags are checked by the engine and the listener.
  return absl::IsInvalidArgument(status) ? kBadInput : kFailed;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
