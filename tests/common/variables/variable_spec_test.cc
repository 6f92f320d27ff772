// A specification that is not valid is refused, field by field.
#include "common/variables/variable_spec.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

VariableSpec Dense() {
  VariableSpec spec;
  spec.name = "dense_0/kernel";
  spec.shape = {10, 4};
  spec.shards = {{0, 6, 0}, {6, 4, 1}};
  return spec;
}

VariableSpec Embedding() {
  VariableSpec spec;
  spec.name = "embedding/C1";
  spec.kind = VariableKind::kEmbedding;
  spec.shape = {16};
  spec.touched_rows = TouchedRows::kPushed;
  spec.bucket_ps = {0, 1, 0, 1};
  return spec;
}

void ExpectRefused(const VariableSpec& spec, const std::string& text) {
  EXPECT_THAT(ValidateSpec(spec, 2), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
}

TEST(VariableSpec, ValidSpecsPass) {
  EXPECT_OK(ValidateSpec(Dense(), 2));
  EXPECT_OK(ValidateSpec(Embedding(), 2));
  VariableSpec scalar = Dense();
  scalar.shape = {};
  scalar.shards = {{0, 1, 0}};
  EXPECT_OK(ValidateSpec(scalar, 1));
  VariableSpec empty_shard = Dense();
  empty_shard.shards = {{0, 10, 0}, {10, 0, 1}};
  EXPECT_OK(ValidateSpec(empty_shard, 2));
}

TEST(VariableSpec, NamesAreChecked) {
  VariableSpec spec = Dense();
  spec.name = "";
  ExpectRefused(spec, "name is empty");
  spec.name = std::string(513, 'a');
  ExpectRefused(spec, "513 bytes, at most 512");
  spec.name = "a b";
  ExpectRefused(spec, "byte 32 at position 1");
  spec.name = "Name_0/with.all-allowed";
  EXPECT_OK(ValidateSpec(spec, 2));
}

TEST(VariableSpec, EnumsFromTheWireAreChecked) {
  VariableSpec spec = Dense();
  spec.kind = static_cast<VariableKind>(7);
  ExpectRefused(spec, "kind 7 is unknown");
  spec = Dense();
  spec.touched_rows = static_cast<TouchedRows>(0);
  ExpectRefused(spec, "touched_rows 0 is unknown");
  spec = Dense();
  spec.dtype = static_cast<DType>(9);
  ExpectRefused(spec, "dtype number 9");
}

TEST(VariableSpec, DenseShardsCoverAllRowsInOrder) {
  VariableSpec spec = Dense();
  spec.shards = {};
  ExpectRefused(spec, "shards is empty");
  spec.shards = {{0, 6, 0}, {7, 3, 1}};
  ExpectRefused(spec, "shards[1] begins at row 7, expected 6");
  spec.shards = {{0, 6, 0}, {6, 5, 1}};
  ExpectRefused(spec, "shards[1] has 5 rows, allowed is 0 to 4");
  spec.shards = {{0, 6, 0}, {6, -1, 1}};
  ExpectRefused(spec, "shards[1] has -1 rows");
  spec.shards = {{0, 6, 0}};
  ExpectRefused(spec, "shards hold 6 rows");
  spec.shards = {{0, 10, 2}};
  ExpectRefused(spec, "shards[0] names ps 2, outside [0, 2)");
  spec = Dense();
  spec.bucket_ps = {0};
  ExpectRefused(spec, "bucket_ps is for embeddings");
}

TEST(VariableSpec, EmbeddingRulesAreChecked) {
  VariableSpec spec = Embedding();
  spec.dtype = DType::kFloat16;
  ExpectRefused(spec, "embeddings are float32");
  spec = Embedding();
  spec.shape = {100, 16};
  ExpectRefused(spec, "an embedding's is [dim]");
  spec.shape = {0};
  ExpectRefused(spec, "dim >= 1");
  spec = Embedding();
  spec.touched_rows = TouchedRows::kAll;
  ExpectRefused(spec, "must be 'pushed'");
  spec = Embedding();
  spec.bucket_ps = {0, 1, 0};
  ExpectRefused(spec, "bucket_ps has 3 entries; a power of two");
  spec.bucket_ps = {};
  ExpectRefused(spec, "bucket_ps has 0 entries");
  spec.bucket_ps = {0, -1};
  ExpectRefused(spec, "bucket_ps[1] names ps -1");
  spec = Embedding();
  spec.shards = {{0, 1, 0}};
  ExpectRefused(spec, "shards are for dense variables");
  spec = Embedding();
  spec.initializer.type = "wave";
  ExpectRefused(spec, "dense variables only");
  spec = Embedding();
  for (const int32_t pushes : {0, 256}) {
    spec.row_rules.admit_after_pushes = pushes;
    ExpectRefused(spec, "1 (every key that is pushed) to 255");
  }
  spec.row_rules.admit_after_pushes = 255;
  EXPECT_OK(ValidateSpec(spec, 2));
  spec.row_rules.expire_after_seconds = -1;
  ExpectRefused(spec, "expire_after_seconds is -1; 0 (never)");
  spec.row_rules.expire_after_seconds = kMostSecondsToExpire + 1;
  ExpectRefused(spec, "expire_after_seconds");
  spec.row_rules.expire_after_seconds = kMostSecondsToExpire;
  spec.row_rules.max_rows = 3;
  ExpectRefused(spec, "max_rows is 3; 0 (no limit), or 4 (a row a bucket) or more");
  spec.row_rules.max_rows = -1;
  ExpectRefused(spec, "max_rows is -1");
  spec.row_rules.max_rows = 4;
  EXPECT_OK(ValidateSpec(spec, 2));
  VariableSpec dense = Dense();
  dense.row_rules.admit_after_pushes = 2;
  ExpectRefused(dense, "row_rules are for embeddings");
  dense = Dense();
  dense.row_storage.values = RowFormat::kFloat16;
  ExpectRefused(dense, "row_storage is for embeddings");
  spec.row_storage = {.values = RowFormat::kInt8, .slots = RowFormat::kBFloat16};
  EXPECT_OK(ValidateSpec(spec, 2));
  spec.row_storage.slots = RowFormat::kInt8;
  ExpectRefused(spec, "row_storage.slots is int8; float32, float16, bfloat16 are allowed");
  spec.row_storage.slots = static_cast<RowFormat>(-1);
  ExpectRefused(spec, "row_storage.slots is number -1");
}

TEST(VariableSpec, ErrorsInPartsNameTheVariable) {
  VariableSpec spec = Dense();
  spec.optimizer.type = "adammm";
  EXPECT_THAT(ValidateSpec(spec, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("variable \"dense_0/kernel\""), HasSubstr("'adammm'"))));
  spec = Dense();
  spec.shape = {10, -4};
  ExpectRefused(spec, "extent -4 is negative");
  spec = Dense();
  spec.shape.assign(33, 1);
  ExpectRefused(spec, "33 axes, at most 32");
  spec = Dense();
  spec.map_version = 0;
  ExpectRefused(spec, "map_version is 0");
  spec.map_version = std::numeric_limits<int64_t>::max();
  ExpectRefused(spec, "must be 1 to 9007199254740992");
}

TEST(VariableSpec, IntegersHaveNoOptimizer) {
  VariableSpec spec = Dense();
  spec.dtype = DType::kInt64;
  ExpectRefused(spec, "dtype int64 cannot be updated by optimizer 'sgd'");
  spec.optimizer.type = "none";
  EXPECT_OK(ValidateSpec(spec, 2));
}

TEST(VariableSpec, TextShowsTheFieldsInWhichSpecsMayDiffer) {
  const std::string dense = SpecText(Dense());
  EXPECT_THAT(dense, AllOf(HasSubstr("\"dense_0/kernel\" dense float32 [10, 4]"),
                           HasSubstr("sgd(learning_rate=0.01"), HasSubstr("{0+6@0, 6+4@1}")));
  EXPECT_THAT(SpecText(Embedding()),
              AllOf(HasSubstr("embedding float32 [16]"), HasSubstr("touched_rows pushed"),
                    HasSubstr("4 buckets (ps: buckets) {0: 2, 1: 2}")));
  VariableSpec ruled = Embedding();
  ruled.row_rules = {.admit_after_pushes = 3, .expire_after_seconds = 60, .max_rows = 100};
  EXPECT_THAT(SpecText(ruled),
              HasSubstr("admit_after_pushes 3, expire_after_seconds 60, max_rows 100"));
  EXPECT_FALSE(ruled == Embedding());
  VariableSpec compact = Embedding();
  compact.row_storage = {.values = RowFormat::kInt8, .slots = RowFormat::kBFloat16};
  EXPECT_THAT(SpecText(compact), HasSubstr("row_storage int8 (slots bfloat16)"));
  EXPECT_FALSE(compact == Embedding());
}

}  // namespace
}  // namespace cairn
