// Names the rows of a constant table, so that a name which the table lacks does not compile.
#pragma once

#include <cstddef>
#include <iterator>

#include "absl/strings/string_view.h"

namespace cairn {

// A row of `table`, a constexpr array of structs that have a `name`.
template <const auto& table>
class TableRow {
 public:
  static constexpr size_t kCount = std::size(table);

  // NOLINTNEXTLINE(google-explicit-constructor): a literal stands for its row.
  consteval TableRow(const char* name) : index_(IndexOf(name)) {}
  // `index` < kCount.
  static constexpr TableRow At(size_t index) { return TableRow(index); }

  constexpr size_t index() const { return index_; }
  constexpr const auto* operator->() const { return &table[index_]; }
  friend constexpr bool operator==(TableRow, TableRow) = default;

 private:
  constexpr explicit TableRow(size_t index) : index_(index) {}
  static consteval size_t IndexOf(absl::string_view name) {
    size_t i = 0;
    while (table[i].name != name) ++i;
    return i;
  }

  size_t index_;
};

}  // namespace cairn
