// Rows are found by their keys, and loading keeps the last row of each key.
#include "ps_server/rows/row_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/hash.h"
#include "ps_server/rows/chunk_pool.h"
#include "storage/stored_rows.h"

namespace cairn {
namespace {

constexpr size_t kFloats = 3;

class RowTableTest : public ::testing::Test {
 protected:
  void Add(int64_t key, float value) {
    const uint32_t last_update = 7;
    const std::vector<float> floats(kFloats, value);
    stored_.append(reinterpret_cast<const char*>(&key), sizeof(key));
    stored_.append(reinterpret_cast<const char*>(&last_update), sizeof(last_update));
    stored_.append(reinterpret_cast<const char*>(floats.data()), kFloats * sizeof(float));
  }

  // Loads all rows added so far, in one call.
  void Append() {
    EXPECT_EQ(table_.Append(StoredRows(stored_, table_.stored_bytes())), 7u);
    stored_.clear();
  }

  // The table has exactly the keys of `values`, with these values.
  void ExpectHolds(const std::map<int64_t, float>& values) {
    ASSERT_EQ(table_.size(), values.size());
    std::vector<RowTable::Query> queries;
    for (const auto& [key, value] : values) queries.push_back({&table_, key});
    std::vector<uint32_t> rows(queries.size());
    RowTable::Find(queries, rows.data());
    ExpectFoundAgain(queries, rows);
    size_t i = 0;
    for (const auto& [key, value] : values) {
      const uint32_t row = rows[i++];
      ASSERT_NE(row, RowTable::kNone) << key;
      ASSERT_EQ(table_.key(row), key);
      ASSERT_EQ(table_.last_update(row), 7u);
      ASSERT_EQ(table_.floats(row)[kFloats - 1], value) << key;
    }
  }

  // FindAgain corrects wrong likely rows, but accepts kNone.
  void ExpectFoundAgain(const std::vector<RowTable::Query>& queries,
                        const std::vector<uint32_t>& rows) {
    std::vector<uint32_t> likely = rows;
    for (size_t i = 0; i < likely.size(); i += 3) likely[i] = static_cast<uint32_t>(i);
    if (!likely.empty()) likely.back() = table_.size();
    std::vector<uint32_t> again(rows.size());
    RowTable::FindAgain(queries, likely.data(), again.data());
    EXPECT_EQ(again, rows);
    again.assign(rows.size(), 0);
    likely.assign(rows.size(), RowTable::kNone);
    RowTable::FindAgain(queries, likely.data(), again.data());
    EXPECT_EQ(again, likely);
  }

  std::string stored_;
  ChunkPool pool_{RowTable::ChunkBytes(kFloats * sizeof(float))};
  RowTable table_{kFloats * sizeof(float), pool_};
};

TEST_F(RowTableTest, AnEmptyLoadIsAnEmptyTable) {
  table_.FinishAppending();
  EXPECT_EQ(table_.size(), 0u);
  const RowTable::Query query{&table_, 1};
  uint32_t row = 0;
  RowTable::Find({&query, 1}, &row);
  EXPECT_EQ(row, RowTable::kNone);
}

// Keys repeat within a batch and across batches, and the number of rows makes the index grow.
TEST_F(RowTableTest, LoadingKeepsTheLastRowOfEachKey) {
  std::map<int64_t, float> expected;
  uint64_t random = 1;
  float value = 0;
  for (const int batch : {1, 5, 100, 3000, 1, 20000, 40000}) {
    for (int i = 0; i < batch; ++i) {
      random = MixBits(random + 1);
      const int64_t key = static_cast<int64_t>(random % 30000) - 15000;
      Add(key, ++value);
      expected[key] = value;
    }
    Append();
    EXPECT_GT(table_.appended_bytes(), 0u);
    table_.IndexAppended();
    EXPECT_EQ(table_.appended_bytes(), 0u);
  }
  table_.FinishAppending();
  ExpectHolds(expected);
}

TEST_F(RowTableTest, RowsAreAddedAfterALoad) {
  std::map<int64_t, float> expected;
  for (int64_t key = 0; key < 1000; ++key) {
    Add(key % 400, static_cast<float>(key));
    expected[key % 400] = static_cast<float>(key);
    if (key % 7 == 0) Append();
  }
  Append();
  table_.FinishAppending();
  for (int64_t key = 300; key < 700; ++key) {
    const auto [row, inserted] = table_.FindOrInsert(key);
    EXPECT_EQ(inserted, key >= 400);
    for (size_t i = 0; i < kFloats; ++i) table_.floats(row)[i] = 0.5f;
    table_.set_last_update(row, 7);
    expected[key] = 0.5f;
  }
  ExpectHolds(expected);
}

// As when rows are evicted: in any order, and their memory returns to the system.
TEST_F(RowTableTest, RowsKeepTheirKeysWhileOthersAreRemovedAndMemoryIsReturned) {
  std::map<int64_t, float> expected;
  for (int64_t key = 0; key < 120000; ++key) {
    Add(key, static_cast<float>(key));
    expected[key] = static_cast<float>(key);
  }
  Append();
  table_.FinishAppending();
  RowTable other(kFloats * sizeof(float), pool_);  // its rows share blocks with table_
  for (int64_t key = 0; key < 40000; ++key) other.FindOrInsert(key);
  const size_t bytes = table_.index_bytes();
  for (int64_t i = 0; i < 300000; ++i) {
    const auto key = static_cast<int64_t>(MixBits(static_cast<uint64_t>(i)) % 120000);
    if (expected.erase(key) > 0) table_.Remove(table_.FindOne(key));
  }
  table_.TrimMemory();
  EXPECT_LT(table_.index_bytes(), bytes);
  const size_t idle = pool_.idle_bytes();
  size_t returned = 0;
  while (const std::optional<ChunkPool::Vacated> vacated = pool_.BeginVacating()) {
    while (table_.MoveChunks(*vacated, 3)) continue;
    EXPECT_FALSE(other.MoveChunks(*vacated, 1000000));
    const size_t bytes = pool_.EndVacating();
    ASSERT_GT(bytes, 0u);
    returned += bytes;
  }
  EXPECT_GT(returned, idle / 2);
  ExpectHolds(expected);
  for (int64_t key = 0; key < 40000; ++key) ASSERT_EQ(other.key(other.FindOne(key)), key);
}

// As when a bucket moves to another server: the pool serves the buckets that stay.
TEST_F(RowTableTest, TheChunksOfADestroyedTableAreReused) {
  constexpr size_t kRows = 40000;
  {
    RowTable other(kFloats * sizeof(float), pool_);
    for (size_t key = 0; key < kRows; ++key) other.FindOrInsert(static_cast<int64_t>(key));
    EXPECT_EQ(pool_.idle_bytes(), 0u);
  }
  // All but the first chunk, which does not belong to the pool.
  EXPECT_GE(pool_.idle_bytes() + pool_.chunk_bytes(), kRows * table_.stored_bytes());
}

}  // namespace
}  // namespace cairn
