// Gradients are packed by size or into equal chunks, and are unpacked unchanged.
#include "worker/collective/packing.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Packing, F6_PacksCloseOnceTheyAreLargerThanTheLimit) {
  // 128, 32, 800 and 4 bytes.
  std::vector<PackItem> items = {{32}, {8}, {200}, {1}};
  EXPECT_THAT(GroupBySize(items, 200).value(), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3)));
  EXPECT_THAT(GroupBySize(items, 0).value(), ElementsAre(ElementsAre(0, 1, 2, 3)));
  items[1].elements.reset();
  EXPECT_THAT(GroupBySize(items, 200).value(), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(Packing, NegativeSizesAreRefused) {
  EXPECT_THAT(GroupBySize({}, -1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes_per_pack is -1")));
  const PackItem item = {-3};
  EXPECT_THAT(GroupBySize({&item, 1}, 8),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("item 0 has -3 elements")));
  EXPECT_THAT(PackSizes(8, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_packs is 0")));
}

TEST(Packing, ConcatenatedGradientsAreUnpackedUnchanged) {
  std::vector<float> a = {1, 2, 3};
  std::vector<float> b = {4, 5, 6, 7, 8};
  ConcatenatedPacks packs = ConcatenatedPacks::Make({Of(a), Of(b)}, 3).value();
  std::vector<int64_t> sizes;
  for (const MutableBuffer& pack : packs.packs()) {
    sizes.push_back(pack.count);
    for (int64_t i = 0; i < pack.count; ++i) static_cast<float*>(pack.data)[i] *= 10;
  }
  EXPECT_THAT(sizes, ElementsAre(2, 2, 4));
  ASSERT_OK(packs.CopyTo({Into(a), Into(b)}));
  EXPECT_THAT(a, ElementsAre(10, 20, 30));
  EXPECT_THAT(b, ElementsAre(40, 50, 60, 70, 80));
  EXPECT_THAT(packs.CopyTo({Into(b), Into(a)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("those that were packed")));
}

TEST(Packing, GradientsOfDifferentDtypesAreNotConcatenated) {
  const std::vector<float> a = {1};
  const std::vector<double> b = {2};
  EXPECT_THAT(ConcatenatedPacks::Make({Of(a), Of(b)}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gradient 1 is float64")));
}

}  // namespace
}  // namespace cairn::test
