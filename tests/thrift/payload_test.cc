// A payload owns or views bytes, as its header specifies.
#include "thrift/payload.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/own_process.h"
#include "thrift/limits.h"
#include "thrift/payload_pool.h"

namespace cairn {
namespace {

TEST(Payload, OwnedMemoryIsAlignedTo64Bytes) {
  std::vector<size_t> sizes = {1UL << 15, 1UL << 18, 1UL << 20};
  for (size_t size = 1; size < 1100; ++size) sizes.push_back(size);
  for (const size_t size : sizes) {
    Payload payload = Payload::Uninitialized(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(payload.data()) % 64, 0U) << size;
    EXPECT_EQ(payload.size(), size);
    std::memset(payload.mutable_data(), 1, size);  // all of it is writable
  }
}

TEST(Payload, EmptyPayloadsHaveNoMemory) {
  EXPECT_EQ(Payload().size(), 0U);
  EXPECT_EQ(Payload::Uninitialized(0).mutable_data(), nullptr);
  EXPECT_TRUE(Payload::Copy(nullptr, 0).empty());
  EXPECT_TRUE(Payload() == Payload::View("", 0));
}

TEST(Payload, CopyingAnOwnerCopiesTheBytes) {
  Payload owner = Payload::Copy("abcd", 4);
  Payload copy = owner;
  owner.mutable_data()[0] = std::byte{'x'};
  EXPECT_TRUE(copy == Payload::View("abcd", 4));
  EXPECT_NE(copy.data(), owner.data());
  copy = owner;
  EXPECT_TRUE(copy == Payload::View("xbcd", 4));
}

TEST(Payload, CopyingAViewCopiesTheView) {
  const std::vector<float> values = {1, 2, 3};
  Payload view = Payload::ViewOf<float>(values);
  const Payload copy = view;
  EXPECT_EQ(reinterpret_cast<const float*>(copy.data()), values.data());
  EXPECT_EQ(view.mutable_data(), nullptr);
  EXPECT_TRUE(view.MutableAs<float>().empty());
  EXPECT_EQ(view.As<float>()[2], 3);
}

TEST(Payload, MovingLeavesItEmpty) {
  Payload from = Payload::Copy("abcd", 4);
  const std::byte* const memory = from.data();
  Payload to = std::move(from);
  EXPECT_EQ(to.data(), memory);
  EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move): tested here
  from = std::move(to);
  EXPECT_EQ(from.data(), memory);
}

TEST(Payload, SizesThatAreNotAMultipleLoseTheRemainder) {
  EXPECT_EQ(Payload::Copy("abcdefghijk", 11).As<int32_t>().size(), 2U);
}

TEST(Payload, OrdersByBytesThenLength) {
  EXPECT_TRUE(Payload::View("ab", 2) < Payload::View("abc", 3));
  EXPECT_TRUE(Payload::View("ab", 2) < Payload::View("b", 1));
  EXPECT_FALSE(Payload::View("b", 1) < Payload::View("ab", 2));
  EXPECT_FALSE(Payload() < Payload());
}

TEST(Payload, LargeMemoryOutsideThePoolGoesBackToTheSystem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  const int64_t before = ResidentBytes();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 4; ++i) {
        const size_t bytes = static_cast<size_t>((t + 1) * (i + 1)) << 20;
        std::memset(Payload::Uninitialized(bytes).mutable_data(), 1, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(ResidentBytes() - before, kPooledPayloadBytes + (8 << 20));
}

// Whoever announces a payload has sent nothing yet, and is charged kFirstPayloadStepBytes.
TEST(PayloadPool, NewMemoryIsBackedByNoMoreThanIsChargedFirst) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  PayloadPool::Get().RaiseLimit(-kPooledPayloadBytes);  // empties the pool
  for (size_t bytes = 1 << 20; bytes <= (8 << 20); bytes += 1 << 19) {
    const Payload payload = Payload::Uninitialized(bytes);
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    auto* const first = const_cast<std::byte*>(payload.data());
    ASSERT_EQ(::mincore(first, bytes, pages.data()), 0) << std::strerror(errno);
    const auto resident =
        std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; });
    EXPECT_LE(resident * 4096, kFirstPayloadStepBytes) << bytes;
  }
  PayloadPool::Get().RaiseLimit(kPooledPayloadBytes);
}

TEST(Payload, FreedMemoryIsReused) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  const std::byte* const memory = Payload::Uninitialized(5 << 20).data();
  EXPECT_EQ(Payload::Uninitialized((5 << 20) - 100).data(), memory);
  EXPECT_NE(Payload::Uninitialized(3 << 20).data(), memory);  // the free block is too much larger
}

TEST(PayloadPool, EverySizeIsAtMostAnEighthMoreAndUsedAgain) {
  PayloadPool& pool = PayloadPool::Get();
  for (size_t bytes = PayloadPool::kMinBytes; bytes < (8 << 20); bytes += bytes / 50 + 1) {
    const PayloadPool::Block block = pool.Take(bytes);
    EXPECT_GE(block.bytes, bytes);
    EXPECT_LE(block.bytes, bytes + bytes / 8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.memory) % 64, 0u);
    std::memset(block.memory, 0xff, block.bytes);
    pool.Return(block);
    const PayloadPool::Block again = pool.Take(block.bytes);
    EXPECT_EQ(again.memory, block.memory);
    EXPECT_EQ(again.bytes, block.bytes);
    pool.Return(again);
  }
}

TEST(PayloadPool, KeepsAsMuchAsItsLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  constexpr int64_t kMore = 128 << 20;
  constexpr size_t kBlock = 300 << 10;
  PayloadPool& pool = PayloadPool::Get();
  const auto use = [&] {  // 256 MiB
    std::vector<PayloadPool::Block> blocks;
    for (int i = 0; i < 874; ++i) {
      blocks.push_back(pool.Take(kBlock));
      std::memset(blocks.back().memory, 1, blocks.back().bytes);
    }
    for (const PayloadPool::Block& block : blocks) pool.Return(block);
  };
  const int64_t before = ResidentBytes();
  pool.RaiseLimit(kMore);
  use();
  EXPECT_GE(ResidentBytes() - before, kMore - (8 << 20));
  EXPECT_LE(ResidentBytes() - before, kPooledPayloadBytes + kMore + (8 << 20));
  pool.RaiseLimit(-kMore);
  EXPECT_LE(ResidentBytes() - before, kPooledPayloadBytes + (8 << 20));
}

TEST(PayloadPool, ALimitBelowZeroKeepsNothing) {
  PayloadPool& pool = PayloadPool::Get();
  pool.Return(pool.Take(PayloadPool::kMinBytes));
  pool.RaiseLimit(-kPooledPayloadBytes - 1);
  pool.Return(pool.Take(PayloadPool::kMinBytes));
  pool.RaiseLimit(kPooledPayloadBytes + 1);
}

TEST(PayloadPool, SizesThatAreNoLongerUsedGiveWay) {
  PayloadPool& pool = PayloadPool::Get();
  pool.RaiseLimit(-kPooledPayloadBytes);  // empties the pool
  pool.RaiseLimit(kPooledPayloadBytes);
  size_t kept = 0;
  for (size_t bytes = 1 << 20; kept + bytes < kPooledPayloadBytes; bytes += 128 << 10) {
    const PayloadPool::Block block = pool.Take(bytes);
    kept += block.bytes;
    pool.Return(block);
  }
  constexpr size_t kLarge = 14 << 20;
  const PayloadPool::Block large = pool.Take(kLarge);
  large.memory[100] = std::byte{1};
  pool.Return(large);
  const PayloadPool::Block again = pool.Take(kLarge);
  EXPECT_EQ(again.memory, large.memory);
  EXPECT_EQ(again.memory[100], std::byte{1});  // not new memory at the same place
  pool.Return(again);
}

TEST(PayloadPool, ThreadsNeverShareABlock) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<PayloadPool::Block> blocks;
      for (int i = 0; i < 20'000; ++i) {
        if (blocks.size() < 20) {
          blocks.push_back(PayloadPool::Get().Take(PayloadPool::kMinBytes + random() % 5000));
          std::memset(blocks.back().memory, t, blocks.back().bytes);
        }
        std::swap(blocks[random() % blocks.size()], blocks.back());
        if (random() % 2 == 0) continue;
        const PayloadPool::Block block = blocks.back();
        const auto mine = [t](std::byte b) { return b == static_cast<std::byte>(t); };
        EXPECT_TRUE(std::all_of(block.memory, block.memory + block.bytes, mine));
        PayloadPool::Get().Return(block);
        blocks.pop_back();
      }
      for (const PayloadPool::Block& block : blocks) PayloadPool::Get().Return(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Payload, MoreThanTheAvailableMemoryThrows) {
  EXPECT_THROW(Payload::Uninitialized(SIZE_MAX - 10), std::bad_alloc);
  EXPECT_THROW(Payload::Uninitialized(SIZE_MAX / 2), std::bad_alloc);
}

TEST(Payload, PrintsItsSize) { EXPECT_EQ(to_string(Payload::View("abc", 3)), "3 bytes"); }

TEST(Payload, OtherProtocolsReadAndWriteItAsAString) {
  Payload payload = Payload::View("abc", 3);
  std::string& text = payload;
  EXPECT_EQ(text, "abc");
  text = "longer than any small string";
  EXPECT_EQ(payload.size(), text.size());
  const Payload copy = payload;
  EXPECT_TRUE(copy == payload);
  const std::string& written = copy;
  EXPECT_EQ(written, text);
  payload = Payload::Copy("xy", 2);
  EXPECT_TRUE(payload == Payload::View("xy", 2));
}

}  // namespace
}  // namespace cairn
