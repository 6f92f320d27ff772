#include "worker/client/delivery/retention.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/own_process.h"
#include "thrift/limits.h"
#include "thrift/payload.h"

namespace cairn {
namespace {

TEST(Retention, RetainedPushesAndTheMemoryOfDurableOnesShareTheLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  constexpr int64_t kRetained = 192 << 20;
  const int64_t before = ResidentBytes();
  Retention retention(int64_t{1} << 30);
  // The sizes of a worker's pushes change, for instance when rows move to another server.
  for (const int64_t size : {300 << 10, 400 << 10, 500 << 10}) {
    std::vector<Payload> pushes;
    for (int64_t bytes = 0; bytes < kRetained; bytes += size) {
      pushes.push_back(Payload::Uninitialized(static_cast<size_t>(size)));
      std::memset(pushes.back().mutable_data(), 1, static_cast<size_t>(size));
      retention.Add(size);
    }
    EXPECT_LE(ResidentBytes() - before, kRetained + kPooledPayloadBytes + (16 << 20)) << size;
    retention.Drop(retention.bytes());
  }
}

}  // namespace
}  // namespace cairn
