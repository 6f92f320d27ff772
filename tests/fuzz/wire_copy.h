// A service that serializes and parses its requests and replies.
#pragma once

#include <memory>

#include "thrift/ParameterServer.h"

namespace cairn::fuzz {

// `service` must outlive the result.
std::unique_ptr<wire::ParameterServerIf> CopyOnTheWire(wire::ParameterServerIf& service);

}  // namespace cairn::fuzz
