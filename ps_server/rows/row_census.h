// Statistics of a table's rows in memory: how old they are and how much they are used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace cairn {

class HostedTable;

// Estimates from a sample; exact if no stripe has more than 64 rows. Each number in kAges and kUses
// is the lower bound of a range, which ends before the next number.
struct RowCensus {
  // Updates of a row's stripe since the row's last.
  static constexpr std::array<int64_t, 10> kAges = {0, 1, 4, 16, 64, 256, 1024, 4096, 16384, 65536};
  // EmbeddingStripe::rounds of the row.
  static constexpr std::array<int64_t, 4> kUses = {0, 1, 2, 4};

  std::array<int64_t, kAges.size()> by_age{};
  std::array<int64_t, kUses.size()> by_use{};

  RowCensus& operator+=(const RowCensus& other);
};

// Thread safety: `Of` may be called from several threads at once.
class CensusTaker {
 public:
  // Returns a census that is at most one second old. A new one reads about 16,384 rows, at most
  // 1024 per lock.
  RowCensus Of(const HostedTable& table);

 private:
  absl::Mutex mutex_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration when_ ABSL_GUARDED_BY(mutex_);  // on the monotonic clock
  uint32_t turn_ ABSL_GUARDED_BY(mutex_) = 0;    // selects another sample each time
  RowCensus last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
