// The C interface: connections.
#include <algorithm>
#include <cstring>
#include <memory>

#include "common/config/client_config.h"
#include "common/status.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/capi/handle_table.h"

namespace cairn::capi {
namespace {

ClientOptions OptionsOf(const ClientConfig& config) {
  ClientOptions options;
  options.job = config.job;
  options.worker = config.worker;
  options.task = config.task;
  options.servers = config.servers;
  options.ps_wait = absl::Seconds(config.strategy.ps_wait_seconds);
  options.rpc_timeout = absl::Seconds(config.rpc_timeout_seconds);
  options.security = config.security;
  options.local_transport = config.local_transport;
  options.consistency = ConsistencyOf(config.strategy);
  options.expected_workers = config.workers;
  options.skip_not_finite = config.skip_not_finite;
  options.retained_bytes = config.retained_bytes;
  return options;
}

absl::Status Connect(const char* description, double timeout, cairn_client** handle) {
  RETURN_IF_ERROR(CheckNotNull(handle, "client"));
  *handle = nullptr;
  RETURN_IF_ERROR(CheckNotNull(description, "description"));
  const absl::StatusOr<ClientConfig> parsed = ParseClientConfig(description, "description");
  if (!parsed.ok()) return WithoutLine(parsed.status(), description, "description");
  const ClientConfig& config = *parsed;
  const ClientOptions options = OptionsOf(config);
  const auto client = std::make_shared<Client>(nullptr, config.job, config.worker,
                                               options.ps_wait + 2 * options.rpc_timeout);
  ASSIGN_OR_RETURN(const Deadline deadline, client->DeadlineIn(timeout));
  ASSIGN_OR_RETURN(client->ps, PsClient::Connect(options, deadline));
  client->partitioner = config.strategy.partitioner;
  *handle = static_cast<cairn_client*>(InsertHandle(HandleKind::kClient, client));
  return absl::OkStatus();
}

}  // namespace

extern "C" {

int cairn_connect(const char* description, double timeout, cairn_client** client) {
  return Run("cairn_connect",
             [&] { return Annotate(Connect(description, timeout, client), "connect"); });
}

int cairn_close(cairn_client* client) {
  return Run("cairn_close", [&] { return RemoveHandle(HandleKind::kClient, client).status(); });
}

int cairn_flush(cairn_client* client, double timeout) {
  return RunWith("cairn_flush", client, timeout,
                 [](Client& c, Deadline deadline) { return c.ps->Flush(deadline); });
}

int cairn_leave(cairn_client* client, double timeout) {
  return RunWith("cairn_leave", client, timeout,
                 [](Client& c, Deadline deadline) { return c.ps->Leave(deadline); });
}

int cairn_drop_job(cairn_client* client, double timeout) {
  return RunWith("cairn_drop_job", client, timeout,
                 [](Client& c, Deadline deadline) { return c.ps->DropJob(deadline); });
}

int cairn_server_count(cairn_client* client, int32_t* count) {
  return RunWith("cairn_server_count", client, 0, [&](Client& c, Deadline) {
    const absl::Status status = CheckNotNull(count, "count");
    if (status.ok()) *count = c.ps->server_count();
    return status;
  });
}

int cairn_worker(cairn_client* client, int32_t* worker) {
  return RunWith("cairn_worker", client, 0, [&](Client& c, Deadline) {
    const absl::Status status = CheckNotNull(worker, "worker");
    if (status.ok()) *worker = c.worker;
    return status;
  });
}

int cairn_position(cairn_client* client, char* position, uint64_t capacity, uint64_t* size) {
  return RunWith("cairn_position", client, 0, [&](Client& c, Deadline) -> absl::Status {
    RETURN_IF_ERROR(CheckNotNull(size, "size"));
    if (capacity > 0) RETURN_IF_ERROR(CheckNotNull(position, "position"));
    const std::string& stored = c.ps->position();
    *size = stored.size();
    if (capacity > 0)
      std::memcpy(position, stored.data(), std::min<size_t>(capacity, stored.size()));
    return absl::OkStatus();
  });
}

}  // extern "C"

}  // namespace cairn::capi
