// Items of the C interface as targets of pulls and sources of pushes, after checks of everything
// that a caller can get wrong about its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/client/ps_client.h"

namespace cairn::capi {

using Targets = absl::InlinedVector<PullTarget, 8>;
using Sources = absl::InlinedVector<PushSource, 8>;

// Convert items to views of the caller's memory. kInvalidArgument: a null pointer, or a dtype,
// shape, part or format that does not fit the variable; the message names the item. kNotFound: an
// unknown variable.
absl::Status ToTargets(const Client& client, const cairn_item* items, uint64_t count,
                       Targets* targets);
absl::Status ToSources(const Client& client, const cairn_item* items, uint64_t count,
                       Sources* sources);
// kInvalidArgument: the position is longer than a push may store.
absl::StatusOr<absl::string_view> ToPosition(const char* position, uint64_t size);

}  // namespace cairn::capi
