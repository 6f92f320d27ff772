// Addresses that no other test on this machine uses.
//
// Every test process claims a host of 127.0.0.0/8 (all of which Linux routes to itself), and takes
// its ports on that host upward from kFirstPort, below the range from which Linux serves port 0 and
// outgoing connections. Therefore the port of a killed server stays free until the test starts the
// server again. A claim is a bound socket of the abstract Unix namespace: it is as wide as the
// network namespace, and ends with the process. addresses.py claims hosts by the same names.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"

namespace cairn {

constexpr int32_t kFirstPort = 20000;
// Exclusive end of the range.
constexpr int32_t kEndOfPorts = 32000;

// The host of this process, as in "127.31.4.9". Aborts if no host can be claimed.
// Thread safety: the functions of this header may be called from several threads at once.
const std::string& OwnHost();
// A port of OwnHost() that no earlier call returned. Aborts after kEndOfPorts - kFirstPort calls.
int32_t OwnPort();
// OwnHost() with a new OwnPort().
std::string OwnAddress();
// An address without a listener: its port is one that OwnPort() never returns.
std::string NobodysAddress();

// The port of "127.31.4.9:20001".
int32_t PortOf(const std::string& address);

// Claims the first drawn host that no other process has. `draw` returns random numbers.
std::string ClaimHost(absl::FunctionRef<uint32_t()> draw);

// ListenerOptions or HttpOptions with OwnHost() and, unless the options have a port, an OwnPort().
template <class Options>
Options OnOwnAddress(Options options = {}) {
  if constexpr (requires { options.host; }) {
    options.host = OwnHost();
  } else {
    options.address = OwnHost();
  }
  if (options.port == 0) options.port = OwnPort();
  return options;
}

}  // namespace cairn
