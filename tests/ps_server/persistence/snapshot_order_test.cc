// A snapshot writes stripes in the order of their keys, so that its tables do not overlap.
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_server.h"

namespace cairn {
namespace {

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

using SnapshotOrderTest = WatchedServerTest;

TEST_F(SnapshotOrderTest, IsThatOfTheKeys) {
  constexpr int32_t kBuckets = 8;
  TestClient client(*service_, 0);
  ASSERT_OK(client.Hello());
  std::vector<wire::VariableSpec> specs;
  for (const char* const name : {"a", "b", "c"}) {
    specs.push_back(TableSpec(name, 1, WireOptimizer("sgd", 1)));
    specs.back().bucket_ps.assign(kBuckets, 0);
  }
  ASSERT_OK(client.Create(specs));
  // One stripe at a time, in an order of its own.
  for (int64_t key = 0; key < 200; ++key) {
    ASSERT_OK(client.PushKeys(key % 3 == 0 ? "b" : key % 3 == 1 ? "c" : "a", {key}, {1}));
  }
  using Place = std::tuple<uint32_t, uint32_t, uint32_t>;
  std::vector<Place> written;
  store_->before_batch = [&](const StripeId& id) {
    written.emplace_back(id.variable, id.shard, id.stripe);
  };
  ASSERT_OK(core_->flusher.Flush(Flusher::Reach::kSynced));
  store_->before_batch = nullptr;
  EXPECT_THAT(written, SizeIs(3 * kBuckets));
  std::vector<Place> ordered = written;
  std::ranges::sort(ordered);
  EXPECT_THAT(written, ElementsAreArray(ordered));
}

}  // namespace
}  // namespace cairn
