#include "worker/client/impl/client_impl.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/host_name.h"
#include "common/start_number.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "thrift/security/client_security.h"

namespace cairn {
namespace {

std::string Origin() {
  return absl::StrCat(HostName().substr(0, kMaxOriginBytes - 32), "/", getpid());
}

ClientIdentity IdentityOf(const ClientOptions& options, int32_t server_count,
                          const Membership::Flags& flags, Retention* retention, StepClock* clock,
                          StepBook* steps) {
  const bool synchronous =
      options.worker >= 0 && options.consistency.mode == ConsistencyMode::kSync;
  return {.job = options.job,
          .task = options.task,
          .origin = Origin(),
          .start = DrawStartNumber(),
          .worker = options.worker,
          .server_count = server_count,
          .most_servers = &flags.most_servers,
          .fenced = &flags.fenced,
          .described_timeline = &flags.described_timeline,
          .ps_wait = options.ps_wait,
          .retention = options.worker >= 0 && options.retained_bytes > 0 ? retention : nullptr,
          .consistency = options.consistency,
          .expected_workers = options.expected_workers,
          .clock = clock,
          .steps = synchronous ? steps : nullptr};
}

absl::Status CheckOptions(const ClientOptions& options, size_t server_count) {
  if (server_count == 0) return absl::InvalidArgumentError("client: no parameter servers given");
  if (options.job.empty()) return absl::InvalidArgumentError("client: the job has no name");
  if (options.retained_bytes < 0) {
    return InvalidArgument("client: retained_bytes is ", options.retained_bytes,
                           "; 0 or more allowed");
  }
  if (options.max_message_bytes < kMinMessageBytesLimit ||
      options.max_message_bytes > kMaxMessageBytesLimit) {
    return InvalidArgument("client: max_message_bytes is ", options.max_message_bytes, "; ",
                           kMinMessageBytesLimit, " … ", kMaxMessageBytesLimit, " allowed");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PsClient>> PsClient::Connect(const ClientOptions& options,
                                                            Deadline deadline) {
  RETURN_IF_ERROR(CheckOptions(options, options.servers.size()));
  ASSIGN_OR_RETURN(const std::shared_ptr<ClientSecurity> security,
                   ClientSecurity::Load(options.security));
  const auto reach = [options, security](
                         int32_t server,
                         const std::string& other) -> absl::StatusOr<ReachedServer> {
    const std::string& address =
        other.empty() ? options.servers[static_cast<size_t>(server)] : other;
    const std::string name = absl::StrCat("ps:", server, " (", address, ")");
    return ReachedServer{name, RemoteLink(name, address, options.max_message_bytes, security,
                                          options.local_transport)};
  };
  return PsClientImpl::Start(options, static_cast<int32_t>(options.servers.size()), reach,
                             deadline);
}

absl::StatusOr<std::unique_ptr<PsClient>> PsClient::ConnectInProcess(
    const ClientOptions& options, std::vector<wire::ParameterServerIf*> servers,
    Deadline deadline) {
  RETURN_IF_ERROR(CheckOptions(options, servers.size()));
  for (size_t i = 0; i < servers.size(); ++i) {
    if (servers[i] != nullptr) continue;
    return InvalidArgument("client: server ps:", i, " is null");
  }
  const auto reach = [servers](int32_t server,
                               const std::string&) -> absl::StatusOr<ReachedServer> {
    if (static_cast<size_t>(server) >= servers.size()) {
      return Unimplemented("ps:", server, " has joined, and this client reaches the ",
                           servers.size(), " servers of its process only");
    }
    const std::string name = absl::StrCat("ps:", server, " (in process)");
    return ReachedServer{name, InProcessLink(name, servers[static_cast<size_t>(server)])};
  };
  return PsClientImpl::Start(options, static_cast<int32_t>(servers.size()), reach, deadline);
}

absl::StatusOr<std::unique_ptr<PsClientImpl>> PsClientImpl::Start(const ClientOptions& options,
                                                                  int32_t server_count,
                                                                  ReachServer reach,
                                                                  Deadline deadline,
                                                                  absl::Duration longest_pause) {
  std::vector<ReachedServer> reached;
  for (int32_t server = 0; server < server_count; ++server) {
    ASSIGN_OR_RETURN(reached.emplace_back(), reach(server, ""));
  }
  std::unique_ptr<PsClientImpl> client(
      new PsClientImpl(options, std::move(reached), std::move(reach), longest_pause));
  RETURN_IF_ERROR(client->lifecycle_.Start(deadline));
  return client;
}

PsClientImpl::PsClientImpl(const ClientOptions& options, std::vector<ReachedServer> servers,
                           ReachServer reach, absl::Duration longest_pause)
    : longest_pause_(longest_pause),
      options_(options),
      identity_(IdentityOf(options, static_cast<int32_t>(servers.size()), flags_, &retention_,
                           &clock_, &step_book_)),
      sessions_([&] {
        std::vector<std::unique_ptr<ServerSession>> sessions;
        for (ReachedServer& server : servers) {
          sessions.push_back(std::make_unique<ServerSession>(static_cast<int32_t>(sessions.size()),
                                                             std::move(server.name),
                                                             std::move(server.link), &identity_));
        }
        return sessions;
      }()),
      membership_(identity_, std::move(reach), sessions_, order_, variables_, flags_, plan_limits_,
                  fan_out_, calls_) {}

absl::StatusOr<std::vector<VariableSpec>> PsClientImpl::Describe(Deadline deadline) {
  ASSIGN_OR_RETURN(JobHoldings holdings, Examine(deadline));
  RETURN_IF_ERROR(CheckAgreement(holdings));
  return std::move(holdings.specs);
}

ClientCounters PsClientImpl::counters() const {
  return {.bytes_pushed = data_.bytes_pushed(),
          .bytes_pulled = data_.bytes_pulled(),
          .retries = fan_out_.retries(),
          .pushes_dropped = planner_.pushes_dropped(),
          .pushes_late = training_.pushes_late(),
          .retained_bytes = retention_.bytes(),
          .retained_bytes_max = retention_.max_bytes(),
          .replayed_pushes = retention_.replayed_pushes(),
          .replayed_bytes = retention_.replayed_bytes(),
          .replay_seconds = absl::ToDoubleSeconds(retention_.replay_time())};
}

}  // namespace cairn
