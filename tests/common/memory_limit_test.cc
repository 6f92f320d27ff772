#include "common/memory_limit.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

class ControlGroups : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& contents) {
    const std::filesystem::path path = std::filesystem::path(root_.path()) / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << contents << "\n";
  }
  int64_t LimitOf(const std::string& membership) {
    return ControlGroupLimitBytes(membership, root_.path());
  }

  TempDir root_;
};

TEST_F(ControlGroups, TheLowestLimitOnTheWayUpCounts) {
  Write("system.slice/memory.max", "3000");
  Write("system.slice/cairn.service/memory.max", "max");
  Write("system.slice/other.service/memory.max", "1000");
  EXPECT_EQ(LimitOf("0::/system.slice/cairn.service\n"), 3000);
  EXPECT_EQ(LimitOf("0::/system.slice/other.service\n"), 1000);
  EXPECT_EQ(LimitOf("0::/\n"), kNoLimit);
}

TEST_F(ControlGroups, AContainerSeesItsOwnGroupAsTheRoot) {
  Write("memory.max", "2000");
  EXPECT_EQ(LimitOf("0::/\n"), 2000);
  EXPECT_EQ(LimitOf("0::/docker/0123\n"), 2000);
}

TEST_F(ControlGroups, Version1HasTheMemoryControllerInAHierarchyOfItsOwn) {
  Write("memory/job_7/memory.limit_in_bytes", "4000");
  Write("cpu/job_7/memory.limit_in_bytes", "1");
  EXPECT_EQ(LimitOf("5:cpu:/job_7\n4:hugetlb,memory:/job_7/step_0\n0::/\n"), 4000);
  EXPECT_EQ(LimitOf("5:cpu:/job_7\n"), kNoLimit);
}

TEST_F(ControlGroups, WhatCannotBeReadLimitsNothing) {
  EXPECT_EQ(LimitOf(""), kNoLimit);
  EXPECT_EQ(LimitOf("no group\n0:\n::\n0::relative\n0::/a/../b\n"), kNoLimit);
  EXPECT_EQ(ControlGroupLimitBytes("0::/a\n", "/nonexistent"), kNoLimit);
  Write("memory.max", "");
  EXPECT_EQ(LimitOf("0::/\n"), kNoLimit);
}

TEST(MemoryLimit, IsAtMostTheMachine) {
  EXPECT_GT(MemoryLimitBytes(), 0);
  EXPECT_LE(MemoryLimitBytes(), int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE));
}

}  // namespace
}  // namespace cairn
