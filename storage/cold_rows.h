// Requests and results for rows of a table that are only on disk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace cairn {

struct StripeId {
  uint32_t variable = 0;  // VariableRecord::id
  uint32_t shard = 0;
  uint32_t stripe = 0;  // embeddings: the bucket
  bool operator==(const StripeId&) const = default;
  template <typename H>
  friend H AbslHashValue(H hash, const StripeId& id) {
    return H::combine(std::move(hash), id.variable, id.shard, id.stripe);
  }
};

struct ColdKey {
  StripeId id;
  int64_t key = 0;

  bool operator==(const ColdKey&) const = default;
  // The order of the records on disk.
  friend bool operator<(const ColdKey& a, const ColdKey& b) {
    return std::tie(a.id.variable, a.id.shard, a.id.stripe, a.key) <
           std::tie(b.id.variable, b.id.shard, b.id.stripe, b.key);
  }
};

// For each requested key, its row of `row_bytes` bytes, or none. Thread safety: none.
class ColdRows {
 public:
  void Reset(size_t count, size_t row_bytes) {
    row_bytes_ = row_bytes;
    there_.assign(count, 0);
    bytes_.resize(count * row_bytes);
  }
  // `row` has row_bytes. Several threads may set different rows at once.
  void Set(size_t i, absl::string_view row) {
    there_[i] = 1;
    std::memcpy(bytes_.data() + i * row_bytes_, row.data(), row_bytes_);
  }

  size_t found() const { return static_cast<size_t>(std::ranges::count(there_, char{1})); }
  // Null if there is no row.
  const char* row(size_t i) const {
    return there_[i] != 0 ? bytes_.data() + i * row_bytes_ : nullptr;
  }

 private:
  size_t row_bytes_ = 0;
  std::vector<char> there_;
  std::vector<char> bytes_;
};

}  // namespace cairn
