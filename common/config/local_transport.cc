#include "common/config/local_transport.h"

#include <array>

#include "common/errors.h"

namespace cairn {
namespace {

constexpr std::array<LocalTransport, 3> kAll = {LocalTransport::kOff, LocalTransport::kSameUser,
                                                LocalTransport::kAnyUser};

}  // namespace

absl::string_view LocalTransportName(LocalTransport transport) {
  switch (transport) {
    case LocalTransport::kOff: return "off";
    case LocalTransport::kSameUser: return "auto";
    case LocalTransport::kAnyUser: return "any_user";
  }
  return "off";
}

absl::StatusOr<LocalTransport> LocalTransportFromName(absl::string_view name) {
  for (const LocalTransport transport : kAll) {
    if (LocalTransportName(transport) == name) return transport;
  }
  return InvalidArgument("--local_transport is \"", name, "\"; it is auto, any_user or off");
}

}  // namespace cairn
