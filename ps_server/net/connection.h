// One connection of a listener: opening, TLS handshake, calls. It occupies a thread only during one
// of these.
#pragma once

#include <cstdint>
#include <list>
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

// Answers the peer's next request with one exception that says why the peer is refused. A few
// hundred bytes always fit in an empty socket buffer, so this does not block. `is_tls_expected`:
// the peer uses the wrong protocol (otherwise it came at the wrong time).
void RefusePeer(Listener& listener,
                const std::shared_ptr<apache::thrift::transport::TSocket>& socket,
                bool is_tls_expected, const std::string& why);

// The origin of a connection.
struct ConnectionOrigin {
  std::string host;  // an IP address
  std::string peer;  // "127.0.0.1:41234", "process 4242 of this host"
  bool is_local = false;
  // For TCP, and for the local transport, all of whose callers count as one host.
  static ConnectionOrigin Of(apache::thrift::transport::TSocket& socket);
  static ConnectionOrigin Of(const LocalPeer& peer);
};

class Connection : public ConnectionLoop::Parkable {
 public:
  Connection(Listener& listener, std::shared_ptr<apache::thrift::transport::TSocket> socket,
             ConnectionOrigin origin);
  ~Connection() override;

  // Starts waiting for the peer.
  void Begin();
  int fd() const override { return fd_; }
  void Tidy() override;
  bool MayBeRefused() const override;
  void Run(CallPool::Slot& slot) override;

  const std::string& host() const { return origin_.host; }
  bool is_local() const { return origin_.is_local; }
  // Managed by the listener: its place in the listener's list; whether the caller has not
  // authenticated itself yet.
  std::list<std::unique_ptr<Connection>>::iterator place;
  bool awaits_authentication = false;

  // For the listener. ShutDown ends reads or both directions at any time; Close closes the socket.
  void ShutDown(int how) const;
  void Close();

 private:
  // What the connection does next.
  enum class Next { kServe, kPark, kParkUntilWritable, kQueue, kEnd };
  struct Calls;

  Next ProceedOrLog(CallPool::Slot& slot);
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
  // Reads and discards what the peer still sends, so that closing does not reset the connection.
  void Drain();
  void LogRefusal(const absl::Status& status) const;

  Listener& listener_;
  std::shared_ptr<apache::thrift::transport::TSocket> socket_;
  const int fd_;
  const ConnectionOrigin origin_;
  const Deadline authentication_deadline_;  // limit for authentication, or for the first byte
  bool is_open_ = false;                    // the first byte has arrived
  absl::Duration answered_;                 // time of the last reply, on the monotonic clock
  std::unique_ptr<TlsStream> handshake_;
  std::unique_ptr<MessageMemory> rings_memory_;  // for the local transport
  std::unique_ptr<Calls> calls_;
};

}  // namespace cairn
