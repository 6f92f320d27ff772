// A peer's memory is accepted only if it cannot disappear.
#include "thrift/local/shared_rings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "thrift/local/limits.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRing = kMinLocalRingBytes;

Descriptor Memory(off_t bytes, int seals, unsigned flags = MFD_ALLOW_SEALING) {
  Descriptor fd(::memfd_create("test", MFD_CLOEXEC | flags));
  EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

TEST(SharedRings, BothSidesSeeOneMemory) {
  Descriptor fd;
  const absl::StatusOr<SharedRings> own = SharedRings::Create(kRing, &fd);
  ASSERT_OK(own);
  const absl::StatusOr<SharedRings> peers = SharedRings::Adopt(fd.get(), kRing);
  ASSERT_OK(peers);
  std::memcpy(own->ring(0), "up", 3);
  std::memcpy(peers->ring(1) + kRing - 5, "down", 5);
  EXPECT_STREQ(reinterpret_cast<const char*>(peers->ring(0)), "up");
  EXPECT_STREQ(reinterpret_cast<const char*>(own->ring(1) + kRing - 5), "down");
}

TEST(SharedRings, MemoryOutlivesItsDescriptorAndCannotShrink) {
  Descriptor fd;
  const absl::StatusOr<SharedRings> own = SharedRings::Create(kRing, &fd);
  ASSERT_OK(own);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(fd.get(), 4 * off_t{kRing}), 0);
  fd.Reset();
  std::memset(own->ring(0), 1, 2 * size_t{kRing});
}

TEST(SharedRings, OtherMemoryIsRefusedByName) {
  const auto refused = [](int fd, uint32_t ring_bytes, const char* why) {
    EXPECT_THAT(SharedRings::Adopt(fd, ring_bytes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  constexpr off_t kBytes = 2 * off_t{kRing};
  refused(Memory(kBytes, 0).get(), kRing, "not sealed");
  refused(Memory(kBytes, F_SEAL_SHRINK).get(), kRing, "not sealed");
  refused(Memory(kBytes, 0, 0).get(), kRing, "not sealed");
  refused(Memory(kBytes - 1, kSeals).get(), kRing, "131071 bytes; two rings of 65536");
  refused(Memory(kBytes * 2, kSeals).get(), kRing, "262144 bytes");
  refused(Memory(0, kSeals).get(), kRing, "0 bytes");
  const Descriptor fine = Memory(kBytes, kSeals);
  refused(fine.get(), kRing - 1, "powers of two");
  refused(fine.get(), kRing / 2, "allowed are powers of two, 65536 … 4194304");
  refused(fine.get(), 2 * kMaxLocalRingBytes, "powers of two");
  refused(fine.get(), 0, "powers of two");
  EXPECT_OK(SharedRings::Adopt(fine.get(), kRing));
  const TempDir folder;
  const Descriptor file(::open(folder.Join("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  refused(file.get(), kRing, "no memfd");
  int pipes[2] = {-1, -1};
  ASSERT_EQ(::pipe2(pipes, O_CLOEXEC), 0);
  const Descriptor reads(pipes[0]);
  const Descriptor writes(pipes[1]);
  refused(reads.get(), kRing, "no memfd");
  refused(-1, kRing, "no memfd");
  // Memory sealed against writing is refused here, instead of causing a fault at the first write.
  EXPECT_FALSE(SharedRings::Adopt(Memory(kBytes, kSeals | F_SEAL_WRITE).get(), kRing).ok());
}

TEST(SharedRings, HugePagesAreRefusedBecauseTheyMayRunOut) {
  const Descriptor fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (fd.get() < 0) GTEST_SKIP() << "no huge pages here";
  ASSERT_EQ(::ftruncate(fd.get(), 2 * off_t{kMaxLocalRingBytes}), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_THAT(SharedRings::Adopt(fd.get(), kMaxLocalRingBytes),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("common pages")));
}

}  // namespace
}  // namespace cairn
