// A timeline is one life of a job: from its creation, or from a restore, until drop_job. Its number
// is the same on every server of the job, so that a server that holds another life, or nothing of
// the job, is noticed (worker/client/EXACTLY_ONCE.md).
//
// The bits of the number, from the highest: 31 of the second at which it began (since 2020), 16
// drawn at random, 16 that count the servers that held it before the job had a variable: ps:0 and
// those after it. A server beyond them may have joined later.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace cairn {

// Under this ordinal a server keeps the job's timeline among the records of the job's workers: as
// the incarnation. The record counts as left from a restore until the first worker says hello.
inline constexpr int32_t kTimelineWorker = std::numeric_limits<int32_t>::max() - 1;

// A new one, > 0; its second comes after that of `after` (0: none), whatever the clock says.
int64_t NewTimeline(int32_t servers, int64_t after);

int32_t ServersOfTimeline(int64_t timeline);
int64_t WithServers(int64_t timeline, int32_t servers);

// When it began, in UTC: "2030-01-31T12:34:56Z".
std::string TimelineText(int64_t timeline);

// An incarnation counts the starts of a worker in its low bits. A restore gives every worker one
// that begins with the timeline's second, so that a worker that started before the restore is
// fenced by it.
int64_t FirstIncarnation(int64_t timeline);

// Manifests written before timelines had random bits hold the second alone.
int64_t TimelineOfManifest(int64_t number);

}  // namespace cairn
