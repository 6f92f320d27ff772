// A caller that may proceed, with the objects that its call works on.
#pragma once

#include <memory>

#include "ps_server/jobs/registry.h"

namespace cairn {

// A caller whose identity, boot id and incarnation are valid.
struct Admitted {
  std::shared_ptr<Job> job;                      // nullptr: nobody has created it yet
  std::shared_ptr<Session> session;              // nullptr: not sequenced
  std::shared_ptr<const VariableMap> variables;  // never nullptr
};

}  // namespace cairn
