#include "examples/clicks/ground_truth.h"

#include <algorithm>
#include <cmath>

#include "common/hash.h"

namespace cairn::clicks {
namespace {

struct CategoryColumn {
  int64_t vocabulary;
  double exponent;       // of Zipf's law
  double weight_stddev;  // of the commonest tokens' weights
  double missing_share;
};

// Criteo's own mixture of tiny, middling and long-tailed columns, the tails cut shorter.
constexpr CategoryColumn kColumns[kCategories] = {
    {1'400, 1.2, 0.23, 0},     {550, 1.1, 0.39, 0},      {40'000, 1.2, 0.29, 0.03},
    {20'000, 1.2, 0.29, 0.03}, {300, 1.2, 0.39, 0},      {24, 1.0, 0.47, 0.12},
    {10'000, 1.2, 0.29, 0},    {600, 1.1, 0.31, 0},      {3, 1.0, 0.47, 0},
    {12'000, 1.2, 0.29, 0},    {5'000, 1.2, 0.23, 0},    {30'000, 1.2, 0.29, 0.03},
    {3'000, 1.2, 0.23, 0},     {27, 1.0, 0.47, 0},       {11'000, 1.2, 0.23, 0},
    {30'000, 1.2, 0.29, 0.03}, {10, 1.0, 0.55, 0},       {4'500, 1.2, 0.23, 0},
    {2'000, 1.2, 0.23, 0.44},  {4, 1.0, 0.47, 0.44},     {40'000, 1.2, 0.29, 0.03},
    {18, 1.0, 0.39, 0.75},     {15, 1.0, 0.47, 0},       {15'000, 1.2, 0.23, 0.03},
    {100, 1.1, 0.39, 0.44},    {9'000, 1.2, 0.23, 0.44},
};

struct CountColumn {
  double log_mean, log_stddev;  // of the log-normal that is rounded down
  double missing_share;
  double slope, curve;  // effect of z and of z^2 - 1, z the standardized log(1 + count)
};

constexpr CountColumn kCountColumns[kCounts] = {
    {0.8, 1.0, 0.43, 0.28, 0.00},  {2.0, 1.6, 0.00, 0.14, -0.10}, {2.0, 1.3, 0.21, -0.07, 0.00},
    {1.6, 0.9, 0.21, 0.11, 0.00},  {7.0, 1.8, 0.03, -0.31, 0.00}, {3.5, 1.6, 0.22, -0.17, 0.00},
    {1.5, 1.3, 0.04, 0.25, 0.00},  {2.0, 1.0, 0.00, 0.00, -0.07}, {4.0, 1.3, 0.04, 0.08, 0.00},
    {0.2, 0.6, 0.43, 0.11, 0.00},  {0.9, 0.9, 0.04, 0.21, 0.00},  {0.2, 0.7, 0.76, 0.06, 0.00},
    {1.6, 1.0, 0.21, -0.14, 0.00},
};

// Columns that act together: the product of a hidden number of each of the two tokens, as in a
// factorization machine.
struct Pair {
  int left, right;
  double weight_stddev;
};
constexpr Pair kPairs[] = {{5, 16, 0.15}, {8, 13, 0.15}, {16, 22, 0.15}};

constexpr double kBias = -1.75;  // about one click in four
// A token's weight shrinks with its rank r as (1 + r / kTailRank)^-kTailPower.
constexpr double kTailRank = 30, kTailPower = 0.7;

uint64_t Combine(uint64_t a, uint64_t b) { return MixBits(a ^ MixBits(b)); }

double ToUniform(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

double ToNormal(double u, double v) { return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v); }

// A standard normal number that belongs to `key`.
double NormalOf(uint64_t key) {
  return ToNormal(ToUniform(MixBits(key)), ToUniform(MixBits(~key)));
}

}  // namespace

RowRandom::RowRandom(uint64_t seed, uint64_t row) : state_(Combine(seed, row)) {}

double RowRandom::Uniform() {
  state_ += 0x9e3779b97f4a7c15ULL;
  return ToUniform(MixBits(state_));
}

double RowRandom::Normal() {
  const double u = Uniform();
  return ToNormal(u, Uniform());
}

GroundTruth::GroundTruth(uint64_t seed) : seed_(MixBits(seed)) {
  for (int c = 0; c < kCategories; ++c) {
    const CategoryColumn& column = kColumns[c];
    double total = 0;
    for (int64_t r = 0; r < column.vocabulary; ++r) {
      const auto rank = static_cast<double>(r);
      total += std::pow(rank + 1, -column.exponent);
      cumulative_[c].push_back(total);
      const double shrink = std::pow(1 + rank / kTailRank, -kTailPower);
      const uint64_t key = Combine(seed_ + static_cast<uint64_t>(c), static_cast<uint64_t>(r));
      weight_[c].push_back(static_cast<float>(column.weight_stddev * shrink * NormalOf(key)));
    }
    for (double& share : cumulative_[c]) share /= total;
  }
}

Row GroundTruth::Draw(uint64_t log_seed, uint64_t row_number) const {
  RowRandom random(log_seed, row_number);
  Row row;
  for (int i = 0; i < kCounts; ++i) {
    const CountColumn& column = kCountColumns[i];
    const bool missing = random.Uniform() < column.missing_share;
    const double count = std::exp(column.log_mean + column.log_stddev * random.Normal());
    row.counts[i] = missing ? kMissing : static_cast<int64_t>(std::min(count, 1e9));
  }
  for (int c = 0; c < kCategories; ++c) {
    const bool missing = random.Uniform() < kColumns[c].missing_share;
    const auto at =
        std::lower_bound(cumulative_[c].begin(), cumulative_[c].end() - 1, random.Uniform());
    row.ranks[c] = missing ? kMissing : at - cumulative_[c].begin();
  }
  row.probability = 1 / (1 + std::exp(-LogOdds(row)));
  row.clicked = random.Uniform() < row.probability;
  return row;
}

double GroundTruth::Hidden(int column, int64_t rank) const {
  constexpr uint64_t kTables = 1000;  // apart from those of the weights
  return NormalOf(
      Combine(seed_ + kTables + static_cast<uint64_t>(column), static_cast<uint64_t>(rank)));
}

double GroundTruth::LogOdds(const Row& row) const {
  double sum = kBias;
  for (int i = 0; i < kCounts; ++i) {
    if (row.counts[i] == kMissing) continue;
    const CountColumn& column = kCountColumns[i];
    const double z =
        (std::log1p(static_cast<double>(row.counts[i])) - column.log_mean) / column.log_stddev;
    sum += column.slope * z + column.curve * (z * z - 1);
  }
  for (int c = 0; c < kCategories; ++c) {
    if (row.ranks[c] != kMissing) sum += weight_[c][static_cast<size_t>(row.ranks[c])];
  }
  for (const Pair& pair : kPairs) {
    const int64_t left = row.ranks[pair.left], right = row.ranks[pair.right];
    if (left == kMissing || right == kMissing) continue;
    sum += pair.weight_stddev * Hidden(pair.left, left) * Hidden(pair.right, right);
  }
  return sum;
}

uint32_t GroundTruth::Token(int column, int64_t rank) {
  // Multiplication by an odd number keeps ranks apart in 32 bits; the column only shifts them.
  const auto text = static_cast<uint32_t>(rank) * 2654435761U;
  return text ^ static_cast<uint32_t>(MixBits(static_cast<uint64_t>(column)));
}

}  // namespace cairn::clicks
