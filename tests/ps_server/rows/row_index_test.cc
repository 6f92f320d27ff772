// The index finds every row while it grows, shrinks, and loses rows, for good and for bad hashes.
#include "ps_server/rows/row_index.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "common/hash.h"
#include "ps_server/rows/chunk_pool.h"

namespace cairn {
namespace {

// A table of keys, as RowTable keeps them: the last row takes the place of one that is removed.
class Keys {
 public:
  Keys(ChunkPool& pool, std::function<uint64_t(uint64_t)> hash)
      : hash_(std::move(hash)), index_(pool) {}

  uint64_t operator()(uint32_t row) const { return hash_(keys_[row]); }
  void Prefetch(uint32_t row) const { ASSERT_LT(row, keys_.size()); }

  uint32_t Find(uint64_t key) const {
    return index_.Find(hash_(key), [&](uint32_t row) { return keys_.at(row) == key; });
  }
  void Insert(uint64_t key) {
    index_.MakeRoom(hash_(key), *this);
    index_.Insert(hash_(key), size());
    keys_.push_back(key);
  }
  void Remove(uint32_t row) {
    const uint32_t last = size() - 1;
    index_.Remove((*this)(row), row, (*this)(last), last, *this);
    keys_[row] = keys_[last];
    keys_.pop_back();
  }
  void Continue(uint32_t rows) { index_.Continue(rows, *this); }
  void Rebuild(size_t room) { index_.Rebuild(size(), room, *this); }
  uint32_t size() const { return static_cast<uint32_t>(keys_.size()); }
  uint64_t key(uint32_t row) const { return keys_[row]; }
  RowIndex& index() { return index_; }

  // Every key is found, and no other.
  void Check() const {
    ASSERT_EQ(index_.size(), size());
    ASSERT_LE(index_.size(), index_.limit());
    for (uint32_t row = 0; row < size(); ++row) {
      ASSERT_EQ(Find(keys_[row]), row) << keys_[row] << " of " << size();
      ASSERT_EQ(Find(~keys_[row]), RowIndex::kNone);
    }
  }

 private:
  const std::function<uint64_t(uint64_t)> hash_;
  std::vector<uint64_t> keys_;
  RowIndex index_;
};

struct Hash {
  const char* name;
  uint32_t rows;
  std::function<uint64_t(uint64_t)> hash;
};

constexpr size_t kPoolChunkBytes = 1000 * 64;

class RowIndexTest : public ::testing::TestWithParam<Hash> {
 protected:
  ChunkPool pool_{kPoolChunkBytes};
};

TEST_P(RowIndexTest, FindsEachRowAtEverySize) {
  Keys keys(pool_, GetParam().hash);
  keys.Check();
  for (uint64_t key = 0; key < GetParam().rows; ++key) {
    ASSERT_EQ(keys.Find(key), RowIndex::kNone);
    keys.Insert(key);
    ASSERT_EQ(keys.Find(key), key);
    ASSERT_EQ(keys.Find(key / 2), key / 2);  // in either part while the index grows
    if (key < 300 || key % 997 == 0) keys.Check();
  }
  keys.Check();
}

TEST_P(RowIndexTest, RowsComeAndGoInAnyOrder) {
  Keys keys(pool_, GetParam().hash);
  std::mt19937_64 random(7);
  uint64_t next = 0;
  for (int turn = 0; turn < 40; ++turn) {
    // Often in the middle of a growth, sometimes until nothing is left.
    const uint32_t more = static_cast<uint32_t>(random() % (GetParam().rows / 8));
    for (uint32_t i = 0; i < more; ++i) keys.Insert(next++);
    const uint32_t fewer =
        turn % 10 == 9 ? keys.size() : static_cast<uint32_t>(random() % (keys.size() + 1));
    for (uint32_t i = 0; i < fewer; ++i) {
      const auto row = static_cast<uint32_t>(random() % keys.size());
      const uint64_t key = keys.key(row);
      keys.Remove(row);
      ASSERT_EQ(keys.Find(key), RowIndex::kNone);
    }
    if (turn % 4 == 1) keys.Rebuild(random() % 100);
    if (turn % 4 == 2) keys.Continue(100);
    keys.Check();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Hashes, RowIndexTest,
    ::testing::Values(
        Hash{"Mixed", 20000, MixBits},
        // As in a stripe of 65,536.
        Hash{"TopBitsEqual", 20000, [](uint64_t key) { return MixBits(key) >> 16; }},
        Hash{"FewBuckets", 600, [](uint64_t key) { return MixBits(key) & ~uint64_t{0x3fffffff}; }},
        Hash{"FewTags", 3000, [](uint64_t key) { return MixBits(key) & 0x1ffffffff; }},
        Hash{"LastBucket", 600, [](uint64_t key) { return MixBits(key) | 0xffffffff; }},
        Hash{"AllEqual", 400, [](uint64_t) { return uint64_t{0}; }}),
    [](const auto& test) { return test.param.name; });

TEST(RowIndex, CostsLittleMemory) {
  ChunkPool pool(kPoolChunkBytes);
  Keys keys(pool, MixBits);
  for (uint64_t key = 0; key < 200000; ++key) {
    keys.Insert(key);
    if (key < 1000) continue;
    // Both arrays while it grows.
    const double each = static_cast<double>(keys.index().bytes()) / keys.size();
    ASSERT_GT(each, 6);
    ASSERT_LT(each, 16);
  }
  const size_t bytes = keys.index().bytes();
  keys.Continue(200000);
  EXPECT_LE(keys.index().bytes(), bytes);
  EXPECT_LT(keys.index().bytes(), 10 * 200000);
  keys.Rebuild(0);
  EXPECT_LT(keys.index().bytes(), 6.2 * 200000);
  keys.Check();
}

// As in a large table: the index is in the memory of the pool, which empties its blocks.
TEST(RowIndex, LeavesTheBlocksThatAPoolEmpties) {
  ChunkPool pool(kPoolChunkBytes);
  std::vector<std::byte*> chunks;
  for (size_t i = 0; i < 400; ++i) chunks.push_back(pool.Take());
  {
    Keys keys(pool, MixBits);
    for (uint64_t key = 0; key < 60000; ++key) keys.Insert(key);
    for (uint64_t key = 0; key < 60000; ++key) ASSERT_EQ(keys.Find(key), key);
    EXPECT_GT(pool.idle_bytes(), 0u);  // smaller arrays of the same index
    for (size_t i = 0; i < 100; ++i) chunks.push_back(pool.Take());  // of newer blocks
    for (std::byte* const chunk : chunks) pool.GiveBack(chunk);
    size_t moved = 0;
    while (const std::optional<ChunkPool::Vacated> vacated = pool.BeginVacating()) {
      while (keys.index().MoveOut(*vacated)) ++moved;
      ASSERT_EQ(pool.EndVacating(), vacated->bytes);
    }
    EXPECT_GT(moved, 0u);
    keys.Check();
    for (uint64_t key = 60000; key < 100000; ++key) keys.Insert(key);
    keys.Check();
  }
}

}  // namespace
}  // namespace cairn
