#include "common/host_name.h"

#include <unistd.h>

#include <climits>

namespace cairn {

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, HOST_NAME_MAX) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace cairn
