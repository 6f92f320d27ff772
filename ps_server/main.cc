// cairn-ps: one parameter server.
#include <glog/logging.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"
#include "ps_server/engine.h"
#include "ps_server/listener.h"
#include "ps_server/server_config.h"

namespace cairn {
namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

// Blocked in every thread that is started from here on, so that AwaitStopSignal gets them.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed connection is an error of its call
  return signals;
}

// Readers see the whole address or no file.
absl::Status WritePortFile(const std::string& path, const std::string& address) {
  const std::string part = absl::StrCat(path, ".", getpid());
  std::ofstream out(part);
  out << address << "\n";
  out.close();
  if (out && std::rename(part.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("--port_file ", path, " cannot be written: ",
                                             std::strerror(errno), ": choose another place"));
}

absl::Status Serve(const ServerConfig& config, const sigset_t& stop_signals) {
  // A file of an earlier run would send readers to a port that is not this one's.
  if (!config.port_file.empty()) unlink(config.port_file.c_str());
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Open(config.engine));
  ASSIGN_OR_RETURN(const std::unique_ptr<Listener> listener,
                   Listener::Start(*engine, config.listener));
  LOG(INFO) << "ps:" << config.engine.server_index << " serves on " << listener->address()
            << ", durability " << DurabilityName(config.engine.durability);
  absl::Status status;
  if (!config.port_file.empty()) status = WritePortFile(config.port_file, listener->address());
  if (status.ok()) {
    int signal = 0;
    sigwait(&stop_signals, &signal);
    LOG(INFO) << "got " << strsignal(signal) << ": writing everything, then ending";
  }
  listener->Stop();
  const absl::Status closed = engine->Close();
  return status.ok() ? closed : status;
}

int Main(int argc, char** argv) {
  // Debian's Abseil looks for lock cycles at every lock, which costs 100 ns each (30 ns without).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Large blocks go back to the system when they are freed. Left alone, malloc raises this
  // threshold to 32 MiB and keeps up to 64 MiB in each of 8 arenas a core, which no memory budget
  // sees.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  // But not what the next request needs at once: a fault a page costs as much as the request.
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  const absl::StatusOr<ServerConfig> config =
      ReadServerConfig(absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc - 1)));
  if (!config.ok()) {
    std::fprintf(stderr, "cairn-ps: %s\n", std::string(config.status().message()).c_str());
    return kBadInput;
  }
  if (config->help) {
    std::fputs(ServerUsage().data(), stdout);
    return 0;
  }
  const sigset_t stop_signals = BlockStopSignals();
  const absl::Status status = Serve(*config, stop_signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cairn-ps: %s: %s\n", std::string(CodeName(status.code())).c_str(),
               std::string(status.message()).c_str());
  // Flags whose limits only the engine or the listener knows.
  return absl::IsInvalidArgument(status) ? kBadInput : kFailed;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
