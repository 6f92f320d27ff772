// Accepts callers on the listener's own host: an abstract Unix-domain socket, and the tickets that
// hello issues for it (thrift/LOCAL.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/config/local_transport.h"
#include "common/descriptor.h"
#include "common/monotonic_cond_var.h"
#include "thrift/cairn_types.h"
#include "thrift/local/local_socket.h"
#include "thrift/local/ticket_table.h"

namespace cairn {

struct LocalAcceptorOptions {
  std::string name;  // the listener's, for messages
  LocalTransport transport = LocalTransport::kSameUser;
  size_t max_tickets = 1;
  absl::Duration ticket_life;
};

// Thread safety: every method may be called from several threads at once.
class LocalAcceptor {
 public:
  // kUnavailable: the system does not support such sockets.
  static absl::StatusOr<std::unique_ptr<LocalAcceptor>> Open(const LocalAcceptorOptions& options);
  ~LocalAcceptor() { Close(); }

  // Until Close, passes each accepted connection to `admit`, on a thread of the acceptor. A
  // std::bad_alloc of `admit` loses that connection only. Throws std::system_error if the system
  // refuses the thread.
  using Admit = std::function<void(Descriptor, const LocalPeer&)>;
  void Start(Admit admit);
  // The endpoint that hello offers to a caller on host `host_id`; nullopt: that is another host.
  std::optional<wire::LocalEndpoint> Offer(const std::string& host_id, const PeerGuard& guard,
                                           const std::string& peer);
  TicketTable& tickets() { return tickets_; }
  // Stops accepting: no call of `admit` runs after it returns. Idempotent.
  void Close();

 private:
  LocalAcceptor(LocalAcceptorOptions options, LocalListener listener);
  void AcceptLoop();
  void Accept();
  void Pause();

  const LocalAcceptorOptions options_;
  const LocalListener listener_;
  Admit admit_;
  TicketTable tickets_;
  std::atomic<bool> closing_{false};
  absl::Mutex mutex_;
  MonotonicCondVar closes_;
  std::thread thread_;
};

}  // namespace cairn
