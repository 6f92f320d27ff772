#include "ps_server/move_calls.h"

#include "absl/strings/str_cat.h"

namespace cairn {

absl::Status MoveRows(ServerCore& core, const Admitted&, const wire::MoveRequest& request,
                      wire::MoveReply&) {
  return absl::UnimplementedError(absl::StrCat(core.name, ": move of ", request.variable));
}

}  // namespace cairn
