// Pooled connections to a server in another process.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/log.h"
#include "thrift/client/wire_client.h"
#include "thrift/errors.h"
#include "thrift/local/limits.h"
#include "worker/client/links/server_link.h"

namespace cairn {
namespace {

class RemoteChannel : public Channel {
 public:
  RemoteChannel(std::unique_ptr<WireClient> client, bool has_token)
      : client_(std::move(client)), has_token_(has_token) {}

  WireClient& client() { return *client_; }

  Outcome Send(const DataCall& call, Deadline deadline) override {
    absl::Status status = client_->Call(CallName(call.kind), deadline, [&](WireClient::Stub& stub) {
      switch (call.kind) {
        case CallKind::kPush: stub.send_push(call.request.push); break;
        case CallKind::kAssign: stub.send_assign(call.assign); break;
        case CallKind::kPull: stub.send_pull(call.request.pull); break;
        case CallKind::kStep: stub.send_step(call.request); break;
      }
    });
    return OutcomeOf(std::move(status));
  }

  Outcome Receive(DataCall& call, Deadline deadline) override {
    if (!call.targets.empty()) client_->ReadPayloadsInto(call.targets);
    absl::Status status = client_->Call(CallName(call.kind), deadline, [&](WireClient::Stub& stub) {
      switch (call.kind) {
        case CallKind::kPush: stub.recv_push(call.reply.push); break;
        case CallKind::kAssign: stub.recv_assign(call.reply.push); break;
        case CallKind::kPull: stub.recv_pull(call.reply.pull); break;
        case CallKind::kStep: stub.recv_step(call.reply); break;
      }
    });
    return OutcomeOf(std::move(status));
  }

  Outcome Call(absl::string_view method, absl::FunctionRef<void(wire::ParameterServerIf&)> body,
               Deadline deadline) override {
    absl::Status status =
        client_->Call(method, deadline, [&](WireClient::Stub& stub) { body(stub); });
    return OutcomeOf(std::move(status));
  }

 private:
  Outcome OutcomeOf(absl::Status status) const {
    if (status.ok()) return {};
    // The server accepted this connection's token before and rejects it now, and the call did not
    // run. The retry connects with the token that the file holds by then, and fails if that is
    // rejected, too.
    if (has_token_ && absl::IsUnauthenticated(status)) {
      return {Progress::kNotSent, absl::UnavailableError(status.message())};
    }
    // After an answer the connection stays usable, except after a LIMIT error, after which the
    // server closes it. Any other failure is the connection's.
    const bool answered = client_->usable() || ReasonOf(status) == wire::ErrorReason::LIMIT;
    return {answered ? Progress::kAnswered : Progress::kUnknown, std::move(status)};
  }

  const std::unique_ptr<WireClient> client_;
  const bool has_token_;
};

class Remote : public ServerLink {
 public:
  Remote(std::string name, std::string address, int64_t max_message_bytes,
         std::shared_ptr<ClientSecurity> security, LocalTransport local)
      : address_(std::move(address)),
        options_{.peer = std::move(name),
                 .max_message_bytes = max_message_bytes,
                 .security = std::move(security),
                 .local = local} {}

  ~Remote() override { Close(&idle_); }

  Outcome Take(Deadline deadline, Channel** channel) override {
    // Prefer the connection used last: it is the warmest. Skip connections that the server has
    // closed, because they would lose a call that must not be repeated.
    while (RemoteChannel* idle = PopIdle()) {
      if (!idle->client().PeerClosed()) {
        *channel = idle;
        return {};
      }
      delete idle;
    }
    *channel = nullptr;
    absl::StatusOr<std::unique_ptr<WireClient>> client =
        WireClient::Connect(address_, OptionsNow(), deadline);
    if (!client.ok()) return {Progress::kNotSent, std::move(client).status()};
    NoteLocal(**client);
    const bool has_token = options_.security != nullptr && options_.security->has_token();
    *channel = new RemoteChannel(*std::move(client), has_token);
    return {};
  }

  void Release(Channel* channel) override {
    auto* const remote = static_cast<RemoteChannel*>(channel);
    if (!remote->client().usable()) {
      delete remote;
      return;
    }
    absl::MutexLock lock(&mutex_);
    idle_.push_back(remote);
  }

  void Discard(Channel* channel) override {
    std::vector<RemoteChannel*> closed;
    {
      absl::MutexLock lock(&mutex_);
      closed.swap(idle_);
    }
    delete channel;
    Close(&closed);
  }

  bool in_process() const override { return false; }

 private:
  RemoteChannel* PopIdle() {
    absl::MutexLock lock(&mutex_);
    if (idle_.empty()) return nullptr;
    RemoteChannel* channel = idle_.back();
    idle_.pop_back();
    return channel;
  }

  WireClientOptions OptionsNow() {
    WireClientOptions options = options_;
    absl::MutexLock lock(&mutex_);
    if (MonotonicNow() < try_local_again_) options.local = LocalTransport::kOff;
    return options;
  }

  // Logs the use of shared memory, and its failure, once each. After a failure new connections use
  // TCP for a while, unless the server ended in the meantime: its next start listens at another
  // socket.
  void NoteLocal(const WireClient& client) {
    if (!client.is_local() && client.local_failure().ok()) return;
    absl::MutexLock lock(&mutex_);
    if (client.is_local()) {
      if (std::exchange(said_local_, true)) return;
      LOG(INFO) << client.peer() << " is on this host: calls go through shared memory";
      return;
    }
    if (!absl::IsUnavailable(client.local_failure())) {
      try_local_again_ = MonotonicNow() + absl::Seconds(kLocalRetrySeconds);
    }
    if (std::exchange(said_local_failure_, true)) return;
    LOG(WARNING) << client.local_failure().message()
                 << "; using TCP instead (--local_transport=off always uses TCP)";
  }

  static void Close(std::vector<RemoteChannel*>* channels) {
    for (RemoteChannel* channel : *channels) delete channel;
    channels->clear();
  }

  const std::string address_;
  const WireClientOptions options_;
  absl::Mutex mutex_;
  std::vector<RemoteChannel*> idle_ ABSL_GUARDED_BY(mutex_);  // owned
  absl::Duration try_local_again_ ABSL_GUARDED_BY(mutex_);    // on the monotonic clock
  bool said_local_ ABSL_GUARDED_BY(mutex_) = false;
  bool said_local_failure_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<ServerLink> RemoteLink(std::string name, std::string address,
                                       int64_t max_message_bytes,
                                       std::shared_ptr<ClientSecurity> security,
                                       LocalTransport local) {
  return std::make_unique<Remote>(std::move(name), std::move(address), max_message_bytes,
                                  std::move(security), local);
}

}  // namespace cairn
