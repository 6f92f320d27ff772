#include "worker/collective/collective_group.h"

#include "absl/strings/str_join.h"
#include "common/errors.h"

namespace cairn {

absl::Status CollectiveGroup::AllGather(ConstBuffer in, MutableBuffer out, Deadline deadline) {
  const auto place = [&](absl::Span<const int64_t> counts) -> absl::StatusOr<MutableBuffer> {
    for (const int64_t count : counts) {
      if (count == counts[0]) continue;
      return InvalidArgument("all_gather: ranks bring different element counts, in rank order: ",
                             absl::StrJoin(counts, ", "), "; bring equal ones, or use AllGatherV");
    }
    return out;
  };
  return AllGatherV(in, place, deadline);
}

absl::Status CollectiveGroup::FindFault(bool /*silence_is_fault*/, Deadline /*deadline*/) {
  return usable();
}

}  // namespace cairn
