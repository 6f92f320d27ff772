// A service whose requests and replies are written to bytes and read again on the way.
#pragma once

#include <memory>

#include "thrift/ParameterServer.h"

namespace cairn::fuzz {

// `service` outlives what is returned.
std::unique_ptr<wire::ParameterServerIf> CopyOnTheWire(wire::ParameterServerIf& service);

}  // namespace cairn::fuzz
