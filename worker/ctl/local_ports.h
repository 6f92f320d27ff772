// Ports of this machine, held until the processes that will listen on them start.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/descriptor.h"

namespace cairn {

// Thread safety: none.
class LocalPorts {
 public:
  // `address` is "host:port"; a port of 0 becomes a free one in the result. kInvalidArgument:
  // malformed, or another machine's host. kAlreadyExists, if `must_be_free`: a process listens on
  // the port.
  absl::StatusOr<std::string> Hold(const std::string& address, bool must_be_free);

 private:
  std::vector<Descriptor> held_;
};

}  // namespace cairn
