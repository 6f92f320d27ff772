#include "common/exit_status.h"

#include "absl/strings/cord.h"

namespace cairn {
namespace {

constexpr absl::string_view kBadInput = "cairn/bad_input";

}  // namespace

absl::Status AsBadInput(absl::Status status) {
  if (!status.ok()) status.SetPayload(kBadInput, absl::Cord());
  return status;
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return 0;
  return status.GetPayload(kBadInput).has_value() ? 2 : 1;
}

}  // namespace cairn
