// Cases that the golden records do not contain: refusals, and rows whose divisor is zero.
#include "worker/ops/embedding_lookup.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<float> kTable = {1, 2, 3, 4, 5, 6};  // three rows of two

TEST(EmbeddingLookup, CopiesRowsInTheOrderAsked) {
  std::vector<float> out(4);
  const std::vector<int64_t> ids = {2, 0};
  ASSERT_TRUE(EmbeddingLookup(kTable, 2, ids, absl::MakeSpan(out)).ok());
  EXPECT_THAT(out, ElementsAre(5, 6, 1, 2));
}

TEST(EmbeddingLookup, RefusesIdsOutsideTheTableByNumber) {
  std::vector<float> out(2);
  for (const int64_t id : {int64_t{3}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    const std::vector<int64_t> ids = {id};
    const absl::Status status = EmbeddingLookup(kTable, 2, ids, absl::MakeSpan(out));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("outside [0, 3)"));
  }
}

TEST(EmbeddingLookupSparse, ARowWhoseWeightsCancelIsZero) {
  const std::vector<int32_t> rows = {0, 0};
  const std::vector<int64_t> ids = {1, 2};
  const std::vector<float> weights = {1, -1};
  std::vector<float> out(2, 9.0f), d_table(6, 9.0f), d_weights(2, 9.0f);
  const SparseIds input{.rows = 1, .row_of_id = rows, .ids = ids, .weights = weights};
  ASSERT_TRUE(EmbeddingLookupSparse(kTable, 2, input, {}, absl::MakeSpan(out)).ok());
  EXPECT_THAT(out, ElementsAre(0, 0));
}

TEST(EmbeddingLookupSparse, RefusesMalformedInput) {
  const std::vector<int32_t> rows = {0, 1};
  const std::vector<int64_t> ids = {1, -2};
  const std::vector<float> one_weight = {1};
  std::vector<float> out(4), short_out(3);
  SparseIds input{.rows = 2, .row_of_id = rows, .ids = ids};
  const auto message = [&](const SparseIds& in, const LookupOptions& options,
                           std::vector<float>* to) {
    return std::string(
        EmbeddingLookupSparse(kTable, 2, in, options, absl::MakeSpan(*to)).message());
  };
  EXPECT_THAT(message(input, {}, &out), HasSubstr("id -2"));
  EXPECT_EQ(message(input, {.safe = true}, &out), "");
  EXPECT_THAT(message(input, {}, &short_out), HasSubstr("output of 3 elements"));
  EXPECT_THAT(message(input, {.safe = true, .default_id = 3}, &out), HasSubstr("default id 3"));
  input.weights = one_weight;
  EXPECT_THAT(message(input, {}, &out), HasSubstr("1 weights"));
  input.weights = {};
  input.rows = 1;
  EXPECT_THAT(message(input, {.safe = true}, &short_out), HasSubstr("expected 1 x 2"));
  std::vector<float> two(2);
  EXPECT_THAT(message(input, {.safe = true}, &two), HasSubstr("row 1 of id 1"));
  std::vector<float> none;
  const std::vector<float> four(4);
  for (const int64_t rows : {int64_t{-1}, int64_t{1} << 62, int64_t{1} << 63}) {
    EXPECT_THAT(EmbeddingLookupSparse(four, 4, {.rows = rows}, {}, absl::MakeSpan(none)).message(),
                HasSubstr("rows are asked for"))
        << rows;
  }
}

}  // namespace
}  // namespace cairn
