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

// More tables than one launch takes.
TEST(SumOrder, GivesTheSumsOfTheCpu) {
  constexpr size_t kTables = 40, kCount = 700, kWidth = 3, kStride = kTables * kWidth + 1;
  const Skewed skewed(kTables, kCount);
  std::vector<float> d_out(kCount * kStride);
  for (size_t i = 0; i < d_out.size(); ++i) d_out[i] = static_cast<float>(i % 91) / 8 - 5;
  SumOrderBuilder builder;
  builder.Build(skewed.positions, kCount, skewed.distinct);

  LoopQueue queue;
  // The queue's memory is the host's.
  std::vector<std::vector<float>> want, got;
  std::vector<TableSums> want_tables, got_tables;
  for (const size_t rows : skewed.distinct) {
    want.emplace_back(rows * kWidth);
    got.emplace_back(rows * kWidth, NAN);
  }
  for (size_t t = 0; t < kTables; ++t) {
    want_tables.push_back({want[t].data(), skewed.distinct[t]});
    got_tables.push_back({got[t].data(), skewed.distinct[t]});
  }
  const SumOrder order = builder.At(builder.numbers().data());
  std::vector<float> parts(order.part_count * kWidth, NAN);
  CpuOps().SumRowsOfTables(d_out.data(), kStride, kWidth, kWidth, skewed.positions.data(), kCount,
                           kCount, want_tables, {}, nullptr);
  queue.ops().SumRowsOfTables(d_out.data(), kStride, kWidth, kWidth, skewed.positions.data(),
                              kCount, kCount, got_tables, order, parts.data());
  ASSERT_OK(queue.Finish());
  for (size_t t = 0; t < kTables; ++t) {
    EXPECT_THAT(got[t], ::testing::Pointwise(::testing::FloatNear(1e-3F), want[t])) << t;
  }
}

}  // namespace
}  // namespace cairn::test
