#pragma once

#include <string>

namespace cairn {

// This machine's name, or "localhost" if it has none.
std::string HostName();

}  // namespace cairn
