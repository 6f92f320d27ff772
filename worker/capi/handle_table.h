// Handles of the C interface: numbers that are never reused, so that a closed or foreign handle is
// an error instead of a crash.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::capi {

enum class HandleKind { kClient, kScan, kServers, kReader, kRecords };

// Stores `object` and returns its handle. A forked child has none of the threads and connections
// behind its parent's handles: it refuses them, never destroys them, and may make its own. Thread
// safety: every function may be called from several threads at once.
void* InsertHandle(HandleKind kind, std::shared_ptr<void> object);
// kInvalidArgument: null. kFailedPrecondition: closed, of another kind, or from before a fork.
absl::StatusOr<std::shared_ptr<void>> FindHandle(HandleKind kind, const void* handle);
// Like FindHandle. Later calls do not find the handle.
absl::StatusOr<std::shared_ptr<void>> RemoveHandle(HandleKind kind, const void* handle);

}  // namespace cairn::capi
