// Makes chosen allocations of this program fail, through its operator new and its mmap.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/target.h"

namespace cairn::fuzz {

// Counts the allocations of one thread that the program itself makes, and makes one of them fail.
// Allocations inside RocksDB and Thrift's transports never fail: those libraries do not survive a
// failed allocation, and Cairn's code could not prevent that. Thread safety: none; affects the
// thread that creates it.
class FailingAllocation {
 public:
  // The `n`th allocation fails, n >= 1; 0: none fails, allocations are only counted.
  explicit FailingAllocation(int64_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  bool failed() const;
};

// Makes the 1st, 2nd, … allocation of `call` fail until a run has no failure, and returns that
// run's outcome. It is a finding if a valid call fails with an error other than RESOURCE_EXHAUSTED.
Outcome FailEachAllocation(absl::string_view method, absl::FunctionRef<Outcome()> call);

}  // namespace cairn::fuzz
