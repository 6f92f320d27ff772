// The options and statistics of a listener.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/config/local_transport.h"
#include "common/config/security_options.h"
#include "thrift/limits.h"

namespace cairn {

struct ListenerOptions {
  std::string host = "127.0.0.1";
  int32_t port = 0;  // 0: any free port
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  int32_t max_connections = kDefaultMaxConnections;
  // Limit for one IP address; all callers that use shared memory count as one address.
  int32_t max_connections_per_peer = kDefaultMaxConnectionsPerPeer;
  // Calls that run at a time, without blocked ones (waiting for other workers, memory, a disk or
  // the peer); 0: DefaultServingThreads.
  int32_t serving_threads = 0;
  // Limit of calls waiting for a thread. A further call that moves rows (pull, push, step, assign,
  // scan) is refused unread, with reason BUSY and the time to retry after.
  int32_t max_queued_calls = kDefaultMaxQueuedCalls;
  // A connection is closed when it stalls within a message for stall_seconds, or is idle between
  // messages for idle_seconds.
  double stall_seconds = kDefaultStallSeconds;
  double idle_seconds = kDefaultIdleSeconds;
  // Who may call; default: every process on this host.
  SecurityOptions security;
  // Unauthenticated connections: the time limit of each, and their largest number; a further one
  // closes the oldest.
  double handshake_seconds = kDefaultHandshakeSeconds;
  int32_t max_handshakes = kDefaultMaxHandshakes;
  // Whether hello offers shared memory to callers on this host (thrift/LOCAL.md). The log says if
  // the system does not support it.
  LocalTransport local_transport = LocalTransport::kSameUser;
};

// kInvalidArgument: an option out of range, or plaintext where other hosts can reach it without
// security.allow_plaintext.
absl::Status CheckOptions(const ListenerOptions& options);
// Two per core, and at least kMinDefaultServingThreads.
int32_t DefaultServingThreads();

// Totals since the start, except `connections`, `queued_calls`, `busy_threads` and `threads`, which
// are current values.
struct ListenerStatistics {
  int64_t connections = 0;
  int64_t accepted = 0;
  int64_t refused = 0;  // connections above a limit, or for which no memory was left
  // Bytes of completely read messages and completely sent replies.
  int64_t received_bytes = 0;
  int64_t sent_bytes = 0;
  int64_t queued_calls = 0;   // calls waiting for a thread
  int64_t busy_threads = 0;   // threads running a call that is not blocked
  int64_t threads = 0;        // busy, blocked and idle threads
  int64_t refused_calls = 0;  // refused because the queue was full
};

}  // namespace cairn
