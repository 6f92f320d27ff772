// Corruption of record files is detected and reported with file and offset; checksums are RFC
// 3720's.
#include "worker/input/dataset/record_file.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/input/dataset/elements.h"
#include "tests/worker/input/input_files.h"
#include "worker/input/dataset/crc32c.h"
#include "worker/input/dataset/dataset.h"
#include "worker/input/dataset/record_reader.h"

namespace cairn {
namespace {

using test::Drain;
using test::Drained;
using test::Elements;
using ::testing::HasSubstr;

constexpr size_t kFrameBytes = 16;  // around each record

std::string Framed(const std::vector<std::string>& records) {
  std::string bytes;
  for (const std::string& record : records) AppendTFRecord(record, &bytes);
  return bytes;
}

// Reads `bytes` as a TFRecord file.
class TFRecordTest : public ::testing::Test {
 protected:
  Drained Read(const std::string& bytes, Compression compression = Compression::kNone) {
    test::WriteFile(path_, bytes);
    return Drain(Dataset::TFRecord({path_}, compression));
  }

  const TempDir folder_;
  const std::string path_ = folder_.Join("x.tfrecord");
};

TEST(Crc32c, EqualsTheVectorsOfRfc3720) {
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xff');
  std::string rising;
  for (char c = 0; c < 32; ++c) rising.push_back(c);
  for (const auto crc : {Crc32c, Crc32cByTables}) {
    EXPECT_EQ(crc(zeros.data(), 32), 0x8a9136aaU);
    EXPECT_EQ(crc(ones.data(), 32), 0x62a8ab43U);
    EXPECT_EQ(crc(rising.data(), 32), 0x46dd794eU);
    EXPECT_EQ(crc("123456789", 9), 0xe3069283U);
    EXPECT_EQ(crc(nullptr, 0), 0U);
  }
}

TEST(Crc32c, TablesAndInstructionAgreeAtEveryLengthAndAlignment) {
  std::string bytes;
  for (int i = 0; i < 64; ++i) bytes.push_back(static_cast<char>(i * 37));
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; begin + size <= bytes.size(); ++size) {
      EXPECT_EQ(Crc32c(bytes.data() + begin, size), Crc32cByTables(bytes.data() + begin, size));
    }
  }
}

// Computed bit by bit from the polynomial, independently of this code.
TEST_F(TFRecordTest, FramingIsLengthDataAndTheirMaskedChecksums) {
  const std::string expected(
      "\x05\0\0\0\0\0\0\0"
      "\xea\xb2\x04\x3e"
      "hello"
      "\xbb\x1f\x1c\x19",
      5 + kFrameBytes);
  EXPECT_EQ(Framed({"hello"}), expected);
}

TEST_F(TFRecordTest, RecordsComeBackAsTheyWereWritten) {
  const std::string binary("a\0\n\xff", 4);
  test::WriteFile(path_, Framed({"one", "", binary}));
  auto iterator = *Dataset::TFRecord({path_}).MakeIterator();
  Element element;
  for (const std::string& record : {std::string("one"), std::string(), binary}) {
    ASSERT_TRUE(*iterator->Next(&element));
    EXPECT_EQ(element[0].texts()[0], record);
  }
  EXPECT_FALSE(*iterator->Next(&element));
  EXPECT_EQ(Read("").elements.size(), 0u);
}

TEST_F(TFRecordTest, EveryTruncationIsDataLossWithFileAndOffset) {
  const std::string bytes = Framed({"first", "second"});
  const size_t second = 5 + kFrameBytes;
  for (size_t size = 1; size < bytes.size(); ++size) {
    if (size == second) continue;
    const Drained drained = Read(bytes.substr(0, size));
    const size_t start = size < second ? 0 : second;
    EXPECT_TRUE(absl::IsDataLoss(drained.status)) << size << ": " << drained.status;
    EXPECT_THAT(std::string(drained.status.message()),
                HasSubstr(absl::StrCat(path_, ": the record at byte ", start, " is truncated")));
    EXPECT_EQ(drained.elements.size(), start == 0 ? 0u : 1u);
  }
}

TEST_F(TFRecordTest, EveryFlippedBitIsNoticed) {
  const std::string bytes = Framed({"first", "second"});
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const Drained drained = Read(damaged);
    EXPECT_TRUE(absl::IsDataLoss(drained.status)) << "bit " << bit << ": " << drained.status;
    EXPECT_THAT(std::string(drained.status.message()), HasSubstr("checksum"));
  }
}

TEST_F(TFRecordTest, DamageStaysWhereItIs) {
  std::string bytes = Framed({"first", "second"});
  bytes[14] ^= 1;
  test::WriteFile(path_, bytes);
  auto iterator = *Dataset::TFRecord({path_}).MakeIterator();
  Element element;
  const absl::Status damage = iterator->Next(&element).status();
  EXPECT_TRUE(absl::IsDataLoss(damage));
  EXPECT_EQ(iterator->Next(&element).status(), damage);
}

TEST_F(TFRecordTest, LengthsAreRefusedBeforeMemoryIsSetAside) {
  const uint64_t length = uint64_t{1} << 40;
  std::string header(reinterpret_cast<const char*>(&length), sizeof(length));
  const uint32_t crc = MaskCrc(Crc32c(header.data(), header.size()));
  header.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  const Drained drained = Read(header);
  EXPECT_TRUE(absl::IsInvalidArgument(drained.status)) << drained.status;
}

TEST_F(TFRecordTest, GzipIsReadWhereItIsNamed) {
  const std::string packed = test::Gzip(Framed({"one", "two"}));
  EXPECT_EQ(Read(packed, Compression::kGzip).elements.dump(), R"(["one","two"])");
  EXPECT_TRUE(absl::IsDataLoss(Read(packed).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Read(Framed({"one"}), Compression::kGzip).status));
}

TEST_F(TFRecordTest, FilesThatCannotBeReadAreNamed) {
  const absl::Status missing = Drain(Dataset::TFRecord({folder_.Join("none")})).status;
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr(folder_.Join("none")));
  EXPECT_TRUE(absl::IsInvalidArgument(Drain(Dataset::TFRecord({folder_.path()})).status));
}

TEST_F(TFRecordTest, AWorkerWithoutARecordIsAtTheEndOfAllEpochs) {
  test::WriteFile(path_, Framed({"one", "two"}));
  for (const int32_t worker : {0, 1, 2}) {
    const auto reader = RecordReader::Open({.files = {path_},
                                            .worker = worker,
                                            .workers = 3,
                                            .epochs = worker < 2 ? 2 : int64_t{1} << 60});
    ASSERT_TRUE(reader.ok()) << reader.status();
    std::string record;
    int records = 0;
    while ((*reader)->Next(&record).value()) ++records;
    EXPECT_EQ(records, worker < 2 ? 2 : 0);
  }
}

TEST(FixedLengthRecord, ReadsBetweenHeaderAndFooter) {
  const TempDir folder;
  const std::string path = folder.Join("x");
  test::WriteFile(path, "HHaaabbbcccF");
  EXPECT_EQ(Elements(Dataset::FixedLengthRecord({path, path}, 3, 2, 1)),
            R"(["aaa","bbb","ccc","aaa","bbb","ccc"])");
  const absl::Status odd = Drain(Dataset::FixedLengthRecord({path}, 5)).status;
  EXPECT_TRUE(absl::IsInvalidArgument(odd)) << odd;
  EXPECT_THAT(std::string(odd.message()), HasSubstr(path));
  EXPECT_EQ(Elements(Dataset::FixedLengthRecord({path}, 0)), "[] then INVALID_ARGUMENT");
}

}  // namespace
}  // namespace cairn
