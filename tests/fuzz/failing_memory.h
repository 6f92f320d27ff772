// Makes chosen allocations of this program fail: its operator new and its mmap.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/target.h"

namespace cairn::fuzz {

// Counts the allocations of one thread that are made by the program itself, and makes one of them
// fail. Allocations inside RocksDB and Thrift's transports are left alone: those libraries do not
// outlive a failure there, and nothing of Cairn's could help it. Thread safety: none; of the thread
// that makes it.
class FailingAllocation {
 public:
  // The `n`th fails, n >= 1; 0: none, they are counted only.
  explicit FailingAllocation(int64_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  bool failed() const;
};

// Makes the 1st, 2nd, … allocation of `call` fail until it runs without a failure, whose outcome is
// returned. A valid call that fails otherwise than with RESOURCE_EXHAUSTED has a finding.
Outcome FailEachAllocation(absl::string_view method, absl::FunctionRef<Outcome()> call);

}  // namespace cairn::fuzz
