// Proves that chunks of a pool are apart from each other, and that blocks which are emptied go back
// to the system, while what is in use stays as it is.
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
  // Takes `count` chunks, each full of its number.
  void Take(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      chunks_[next_] = pool_.Take();
      std::memset(chunks_[next_], Mark(next_), kChunkBytes);
      ++next_;
    }
  }

  // Of each `of` chunks one stays, which one by chance.
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

  // Moves what is in use out of a block. Returns what has gone; nullopt: no block can be emptied.
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

// 64 MB: blocks of small pages and of huge ones.
TEST_F(ChunkPoolTest, WhatIsGivenBackGoesToTheSystemBlockByBlock) {
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
  // All but what is in use, and a block or two.
  EXPECT_GT(returned, (kChunks - in_use) * kChunkBytes - (6 << 20));
  EXPECT_LT(pool_.idle_bytes(), 4u << 20);
  ExpectAllAsTheyWere();
  // As new.
  Take(kChunks);
  ExpectAllAsTheyWere();
}

TEST_F(ChunkPoolTest, ABlockOfWhichAChunkIsStillInUseStays) {
  Take(1000);
  GiveBackAllButOneOf(2);
  const size_t idle = pool_.idle_bytes();
  const std::optional<ChunkPool::Vacated> vacated = pool_.BeginVacating();
  ASSERT_TRUE(vacated.has_value());
  EXPECT_EQ(pool_.EndVacating(), 0u);
  EXPECT_EQ(pool_.idle_bytes(), idle);
  ExpectAllAsTheyWere();
  // None of its idle chunks was lost.
  size_t taken = 0;
  while (pool_.TakeIdle() != nullptr) ++taken;
  EXPECT_EQ(taken * kChunkBytes, idle);
}

TEST_F(ChunkPoolTest, NothingIsTakenFromABlockThatIsToGo) {
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
