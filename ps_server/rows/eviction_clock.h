// Which rows of a stripe may be evicted (COLD_ROWS.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ps_server/rows/row_table.h"

namespace cairn {

// A hand that visits the rows in turn. A row that was used since the last visit is passed over for
// kRoundsOfUse more visits, up to kMaxRounds in total.
// Thread safety: none; const methods may run together.
class EvictionClock {
 public:
  static constexpr uint32_t kRoundsOfUse = 2;
  static constexpr uint32_t kMaxRounds = 7;

  // The next row to visit in a table of `rows` rows, which is not empty.
  uint32_t Next(uint32_t rows) {
    if (hand_ >= rows) hand_ = 0;
    return hand_++;
  }
  // How many more visits pass over a row that is not used again.
  uint32_t rounds(const RowTable& table, uint32_t row) const {
    const uint32_t before = row < rounds_.size() ? rounds_[row] : 0;
    return table.touched(row) ? std::min(before + kRoundsOfUse, kMaxRounds) : before;
  }
  // Whether this visit passes over the row. Updates the row's marks of use.
  bool PassesOver(RowTable& table, uint32_t row) {
    if (row >= rounds_.size()) rounds_.resize(table.size());
    const bool used = table.touched(row);
    const uint32_t left = rounds(table, row);
    if (used) table.Untouch(row);
    if (left == 0) return false;
    rounds_[row] = static_cast<uint8_t>(used ? left : left - 1);
    return true;
  }
  // As RowSet::Renumber.
  void Renumber(uint32_t last, uint32_t row) {
    if (last < rounds_.size()) {
      rounds_[row] = rounds_[last];
      rounds_.pop_back();
    } else if (row < rounds_.size()) {
      rounds_[row] = 0;
    }
  }

 private:
  uint32_t hand_ = 0;
  std::vector<uint8_t> rounds_;  // by row; rows beyond its end have none
};

}  // namespace cairn
