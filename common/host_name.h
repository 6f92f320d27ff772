#pragma once

#include <string>

namespace cairn {

// This machine's name, or "localhost" where it has none.
std::string HostName();

}  // namespace cairn
