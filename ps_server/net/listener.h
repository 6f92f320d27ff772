// Serves an Engine over Thrift: the bulk protocol on TCP and, for callers on this host, over shared
// memory. Running and blocked calls have threads; idle connections have none.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics/slotted.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/net/listener_options.h"

namespace apache::thrift::transport {
class TServerSocket;
class TSocket;
}  // namespace apache::thrift::transport

namespace cairn {

class CallPool;
class Connection;
class ConnectionLoop;
class Engine;
class LocalAcceptor;
class ServerSecurity;
struct ConnectionOrigin;
struct LocalPeer;

// Thread safety: every method may be called from several threads at once.
class Listener {
 public:
  // Returns when the listener accepts calls. `engine` must outlive it.
  // Errors: as CheckOptions; those of ServerSecurity::Load; kUnavailable: the port is in use, or
  // the address is not of this machine (the message says which).
  static absl::StatusOr<std::unique_ptr<Listener>> Start(Engine& engine,
                                                         const ListenerOptions& options);
  ~Listener();  // calls Stop
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // For example "127.0.0.1:7001"; has the bound port.
  const std::string& address() const { return address_; }
  ListenerStatistics statistics() const;
  // Stops accepting and serving, gives running calls up to a second to reply, a drain the time that
  // it needs, closes all connections and joins all threads. Idempotent.
  void Stop();

  // For its connections:
  const ListenerOptions& options() const { return options_; }
  Engine& engine() { return engine_; }
  ServerSecurity& security() { return *security_; }
  LocalAcceptor* local_acceptor() { return local_acceptor_.get(); }  // null: none
  ConnectionLoop& loop() { return *loop_; }
  bool stopping() const { return stopping_.load(); }
  // The caller has authenticated itself: ends the limits on unauthenticated connections for it.
  void NoteAuthenticated(Connection& connection);
  // Counts a served call; NoteBusy counts a call refused because the queue is full.
  void NoteCall(int64_t received_bytes, int64_t sent_bytes);
  void NoteBusy() { refused_calls_.Add(1); }
  // Closes and destroys `connection`.
  void End(Connection& connection);

 private:
  using Socket = std::shared_ptr<apache::thrift::transport::TSocket>;
  // A list, which connections join without needing memory.
  using Connections = std::list<std::unique_ptr<Connection>>;

  Listener(Engine& engine, const ListenerOptions& options,
           std::unique_ptr<ServerSecurity> security);
  absl::Status Listen();
  void OpenLocalAcceptor();
  absl::Status StartAccepting();
  void AcceptLoop();
  void Pause();
  // Serves the connection or answers why not. `peer`: of a local caller; null: TCP. Without memory
  // for either, throws std::bad_alloc, and the connection closes with `socket`.
  void Admit(const Socket& socket, const LocalPeer* peer);
  // Returns why the connection is not served; empty: it is.
  std::string AdmitOrExplain(const Socket& socket, ConnectionOrigin origin);
  void Refuse(const Socket& socket, bool is_local, const std::string& refusal);
  std::string WhyFull(const std::string& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseOldestUnauthenticated() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShutDownAll(int how) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Engine& engine_;
  const ListenerOptions options_;
  const std::unique_ptr<ServerSecurity> security_;
  const std::unique_ptr<apache::thrift::transport::TServerSocket> socket_;
  std::string address_;
  std::atomic<bool> stopping_ = false;
  std::thread accept_thread_;
  absl::Mutex stop_mutex_;  // one Stop at a time
  SlottedCount received_bytes_;
  SlottedCount sent_bytes_;
  SlottedCount refused_calls_;
  mutable absl::Mutex mutex_;
  int64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  Connections connections_ ABSL_GUARDED_BY(mutex_);
  std::list<Connection*> unauthenticated_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // Not a table of Abseil's, which is unusable after an insertion for which there is no memory.
  std::map<std::string, int32_t> open_of_host_ ABSL_GUARDED_BY(mutex_);
  MonotonicCondVar changed_;  // signals changes of connections_ and stopping_
  // Set by Listen.
  std::unique_ptr<ConnectionLoop> loop_;
  std::unique_ptr<CallPool> pool_;
  std::unique_ptr<LocalAcceptor> local_acceptor_;
};

}  // namespace cairn
