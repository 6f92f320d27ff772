// RocksDB's statuses as callers see them: the code, and the next step in the text.
#include "storage/rocks_status.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RocksStatus, OkStaysOk) { EXPECT_OK(FromRocks(rocksdb::Status::OK(), "x")); }

TEST(RocksStatus, EveryWayADiskRefusesMoreBytesIsResourceExhausted) {
  for (const rocksdb::Status& status :
       {rocksdb::Status::NoSpace(), rocksdb::Status::SpaceLimit(),
        rocksdb::Status::IOError("While appending to file: /d/4.log", "File too large"),
        rocksdb::Status::IOError("While appending to file: /d/4.log", "Disk quota exceeded")}) {
    EXPECT_THAT(FromRocks(status, "store /d: write"),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(StartsWith("store /d: write"), HasSubstr("disk full"),
                               HasSubstr("free space and restart"))));
  }
}

TEST(RocksStatus, CodesFollowTheCause) {
  using rocksdb::Status;
  EXPECT_THAT(FromRocks(Status::Corruption("in /d/7.sst"), "x"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/d/7.sst")));
  EXPECT_THAT(FromRocks(Status::IOError("/d/LOG", "Permission denied"), "x"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("/d/LOG")));
  EXPECT_THAT(FromRocks(Status::IOError("/d/LOG", "Read-only file system"), "x"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("/d/LOG")));
  EXPECT_THAT(FromRocks(Status::IOError("/d/7.sst", "Input/output error"), "x"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/d/7.sst")));
  EXPECT_THAT(FromRocks(Status::NotSupported("unknown tag"), "x"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another RocksDB")));
  EXPECT_THAT(FromRocks(Status::InvalidArgument("y"), "x"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("y")));
}

}  // namespace
}  // namespace cairn
