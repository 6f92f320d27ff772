// Rows of several tables that are updated together become what they become one by one.
#include "ps_server/rows/row_update.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/hash.h"
#include "common/optimizer/optimizer.h"
#include "ps_server/rows/chunk_pool.h"
#include "ps_server/rows/row_table.h"
#include "ps_server/rows/table_layout.h"

namespace cairn {
namespace {

constexpr size_t kUpdateDim = 3;
constexpr uint32_t kTableRows = 300;
constexpr uint64_t kDraws = 7;

struct Added {
  std::vector<uint32_t> rows;
  std::vector<uint32_t> positions;
  bool repeats = false;
};

class RowUpdateTest : public ::testing::TestWithParam<RowStorage> {
 protected:
  struct Table {
    explicit Table(const TableLayout& its_layout)
        : layout(its_layout), pool(RowTable::ChunkBytes(its_layout.row.bytes())) {
      std::vector<float> numbers(layout.row.floats());
      for (uint32_t key = 0; key < kTableRows; ++key) {
        const uint32_t row = rows.FindOrInsert(key).first;
        for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1.0f + 0.01f * (key + i);
        layout.row.Round(numbers.data(), rows.numbers(row));
      }
    }
    std::string bytes(uint32_t row) const {
      return {reinterpret_cast<const char*>(rows.numbers(row)), layout.row.bytes()};
    }

    const TableLayout& layout;
    ChunkPool pool;
    RowTable rows{layout.row.bytes(), pool};
  };

  RowUpdateTest() {
    for (TableLayout* const layout : {&home_, &arrived_}) {
      OptimizerConfig config;
      config.type = "adagrad";
      config.learning_rate.arguments["learning_rate"] = layout == &home_ ? 0.5 : 0.25;
      optimizers_.push_back(*Optimizer::Create(config));
      layout->dim = kUpdateDim;
      layout->optimizer = optimizers_.back().get();
      layout->slot_initial = {0.1f};
      layout->storage = GetParam();
      layout->row = RowLayout(kUpdateDim, 1, layout->storage);
    }
    step_ = home_.optimizer->Begin(0);
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = 0.5f - 0.001f * i;
  }

  // The second table has a layout of its own, as one whose bucket came from another server.
  std::vector<std::unique_ptr<Table>> Tables() const {
    std::vector<std::unique_ptr<Table>> tables;
    for (const TableLayout* const layout : {&home_, &arrived_, &home_}) {
      tables.push_back(std::make_unique<Table>(*layout));
    }
    return tables;
  }

  // Every other row, the last first, so that a table's rows fill more than one call of the
  // optimizer; some of them several times.
  static Added Rows(bool repeats) {
    Added added{.repeats = repeats};
    for (uint32_t row = kTableRows; row-- > 0;) {
      added.rows.push_back(row % 2 == 0 ? row : RowTable::kNone);
      if (repeats && row % 3 == 0) added.rows[row % 5 * 20 % added.rows.size()] = 2 * (row / 4);
    }
    for (uint32_t i = 0; i < kTableRows; ++i) added.positions.push_back(kTableRows - 1 - i);
    return added;
  }

  void UpdateOneByOne(const Added& added, Table& table) const {
    std::map<uint32_t, std::vector<float>> sums;
    for (size_t i = 0; i < added.rows.size(); ++i) {
      if (added.rows[i] == RowTable::kNone) continue;
      std::vector<float>& sum = sums[added.rows[i]];
      sum.resize(kUpdateDim);
      const float* gradient = gradients_.data() + added.positions[i] * kUpdateDim;
      for (size_t d = 0; d < kUpdateDim; ++d) sum[d] += gradient[d];
    }
    const RowLayout& layout = table.layout.row;
    for (const auto& [row, sum] : sums) {
      std::vector<float> numbers(layout.floats());
      layout.Expand(table.rows.numbers(row), numbers.data());
      float* const pointer = numbers.data();
      table.layout.optimizer->ApplyRows(step_, {&pointer, 1}, kUpdateDim, sum.data());
      const uint64_t draws = MixBits(kDraws ^ static_cast<uint64_t>(table.rows.key(row)));
      layout.plain() ? layout.Round(pointer, table.rows.numbers(row))
                     : layout.RoundAtRandom(pointer, draws, table.rows.numbers(row));
    }
  }

  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  TableLayout home_, arrived_;
  UpdateStep step_;
  std::vector<float> gradients_ = std::vector<float>(kTableRows * kUpdateDim);
};

TEST_P(RowUpdateTest, EqualsAnUpdateOfEachRow) {
  const Added once = Rows(/*repeats=*/false), several = Rows(/*repeats=*/true);
  const auto together = Tables(), apart = Tables(), untouched = Tables();
  TableScratch scratch;
  RowUpdate update(step_, home_, kTableRows, /*repeats=*/true, scratch);
  for (size_t t = 0; t < together.size(); ++t) {
    const Added& added = t == 2 ? several : once;
    update.Add(together[t]->layout, together[t]->rows, kDraws, added.rows, added.positions,
               added.repeats, gradients_.data());
    UpdateOneByOne(added, *apart[t]);
  }
  update.End();
  for (size_t t = 0; t < together.size(); ++t) {
    for (uint32_t row = 0; row < kTableRows; ++row) {
      EXPECT_EQ(together[t]->bytes(row), apart[t]->bytes(row)) << t << " " << row;
      if (row % 2 != 0) {
        EXPECT_EQ(together[t]->bytes(row), untouched[t]->bytes(row)) << t << " " << row;
      }
    }
    EXPECT_NE(together[t]->bytes(0), untouched[t]->bytes(0)) << t;
  }
}

// A failure between two rows would leave the first updated without its stripe's watermark.
TEST_P(RowUpdateTest, HasAllItsMemoryBeforeTheFirstRow) {
  TableScratch scratch;
  RowUpdate update(step_, home_, kTableRows, /*repeats=*/true, scratch);
  const auto capacities = [&] {
    return std::vector<size_t>{scratch.ordered.capacity(), scratch.gradients.capacity(),
                               scratch.pointers.capacity(), scratch.expanded.capacity(),
                               scratch.compact.capacity()};
  };
  const std::vector<size_t> before = capacities();
  const auto tables = Tables();
  for (const bool repeats : {false, true}) {
    const Added added = Rows(repeats);
    for (const auto& table : tables) {
      update.Add(table->layout, table->rows, kDraws, added.rows, added.positions, repeats,
                 gradients_.data());
    }
    update.End();
  }
  EXPECT_EQ(capacities(), before);
}

// A serving thread keeps this memory between pushes, without a charge.
TEST_P(RowUpdateTest, WideRowsTakeNoMoreMemoryThanOne) {
  constexpr size_t kWide = 1 << 20;
  home_.dim = kWide;
  home_.row = RowLayout(kWide, 1, home_.storage);
  TableScratch scratch;
  const RowUpdate update(step_, home_, /*rows=*/1000, /*repeats=*/false, scratch);
  EXPECT_EQ(scratch.gradients.size(), kWide);
  EXPECT_EQ(scratch.expanded.size(), home_.row.plain() ? 0 : 2 * kWide);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, RowUpdateTest,
    ::testing::Values(RowStorage{},
                      RowStorage{.values = RowFormat::kFloat16, .slots = RowFormat::kBFloat16},
                      RowStorage{.values = RowFormat::kInt8}),
    [](const auto& test) { return std::string(RowFormatName(test.param.values)); });

}  // namespace
}  // namespace cairn
