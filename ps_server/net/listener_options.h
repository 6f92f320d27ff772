// The options of a listener, and what it counts.
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
  int32_t port = 0;  // 0: a free one
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  int32_t max_connections = kDefaultMaxConnections;
  // Of one IP address; of all callers of this host past TCP.
  int32_t max_connections_per_peer = kDefaultMaxConnectionsPerPeer;
  // Calls that run at a time, those that wait (for other workers, memory, a disk, the peer) not
  // counted; 0: DefaultServingThreads.
  int32_t serving_threads = 0;
  // Calls that have come and are not served yet. One more that moves rows (pull, push, step,
  // assign, scan) is refused with reason BUSY before anything of it is looked at, and told when to
  // come back.
  int32_t max_queued_calls = kDefaultMaxQueuedCalls;
  // A connection that starts a message and then stalls this long is closed; one that rests between
  // messages for idle_seconds likewise.
  double stall_seconds = kDefaultStallSeconds;
  double idle_seconds = kDefaultIdleSeconds;
  // Who may call; by default everybody on this host.
  SecurityOptions security;
  // Callers that have not proved who they are: how long one may take, and how many there may be;
  // one more ends the oldest.
  double handshake_seconds = kDefaultHandshakeSeconds;
  int32_t max_handshakes = kDefaultMaxHandshakes;
  // Whether hello offers callers on this host a way in past TCP (thrift/LOCAL.md). Where the system
  // has none, the log says so.
  LocalTransport local_transport = LocalTransport::kSameUser;
};

// kInvalidArgument: an option out of range, or plaintext where other hosts can reach it without
// security.allow_plaintext.
absl::Status CheckOptions(const ListenerOptions& options);
// Two a core, and kLeastDefaultServingThreads at least.
int32_t DefaultServingThreads();

// Since the start, but for `connections`, which are open now, and the first three of calls.
struct ListenerStatistics {
  int64_t connections = 0;
  int64_t accepted = 0;
  int64_t refused = 0;  // connections that were one too many
  // Of messages that were read or answered to their end.
  int64_t received_bytes = 0;
  int64_t sent_bytes = 0;
  int64_t queued_calls = 0;   // that have come and are not served yet
  int64_t busy_threads = 0;   // that serve a call which does not wait
  int64_t threads = 0;        // with those whose call waits, and idle ones
  int64_t refused_calls = 0;  // that were one too many
};

}  // namespace cairn
