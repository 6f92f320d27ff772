// Chunks of a pool do not overlap, and blocks that are emptied return to the system, while chunks
// in use keep their content.
#include "ps_server/rows/chunk_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace cairn {
namespace {

constexpr size_t kChunkBytes = 20000;

class ChunkPoolTest : public ::testing::Test {
 protected:
  // Takes `count` chunks and fills each with a byte that depends on its number.
  void Take(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      chunks_[next_] = pool_.Take();
      std::memset(chunks_[next_], Mark(next_), kChunkBytes);
      ++next_;
    }
  }

  // Keeps about one chunk in every `of`, chosen at random.
  void GiveBackAllButOneOf(uint32_t of) {
    for (auto at = chunks_.begin(); at != chunks_.end();) {
      if (random_() % of == 0) {
        ++at;
        continue;
      }
      pool_.GiveBack(at->second);
      at = chunks_.erase(at);
    }
  }

  // Moves the chunks in use out of a block. Returns the bytes that were returned to the system;
  // nullopt: no block can be emptied.
  std::optional<size_t> ReturnBlock() {
    const std::optional<ChunkPool::Vacated> vacated = pool_.BeginVacating();
    if (!vacated.has_value()) return std::nullopt;
    for (auto& [number, chunk] : chunks_) {
      if (!vacated->contains(chunk)) continue;
      std::byte* const to = pool_.TakeIdle();
      EXPECT_NE(to, nullptr);
      if (to == nullptr) break;
      EXPECT_FALSE(vacated->contains(to));
      std::memcpy(to, chunk, kChunkBytes);
      pool_.GiveBack(chunk);
      chunk = to;
    }
    return pool_.EndVacating();
  }

  void ExpectAllAsTheyWere() {
    for (const auto& [number, chunk] : chunks_) {
      const auto mark = static_cast<std::byte>(Mark(number));
      ASSERT_EQ(chunk[0], mark) << number;
      ASSERT_EQ(chunk[kChunkBytes - 1], mark) << number;
    }
  }

  static int Mark(size_t number) { return static_cast<int>(number % 251); }

  ChunkPool pool_{kChunkBytes};
  std::map<size_t, std::byte*> chunks_;  // in use, by number
  size_t next_ = 0;
  std::mt19937 random_{5};
};

TEST_F(ChunkPoolTest, ChunksThatWereGivenBackAreTakenAgainFirst) {
  EXPECT_EQ(pool_.TakeIdle(), nullptr);
  Take(3);
  EXPECT_EQ(pool_.TakeIdle(), nullptr);
  std::byte* const chunk = chunks_[1];
  pool_.GiveBack(chunk);
  EXPECT_EQ(pool_.idle_bytes(), kChunkBytes);
  EXPECT_EQ(pool_.Take(), chunk);
  EXPECT_EQ(pool_.idle_bytes(), 0u);
}

// 64 MB, so that the pool has blocks of small pages and of huge pages.
TEST_F(ChunkPoolTest, IdleMemoryReturnsToTheSystemBlockByBlock) {
  constexpr size_t kChunks = 3200;
  Take(kChunks);
  EXPECT_EQ(pool_.idle_bytes(), 0u);
  EXPECT_EQ(ReturnBlock(), std::nullopt);
  GiveBackAllButOneOf(8);
  const size_t in_use = chunks_.size();
  EXPECT_EQ(pool_.idle_bytes(), (kChunks - in_use) * kChunkBytes);
  size_t returned = 0;
  while (const std::optional<size_t> bytes = ReturnBlock()) {
    ASSERT_GT(*bytes, 0u);
    returned += *bytes;
  }
  // Everything except the chunks in use and a block or two.
  EXPECT_GT(returned, (kChunks - in_use) * kChunkBytes - (6 << 20));
  EXPECT_LT(pool_.idle_bytes(), 4u << 20);
  ExpectAllAsTheyWere();
  // The pool works as a new one.
  Take(kChunks);
  ExpectAllAsTheyWere();
}

TEST_F(ChunkPoolTest, OnlyALargePoolHasRunsOfChunks) {
  EXPECT_EQ(pool_.TakeRun(2), nullptr);
  Take(1000);
  for (const size_t chunks : {1, 7, 100, 300}) {  // also more than a block has left
    std::byte* const first = pool_.TakeRun(chunks);
    ASSERT_NE(first, nullptr);
    for (size_t i = 0; i < chunks; ++i) {
      chunks_[next_] = first + i * kChunkBytes;
      std::memset(chunks_[next_], Mark(next_), kChunkBytes);
      ++next_;
    }
    Take(10);
  }
  ExpectAllAsTheyWere();
  GiveBackAllButOneOf(8);
  while (ReturnBlock().has_value()) continue;
  ExpectAllAsTheyWere();
  EXPECT_LT(pool_.idle_bytes(), 8u << 20);
}

// Blocks of huge pages are made ahead in another thread, which may still do so here.
TEST_F(ChunkPoolTest, APoolMayBeDestroyedWhileABlockIsMade) {
  for (int i = 0; i < 10; ++i) {
    ChunkPool pool(1 << 20);
    for (int chunk = 0; chunk < 20 + i; ++chunk) std::memset(pool.Take(), 1, 1 << 20);
  }
}

TEST_F(ChunkPoolTest, ABlockWithAChunkInUseStays) {
  Take(1000);
  GiveBackAllButOneOf(2);
  const size_t idle = pool_.idle_bytes();
  const std::optional<ChunkPool::Vacated> vacated = pool_.BeginVacating();
  ASSERT_TRUE(vacated.has_value());
  EXPECT_EQ(pool_.EndVacating(), 0u);
  EXPECT_EQ(pool_.idle_bytes(), idle);
  ExpectAllAsTheyWere();
  // None of its idle chunks is lost.
  size_t taken = 0;
  while (pool_.TakeIdle() != nullptr) ++taken;
  EXPECT_EQ(taken * kChunkBytes, idle);
}

TEST_F(ChunkPoolTest, NoChunkIsTakenFromABlockBeingVacated) {
  Take(1000);
  GiveBackAllButOneOf(4);
  const std::optional<ChunkPool::Vacated> vacated = pool_.BeginVacating();
  ASSERT_TRUE(vacated.has_value());
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    if (!vacated->contains(at->second)) {
      ++at;
      continue;
    }
    pool_.GiveBack(at->second);
    at = chunks_.erase(at);
  }
  while (std::byte* const chunk = pool_.TakeIdle()) ASSERT_FALSE(vacated->contains(chunk));
  EXPECT_FALSE(vacated->contains(pool_.Take()));
  EXPECT_EQ(pool_.EndVacating(), vacated->bytes);
  ExpectAllAsTheyWere();
}

}  // namespace
}  // namespace cairn
