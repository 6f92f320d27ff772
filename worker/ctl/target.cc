#include "worker/ctl/target.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/host_name.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/limits.h"
#include "thrift/security/client_security.h"
#include "worker/trainer/exit_status.h"

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
    target->servers = absl::StrSplit(options.servers, ',', absl::SkipWhitespace());
  } else {
    ASSIGN_OR_RETURN(target->cluster, FindCluster(options, *target));
    target->servers = target->cluster.addresses("ps");
  }
  if (target->servers.empty()) return absl::InvalidArgumentError("the cluster has no ps tasks");
  for (const std::string& address : target->servers) {
    RETURN_IF_ERROR(ParseHostPort(address).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Target::LearnMembers() {
  const Deadline deadline = Deadline::In(timeout);
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> first, Connect(0, deadline));
  wire::Members members;
  wire::Caller caller;
  caller.job = JobOfCommand("members");
  RETURN_IF_ERROR(first->Call("members", deadline,
                              [&](WireClient::Stub& stub) { stub.members(members, caller); }));
  members_version = members.version;
  for (const wire::Member& member : members.members) {
    if (member.index < 0 || member.index >= kMaxServers) continue;
    const auto index = static_cast<size_t>(member.index);
    if (index >= servers.size()) servers.resize(index + 1);
    if (!member.address.empty()) servers[index] = member.address;
    left.resize(servers.size());
    left[index] = member.left;
  }
  left.resize(servers.size());
  return absl::OkStatus();
}

std::vector<int32_t> Target::Live() const {
  std::vector<int32_t> live;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (i >= left.size() || !left[i]) live.push_back(static_cast<int32_t>(i));
  }
  return live;
}

std::string Target::ServerName(size_t index) const {
  return absl::StrCat("ps:", index, " (", servers[index], ")");
}

std::string Target::WorkerName(int32_t ordinal) const {
  if (cluster.tasks.empty()) return absl::StrCat("worker ", ordinal);
  const int32_t chiefs = static_cast<int32_t>(cluster.addresses("chief").size());
  return ordinal < chiefs ? absl::StrCat("chief:", ordinal)
                          : absl::StrCat("worker:", ordinal - chiefs);
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
  return WireClient::Connect(servers[server], options, deadline);
}

absl::Status ResolveJob(const std::string& job, Target* target) {
  if (job.empty()) {
    return absl::InvalidArgumentError("which job? give --job NAME or --job FILE, its job file");
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
  absl::Status resolved = ResolveJob(options.job, &target);
  if (resolved.ok()) resolved = Resolve(options, &target);
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
