// The transport to one server: pooled connections, or direct calls within this process.
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

// A request of the hot path and its reply. Objects are reused between calls, so that strings and
// lists keep their memory.
struct DataCall {
  CallKind kind = CallKind::kPull;
  wire::StepRequest request;   // kPush: request.push; kPull: request.pull; kStep: both
  wire::AssignRequest assign;  // kAssign
  // kPull: the training step that the pull begins or, at ps:0, announces (PullRequest.step); 0:
  // none.
  int64_t step = 0;
  wire::StepReply reply;  // kPush, kAssign: reply.push; kPull: reply.pull; kStep: both
  // Destination of the values of pulled item i. A link may leave the values in other memory
  // instead; PulledItem.values says where they are.
  std::vector<absl::Span<std::byte>> targets;
};

// "push", "assign", "pull", "step".
absl::string_view CallName(CallKind kind);

// How far an attempt got, which decides whether it may be repeated.
enum class Progress {
  kAnswered,  // the server answered: OK, or its ServerError as a Status (thrift/errors.h)
  kNotSent,   // no byte of the request was sent
  kUnknown,   // sent, but not answered: the call may have run
};

struct Outcome {
  Progress progress = Progress::kAnswered;
  absl::Status status;
};

// A connection for one call at a time. Thread safety: used by one thread at a time.
class Channel {
 public:
  virtual ~Channel() = default;

  // Send starts `call`. If it returns kAnswered (then with OK), Receive completes the call. Several
  // channels may be sent to before the first Receive. `call` must not move in between. After any
  // other result the channel must be discarded.
  virtual Outcome Send(const DataCall& call, Deadline deadline) = 0;
  virtual Outcome Receive(DataCall& call, Deadline deadline) = 0;

  // Makes any other call: `body` calls one method of the service, `method`.
  virtual Outcome Call(absl::string_view method,
                       absl::FunctionRef<void(wire::ParameterServerIf&)> body,
                       Deadline deadline) = 0;
};

// Thread safety: every method may be called from several threads at once.
class ServerLink {
 public:
  virtual ~ServerLink() = default;

  // Takes an idle channel, or connects a new one before `deadline`. On failure `*channel` is null
  // and the outcome is kNotSent.
  virtual Outcome Take(Deadline deadline, Channel** channel) = 0;
  // Release, Discard or Return gives back every channel that was taken.
  virtual void Release(Channel* channel) = 0;
  // For a channel that failed. Also closes all idle channels, which have probably failed as well.
  virtual void Discard(Channel* channel) = 0;
  // Releases the channel of a call that was answered, and discards any other.
  void Return(Channel* channel, Progress progress) {
    if (progress == Progress::kAnswered) {
      Release(channel);
    } else {
      Discard(channel);
    }
  }

  // Whether calls run in the caller's thread, so that using several threads gains nothing.
  virtual bool in_process() const = 0;
};

// A server's link and its name in messages.
struct ReachedServer {
  std::string name;
  std::unique_ptr<ServerLink> link;
};
// Opens a link to server `server` at `address`; empty: the address in ClientOptions::servers.
using ReachServer =
    std::function<absl::StatusOr<ReachedServer>(int32_t server, const std::string& address)>;

// `name` identifies the server in messages: "ps:1 (127.0.0.1:7002)". `service` outlives the link.
std::unique_ptr<ServerLink> InProcessLink(std::string name, wire::ParameterServerIf* service);
// `security` and `local`: see WireClientOptions.
std::unique_ptr<ServerLink> RemoteLink(std::string name, std::string address,
                                       int64_t max_message_bytes,
                                       std::shared_ptr<ClientSecurity> security = nullptr,
                                       LocalTransport local = LocalTransport::kOff);

}  // namespace cairn
