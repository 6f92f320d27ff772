#include "ps_server/net/listener_options.h"

#include <algorithm>
#include <thread>

#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

template <typename Number>
absl::Status Within(absl::string_view flag, Number found, Number least, Number most) {
  if (found >= least && found <= most) return absl::OkStatus();  // false for NaN
  return InvalidArgument("--", flag, " is ", found, "; it is ", least, " … ", most);
}

}  // namespace

absl::Status CheckOptions(const ListenerOptions& options) {
  RETURN_IF_ERROR(Within("port", options.port, 0, 65535));
  RETURN_IF_ERROR(Within("max_message_bytes", options.max_message_bytes, kMinMessageBytesLimit,
                         kMaxMessageBytesLimit));
  RETURN_IF_ERROR(Within("max_connections", options.max_connections, 1, kMaxConnectionsLimit));
  RETURN_IF_ERROR(Within("max_connections_per_peer", options.max_connections_per_peer, 1,
                         kMaxConnectionsLimit));
  RETURN_IF_ERROR(
      Within("stall_seconds", options.stall_seconds, kMinStallSeconds, kMaxStallSeconds));
  RETURN_IF_ERROR(Within("idle_seconds", options.idle_seconds, kMinIdleSeconds, kMaxIdleSeconds));
  RETURN_IF_ERROR(Within("handshake_seconds", options.handshake_seconds, kMinHandshakeSeconds,
                         kMaxHandshakeSeconds));
  RETURN_IF_ERROR(Within("max_handshakes", options.max_handshakes, 1, kMaxHandshakesLimit));
  RETURN_IF_ERROR(Within("serving_threads", options.serving_threads, 0, kMaxServingThreads));
  RETURN_IF_ERROR(Within("max_queued_calls", options.max_queued_calls, 1, kMaxConnectionsLimit));
  return options.security.CheckMayListen(options.host);
}

int32_t DefaultServingThreads() {
  const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  return std::clamp(2 * cores, kMinDefaultServingThreads, kMaxServingThreads);
}

}  // namespace cairn
