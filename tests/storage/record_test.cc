// The bytes of every record; other bytes are refused. The golden bytes were computed independently
// of this code, with Python's struct and xxhsum, from the tables in storage/FORMAT.md. They change
// only with kFormatVersion; an old folder must then still be read, or be refused.
#include "storage/record.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes.h"
#include "storage/checksum.h"
#include "storage/key.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr char kMetaValue[] = "010000000300000007000000000000009ad65f7a609506fd";
constexpr char kVariableValue[] =
    "03000000613961060000006b65726e656c050000000073706563925bb6e632430538";
constexpr char kShardValue[] =
    "290000000000000002000000000000000900000000000000ffffffff0000000000010000074376a41dd453cc";
constexpr char kWorkerValue[] = "02000000000000004d0000000000000003000000706f73e322ebf92abe1c92";
constexpr char kDecisionValue[] =
    "020000000000000002000000000000004d00000000000000800000000000000003000000706f730300000001"
    "000000000000000900000000000000050000000000000000000000d7fd1c97e5292b3c";
constexpr char kNoteValue[] = "040000006e6f7465734a116926f3f58d";
constexpr char kHeaderValue[] =
    "020000000000000009000000000000000100000008000000000000000982e0db289c648c";

const MetaRecord kMeta{.format = 1, .server_index = 3, .boot_count = 7};
const VariableRecord kVariable{5, "a9a", "kernel", std::string("\0spec", 5)};
const ShardRecord kShard{5, 2, 41, {{0, 9}, {-1, int64_t{1} << 40}}};
const WorkerRecord kWorker{"a9a", 1, 2, 77, "pos"};
const DecisionRecord kDecision{"a9a", 258, {{0, 2, 77, 128, "pos"}, {3, 1, 9, 5, ""}}};
const NoteRecord kNote{"members", "note"};
const std::vector<Watermark> kWatermarks{{0, 9}, {1, 8}};

std::string Hex(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

std::string HeaderKey() {
  StripeKeys keys({5, 2, 17});
  return std::string(keys.Header());
}

TEST(RecordFormat, KeysHaveTheirGoldenBytes) {
  EXPECT_EQ(Hex(MetaKey()), "01");
  EXPECT_EQ(Hex(VariableKey(5)), "0200000005");
  EXPECT_EQ(Hex(ShardKey(5, 2)), "030000000500000002");
  EXPECT_EQ(Hex(WorkerKey("a9a", 1)), "04000361396180000001");
  EXPECT_EQ(Hex(DecisionKey("a9a", 258)), "0600036139610000000000000102");
  EXPECT_EQ(Hex(NoteKey("members")), "076d656d62657273");
  StripeKeys keys({5, 2, 17});
  EXPECT_EQ(Hex(keys.Header()), "0500000005000000020000001100");
  EXPECT_EQ(Hex(keys.Image()), "0500000005000000020000001101");
  EXPECT_EQ(Hex(keys.Rows(258)), "050000000500000002000000110200000102");
}

TEST(RecordFormat, ValuesHaveTheirGoldenBytes) {
  EXPECT_EQ(Hex(EncodeMeta(MetaKey(), kMeta)), kMetaValue);
  EXPECT_EQ(Hex(EncodeVariable(VariableKey(5), kVariable)), kVariableValue);
  EXPECT_EQ(Hex(EncodeShard(ShardKey(5, 2), kShard)), kShardValue);
  EXPECT_EQ(Hex(EncodeWorker(WorkerKey("a9a", 1), kWorker)), kWorkerValue);
  EXPECT_EQ(Hex(EncodeDecision(DecisionKey("a9a", 258), kDecision)), kDecisionValue);
  EXPECT_EQ(Hex(EncodeNote(NoteKey("members"), kNote)), kNoteValue);
  EXPECT_EQ(Hex(EncodeHeader(HeaderKey(), kWatermarks)), kHeaderValue);
}

TEST(RecordFormat, GoldenBytesAreReadBack) {
  const auto bytes = [](const char* hex) { return absl::HexStringToBytes(hex); };
  EXPECT_EQ(DecodeMeta(MetaKey(), bytes(kMetaValue)).value(), kMeta);
  EXPECT_EQ(DecodeVariable(VariableKey(5), bytes(kVariableValue)).value(), kVariable);
  EXPECT_EQ(DecodeShard(ShardKey(5, 2), bytes(kShardValue)).value(), kShard);
  EXPECT_EQ(DecodeWorker(WorkerKey("a9a", 1), bytes(kWorkerValue)).value(), kWorker);
  EXPECT_EQ(DecodeDecision(DecisionKey("a9a", 258), bytes(kDecisionValue)).value(), kDecision);
  EXPECT_EQ(DecodeNote(NoteKey("members"), bytes(kNoteValue)).value(), kNote);
  std::vector<Watermark> watermarks = {{9, 9}};
  ASSERT_OK(DecodeHeader(HeaderKey(), bytes(kHeaderValue), watermarks));
  EXPECT_EQ(watermarks, kWatermarks);
}

TEST(RecordFormat, AWorkerThatLeftIsReadBackAsOne) {
  WorkerRecord left = kWorker;
  left.left = true;
  const std::string value = EncodeWorker(WorkerKey("a9a", 1), left);
  EXPECT_EQ(value.size(), sizeof kWorkerValue / 2 + 1);
  EXPECT_EQ(DecodeWorker(WorkerKey("a9a", 1), value).value(), left);
}

// Runs the decoder for this kind of key and returns its status.
absl::Status Decode(absl::string_view key, absl::string_view value) {
  switch (static_cast<RecordKind>(key[0])) {
    case RecordKind::kMeta: return DecodeMeta(key, value).status();
    case RecordKind::kVariable: return DecodeVariable(key, value).status();
    case RecordKind::kShard: return DecodeShard(key, value).status();
    case RecordKind::kWorker: return DecodeWorker(key, value).status();
    case RecordKind::kDecision: return DecodeDecision(key, value).status();
    case RecordKind::kNote: return DecodeNote(key, value).status();
    case RecordKind::kStripe: {
      std::vector<Watermark> watermarks;
      return DecodeHeader(key, value, watermarks);
    }
  }
  return absl::InternalError("no such kind");
}

std::vector<std::pair<std::string, std::string>> GoldenRecords() {
  return {{MetaKey(), absl::HexStringToBytes(kMetaValue)},
          {VariableKey(5), absl::HexStringToBytes(kVariableValue)},
          {ShardKey(5, 2), absl::HexStringToBytes(kShardValue)},
          {WorkerKey("a9a", 1), absl::HexStringToBytes(kWorkerValue)},
          {DecisionKey("a9a", 258), absl::HexStringToBytes(kDecisionValue)},
          {NoteKey("members"), absl::HexStringToBytes(kNoteValue)},
          {HeaderKey(), absl::HexStringToBytes(kHeaderValue)}};
}

TEST(RecordDamage, EveryFlippedBitIsDataLoss) {
  for (const auto& [key, value] : GoldenRecords()) {
    for (size_t bit = 0; bit < value.size() * 8; ++bit) {
      std::string damaged = value;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      EXPECT_THAT(Decode(key, damaged), StatusIs(absl::StatusCode::kDataLoss, _)) << bit;
    }
  }
}

TEST(RecordDamage, EveryTruncationIsDataLoss) {
  for (const auto& [key, value] : GoldenRecords()) {
    for (size_t size = 0; size < value.size(); ++size) {
      EXPECT_THAT(Decode(key, value.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss, _));
    }
  }
}

// Without this check, a stripe's header stored under another stripe's key would go unnoticed.
TEST(RecordDamage, AValueUnderAnotherKeyIsDataLossThatNamesTheRecord) {
  EXPECT_THAT(DecodeShard(ShardKey(5, 3), absl::HexStringToBytes(kShardValue)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("shard 5/3")));
}

std::string Seal(absl::string_view key, std::string value) {
  char checksum[kChecksumBytes];
  StoreLittleEndian(ChecksumOf({key, value}), checksum);
  return value.append(checksum, sizeof(checksum));
}

// The checksum only shows that the bytes are those once written. Lengths are checked separately,
// before memory is allocated for them.
TEST(RecordDamage, WrongLengthsAreDataLossEvenWithACorrectChecksum) {
  const std::string four_billion(4, '\xff');
  EXPECT_THAT(Decode(HeaderKey(), Seal(HeaderKey(), four_billion)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("stripe 5/2/17")));
  const std::string key = VariableKey(5);
  EXPECT_THAT(Decode(key, Seal(key, four_billion)), StatusIs(absl::StatusCode::kDataLoss, _));
  const std::string whole = EncodeMeta(MetaKey(), kMeta);
  const std::string longer = whole.substr(0, whole.size() - kChecksumBytes) + "x";
  EXPECT_THAT(Decode(MetaKey(), Seal(MetaKey(), longer)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("do not fill")));
}

TEST(RecordDamage, RandomBytesWithACorrectChecksumNeverCrashADecoder) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    for (const auto& record : GoldenRecords()) {
      std::string value(random() % 48, '\0');
      for (char& c : value) c = static_cast<char>(random() % 5 == 0 ? random() : 0);
      const absl::Status status = Decode(record.first, Seal(record.first, std::move(value)));
      EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    }
  }
}

}  // namespace
}  // namespace cairn
