#include "worker/ctl/target.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/host_name.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/security/client_security.h"

namespace cairn {
namespace {

absl::StatusOr<ClusterConfig> FindCluster(const TargetOptions& options, const Target& target) {
  if (!options.cluster_file.empty()) return ReadClusterFile(options.cluster_file);
  ASSIGN_OR_RETURN(std::optional<ClusterConfig> environment, ReadTfConfig());
  if (environment.has_value()) return *std::move(environment);
  if (target.job_file.has_value() && target.job_file->has_cluster) return target.job_file->cluster;
  return absl::InvalidArgumentError(
      "which servers? give --cluster FILE (cairnctl launch says where its file is) or "
      "--servers HOST:PORT,...");
}

absl::Status Resolve(const TargetOptions& options, Target* target) {
  if (options.timeout_seconds <= 0) {
    return absl::InvalidArgumentError("--timeout_seconds is a number above 0");
  }
  target->timeout = absl::Seconds(options.timeout_seconds);
  RETURN_IF_ERROR(ClientSecurity::Load(options.security).status());
  target->security = options.security;
  if (!options.servers.empty()) {
    if (!options.cluster_file.empty()) {
      return absl::InvalidArgumentError("--servers and --cluster both name servers: give one");
    }
    target->members.addresses = absl::StrSplit(options.servers, ',', absl::SkipWhitespace());
  } else {
    ASSIGN_OR_RETURN(target->cluster, FindCluster(options, *target));
    target->members.addresses = target->cluster.addresses("ps");
  }
  if (target->members.addresses.empty()) {
    return absl::InvalidArgumentError("the cluster has no ps tasks");
  }
  for (const std::string& address : target->members.addresses) {
    RETURN_IF_ERROR(ParseHostPort(address).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Target::LearnMembers() {
  const Deadline deadline = Deadline::In(timeout);
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> first, Connect(0, deadline));
  wire::Members reply;
  wire::Caller caller;
  caller.job = JobOfCommand("members");
  RETURN_IF_ERROR(first->Call("members", deadline,
                              [&](WireClient::Stub& stub) { stub.members(reply, caller); }));
  members.Take(reply);
  return absl::OkStatus();
}

std::string Target::ServerName(size_t index) const {
  return absl::StrCat("ps:", index, " (", members.addresses[index], ")");
}

std::string Target::WorkerName(int32_t ordinal) const {
  return cluster.tasks.empty() ? absl::StrCat("worker ", ordinal) : cluster.training_task(ordinal);
}

absl::StatusOr<int32_t> ServerIndex(const std::string& task, size_t count) {
  int32_t index = 0;
  if (absl::SimpleAtoi(absl::StripPrefix(task, "ps:"), &index) && index >= 0 &&
      static_cast<size_t>(index) < count) {
    return index;
  }
  return InvalidArgument("'", task, "' is not a server of this cluster (ps:0 to ps:", count - 1,
                         ")");
}

std::string JobOfCommand(const std::string& command) {
  std::string name = absl::StrCat("cairnctl-", command, "-", HostName(), "-", getpid());
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
  }
  return name;
}

absl::StatusOr<std::unique_ptr<WireClient>> Target::Connect(size_t server,
                                                            Deadline deadline) const {
  WireClientOptions options;
  options.peer = ServerName(server);
  ASSIGN_OR_RETURN(options.security, ClientSecurity::Load(security));
  return WireClient::Connect(members.addresses[server], options, deadline);
}

absl::StatusOr<std::unique_ptr<PsClient>> Target::ConnectClient(
    const std::string& local_transport) const {
  ASSIGN_OR_RETURN(const LocalTransport local, AsBadInput(LocalTransportFromName(local_transport)));
  return PsClient::Connect({.job = job,
                            .task = "cairnctl",
                            .servers = members.addresses,
                            .ps_wait = timeout,
                            .security = security,
                            .local_transport = local},
                           Deadline::In(timeout));
}

absl::Status ResolveJob(const std::string& job, Target* target) {
  if (job.empty()) {
    return absl::InvalidArgumentError(
        "which job? give --job NAME or --job FILE, its job file; cairnctl jobs lists them");
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(job, error)) {
    target->job = job;
    return absl::OkStatus();
  }
  JobOptions reading;
  reading.check_files = false;
  ASSIGN_OR_RETURN(target->job_file, ReadJobFile(job, reading));
  target->job = target->job_file->name;
  return absl::OkStatus();
}

absl::StatusOr<Target> ResolveTarget(const TargetOptions& options) {
  Target target;
  absl::Status resolved;
  // If no job is named, report a problem with the servers first.
  if (options.job.empty()) resolved = Resolve(options, &target);
  if (resolved.ok()) resolved = ResolveJob(options.job, &target);
  if (resolved.ok() && !options.job.empty()) resolved = Resolve(options, &target);
  if (!resolved.ok()) return AsBadInput(resolved);
  return target;
}

absl::StatusOr<Target> ResolveServers(const TargetOptions& options) {
  Target target;
  const absl::Status resolved = Resolve(options, &target);
  if (!resolved.ok()) return AsBadInput(resolved);
  return target;
}

}  // namespace cairn
