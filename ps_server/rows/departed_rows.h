// The rows that leave a stripe's memory while another object watches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ps_server/rows/row_table.h"

namespace cairn {

// Rows that left the memory of a stripe and had been changed by an update after `since`.
struct DepartedRows {
  static constexpr uint32_t kNever = UINT32_MAX;
  // Limit on listed keys: this many, or as many as there are rows in memory if those are more.
  static constexpr size_t kMaxKeys = 4096;

  // Called before `row` leaves `table`.
  void Add(const RowTable& table, uint32_t row) {
    if (too_many || table.last_update(row) <= since) return;
    if (keys.size() < std::max<size_t>(kMaxKeys, table.size())) {
      keys.push_back(table.key(row));
      return;
    }
    too_many = true;
    std::vector<int64_t>().swap(keys);
  }

  uint32_t since = kNever;
  std::vector<int64_t> keys;  // a key may appear several times
  bool too_many = false;      // too many to list: any row may have left, and `keys` is empty
};

}  // namespace cairn
