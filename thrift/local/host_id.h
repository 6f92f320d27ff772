// Identifies this host, for peers that check whether they are on the same one.
#pragma once

#include <string>

namespace cairn {

// Equal in two processes exactly if each can reach an abstract Unix-domain socket of the other: the
// same boot of the same kernel, and the same network namespace. Empty: the system does not provide
// it.
const std::string& LocalHostId();

// Whether the peer of the TCP connection `fd` may be on this host. Cheap; false is certain.
bool PeerMayBeLocal(int fd);

}  // namespace cairn
