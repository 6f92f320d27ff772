// Rows of several tables that are updated together become what they become table by table.
#include "ps_server/rows/row_update.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "common/optimizer/optimizer.h"
#include "ps_server/rows/chunk_pool.h"
#include "ps_server/rows/row_table.h"
#include "ps_server/rows/table_layout.h"

namespace cairn {
namespace {

constexpr size_t kUpdateDim = 3;
constexpr uint32_t kTableRows = 150;

// Three tables: the second has a layout of its own, as one whose bucket came from another server.
class GatheredUpdateTest : public ::testing::Test {
 protected:
  struct Table {
    explicit Table(const TableLayout& its_layout)
        : layout(its_layout), pool(RowTable::ChunkBytes(its_layout.row.bytes())) {
      for (uint32_t key = 0; key < kTableRows; ++key) {
        const uint32_t row = rows.FindOrInsert(key).first;
        for (size_t i = 0; i < 2 * kUpdateDim; ++i) rows.floats(row)[i] = 1.0f + 0.01f * (key + i);
      }
    }
    const TableLayout& layout;
    ChunkPool pool;
    RowTable rows{layout.row.bytes(), pool};
  };

  GatheredUpdateTest() {
    OptimizerConfig config;
    config.type = "adagrad";
    optimizer_ = *Optimizer::Create(config);
    for (TableLayout* const layout : {&home_, &arrived_}) {
      layout->dim = kUpdateDim;
      layout->optimizer = optimizer_.get();
      layout->slot_initial = {0.1f};
      layout->row = RowLayout(kUpdateDim, 1, layout->storage);
    }
    step_ = optimizer_->Begin(0);
  }

  std::vector<std::unique_ptr<Table>> Tables() const {
    std::vector<std::unique_ptr<Table>> tables;
    for (const TableLayout* const layout : {&home_, &arrived_, &home_}) {
      tables.push_back(std::make_unique<Table>(*layout));
    }
    return tables;
  }

  std::unique_ptr<Optimizer> optimizer_;
  TableLayout home_, arrived_;
  UpdateStep step_;
};

TEST_F(GatheredUpdateTest, EqualsAnUpdateOfEachTable) {
  // Every other row is updated, the last first; each table's rows fill more than one call.
  std::vector<uint32_t> rows, positions(kTableRows);
  for (uint32_t row = kTableRows; row-- > 0;) rows.push_back(row % 2 == 0 ? row : RowTable::kNone);
  std::iota(positions.rbegin(), positions.rend(), 0);
  std::vector<uint32_t> present, their_positions;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == RowTable::kNone) continue;
    present.push_back(rows[i]);
    their_positions.push_back(positions[i]);
  }
  std::vector<float> gradients(kTableRows * kUpdateDim);
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = 0.5f - 0.003f * i;

  const auto together = Tables(), apart = Tables();
  TableScratch scratch;
  GatheredUpdate update(step_, kUpdateDim, scratch);
  for (const auto& table : together) {
    update.Add(table->layout, table->rows, rows, positions, gradients.data());
  }
  update.End();
  for (const auto& table : apart) {
    TableScratch own;
    RowUpdate(table->layout, table->rows, step_, 0, own)
        .Apply(present, their_positions, /*repeats=*/false, gradients.data());
  }
  const auto untouched = Tables();
  for (size_t t = 0; t < together.size(); ++t) {
    for (uint32_t row = 0; row < kTableRows; ++row) {
      for (size_t i = 0; i < 2 * kUpdateDim; ++i) {
        const float value = together[t]->rows.floats(row)[i];
        EXPECT_EQ(value, apart[t]->rows.floats(row)[i]) << t << " " << row << " " << i;
        EXPECT_EQ(value == untouched[t]->rows.floats(row)[i], row % 2 != 0) << t << " " << row;
      }
    }
  }
}

}  // namespace
}  // namespace cairn
