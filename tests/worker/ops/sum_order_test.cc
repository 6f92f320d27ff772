// Sums in a fixed order equal the CPU's, and no thread adds many terms, however often a row occurs.
#include "worker/ops/sum_order.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/loop_queue.h"
#include "tests/support/status_matchers.h"
#include "worker/ops/ops.h"

namespace cairn::test {
namespace {

// Tables with a few frequent rows and many rare ones. Rows are numbered by their first term.
struct Skewed {
  std::vector<int32_t> positions;  // [tables, count]
  std::vector<size_t> distinct;

  Skewed(size_t tables, size_t count) {
    std::mt19937 random(3);
    for (size_t t = 0; t < tables; ++t) {
      std::vector<int32_t> number_of(1000, -1);
      int32_t rows = 0;
      for (size_t r = 0; r < count; ++r) {
        // In table t one row has t in ten of the terms.
        const size_t key = random() % 10 < t % 10 ? 0 : random() % number_of.size();
        if (number_of[key] < 0) number_of[key] = rows++;
        positions.push_back(number_of[key]);
      }
      distinct.push_back(static_cast<size_t>(rows));
    }
  }
};

TEST(SumOrder, KeepsTheTermsOfARowInOrderAndCutsThemIntoShortChunks) {
  constexpr size_t kTables = 10, kCount = 6000;
  const Skewed skewed(kTables, kCount);
  SumOrderBuilder builder;
  builder.Build(skewed.positions, kCount, skewed.distinct);
  EXPECT_LE(builder.numbers().size(), SumOrderBuilder::MostNumbers(kTables * kCount));
  const SumOrder order = builder.At(builder.numbers().data());
  std::vector<int32_t> seen(order.order, order.order + kTables * kCount);
  std::sort(seen.begin(), seen.end());
  for (size_t n = 0; n < seen.size(); ++n) ASSERT_EQ(seen[n], static_cast<int32_t>(n));

  int32_t longest = 0;
  for (size_t t = 0; t < kTables; ++t) {
    std::vector<int> chunks_of(skewed.distinct[t]);
    for (int32_t chunk = order.table_chunks[t]; chunk < order.table_chunks[t + 1]; ++chunk) {
      const int32_t begin = order.chunks[chunk], end = order.chunks[chunk + 1];
      longest = std::max(longest, end - begin);
      ASSERT_LT(begin, end);
      const int32_t row = skewed.positions[static_cast<size_t>(order.order[begin])];
      for (int32_t n = begin; n < end; ++n) {
        ASSERT_EQ(static_cast<size_t>(order.order[n]) / kCount, t);
        ASSERT_EQ(skewed.positions[static_cast<size_t>(order.order[n])], row);
        if (n > begin) {
          ASSERT_LT(order.order[n - 1], order.order[n]);
        }
      }
      ++chunks_of[static_cast<size_t>(row)];
    }
    EXPECT_EQ(*std::min_element(chunks_of.begin(), chunks_of.end()), 1);
    for (int32_t joined = order.table_joined[t]; joined < order.table_joined[t + 1]; ++joined) {
      const int32_t parts = order.joined[joined + 1] - order.joined[joined];
      EXPECT_EQ(parts, chunks_of[static_cast<size_t>(
                           skewed.positions[static_cast<size_t>(order.joined_terms[joined])])]);
      longest = std::max(longest, parts);
    }
  }
  EXPECT_GT(order.part_count, 0U);
  EXPECT_LE(longest, 1 + static_cast<int32_t>(std::sqrt(kCount)));
}

// The sums of the CPU and of a GPU, with and without an order, for `tables` tables of `columns` key
// columns each.
void ExpectTheSumsOfTheDefinition(size_t tables, size_t columns) {
  constexpr size_t kCount = 700, kWidth = 3;
  const size_t stride = tables * columns * kWidth + 1;
  const Skewed skewed(tables, columns * kCount);
  std::vector<float> d_out(kCount * stride);
  for (size_t i = 0; i < d_out.size(); ++i) d_out[i] = static_cast<float>(i % 91) / 8 - 5;
  std::vector<std::vector<float>> want;
  for (size_t t = 0; t < tables; ++t) {
    want.emplace_back(skewed.distinct[t] * kWidth);
    for (size_t term = 0; term < columns * kCount; ++term) {
      const auto row = static_cast<size_t>(skewed.positions[t * columns * kCount + term]);
      const size_t column = t * columns + term / kCount;
      for (size_t i = 0; i < kWidth; ++i) {
        want[t][row * kWidth + i] += d_out[term % kCount * stride + column * kWidth + i];
      }
    }
  }
  SumOrderBuilder builder;
  builder.Build(skewed.positions, columns * kCount, skewed.distinct);
  const SumOrder order = builder.At(builder.numbers().data());
  std::vector<float> parts(order.part_count * kWidth, NAN);
  LoopQueue queue;  // its memory is the host's
  const auto expect_sums = [&](Ops& ops, const SumOrder& in_order, const char* by) {
    // One piece of memory, as in a step: a GPU may zero gaps between tables.
    std::vector<float> got(tables * columns * kCount * kWidth, NAN);
    std::vector<TableSums> sums;
    float* begin = got.data();
    for (const size_t rows : skewed.distinct) {
      sums.push_back({begin, rows});
      begin += rows * kWidth;
    }
    ops.SumRowsOfTables(d_out.data(), stride, kWidth, kWidth, skewed.positions.data(), kCount,
                        kCount, sums, columns, in_order, parts.data());
    ASSERT_OK(queue.Finish());
    for (size_t t = 0; t < tables; ++t) {
      const auto found = absl::MakeConstSpan(sums[t].sums, want[t].size());
      EXPECT_THAT(found, ::testing::Pointwise(::testing::FloatNear(5e-3F), want[t]))
          << by << ", table " << t << " of " << tables;
    }
  };
  expect_sums(CpuOps(), {}, "CPU");
  expect_sums(queue.ops(), order, "GPU in order");
  expect_sums(queue.ops(), {}, "GPU");
}

// More columns than one launch takes.
TEST(SumOrder, GivesTheSumsOfTheDefinition) {
  ExpectTheSumsOfTheDefinition(40, 1);
  ExpectTheSumsOfTheDefinition(8, 5);
  ExpectTheSumsOfTheDefinition(1, 40);
}

}  // namespace
}  // namespace cairn::test
