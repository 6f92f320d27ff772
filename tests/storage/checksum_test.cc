// The checksum is XXH3 with seed 0, however the input is divided into pieces.
#include "storage/checksum.h"

#include <string>

#include "gtest/gtest.h"

namespace cairn {
namespace {

// printf '' | xxhsum -H3, and printf 'valuesslots' | xxhsum -H3
TEST(Checksum, IsXxh3OfTheSpecification) {
  EXPECT_EQ(ChecksumOf({}), 0x2d06800538d394c2u);
  EXPECT_EQ(ChecksumOf({"valuesslots"}), 0xaf0304c3aff2cc03u);
}

TEST(Checksum, PiecesAreConcatenated) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes.push_back(static_cast<char>(i * 31));
  const absl::string_view whole = bytes;
  for (const size_t cut : {0u, 1u, 239u, 240u, 4096u, 5000u}) {
    EXPECT_EQ(ChecksumOf({whole.substr(0, cut), "", whole.substr(cut)}), ChecksumOf({whole}));
  }
}

}  // namespace
}  // namespace cairn
