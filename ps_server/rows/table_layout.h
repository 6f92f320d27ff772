// What all stripes of an embedding table share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/optimizer/optimizer.h"
#include "common/variables/initializer.h"
#include "common/variables/row_layout.h"

namespace cairn {

// Immutable. Part 0 of a row is the value, part s + 1 is slot s.
struct TableLayout {
  size_t dim = 1;
  const Optimizer* optimizer = nullptr;
  InitializerConfig initializer;
  uint64_t table_hash = 0;          // HashBytes(name)
  std::vector<float> slot_initial;  // by slot
  RowStorage storage;
  RowLayout row;  // derived by HostedTable from the fields above
  // RowRules.
  uint32_t admit_after_pushes = 1;
  int64_t expire_after_seconds = 0;
  bool deletes_rows = false;

  // What a row charges to the memory budget: its numbers and at most 32 bytes of overhead.
  int64_t row_charge() const { return static_cast<int64_t>(row.bytes()) + kRowOverheadBytes; }
  static constexpr int64_t kRowOverheadBytes = 32;

  // Sets part `part` of the row of `key` to its initial value, as it reads after storage.
  void InitialPart(size_t part, int64_t key, float* to) const;
  // Sets the numbers of a new row. `expanded`: memory for row.floats() floats, not used if the row
  // is plain().
  void InitialRow(int64_t key, float* expanded, std::byte* numbers) const;
};

}  // namespace cairn
