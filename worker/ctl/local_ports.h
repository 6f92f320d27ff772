// Ports of this machine, held until the processes that are to listen on them start.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn {

// Thread safety: none.
class LocalPorts {
 public:
  LocalPorts() = default;
  // Lets them go.
  ~LocalPorts();
  LocalPorts(const LocalPorts&) = delete;
  LocalPorts& operator=(const LocalPorts&) = delete;

  // `address` is "host:port"; for a port of 0 the result has one that is free. kInvalidArgument:
  // malformed, or the host is another machine's. kAlreadyExists, where it `must_be_free`: somebody
  // listens there.
  absl::StatusOr<std::string> Hold(const std::string& address, bool must_be_free);

 private:
  std::vector<int> held_;
};

}  // namespace cairn
