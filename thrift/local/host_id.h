// Which host this is, for peers that look whether they are on it too.
#pragma once

#include <string>

namespace cairn {

// Equal in two processes exactly where one reaches an abstract Unix-domain socket of the other: of
// one boot of one kernel, and in one network namespace. Empty: the system does not say.
const std::string& LocalHostId();

// Whether the peer of the TCP connection `fd` may be on this host: cheap, and right where it says
// no.
bool PeerMayBeLocal(int fd);

}  // namespace cairn
