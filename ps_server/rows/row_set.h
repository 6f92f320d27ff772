// A set of the rows of one stripe: one bit per row.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn {

// Thread safety: none; const methods may run together.
class RowSet {
 public:
  uint32_t size() const { return size_; }
  bool Has(uint32_t row) const {
    return row / 64 < words_.size() && (words_[row / 64] & Bit(row)) != 0;
  }
  // After this call, Add(row) cannot throw.
  void Reserve(uint32_t row) {
    if (row / 64 >= words_.size()) words_.resize(row / 64 + 1);
  }
  // False: the set had the row.
  bool Add(uint32_t row) {
    Reserve(row);
    if (Has(row)) return false;
    words_[row / 64] |= Bit(row);
    ++size_;
    return true;
  }
  // False: the set did not have the row.
  bool Remove(uint32_t row) {
    if (!Has(row)) return false;
    words_[row / 64] &= ~Bit(row);
    --size_;
    return true;
  }
  // The row `last` takes the number of `row`, which ceases to exist.
  void Renumber(uint32_t last, uint32_t row) {
    Remove(row);
    if (Remove(last)) Add(row);
  }
  // From now on the set has the rows below `rows`, except those in `except`.
  void AssignAll(uint32_t rows, const RowSet& except);
  // Calls take(row) for about `max_rows` rows, found from word `word` of 64 rows on, and removes
  // them. Returns the next word; words(): there are no others.
  template <typename Take>
  size_t TakeFrom(size_t word, size_t max_rows, Take take) {
    for (size_t taken = 0; word < words_.size() && taken < max_rows; ++word) {
      for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1, ++taken) {
        take(static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(bits)));
      }
      size_ -= static_cast<uint32_t>(std::popcount(words_[word]));
      words_[word] = 0;
    }
    return word;
  }
  size_t words() const { return words_.size(); }

 private:
  static uint64_t Bit(uint32_t row) { return uint64_t{1} << (row % 64); }

  std::vector<uint64_t> words_;
  uint32_t size_ = 0;
};

inline void RowSet::AssignAll(uint32_t rows, const RowSet& except) {
  words_.assign((rows + 63) / 64, ~uint64_t{0});
  if (rows % 64 != 0) words_.back() = (uint64_t{1} << rows % 64) - 1;
  for (size_t word = 0; word < std::min(words_.size(), except.words_.size()); ++word) {
    words_[word] &= ~except.words_[word];
  }
  size_ = rows - except.size_;
}

}  // namespace cairn
