// Click logs with a known truth: where each row's values come from, and how likely a click is.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cairn::clicks {

constexpr int kCounts = 13;      // I1 … I13
constexpr int kCategories = 26;  // C1 … C26
constexpr int64_t kMissing = -1;

// One impression. A value that the log lacks is kMissing.
struct Row {
  std::array<int64_t, kCounts> counts;
  std::array<int64_t, kCategories> ranks;  // 0: the column's commonest token
  double probability = 0;                  // of a click, exactly
  bool clicked = false;
};

// Uniform numbers that depend only on (seed, row), the same on every machine.
class RowRandom {
 public:
  RowRandom(uint64_t seed, uint64_t row);
  double Uniform();  // in (0, 1)
  double Normal();

 private:
  uint64_t state_;
};

// The world that rows are drawn from:
//   log odds = bias + effects of counts + a weight of every token + three pairs of columns whose
//   tokens act together.
// Tokens are drawn from Zipf distributions over vocabularies of 3 to 40,000; common tokens weigh
// more. Two worlds with the same seed are the same.
// Thread safety: immutable.
class GroundTruth {
 public:
  explicit GroundTruth(uint64_t seed);

  // Row number `row` of the log `log_seed`.
  Row Draw(uint64_t log_seed, uint64_t row) const;
  // The text of a token: 8 hexadecimal digits, distinct within a column.
  static uint32_t Token(int column, int64_t rank);

 private:
  double LogOdds(const Row& row) const;
  // A token's part in the pairs of columns.
  double Hidden(int column, int64_t rank) const;

  uint64_t seed_;
  std::array<std::vector<double>, kCategories> cumulative_;  // share of ranks 0 … i
  std::array<std::vector<float>, kCategories> weight_;       // of each rank
};

}  // namespace cairn::clicks
