// A timeline is one life of a job: from its creation, or from a restore, until drop_job. Its number
// is the same on every server of the job, so that a server that holds another timeline, or none of
// the job's data, is detected (worker/client/EXACTLY_ONCE.md).
//
// The bits of the number, from the highest: 31 bits for the second at which the timeline began
// (since 2020), 16 random bits, 16 bits for the number of servers, from ps:0 on, that held the
// timeline before the job had a variable. Servers after these may have joined later.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {

// The ordinal under which a server stores the job's timeline in its records of workers, as the
// incarnation. From a restore until the first worker's hello, the record is marked as left.
inline constexpr int32_t kTimelineWorker = std::numeric_limits<int32_t>::max() - 1;

// A new timeline, > 0, that begins at `now`, or after the second of `after` (0: none) if that is
// later.
int64_t NewTimeline(int32_t servers, int64_t after, absl::Time now = absl::Now());

int32_t ServersOfTimeline(int64_t timeline);
int64_t WithServers(int64_t timeline, int32_t servers);

// The time at which the timeline began, in UTC: "2030-01-31T12:34:56Z".
std::string TimelineText(int64_t timeline);

// An incarnation has, in its high bits, the second at which ps:0 granted it, like a timeline, and
// the number of the worker's starts in the low 32 bits. So it is higher than every incarnation of
// the job's earlier timelines. A restore gives every worker this incarnation, without a start,
// which fences workers that started before the restore.
int64_t FirstIncarnation(int64_t timeline);
// The incarnation that follows `known` (0: none). Its second is not before that of `timeline`.
int64_t NextIncarnation(int64_t known, int64_t timeline);
int64_t StartsOf(int64_t incarnation);
// Whether `incarnation` was granted before `timeline` (0: none) began: the worker has trained the
// job before it was dropped or restored. False for incarnations of releases without timelines,
// which have no second.
bool IsOfEarlierTimeline(int64_t incarnation, int64_t timeline);

// Manifests written before timelines had random bits hold only the second.
int64_t TimelineOfManifest(int64_t number);

}  // namespace cairn
