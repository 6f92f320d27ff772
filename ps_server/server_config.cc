#include "ps_server/server_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/cli.h"
#include "common/config/cluster_config.h"
#include "common/config/security_flags.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/nearest.h"
#include "common/status.h"
#include "ps_server/engine/process_setup.h"
#include "thrift/limits.h"
#include "thrift/security/server_security.h"

namespace cairn {
namespace {

constexpr char kPurpose[] =
    "cairn-ps serves shards of variables to workers and stores them in RocksDB.\n";

constexpr char kFooter[] =
    R"(On SIGTERM, SIGINT and SIGHUP (a closed terminal; not under nohup) the program writes
everything and exits.
Exit status: 0 stopped by a signal; 1 failed (the last line on stderr has the error and the next
step); 2 bad flags or files.)";

// The values of the flags that need a conversion, with their defaults; other flags set the
// configuration itself.
struct ServerFlags {
  std::string cluster;
  std::string task_type;
  int32_t task_index = -1;
  std::string durability = "snapshot";
  double snapshot_interval_seconds = 5;
  int64_t memory_budget_bytes = 0;
  double memory_wait_seconds = 2;
  std::string not_finite = "reject";
  double lease_seconds = 10;
  double linger_seconds = 0;
  int32_t health_port = -1;
  std::string local_transport = "auto";
  HttpFlagValues http;
};

void AddTaskFlags(Flags flags, ServerFlags& values, ServerConfig& config) {
  EngineOptions& engine = config.engine;
  flags
      .Add("cluster", "FILE", values.cluster,
           "file that lists the tasks (YAML or TF_CONFIG's JSON); default: the variable TF_CONFIG")
      .Add("task_index", "N", values.task_index,
           "index of this server among the ps tasks; the cluster file may have it instead")
      .Add("task_type", "ps", values.task_type, "ps; optional")
      .Add("data_dir", "DIR", engine.directory,
           "directory for the variables; created if absent; required")
      .Add("durability", "MODE", values.durability,
           "when an acknowledged push survives a crash. snapshot (default): from the next snapshot "
           "on, and workers replay lost pushes; log: at once, if the process ends; log_sync: at "
           "once, if the machine ends; off: only after a clean exit")
      .Add("snapshot_interval_seconds", "S", values.snapshot_interval_seconds,
           "time between snapshots; default 5")
      .Add("logged_snapshot_bytes", "N", engine.logged_snapshot_bytes,
           "how much of a snapshot is written to RocksDB's log before its tables; the rest goes to "
           "tables only, so that large snapshots are written once instead of twice; after a "
           "snapshot of more than four times as much, all of the next goes to tables only; default "
           "32 MiB")
      .Add("memory_budget_bytes", "N", values.memory_budget_bytes,
           "memory for variables and messages, and for the rest of the program if rows of tables "
           "can be evicted; 128 MiB or more; default 4 GiB, or three quarters of the memory of the "
           "machine or container if that is less")
      .Add("memory_wait_seconds", "S", values.memory_wait_seconds,
           "how long a call waits for memory before it is rejected; default 2")
      .Add("not_finite", "MODE", values.not_finite,
           "a push with NaN or infinity is rejected (reject, default), or acknowledged and dropped "
           "(skip)")
      .Add("lease_seconds", "S", values.lease_seconds,
           "how long after its last call a worker counts as connected; default 10")
      .Add("linger_seconds", "S", values.linger_seconds,
           "after SIGTERM, keep serving while workers are connected, for at most this time; for "
           "schedulers that stop workers and servers together; default 0")
      .Add("parent_pid", "PID", config.parent_pid,
           "the process that starts this server; when it ends, for whatever reason, the server "
           "writes everything and exits; default: none");
}

void AddListenerFlags(Flags flags, ServerFlags& values, ServerConfig& config) {
  EngineOptions& engine = config.engine;
  ListenerOptions& listener = config.listener;
  flags
      .Add("max_message_bytes", "N", engine.max_message_bytes,
           "largest message that is read; default 1 GiB")
      .Add("max_connections", "N", listener.max_connections,
           "the most open connections; default 1024")
      .Add("max_connections_per_peer", "N", listener.max_connections_per_peer,
           "the most open connections of one IP address; those over shared memory count as one; "
           "default 512")
      .Add("serving_threads", "N", listener.serving_threads,
           "calls that run at a time, without waiting ones; default 2 per core, at least 4")
      .Add(
          "max_queued_calls", "N", listener.max_queued_calls,
          "calls that wait for a thread; a further call that moves rows is refused, with a time to "
          "retry after; default 512")
      .Add("max_jobs", "N", engine.max_jobs, "jobs on this server; default 1024")
      .Add("max_workers", "N", engine.max_workers,
           "workers of all jobs together, also absent ones; one job has at most half of them, or "
           "1024; default 16384")
      .Add("stall_seconds", "S", listener.stall_seconds,
           "a connection that stops in the middle of a message is closed; default 30")
      .Add("idle_seconds", "S", listener.idle_seconds,
           "a connection that sends nothing between messages is closed; default 3600")
      .Add("local_transport", "M", values.local_transport,
           "which callers on this host may use shared memory instead of TCP: auto (default): those "
           "of this process's user; any_user; off (thrift/LOCAL.md)")
      .Add("port_file", "FILE", config.port_file,
           "file that receives the bound address once the server accepts calls");
}

void AddHealthFlags(Flags flags, ServerFlags& values) {
  AddHttpFlags(flags, values.http,
               "a status page (/), metrics for Prometheus (/metrics), /healthz, /readyz, "
               "/status.json");
  flags.Add(
      "health_port", "N", values.health_port,
      "second port for /healthz and /readyz, with its own threads, so that slow readers of the "
      "pages do not delay probes; 0: a free port, which the log names; default: none");
}

void AddSecurityFlags(Flags flags, ListenerOptions& listener) {
  AddTlsFlags(flags, listener.security);
  flags
      .Add("accepted_tokens", "FILE", listener.security.accepted_tokens,
           "file with lines of TOKEN ROLE[,ROLE] [NAME]; a caller whose certificate grants no role "
           "needs one of the tokens; must not be readable by others")
      .Add("handshake_seconds", "S", listener.handshake_seconds,
           "how long a caller may take to authenticate; default 10")
      .Add("max_handshakes", "N", listener.max_handshakes,
           "the most callers that have not authenticated yet; a further one closes the oldest; "
           "default 128")
      .Add("allow_plaintext", "", listener.security.allow_plaintext,
           "serve without TLS on an address that other hosts can reach; only for trusted networks: "
           "everyone on the path can read everything, including tokens. Implies "
           "--http_allow_plaintext");
}

absl::StatusOr<absl::Duration> Seconds(absl::string_view flag, double seconds, double least) {
  if (std::isfinite(seconds) && seconds >= least) return absl::Seconds(seconds);
  return InvalidArgument("--", flag, " is ", seconds, "; at least ", least, " is allowed");
}

absl::Status ReadEngineFlags(const ServerFlags& flags, EngineOptions& engine) {
  if (engine.directory.empty()) {
    return absl::InvalidArgumentError("--data_dir DIR is required; --help lists the flags");
  }
  ASSIGN_OR_RETURN(engine.durability, DurabilityFromName(flags.durability));
  ASSIGN_OR_RETURN(engine.snapshot_interval,
                   Seconds("snapshot_interval_seconds", flags.snapshot_interval_seconds, 0.001));
  ASSIGN_OR_RETURN(engine.memory_wait,
                   Seconds("memory_wait_seconds", flags.memory_wait_seconds, 0));
  ASSIGN_OR_RETURN(engine.lease, Seconds("lease_seconds", flags.lease_seconds, 0.1));
  const int64_t budget = flags.memory_budget_bytes;
  engine.memory_budget_bytes = budget == 0 ? DefaultMemoryBudgetBytes() : budget;
  engine.own_process = true;
  const std::string& not_finite = flags.not_finite;
  if (not_finite != "reject" && not_finite != "skip") {
    return InvalidArgument("--not_finite is '", not_finite, "'",
                           DidYouMean(not_finite, {"reject", "skip"}), "; it is reject or skip");
  }
  engine.not_finite = not_finite == "skip" ? NotFinitePolicy::kSkip : NotFinitePolicy::kReject;
  return absl::OkStatus();
}

absl::StatusOr<ClusterConfig> FindCluster(const std::string& path) {
  if (!path.empty()) return ReadClusterFile(path);
  ASSIGN_OR_RETURN(std::optional<ClusterConfig> environment, ReadTfConfig());
  if (environment.has_value()) return *std::move(environment);
  return absl::InvalidArgumentError(
      "--cluster FILE is required where TF_CONFIG is not set; --help lists the flags");
}

// Finds this server's task in the cluster file, and its address.
absl::Status ReadTask(const ServerFlags& flags, ServerConfig& config) {
  ASSIGN_OR_RETURN(const ClusterConfig cluster, FindCluster(flags.cluster));
  for (const std::string& warning : cluster.warnings) LOG(WARNING) << warning;
  const std::string type = flags.task_type.empty() ? cluster.task_type : flags.task_type;
  if (!type.empty() && type != "ps") {
    return InvalidArgument("this program is a ps, the task is '", type,
                           "': start cairn-worker for it");
  }
  const int32_t index = flags.task_index >= 0 ? flags.task_index : cluster.task_index;
  const std::vector<std::string>& addresses = cluster.addresses("ps");
  if (index < 0 || static_cast<size_t>(index) >= addresses.size()) {
    return InvalidArgument(index < 0 ? std::string("--task_index N is required")
                                     : absl::StrCat("--task_index is ", index),
                           "; the cluster has ", addresses.size(), " ps tasks, numbered from 0");
  }
  const std::string& address = addresses[static_cast<size_t>(index)];
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  RETURN_IF_ERROR(config.listener.security.Validate());
  RETURN_IF_ERROR(Annotate(config.listener.security.CheckMayListen(host_port.host),
                           absl::StrCat("ps:", index, " at ", address)));
  // Checks the credentials before the store is opened, which may take minutes.
  RETURN_IF_ERROR(ServerSecurity::Load(config.listener.security).status());
  config.engine.server_index = index;
  config.engine.server_count = static_cast<int32_t>(addresses.size());
  config.servers = addresses;
  config.listener.host = host_port.host;
  config.listener.port = host_port.port;
  return absl::OkStatus();
}

absl::Status ReadHealthPort(int32_t port, ServerConfig& config) {
  if (port == -1) return absl::OkStatus();
  if (port < 0 || port > 65535) {
    return InvalidArgument("--health_port is ", port, "; it is 0 … 65535");
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

absl::StatusOr<ServerConfig> ReadServerConfig(absl::Span<const char* const> arguments) {
  ServerConfig config;
  ServerFlags flags;
  Program program("cairn-ps", kPurpose, kFooter);
  AddTaskFlags(program.flags(), flags, config);
  AddListenerFlags(program.flags(), flags, config);
  AddHealthFlags(program.flags(), flags);
  AddSecurityFlags(program.flags("Security (thrift/SECURITY.md)"), config.listener);
  ParsedLine line = program.Parse(arguments);
  RETURN_IF_ERROR(line.status);
  config.text = std::move(line.text);
  if (!config.text.empty()) return config;
  RETURN_IF_ERROR(ReadEngineFlags(flags, config.engine));
  RETURN_IF_ERROR(ReadTask(flags, config));
  config.listener.max_message_bytes = config.engine.max_message_bytes;
  ASSIGN_OR_RETURN(config.listener.local_transport, LocalTransportFromName(flags.local_transport));
  ASSIGN_OR_RETURN(config.http,
                   ReadHttpFlags(flags.http, config.listener.security.allow_plaintext));
  RETURN_IF_ERROR(ReadHealthPort(flags.health_port, config));
  if (config.parent_pid < 0) {
    return InvalidArgument("--parent_pid is ", config.parent_pid, "; it is the id of a process");
  }
  ASSIGN_OR_RETURN(config.linger, Seconds("linger_seconds", flags.linger_seconds, 0));
  return config;
}

}  // namespace cairn
