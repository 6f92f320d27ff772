// A group whose ranks are threads of one process: they read each other's memory, so no byte is
// copied that need not be. README.md derives the cost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/collective_group.h"

namespace cairn {

class InProcessMeeting;

// All ranks of one process. Thread safety: Abort from any thread; Reset while no rank is in a call.
// After kDeadlineExceeded the group goes on: a rank that comes late to a collective that the others
// gave up gets its error at once, and its next call meets their next. After Abort every call fails
// until Reset().
class InProcessGroups {
 public:
  // One rank for each device name ("cpu:0", …); names are for errors. `name` says whose group it
  // is. kInvalidArgument: no device, or more than 256.
  static absl::StatusOr<InProcessGroups> Create(std::vector<std::string> devices,
                                                std::string name = "in process");
  InProcessGroups(InProcessGroups&&) noexcept;
  InProcessGroups& operator=(InProcessGroups&&) noexcept;
  ~InProcessGroups();

  int size() const;
  // Owned here.
  CollectiveGroup& rank(int rank);

  void Abort(const absl::Status& why);
  // Forgets an Abort, and lets the next call of every rank meet, however many each has made.
  // kFailedPrecondition: a rank is in a call.
  absl::Status Reset();

 private:
  class Rank;
  InProcessGroups() = default;

  std::shared_ptr<InProcessMeeting> meeting_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace cairn
