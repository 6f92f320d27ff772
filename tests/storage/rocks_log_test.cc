// The info log stays small, keeps lines until it has a file, and survives a full disk.
#include "storage/rocks_log.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RocksLog, LinesBeforeAttachAreInTheFileAfterIt) {
  TempDir temp;
  RocksLog log(1 << 20);
  rocksdb::Log(rocksdb::INFO_LEVEL, &log, "first %d", 1);
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
  log.Attach(temp.Join("LOG"));
  rocksdb::Log(rocksdb::INFO_LEVEL, &log, "second %d", 2);
  rocksdb::Log(rocksdb::DEBUG_LEVEL, &log, "too much detail");
  EXPECT_THAT(FileText(temp.Join("LOG")),
              AllOf(HasSubstr("first 1\n"), HasSubstr("second 2\n"), Not(HasSubstr("detail"))));
}

TEST(RocksLog, TwoFilesOfTheGivenSizeAreKept) {
  TempDir temp;
  RocksLog log(1000);
  log.Attach(temp.Join("LOG"));
  for (int i = 0; i < 500; ++i) rocksdb::Log(rocksdb::INFO_LEVEL, &log, "line %d", i);
  EXPECT_LE(std::filesystem::file_size(temp.Join("LOG")), 1000u);
  EXPECT_LE(std::filesystem::file_size(temp.Join("LOG.old")), 1000u);
  EXPECT_THAT(FileText(temp.Join("LOG")), HasSubstr("line 499\n"));
}

TEST(RocksLog, AFileThatCannotBeWrittenOnlyLosesLines) {
  RocksLog log(1000);
  log.Attach("/no/such/folder/LOG");
  rocksdb::Log(rocksdb::WARN_LEVEL, &log, "[a.cc:1] kept in memory");
  EXPECT_EQ(log.Warnings(), "kept in memory");
}

TEST(RocksLog, TheLastWarningsAreKeptWithoutTheirSourcePosition) {
  RocksLog log(1000);
  for (int i = 0; i < 9; ++i) rocksdb::Log(rocksdb::WARN_LEVEL, &log, "[x.cc:%d] w%d", i, i);
  rocksdb::Log(rocksdb::ERROR_LEVEL, &log, "DB::Open() failed: the status says so itself");
  rocksdb::Log(rocksdb::INFO_LEVEL, &log, "no warning");
  EXPECT_EQ(log.Warnings(), "w5; w6; w7; w8");
}

}  // namespace
}  // namespace cairn
