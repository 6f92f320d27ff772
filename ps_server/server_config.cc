#include "ps_server/server_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"
#include "common/config/command_line.h"
#include "common/config/security_flags.h"
#include "common/log.h"
#include "common/nearest.h"
#include "common/status.h"
#include "ps_server/engine/process_setup.h"
#include "thrift/limits.h"
#include "thrift/security/server_security.h"

ABSL_FLAG(std::string, cluster, "", "a file");
ABSL_FLAG(std::string, task_type, "", "ps");
ABSL_FLAG(int32_t, task_index, -1, "a number from 0");
ABSL_FLAG(std::string, data_dir, "", "a folder");
ABSL_FLAG(std::string, durability, "snapshot", "off, snapshot, log or log_sync");
ABSL_FLAG(double, snapshot_interval_seconds, 5, "seconds");
ABSL_FLAG(int64_t, memory_budget_bytes, 0, "bytes");
ABSL_FLAG(double, memory_wait_seconds, 2, "seconds");
ABSL_FLAG(std::string, not_finite, "reject", "reject or skip");
ABSL_FLAG(double, lease_seconds, 10, "seconds");
ABSL_FLAG(double, linger_seconds, 0, "seconds");
ABSL_FLAG(int32_t, health_port, -1, "a port; 0: a free one");
ABSL_FLAG(int64_t, max_message_bytes, cairn::kDefaultMaxMessageBytes, "bytes");
ABSL_FLAG(int32_t, max_connections, cairn::kDefaultMaxConnections, "a number");
ABSL_FLAG(int32_t, max_jobs, cairn::kDefaultMaxJobs, "a number");
ABSL_FLAG(int32_t, max_workers, cairn::kDefaultMaxWorkers, "a number");
ABSL_FLAG(double, stall_seconds, cairn::kDefaultStallSeconds, "seconds");
ABSL_FLAG(std::string, port_file, "", "a file");
ABSL_FLAG(double, idle_seconds, cairn::kDefaultIdleSeconds, "seconds");
ABSL_FLAG(int32_t, max_connections_per_peer, cairn::kDefaultMaxConnectionsPerPeer, "a number");
ABSL_FLAG(double, handshake_seconds, cairn::kDefaultHandshakeSeconds, "seconds");
ABSL_FLAG(int32_t, serving_threads, 0, "a number");
ABSL_FLAG(int32_t, max_queued_calls, cairn::kDefaultMaxQueuedCalls, "a number");
ABSL_FLAG(int32_t, max_handshakes, cairn::kDefaultMaxHandshakes, "a number");
ABSL_FLAG(std::string, local_transport, "auto", "auto, any_user or off");
ABSL_FLAG(std::string, accepted_tokens, "", "a file");

namespace cairn {
namespace {

constexpr absl::string_view kFlags[] = {"cluster",
                                        "task_type",
                                        "task_index",
                                        "data_dir",
                                        "durability",
                                        "port_file",
                                        "memory_budget_bytes",
                                        "memory_wait_seconds",
                                        "not_finite",
                                        "max_message_bytes",
                                        "max_connections",
                                        "serving_threads",
                                        "max_queued_calls",
                                        "max_jobs",
                                        "max_workers",
                                        "stall_seconds",
                                        "lease_seconds",
                                        "snapshot_interval_seconds",
                                        "idle_seconds",
                                        "max_connections_per_peer",
                                        "handshake_seconds",
                                        "max_handshakes",
                                        "local_transport",
                                        "accepted_tokens",
                                        "linger_seconds",
                                        "health_port"};

constexpr char kUsage[] =
    R"(cairn-ps serves shards of variables to workers and keeps them in RocksDB.

  --cluster FILE        which tasks there are (YAML or TF_CONFIG's JSON); else variable TF_CONFIG
  --task_index N        which of the cluster's ps tasks this is; may stand in the cluster file
  --task_type ps        may be given, as for other tasks
  --data_dir DIR        where variables are kept; made if absent; required
  --durability MODE     when an acknowledged push survives a crash:
                          snapshot (default): from the next snapshot on; workers replay what is lost
                          log: of the process, at once; log_sync: of the machine, at once
                          off: never; kept at a clean exit only
  --snapshot_interval_seconds S   time between snapshots; default 5
  --memory_budget_bytes N         variables and messages together, and what the program takes where
                                  rows of tables can make room for it; 128 MiB or more; default
                                  4 GiB, or three quarters of the machine's memory, if less
  --memory_wait_seconds S         how long a call waits for memory before it is refused; default 2
  --not_finite MODE     a push with NaN or infinity is refused (reject, default), or acknowledged
                        and dropped (skip)
  --lease_seconds S     how long after its last call a worker counts as there; default 10
  --linger_seconds S    after SIGTERM serve on while workers are there, so long at most: for
                        schedulers that end workers and servers at one time; default 0
  --max_message_bytes N           largest message read; default 1 GiB
  --max_connections N             default 1024
  --max_connections_per_peer N    of one IP address, and of this host past TCP; default 512
  --serving_threads N   calls that run at a time, those that wait not counted; default 2 a core,
                        4 at least
  --max_queued_calls N  calls that wait for their turn; one more that moves rows is refused and told
                        when to come back; default 512
  --max_jobs N, --max_workers N   jobs kept, and workers of all jobs together, those that are away
                                  included; one job has half of the workers at most, or 1024;
                                  default 1024 and 16384
  --stall_seconds S     a connection that stops in the middle of a message is closed; default 30
  --idle_seconds S      one that sends nothing between messages is closed; default 3600
  --local_transport M   callers on this host may go past TCP, through shared memory: auto (default):
                        those of this process's user; any_user; off (thrift/LOCAL.md)
  --port_file FILE      gets the address that was bound, once it accepts calls (port 0: a free one)
  --http_port N         answer HTTP for operators: a status page (/), metrics for Prometheus
                        (/metrics), /healthz, /readyz, /status.json; 0: a free port; default: none
  --http_address A      on this address; default 127.0.0.1. Another needs --http_allow_plaintext:
                        these pages change nothing, but whoever reaches them can read them
  --http_port_file FILE gets the address that HTTP was bound to
  --health_port N       answer /healthz and /readyz here too, with threads of its own: for probes,
                        which slow readers of the pages must not hold up; 0: a free port, which the
                        log names; default: none

Security (thrift/SECURITY.md): with the first three only callers with a certificate of that CA are
served, over TLS; files are read again when they change.
  --tls_certificate FILE          this server's certificate (PEM), then those between it and the CA
  --tls_key FILE                  its private key (PEM), not readable by others
  --tls_ca FILE                   certificates (PEM) of who signs the callers'
  --accepted_tokens FILE          lines of TOKEN ROLE[,ROLE] [NAME]; a caller without a role of its
                                  certificate needs one of them; not readable by others
  --handshake_seconds S           how long a caller may take to prove who it is; default 10
  --max_handshakes N              callers that have not yet; one more ends the oldest; default 128
  --allow_plaintext     serve without TLS on an address other hosts can reach: whoever listens on
                        the way reads everything, tokens too; on a trusted network only.
                        It is --http_allow_plaintext too

  --help                this text
  --version             version, build, and the versions of protocol and formats

SIGTERM, SIGINT and SIGHUP (a terminal that closes; not under nohup) write everything and end the
program.
Exit status: 0 ended by them; 1 failed, the last line on stderr says what and what to do; 2 bad
flags or files.
)";

absl::StatusOr<absl::Duration> Seconds(absl::string_view flag, double seconds, double least) {
  if (std::isfinite(seconds) && seconds >= least) return absl::Seconds(seconds);
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is ", seconds, "; at least ", least, " is allowed"));
}

absl::Status ReadEngineFlags(EngineOptions& engine) {
  engine.directory = absl::GetFlag(FLAGS_data_dir);
  if (engine.directory.empty()) {
    return absl::InvalidArgumentError("--data_dir DIR is required; --help lists the flags");
  }
  ASSIGN_OR_RETURN(engine.durability, DurabilityFromName(absl::GetFlag(FLAGS_durability)));
  ASSIGN_OR_RETURN(
      engine.snapshot_interval,
      Seconds("snapshot_interval_seconds", absl::GetFlag(FLAGS_snapshot_interval_seconds), 0.001));
  ASSIGN_OR_RETURN(engine.memory_wait,
                   Seconds("memory_wait_seconds", absl::GetFlag(FLAGS_memory_wait_seconds), 0));
  ASSIGN_OR_RETURN(engine.lease, Seconds("lease_seconds", absl::GetFlag(FLAGS_lease_seconds), 0.1));
  const int64_t budget = absl::GetFlag(FLAGS_memory_budget_bytes);
  engine.memory_budget_bytes = budget == 0 ? DefaultMemoryBudgetBytes() : budget;
  engine.own_process = true;
  const std::string not_finite = absl::GetFlag(FLAGS_not_finite);
  if (not_finite != "reject" && not_finite != "skip") {
    return absl::InvalidArgumentError(absl::StrCat("--not_finite is '", not_finite, "'",
                                                   DidYouMean(not_finite, {"reject", "skip"}),
                                                   "; it is reject or skip"));
  }
  engine.not_finite = not_finite == "skip" ? NotFinitePolicy::kSkip : NotFinitePolicy::kReject;
  engine.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes);
  engine.max_jobs = absl::GetFlag(FLAGS_max_jobs);
  engine.max_workers = absl::GetFlag(FLAGS_max_workers);
  return absl::OkStatus();
}

absl::StatusOr<ClusterConfig> FindCluster() {
  const std::string path = absl::GetFlag(FLAGS_cluster);
  if (!path.empty()) return ReadClusterFile(path);
  ASSIGN_OR_RETURN(std::optional<ClusterConfig> environment, ReadTfConfig());
  if (environment.has_value()) return *std::move(environment);
  return absl::InvalidArgumentError(
      "--cluster FILE is required where TF_CONFIG is not set; --help lists the flags");
}

// Which of the cluster's ps tasks this is, and its address.
absl::Status ReadTask(ServerConfig& config) {
  ASSIGN_OR_RETURN(const ClusterConfig cluster, FindCluster());
  for (const std::string& warning : cluster.warnings) LOG(WARNING) << warning;
  const std::string flag_type = absl::GetFlag(FLAGS_task_type);
  const std::string type = flag_type.empty() ? cluster.task_type : flag_type;
  if (!type.empty() && type != "ps") {
    return absl::InvalidArgumentError(
        absl::StrCat("this program is a ps, the task is '", type, "': start cairn-worker for it"));
  }
  const int32_t flag_index = absl::GetFlag(FLAGS_task_index);
  const int32_t index = flag_index >= 0 ? flag_index : cluster.task_index;
  const std::vector<std::string>& addresses = cluster.addresses("ps");
  if (index < 0 || static_cast<size_t>(index) >= addresses.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(index < 0 ? std::string("--task_index N is required")
                               : absl::StrCat("--task_index is ", index),
                     "; the cluster has ", addresses.size(), " ps tasks, numbered from 0"));
  }
  const std::string& address = addresses[static_cast<size_t>(index)];
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  config.listener.security = SecurityFromFlags();
  config.listener.security.accepted_tokens = absl::GetFlag(FLAGS_accepted_tokens);
  RETURN_IF_ERROR(config.listener.security.Validate());
  RETURN_IF_ERROR(Annotate(config.listener.security.CheckMayListen(host_port.host),
                           absl::StrCat("ps:", index, " at ", address)));
  // Before a store is opened, which may take minutes.
  RETURN_IF_ERROR(ServerSecurity::Load(config.listener.security).status());
  config.engine.server_index = index;
  config.engine.server_count = static_cast<int32_t>(addresses.size());
  config.servers = addresses;
  config.listener.host = host_port.host;
  config.listener.port = host_port.port;
  return absl::OkStatus();
}

absl::Status ReadHealthPort(ServerConfig& config) {
  const int32_t port = absl::GetFlag(FLAGS_health_port);
  if (port == -1) return absl::OkStatus();
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--health_port is ", port, "; it is 0 … 65535"));
  }
  if (!config.http.has_value()) {
    return absl::InvalidArgumentError(
        "--health_port goes with --http_port: give it too (0: a free port)");
  }
  config.health = HttpOptions{.address = config.http->server.address,
                              .port = port,
                              .threads = kHealthThreads,
                              .timeout_ms = kHealthTimeoutMs};
  return absl::OkStatus();
}

}  // namespace

absl::string_view ServerUsage() { return kUsage; }

absl::StatusOr<ServerConfig> ReadServerConfig(absl::Span<const char* const> arguments) {
  CommandLine line;
  RETURN_IF_ERROR(
      ReadCommandLine(arguments, {.names = {kFlags, kSecurityFlags, kHttpFlags}}, line));
  ServerConfig config{.help = line.help, .version = line.version};
  if (line.help || line.version) return config;
  RETURN_IF_ERROR(ReadEngineFlags(config.engine));
  RETURN_IF_ERROR(ReadTask(config));
  config.listener.max_message_bytes = config.engine.max_message_bytes;
  config.listener.max_connections = absl::GetFlag(FLAGS_max_connections);
  config.listener.max_connections_per_peer = absl::GetFlag(FLAGS_max_connections_per_peer);
  config.listener.serving_threads = absl::GetFlag(FLAGS_serving_threads);
  config.listener.max_queued_calls = absl::GetFlag(FLAGS_max_queued_calls);
  config.listener.stall_seconds = absl::GetFlag(FLAGS_stall_seconds);
  config.listener.idle_seconds = absl::GetFlag(FLAGS_idle_seconds);
  config.listener.handshake_seconds = absl::GetFlag(FLAGS_handshake_seconds);
  config.listener.max_handshakes = absl::GetFlag(FLAGS_max_handshakes);
  ASSIGN_OR_RETURN(config.listener.local_transport,
                   LocalTransportFromName(absl::GetFlag(FLAGS_local_transport)));
  config.port_file = absl::GetFlag(FLAGS_port_file);
  ASSIGN_OR_RETURN(config.http, ReadHttpFlags(SecurityFromFlags().allow_plaintext));
  RETURN_IF_ERROR(ReadHealthPort(config));
  ASSIGN_OR_RETURN(config.linger,
                   Seconds("linger_seconds", absl::GetFlag(FLAGS_linger_seconds), 0));
  return config;
}

}  // namespace cairn
