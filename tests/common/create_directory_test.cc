// New directories are durable: each directory that got a name has been synced.
#include "common/create_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CreateDirectoryTest : public ::testing::Test {
 protected:
  const TempDir temp_;
  const std::string folder_ = fs::canonical(temp_.path());
  test::RecordedSyncs syncs_;
};

TEST_F(CreateDirectoryTest, EveryParentOfANewDirectoryIsSynced) {
  for (const std::string end : {"", "/"}) {
    const std::string a = folder_ + "/a" + std::to_string(end.size());
    EXPECT_FALSE(CreateDirectories(a + "/b/c" + end));
    EXPECT_TRUE(fs::is_directory(a + "/b/c"));
    EXPECT_THAT(syncs_.Take(), ElementsAre(folder_, a, a + "/b"));
    EXPECT_FALSE(CreateDirectories(a + "/b/d" + end));
    EXPECT_THAT(syncs_.Take(), ElementsAre(a + "/b"));
  }
}

// The process that created it may have been killed before it could sync the name.
TEST_F(CreateDirectoryTest, TheNameOfAnExistingDirectoryIsSyncedToo) {
  EXPECT_FALSE(CreateDirectory(folder_ + "/a", 0700));
  EXPECT_EQ(fs::status(folder_ + "/a").permissions(), fs::perms::owner_all);
  EXPECT_FALSE(CreateDirectory(folder_ + "/a"));
  EXPECT_THAT(syncs_.Take(), ElementsAre(folder_, folder_));
}

TEST_F(CreateDirectoryTest, RelativePathsAreBelowTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_FALSE(CreateDirectories("a/b"));
  EXPECT_FALSE(CreateDirectories("."));
  fs::current_path(before);
  EXPECT_THAT(syncs_.Take(), ElementsAre(folder_, folder_ + "/a", folder_));
}

TEST_F(CreateDirectoryTest, WhatIsNoDirectoryIsAnError) {
  std::ofstream(folder_ + "/file") << "";
  fs::create_symlink(folder_ + "/nowhere", folder_ + "/link");
  EXPECT_EQ(CreateDirectory(folder_ + "/file"), std::errc::file_exists);
  EXPECT_EQ(CreateDirectory(folder_ + "/link"), std::errc::file_exists);
  EXPECT_EQ(CreateDirectory(folder_ + "/no/parent"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(CreateDirectories(folder_ + "/file/a"), std::errc::not_a_directory);
  EXPECT_THAT(syncs_.Take(), IsEmpty());
}

}  // namespace
}  // namespace cairn
