// Counts events since the start of the server.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "common/table_row.h"
#include "thrift/server_counters.h"

namespace cairn {

// One number for each row of `table`.
// Thread safety: every method may be called from several threads at once.
template <const auto& table>
class TableCounters {
 public:
  using Row = TableRow<table>;

  void Add(Row row, int64_t count = 1) {
    counts_[row.index()].fetch_add(count, std::memory_order_relaxed);
  }
  int64_t Get(Row row) const { return counts_[row.index()].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int64_t>, Row::kCount> counts_{};
};

using Counters = TableCounters<kServerCounters>;

}  // namespace cairn
