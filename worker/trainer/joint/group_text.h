// Exchanges texts and files between the ranks of a group.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/collective/collective_group.h"

namespace cairn {

// Every rank's text, in rank order. `timeout` applies to each of the two collectives. Errors as
// CollectiveGroup, here and below.
absl::StatusOr<std::vector<std::string>> GatherTexts(CollectiveGroup& group, absl::string_view text,
                                                     absl::Duration timeout);

// Copies every file in `folder` of rank `root`, subdirectories included, to all ranks. The others
// write them to their `folder`, which is empty or does not exist; a rank whose `folder` is "" keeps
// none. `timeout` applies to each of the collectives, one for every 4 MiB. After an error of one
// rank's disk, Abort notifies all ranks.
absl::Status BroadcastFolder(CollectiveGroup& group, int root, const std::string& folder,
                             absl::Duration timeout);

}  // namespace cairn
