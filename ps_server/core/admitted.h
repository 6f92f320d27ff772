// A caller that may proceed, with the objects that its call works on.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "ps_server/jobs/registry.h"

namespace cairn {

// A caller whose identity, boot id and incarnation are valid.
struct Admitted {
  std::shared_ptr<Job> job;                      // nullptr: nobody has created it yet
  std::shared_ptr<Session> session;              // nullptr: not sequenced
  std::shared_ptr<const VariableMap> variables;  // never nullptr
  int64_t timeline = 0;  // the job's, as a caller without a session names it; 0: not named

  // Of a job that exists.
  // Whether the caller's maps are known to be of the job's current timeline: the maps of a worker,
  // since its earlier starts are fenced, and of a caller that names this timeline.
  bool has_current_maps() const {
    return session != nullptr || timeline == std::abs(job->timeline());
  }
  // The caller names another timeline: the job was dropped or restored since it was described.
  bool timeline_ended() const {
    return timeline != 0 && job->timeline() != 0 && !has_current_maps();
  }
};

}  // namespace cairn
