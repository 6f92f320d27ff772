// Opening of a local connection: the client connects to the abstract socket named in the hello
// reply and sends its ticket and the shared memory; the server accepts, or says why not.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/local_transport.h"
#include "common/deadline.h"
#include "common/descriptor.h"
#include "thrift/local/limits.h"
#include "thrift/socket_stream.h"

namespace cairn {

// The client's first message; the memfd of its SharedRings accompanies it.
struct LocalOpening {
  static constexpr std::array<char, 8> kMagic = {'c', 'a', 'i', 'r', 'n', '-', 'l', '1'};

  std::array<char, 8> magic = kMagic;
  uint32_t ring_bytes = 0;
  std::array<char, kLocalTicketBytes> ticket = {};
};

// --- server ---

struct LocalListener {
  Descriptor fd;     // non-blocking
  std::string path;  // name of an abstract socket: begins with a zero byte; random
};
// kUnavailable: the system's reason.
absl::StatusOr<LocalListener> ListenLocally();

// The process at the other end.
struct LocalPeer {
  pid_t pid = 0;
  uid_t uid = 0;
};
// For either side. kPermissionDenied: the peer belongs to another user, which `allowed` does not
// permit. `whom` ("the caller") begins the text.
absl::StatusOr<LocalPeer> CheckLocalPeer(int fd, LocalTransport allowed, const char* whom);

// Receives the first message on `fd`, with its memfd if there is one, without waiting. kNotYet:
// nothing has arrived. kEnded: the peer has closed the connection. kInvalidArgument: something else
// arrived.
enum class LocalArrival { kNotYet, kEnded, kOpening };
absl::StatusOr<LocalArrival> ReceiveOpening(int fd, LocalOpening* opening, Descriptor* memory);
// Does not wait. False: the verdict could not be sent.
bool SendVerdict(int fd, const absl::Status& verdict);

// --- client ---

struct LocalConnection {
  Descriptor fd;  // outlives the stream
  std::unique_ptr<SocketStream> stream;
};
// Takes at most kLocalConnectSeconds. `peer` is the server's name in messages. kUnavailable: no
// process listens there; kDeadlineExceeded; kInvalidArgument: not a valid path; or the server's
// refusal.
absl::StatusOr<LocalConnection> ConnectLocally(const std::string& path, const std::string& ticket,
                                               LocalTransport allowed, const std::string& peer,
                                               Deadline deadline);

}  // namespace cairn
