#include "ps_server/base/quota.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/errors.h"

namespace cairn {

absl::StatusOr<Quota::Place> Quota::Take(absl::string_view who, For whom) {
  RETURN_IF_ERROR(budget_.Acquire(terms_.charge_bytes, absl::StrCat(terms_.server, ": ", who)));
  MemoryHold hold(budget_, terms_.charge_bytes);
  const int64_t before = used_.fetch_add(1);
  Place place(this, std::move(hold));
  if (before < terms_.limit || whom == For::kStore) return place;
  return WithReason(
      ResourceExhausted(terms_.server, " keeps ", before, " ", terms_.what, ", ", who,
                        " would be one more; ", terms_.limit,
                        " are allowed: drop finished jobs (drop_job), or raise ", terms_.flag),
      wire::ErrorReason::LIMIT);
}

}  // namespace cairn
