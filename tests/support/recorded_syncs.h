// Replaces fsync of the test program, so that a test sees what is durable at which moment.
#pragma once

#include <string>
#include <vector>

namespace cairn::test {

// While one exists, records what the program syncs. One at a time. Thread safety: all methods.
class RecordedSyncs {
 public:
  RecordedSyncs();
  ~RecordedSyncs();
  // Paths that were synced since the last call, in order.
  std::vector<std::string> Take();
};

}  // namespace cairn::test
