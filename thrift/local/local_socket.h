// How a connection of the local transport begins: the client connects to the abstract socket that
// hello named, shows its ticket and brings the memory; the server says yes, or why not.
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

// What a client sends first, and the memfd of its SharedRings with it.
struct LocalOpening {
  static constexpr std::array<char, 8> kMagic = {'c', 'a', 'i', 'r', 'n', '-', 'l', '1'};

  std::array<char, 8> magic = kMagic;
  uint32_t ring_bytes = 0;
  std::array<char, kLocalTicketBytes> ticket = {};
};

// --- server ---

struct LocalListener {
  Descriptor fd;     // not blocking
  std::string path;  // of an abstract socket: begins with a zero byte; drawn at random
};
// kUnavailable: the system says why not.
absl::StatusOr<LocalListener> ListenLocally();

// Who is at the other end.
struct LocalPeer {
  pid_t pid = 0;
  uid_t uid = 0;
};
// Either side: kPermissionDenied where it is of another user and that is not allowed. `whom`
// ("the caller") begins the text.
absl::StatusOr<LocalPeer> CheckLocalPeer(int fd, LocalTransport allowed, const char* whom);

// What comes first on `fd`, and the memfd where one came, without waiting. kNotYet: nothing has
// come; kEnded: the peer has gone. kInvalidArgument: something else came.
enum class LocalArrival { kNotYet, kEnded, kOpening };
absl::StatusOr<LocalArrival> ReceiveOpening(int fd, LocalOpening* opening, Descriptor* memory);
// Does not wait. False: the peer does not take it.
bool SendVerdict(int fd, const absl::Status& verdict);

// --- client ---

struct LocalConnection {
  Descriptor fd;  // outlives the stream
  std::unique_ptr<SocketStream> stream;
};
// In kLocalConnectSeconds at most. `peer` is how messages name the server. kUnavailable: nobody
// listens there; kDeadlineExceeded; kInvalidArgument: no such path; what the server says.
absl::StatusOr<LocalConnection> ConnectLocally(const std::string& path, const std::string& ticket,
                                               LocalTransport allowed, const std::string& peer,
                                               Deadline deadline);

}  // namespace cairn
