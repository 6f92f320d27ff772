// Sharded variables: conformance cases, and behaviour that the golden records do not cover.
#include "worker/strategy/sharded_variable.h"

#include <memory>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "worker/strategy/variable_lookup.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

VariablePtr Part(const std::vector<float>& values, int64_t width) {
  Tensor tensor = Tensor::Of<float>({static_cast<int64_t>(values.size()) / width, width}, values);
  return std::make_shared<PlainVariable>(VariableTraits{.name = "part", .shape = tensor.shape()},
                                         std::move(tensor));
}

// Rows (1, 2), (3, 4), … (9, 10) in shards of 2, 2 and 1.
std::shared_ptr<ShardedVariable> FiveRows() {
  return ShardedVariable::Create("emb",
                                 {Part({1, 2, 3, 4}, 2), Part({5, 6, 7, 8}, 2), Part({9, 10}, 2)})
      .value();
}

TEST(ShardedVariable, E17_EmbeddingLookup) {
  EXPECT_THAT(EmbeddingLookup(*FiveRows(), {0, 3, 4})->values<float>(),
              ElementsAre(1, 2, 7, 8, 9, 10));
}

TEST(ShardedVariable, E17_EmbeddingLookupSparseMean) {
  const std::vector<int32_t> rows = {0, 0, 1, 2};
  const std::vector<int64_t> ids = {0, 3, 4, 1};
  const Tensor got =
      EmbeddingLookupSparse(*FiveRows(), {.rows = 3, .row_of_id = rows, .ids = ids}, {}).value();
  EXPECT_THAT(got.values<float>(), ElementsAre(4, 5, 9, 10, 3, 4));
}

// Row 1 has no remaining id: -1 is dropped.
TEST(ShardedVariable, LookupsOfRowsThatCannotBeAreRefused) {
  for (const int64_t rows : {int64_t{-1}, int64_t{1} << 60}) {
    EXPECT_THAT(EmbeddingLookupSparse(*FiveRows(), {.rows = rows}, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rows")))
        << rows;
  }
}

TEST(ShardedVariable, E17_SafeWeightedEmbeddingLookupSparse) {
  const std::vector<int32_t> rows = {0, 0, 1, 2};
  const std::vector<int64_t> ids = {0, 1, -1, 1};
  const std::vector<float> weights = {1, 0, 1, 1};
  const Tensor got =
      EmbeddingLookupSparse(*FiveRows(),
                            {.rows = 3, .row_of_id = rows, .ids = ids, .weights = weights},
                            {.combiner = Combiner::kMean, .safe = true})
          .value();
  EXPECT_THAT(got.values<float>(), ElementsAre(1, 2, 0, 0, 3, 4));
}

TEST(ShardedVariable, SafeLookupUsesTheDefaultRowIfNoIdIsLeft) {
  const std::vector<int32_t> rows = {0};
  const std::vector<int64_t> ids = {-7};
  const Tensor got = EmbeddingLookupSparse(*FiveRows(), {.rows = 2, .row_of_id = rows, .ids = ids},
                                           {.safe = true, .default_id = 4})
                         .value();
  EXPECT_THAT(got.values<float>(), ElementsAre(9, 10, 9, 10));
}

TEST(ShardedVariable, LookupRepeatsRowsOfRepeatedIds) {
  EXPECT_THAT(EmbeddingLookup(*FiveRows(), {4, 0, 4})->values<float>(),
              ElementsAre(9, 10, 1, 2, 9, 10));
}

TEST(ShardedVariable, LookupRefusesIdsOutOfRange) {
  EXPECT_THAT(EmbeddingLookup(*FiveRows(), {0, 5}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 5 is outside [0, 5)")));
}

TEST(ShardedVariable, MasksTakeWholeRowsOrElements) {
  const auto variable = FiveRows();
  EXPECT_THAT(variable->At(BooleanMask{{5}, {true, false, false, false, true}})->values<float>(),
              ElementsAre(1, 2, 9, 10));
  BooleanMask elements{{5, 2}, std::vector<bool>(10, false)};
  elements.chosen[1] = elements.chosen[6] = true;
  EXPECT_THAT(variable->At(elements)->values<float>(), ElementsAre(2, 7));
  EXPECT_THAT(variable->At(BooleanMask{{4}, {true, false, false, true}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[5, 2]")));
}

TEST(ShardedVariable, SlicesOfHugeStepsAndBoundsDoNotOverflow) {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const int64_t highest = std::numeric_limits<int64_t>::max();
  const auto variable = FiveRows();
  EXPECT_THAT(variable->At({Slice{highest, lowest, lowest}, 0})->values<float>(), ElementsAre(9));
  EXPECT_THAT(variable->At({Slice{lowest, highest, highest}, 1})->values<float>(), ElementsAre(2));
  EXPECT_FALSE(variable->At({lowest}).ok());
  EXPECT_FALSE(variable->At({Ellipsis{}, Ellipsis{}}).ok());
}

// A row out of range in the last shard leaves the first shard unchanged.
TEST(ShardedVariable, RefusedScatterWritesNothing) {
  const auto variable = FiveRows();
  const absl::Status status = variable->Scatter(
      ScatterOp::kAdd, {Tensor::Vector<int64_t>({0, 5}), Tensor::Zeros(DType::kFloat32, {2, 2})});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(variable
                   ->Scatter(ScatterOp::kAdd, {Tensor::Vector<int64_t>({0}),
                                               Tensor::Full(DType::kFloat32, {1, 3}, 1)})
                   .ok());
  EXPECT_THAT(variable->Read()->values<float>(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST(ShardedVariable, WritesOfAnotherShapeAreRefused) {
  EXPECT_THAT(FiveRows()->Assign(Tensor::Zeros(DType::kFloat32, {4, 2})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected float32 [5, 2]")));
}

}  // namespace
}  // namespace cairn
