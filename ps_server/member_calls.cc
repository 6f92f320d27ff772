#include "ps_server/member_calls.h"

namespace cairn {

absl::Status TellMembers(ServerCore&, const wire::Caller&, wire::Members&) {
  return absl::OkStatus();
}

absl::Status ChangeMembers(ServerCore&, const wire::ChangeMembersRequest&,
                           wire::ChangeMembersReply&) {
  return absl::UnimplementedError("not yet");
}

}  // namespace cairn
