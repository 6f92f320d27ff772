// Texts and files between the ranks of a group.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/collective/collective_group.h"

namespace cairn {

// Every rank's text, in rank order. `timeout` is of each of the two collectives. Errors as
// CollectiveGroup, here and below.
absl::StatusOr<std::vector<std::string>> GatherTexts(CollectiveGroup& group, absl::string_view text,
                                                     absl::Duration timeout);

// Every file in `folder` of rank `root`, and in the folders in it, to all ranks: the others write
// it to their `folder`, which is empty or not there; a rank whose `folder` is "" keeps none.
// `timeout` is of each of the collectives, one every 4 MiB. An error of one rank's disk is told to
// all by Abort.
absl::Status BroadcastFolder(CollectiveGroup& group, int root, const std::string& folder,
                             absl::Duration timeout);

}  // namespace cairn
