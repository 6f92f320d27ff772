// Memory for the copies of pushes that a client retains.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Retained pushes live for seconds, and are freed in about the order in which they were made. They
// are cut from regions in huge pages: memory that the system has to provide anew for each push
// would cost several times as much as the copy. A region of which nothing is left serves again;
// until then, the system may take its pages if it needs memory (MADV_FREE). Thread safety: every
// method may be called from several threads at once.
class RetainedMemory {
 public:
  RetainedMemory();
  ~RetainedMemory();
  RetainedMemory(const RetainedMemory&) = delete;
  RetainedMemory& operator=(const RetainedMemory&) = delete;

  // A block of unspecified content, aligned to a cache line; freed with its last owner, which may
  // outlive this object. Throws std::bad_alloc.
  std::shared_ptr<std::byte> Take(size_t bytes);

 private:
  // Regions that are not in use. Outlives this object if blocks do.
  class Idle;
  class Region;
  const std::shared_ptr<Idle> idle_;
  absl::Mutex mutex_;
  std::shared_ptr<Region> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
