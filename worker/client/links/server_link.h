// One way to reach one server: pooled connections, or direct calls inside this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/local_transport.h"
#include "common/deadline.h"
#include "thrift/cairn_types.h"

namespace cairn {

class ClientSecurity;

namespace wire {
class ParameterServerIf;
}

enum class CallKind { kPush, kAssign, kPull, kStep };

// A request of the hot path and room for its reply. Reused from call to call, so that names and
// lists keep their memory.
struct DataCall {
  CallKind kind = CallKind::kPull;
  wire::StepRequest request;   // kPush: request.push; kPull: request.pull; kStep: both
  wire::AssignRequest assign;  // kAssign
  // kPull: the training step it begins or, at ps:0, announces (PullRequest.step); 0: none.
  int64_t step = 0;
  wire::StepReply reply;  // kPush, kAssign: reply.push; kPull: reply.pull; kStep: both
  // Where the values of pulled item i are wanted; a link may leave them in memory of their own
  // instead (PulledItem.values tells).
  std::vector<absl::Span<std::byte>> targets;
};

// "push", "assign", "pull", "step".
absl::string_view CallName(CallKind kind);

// How far an attempt got; decides whether it may be repeated.
enum class Progress {
  kAnswered,  // the server answered: OK, or its ServerError as a Status (thrift/errors.h)
  kNotSent,   // no byte of the request left
  kUnknown,   // the connection failed later, or no answer came in time: the call may have run
};

struct Outcome {
  Progress progress = Progress::kAnswered;
  absl::Status status;
};

// One conversation with the server. Thread safety: one thread at a time.
class Channel {
 public:
  virtual ~Channel() = default;

  // Send starts `call`; if it returns kAnswered (which is then OK), Receive ends it. Several
  // channels can be sent to before the first is received from. `call` stays in place between.
  // After anything but kAnswered the channel must be discarded.
  virtual Outcome Send(const DataCall& call, Deadline deadline) = 0;
  virtual Outcome Receive(DataCall& call, Deadline deadline) = 0;

  // Any other call, in one go: `body` makes exactly one call of the service, `method`.
  virtual Outcome Call(absl::string_view method,
                       absl::FunctionRef<void(wire::ParameterServerIf&)> body,
                       Deadline deadline) = 0;
};

// Thread safety: every method may be called from several threads at once.
class ServerLink {
 public:
  virtual ~ServerLink() = default;

  // An idle channel, else a new one, connected before `deadline`. On failure `*channel` is null and
  // the outcome is kNotSent.
  virtual Outcome Take(Deadline deadline, Channel** channel) = 0;
  // Every channel taken comes back by one of these.
  virtual void Release(Channel* channel) = 0;
  // After a failure: closes it, and every idle one, which share its fate.
  virtual void Discard(Channel* channel) = 0;

  // True where calls run in the caller's thread, so that fanning out over threads gains nothing.
  virtual bool in_process() const = 0;
};

// How a server is reached: at `address`, which is empty for one of ClientOptions::servers.
struct ReachedServer {
  std::string name;  // in messages
  std::unique_ptr<ServerLink> link;
};
using ReachServer =
    std::function<absl::StatusOr<ReachedServer>(int32_t server, const std::string& address)>;

// `name` is how errors call the server: "ps:1 (127.0.0.1:7002)". `service` outlives the link.
std::unique_ptr<ServerLink> InProcessLink(std::string name, wire::ParameterServerIf* service);
// `security` and `local` are those of WireClientOptions.
std::unique_ptr<ServerLink> RemoteLink(std::string name, std::string address,
                                       int64_t max_message_bytes,
                                       std::shared_ptr<ClientSecurity> security = nullptr,
                                       LocalTransport local = LocalTransport::kOff);

}  // namespace cairn
