// Checks paths of files and folders that users give.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Refuses URLs ("s3://bucket/x"), which would otherwise name a local folder "s3:". `what` is the
// key or flag that holds `path`, for the message. kInvalidArgument.
absl::Status CheckLocalPath(absl::string_view what, absl::string_view path);

}  // namespace cairn
