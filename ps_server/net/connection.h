// One connection of a listener: its opening, its TLS handshake, its calls. It takes a thread for as
// long as one of these goes on, and none in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "ps_server/net/connection_loop.h"
#include "ps_server/net/listener.h"
#include "ps_server/net/local_acceptor.h"
#include "ps_server/net/local_handshake.h"
#include "thrift/security/server_security.h"

namespace apache::thrift::transport {
class TSocket;
}

namespace cairn {

// Why a peer is not served, in one exception that answers whatever it is about to ask. A few
// hundred bytes always fit an empty socket buffer, so this does not wait. `is_tls_expected`: the
// peer has the wrong protocol, rather than the wrong moment.
void RefusePeer(Listener& listener,
                const std::shared_ptr<apache::thrift::transport::TSocket>& socket,
                bool is_tls_expected, const std::string& why);

// Where a connection comes from.
struct ConnectionOrigin {
  std::string host;  // an IP address
  std::string peer;  // "127.0.0.1:41234", "process 4242 of this host"
  bool is_local = false;
  // Of TCP; of the local transport, all of whose callers count as one host.
  static ConnectionOrigin Of(apache::thrift::transport::TSocket& socket);
  static ConnectionOrigin Of(const LocalPeer& peer);
};

class Connection : public ConnectionLoop::Guest {
 public:
  Connection(Listener& listener, std::shared_ptr<apache::thrift::transport::TSocket> socket,
             ConnectionOrigin origin);
  ~Connection() override;

  // Begins to wait for the peer.
  void Begin();
  int fd() const override { return fd_; }
  void Tidy() override;
  bool MayBeRefused() const override;
  void Run(CallPool::Slot& slot) override;

  const std::string& host() const { return origin_.host; }
  bool is_local() const { return origin_.is_local; }
  // The listener's: whether the caller has not authenticated itself yet.
  bool awaits_proof = false;

  // For the listener: ends reads or both directions, whatever the connection does; closes it.
  void ShutDown(int how) const;
  void Close();

 private:
  // What becomes of it now.
  enum class Next { kServe, kRest, kRestForRoom, kQueue, kEnd };
  struct Calls;

  Next Proceed(CallPool::Slot& slot);
  Next Open();
  Next OpenLocally();
  Next Shake();
  void Enter(ServerSecurity::Entry entry);
  void Offer(const PeerGuard& guard, const wire::HelloRequest& request, wire::HelloReply& reply);
  Next ServeCalls(CallPool::Slot& slot);
  Next ServeEach(CallPool::Slot& slot);
  Next Refuse(const absl::Status& refusal);
  absl::Status Busy(absl::Duration retry_after) const;
  // Of BulkTransport for this peer, whatever came before.
  void Drain();
  void LogRefusal(const absl::Status& status) const;

  Listener& listener_;
  std::shared_ptr<apache::thrift::transport::TSocket> socket_;
  const int fd_;
  const ConnectionOrigin origin_;
  const Deadline proof_;     // by when it must have proved who it is, or begun at least
  bool is_open_ = false;     // its first byte has come
  absl::Duration answered_;  // when its last call was, on the monotonic clock
  std::unique_ptr<TlsStream> handshake_;
  std::unique_ptr<MessageMemory> rings_memory_;  // of the local transport
  std::unique_ptr<Calls> calls_;
};

}  // namespace cairn
