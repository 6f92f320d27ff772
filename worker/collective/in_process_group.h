// A group whose ranks are threads of one process. Ranks read each other's memory, which avoids all
// unnecessary copies. README.md derives the cost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/collective_group.h"

namespace cairn {

class InProcessRendezvous;

// All ranks of one process. Thread safety: Abort from any thread; Reset while no rank is in a call.
// After kDeadlineExceeded the group remains usable: a rank that arrives late at a collective that
// the others gave up gets the error at once, and its next call matches their next. After Abort
// every call fails until Reset().
class InProcessGroups {
 public:
  // One rank for each device name ("cpu:0", …); the names appear in errors, as does the group's
  // `name`. kInvalidArgument: no device, or more than 256.
  static absl::StatusOr<InProcessGroups> Create(std::vector<std::string> devices,
                                                std::string name = "in process");
  InProcessGroups(InProcessGroups&&) noexcept;
  InProcessGroups& operator=(InProcessGroups&&) noexcept;
  ~InProcessGroups();

  int size() const;
  // Owned by this object.
  CollectiveGroup& rank(int rank);

  void Abort(const absl::Status& why);
  // Clears an Abort, and aligns the ranks' next calls, however many calls each has made.
  // kFailedPrecondition: a rank is in a call.
  absl::Status Reset();

 private:
  class Rank;
  InProcessGroups() = default;

  std::shared_ptr<InProcessRendezvous> rendezvous_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace cairn
