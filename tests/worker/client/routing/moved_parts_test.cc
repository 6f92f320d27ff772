// A part of a push that was cut by an outdated map goes to all servers that own some of its rows.
#include "worker/client/routing/moved_parts.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/client/fleet.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kBuckets = 3;

// The first key of a bucket.
int64_t KeyOf(uint32_t bucket) {
  int64_t key = 0;
  while (BucketOfKey(key, kBuckets) != bucket) ++key;
  return key;
}

wire::PushItem Item(const std::vector<int64_t>& keys, int64_t map_version) {
  wire::PushItem item;
  item.variable = "t";
  item.selection = wire::Selection::KEYS;
  item.ids = Payload::Copy(keys.data(), keys.size() * sizeof(int64_t));
  const std::vector<float> values(keys.size(), 1);
  item.values = Payload::Copy(values.data(), values.size() * sizeof(float));
  item.map_version = map_version;
  return item;
}

class MovedPartsTest : public ::testing::Test {
 protected:
  // Bucket b on servers[b].
  void Learn(std::vector<int32_t> servers, int64_t map_version) {
    VariableSpec spec = test::Table("t", 1);
    spec.bucket_ps = std::move(servers);
    spec.map_version = map_version;
    map_.Insert(spec);
  }
  MovedParts<wire::PushItem> Repartition(const wire::PushItem& item, int32_t server) {
    auto parts = RepartitionItems(std::vector<wire::PushItem>{item}, server,
                                  [&](absl::string_view name) { return map_.Find(name); });
    EXPECT_OK(parts);
    return *std::move(parts);
  }

  ClientVariableMap map_;
};

TEST_F(MovedPartsTest, RowsGoWhereTheyAre) {
  Learn({0, 0, 1}, 1);
  Learn({0, 2, 1}, 2);
  const auto parts = Repartition(Item({KeyOf(0), KeyOf(1)}, 1), 0);
  ASSERT_THAT(parts.here, SizeIs(1));
  EXPECT_THAT(parts.here[0].ids.As<int64_t>(), ElementsAre(KeyOf(0)));
  EXPECT_EQ(parts.here[0].map_version, 2);
  ASSERT_THAT(parts.elsewhere, SizeIs(1));
  EXPECT_THAT(parts.elsewhere.at(2)[0].ids.As<int64_t>(), ElementsAre(KeyOf(1)));
}

// The update counts on that server, although it has no rows there: its optimizer must be at the
// same step as the others'.
TEST_F(MovedPartsTest, AServerThatHasComeSinceTheItemWasCutHearsOfIt) {
  Learn({0, 0, 1}, 1);
  Learn({0, 2, 1}, 2);
  // Another server's answer brings this map between the refusal of the item and its division.
  Learn({0, 2, 2}, 3);
  const auto parts = Repartition(Item({KeyOf(0)}, 1), 0);
  ASSERT_THAT(parts.elsewhere, SizeIs(1));
  EXPECT_THAT(parts.elsewhere.at(2), SizeIs(1));
  EXPECT_THAT(parts.elsewhere.at(2)[0].ids.As<int64_t>(), IsEmpty());
  EXPECT_THAT(Repartition(Item({KeyOf(0)}, 2), 0).elsewhere, IsEmpty());
}

}  // namespace
}  // namespace cairn
