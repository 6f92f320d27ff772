// Waits for the disk and for another call of the same server: each ends by itself, and its error
// names its reason (ps_server/CONSISTENCY.md lists all waits and their tests).
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/deadline.h"
#include "ps_server/calls/calls.h"
#include "ps_server/calls/checkpoint_calls.h"
#include "ps_server/core/server_core.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

class WaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = folder_.Join("store");
    options_.disk_wait = absl::Milliseconds(30);
    auto store = StripeStore::Open({.directory = options_.directory});
    ASSERT_OK(store);
    core_ = std::make_unique<ServerCore>(options_, *std::move(store));
    caller_.job = "j";
  }
  // Blocks the disk, as a stalled disk does, until the test ends.
  void Stall() {
    stalled_ = std::thread([this] {
      EXPECT_OK(core_->flusher.Exclusively([this] {
        begun_.Notify();
        well_.WaitForNotificationWithTimeout(absl::Seconds(30));
        return absl::OkStatus();
      }));
    });
    ASSERT_TRUE(begun_.WaitForNotificationWithTimeout(absl::Seconds(30)));
  }
  void TearDown() override {
    well_.Notify();
    if (stalled_.joinable()) stalled_.join();
  }
  // The wait of worker 3 as `why` reports it; empty: none.
  std::string Why() {
    wire::WhyReply reply;
    FillWhy(core_->registry, core_->waits, caller_, reply);
    for (const wire::WaitingCall& call : reply.waiting) {
      if (call.worker == 3) return call.waits_for + ": " + call.text;
    }
    return "";
  }

  TempDir folder_;
  EngineOptions options_;
  std::unique_ptr<ServerCore> core_;
  wire::Caller caller_;
  absl::Notification begun_, well_;
  std::thread stalled_;
};

TEST_F(WaitsTest, AnEpochThatTheDiskDoesNotTakeNamesTheDirectory) {
  Stall();
  for (const Flusher::Reach reach : {Flusher::Reach::kWritten, Flusher::Reach::kSynced}) {
    EXPECT_THAT(core_->flusher.Flush(reach),
                StatusIs(StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("writing to " + options_.directory),
                               HasSubstr("took longer than 30ms: check the disk"))));
  }
  EXPECT_OK(core_->flusher.failure());  // a slow disk is not a failed disk
}

TEST_F(WaitsTest, ADropOfAJobThatWaitsForTheDiskNamesTheDirectory) {
  Stall();
  EXPECT_THAT(DropJob(core_->catalog, core_->admission, caller_),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("drop_job on ps:0"), HasSubstr(options_.directory),
                             HasSubstr("check the disk"))));
}

TEST_F(WaitsTest, WhileItLastsWhyNamesTheDirectory) {
  Stall();
  absl::Notification seen;
  std::thread waiter([&] {
    const WaitBoard::Calling calling("j", 3);
    const Deadline end = Deadline::In(absl::Seconds(20));
    while (!seen.HasBeenNotified() && !end.Expired()) {
      core_->flusher.Flush(Flusher::Reach::kWritten).IgnoreError();
    }
  });
  const Deadline end = Deadline::In(absl::Seconds(20));
  std::string why;
  while (why.empty() && !end.Expired()) why = Why();
  EXPECT_THAT(why, AllOf(HasSubstr("epoch: worker 3 of job j waits for"),
                         HasSubstr(options_.directory), HasSubstr("since")));
  seen.Notify();
  waiter.join();
}

TEST_F(WaitsTest, ACreateBehindARestoreNamesIt) {
  const auto held = core_->catalog.TakeSlot("restore of job other");
  ASSERT_OK(held);
  EXPECT_THAT(CreateVariables(core_->catalog, core_->moves, core_->rows, caller_, {}),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:0: create_variables of job j waits for"),
                             HasSubstr("restore of job other, which has run for"))));
  EXPECT_THAT(DropJob(core_->catalog, core_->admission, caller_),
              StatusIs(StatusCode::kUnavailable, HasSubstr("drop_job of job j waits for")));
}

TEST_F(WaitsTest, ACheckpointBehindAnotherNamesIt) {
  Checkpoints checkpoints(core_->info, *core_->store, core_->registry, core_->flusher,
                          core_->waits);
  const auto held = checkpoints.TakeSlot("ps:0: checkpoint a");
  ASSERT_OK(held);
  EXPECT_THAT(checkpoints.TakeSlot("ps:0: checkpoint b").status(),
              StatusIs(StatusCode::kUnavailable,
                       HasSubstr("checkpoint b waits for ps:0: checkpoint a, which has run for")));
}

TEST_F(WaitsTest, AWriteThatFailsOutsideEpochsIsKeptAndNamesTheDirectory) {
  const absl::Status refused =
      core_->flusher.Refuse(absl::UnavailableError("write a decision: Input/output error"));
  EXPECT_THAT(refused,
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:0 cannot write to " + options_.directory),
                             HasSubstr("Input/output error"), HasSubstr("restart this server"))));
  EXPECT_EQ(ReasonOf(refused), wire::ErrorReason::STOPPING);
  EXPECT_EQ(core_->flusher.Flush(Flusher::Reach::kWritten), refused);
  EXPECT_EQ(core_->flusher.Refuse(absl::InternalError("later")), refused);
}

}  // namespace
}  // namespace cairn
