// Reading a path that is not a file of bounded size is an immediate error.
#include "common/regular_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RegularFileTest : public ::testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string Make(const std::string& name, const std::string& text) const {
    std::ofstream(PathOf(name), std::ios::binary) << text;
    return PathOf(name);
  }

  TempDir directory_;
};

TEST_F(RegularFileTest, FilesUpToTheLimitAreRead) {
  const std::string text(10'000, 'x');
  const std::string path = Make("file", text);
  EXPECT_EQ(*ReadRegularFile(path, 10'000), text);
  EXPECT_EQ(*ReadRegularFile(path, 1 << 20), text);
  EXPECT_THAT(ReadRegularFile(path, 9999),
              StatusIs(absl::StatusCode::kOutOfRange,
                       AllOf(HasSubstr(path), HasSubstr("more than the 9999 bytes"))));
  EXPECT_EQ(*ReadRegularFile(Make("empty", ""), 0), "");
  EXPECT_EQ(OpenRegularFile(path)->bytes, 10'000);
  ASSERT_EQ(::symlink(path.c_str(), PathOf("link").c_str()), 0);
  EXPECT_EQ(*ReadRegularFile(PathOf("link"), 10'000), text);
}

// A file larger than the address space is not read beyond the limit.
TEST_F(RegularFileTest, AnEndlessFileIsReadOnlyUpToTheLimit) {
  const std::string path = Make("sparse", "");
  ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 42), 0);
  EXPECT_THAT(ReadRegularFile(path, 1 << 20),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("sparse")));
  EXPECT_GT(ReadRegularFile("/proc/self/status", 1 << 20)->size(), 0U);
}

TEST_F(RegularFileTest, OtherFileTypesAreRefusedByName) {
  ASSERT_EQ(::mkfifo(PathOf("fifo").c_str(), 0600), 0);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  const std::string socket = PathOf("socket");
  ASSERT_LT(socket.size(), sizeof(at.sun_path));
  std::copy(socket.begin(), socket.end(), at.sun_path);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  const auto refused = [](const std::string& path, const char* type) {
    const auto named = AllOf(HasSubstr(path), HasSubstr(type), HasSubstr("regular file"));
    EXPECT_THAT(OpenRegularFile(path), StatusIs(absl::StatusCode::kFailedPrecondition, named));
    EXPECT_THAT(ReadRegularFile(path, 10), StatusIs(absl::StatusCode::kFailedPrecondition, named));
  };
  refused(PathOf("fifo"), "a FIFO");
  refused(socket, "a socket");
  refused("/dev/zero", "a device");
  refused(directory_.path(), "a directory");
  ASSERT_EQ(::symlink("/dev/zero", PathOf("link").c_str()), 0);
  refused(PathOf("link"), "a device");
  ::close(fd);
  EXPECT_THAT(OpenRegularFile(PathOf("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace cairn
