// Simulates the timing of pushes against epochs: which pushes wait, how long each, and how many are
// made.
#include "worker/client/delivery/retention_pace.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::test {
namespace {

constexpr int64_t kLimit = 1 << 20, kPush = 1 << 10;

// One worker, and one server whose epochs begin when half of the limit is retained. An epoch makes
// durable the pushes made before it began.
class Simulated {
 public:
  struct Told {
    int64_t pushes = 0;
    absl::Duration longest;    // the longest that the pace delayed a push
    int64_t without_room = 0;  // pushes that found no memory left
  };

  Simulated(absl::Duration push, bool paced) : push_(push), paced_(paced) {}

  // Pushes continuously until `epochs` more epochs have ended, each of which takes `epoch`.
  Told Run(int epochs, absl::Duration epoch) {
    Told told;
    while (true) {
      const absl::Duration wait =
          paced_ ? pace_.Wait(kPush, held_, gone_, now_) : absl::ZeroDuration();
      told.longest = std::max(told.longest, wait);
      now_ += wait;
      if (epoch_end_.has_value() && held_ + kPush > kLimit && now_ < *epoch_end_) {
        ++told.without_room;
        now_ = *epoch_end_;
      }
      if (epoch_end_.has_value() && now_ >= *epoch_end_) {
        held_ -= noted_;
        gone_ += noted_;
        epoch_end_.reset();
        if (--epochs == 0) return told;
      }
      now_ += push_;
      held_ += kPush;
      ++told.pushes;
      if (held_ > kLimit / 2 && !epoch_end_.has_value()) {
        epoch_end_ = now_ + epoch;
        noted_ = held_;
      }
    }
  }

  absl::Duration now() const { return now_; }

 private:
  const absl::Duration push_;
  const bool paced_;
  RetentionPace pace_{kLimit};
  absl::Duration now_ = absl::Seconds(1000);
  int64_t held_ = 0, gone_ = 0, noted_ = 0;
  std::optional<absl::Duration> epoch_end_;
};

TEST(RetentionPace, WhoPushesSlowerThanEpochsEndDoesNotWait) {
  Simulated worker(absl::Milliseconds(4), /*paced=*/true);
  worker.Run(2, absl::Seconds(1.5));  // lets the pace learn their duration
  // 512 pushes are half of the limit, and take 2 s.
  const Simulated::Told told = worker.Run(20, absl::Seconds(1.5));
  EXPECT_EQ(told.longest, absl::ZeroDuration());
  EXPECT_EQ(told.without_room, 0);
}

TEST(RetentionPace, RoomLastsUntilTheEpochsEnd) {
  Simulated worker(absl::Microseconds(100), /*paced=*/true);
  worker.Run(2, absl::Seconds(4));  // lets the pace learn their duration
  const Simulated::Told told = worker.Run(20, absl::Seconds(4));
  EXPECT_EQ(told.without_room, 0);
  EXPECT_LT(told.longest, absl::Milliseconds(50));
}

TEST(RetentionPace, AsManyPushesAreMadeAsByThoseWhoWaitForTheEpoch) {
  Simulated paced(absl::Microseconds(100), /*paced=*/true);
  Simulated lumps(absl::Microseconds(100), /*paced=*/false);
  const auto rate = [](Simulated& worker) {
    const absl::Duration begin = worker.now();
    const int64_t pushes = worker.Run(20, absl::Seconds(4)).pushes;
    return static_cast<double>(pushes) / absl::ToDoubleSeconds(worker.now() - begin);
  };
  rate(paced);
  EXPECT_GT(rate(paced), 0.8 * rate(lumps));
}

TEST(RetentionPace, AnEpochThatTakesLongerThanForetoldFindsRoomLeft) {
  Simulated worker(absl::Microseconds(100), /*paced=*/true);
  worker.Run(5, absl::Seconds(2));
  const Simulated::Told told = worker.Run(2, absl::Seconds(4));
  EXPECT_EQ(told.without_room, 0);
  EXPECT_LE(told.longest, RetentionPace::kLongest);
}

TEST(RetentionPace, APushForWhichThereIsNoRoomIsNotToldToWait) {
  RetentionPace pace(kLimit);
  absl::Duration now = absl::Seconds(1000);
  EXPECT_EQ(pace.Wait(kPush, kLimit * 3 / 4, 0, now), absl::ZeroDuration());
  now += absl::Seconds(1);
  EXPECT_EQ(pace.Wait(kLimit / 2, kLimit * 3 / 4, 0, now), absl::ZeroDuration());
  EXPECT_EQ(pace.Wait(kLimit / 5, kLimit * 3 / 4, 0, now), RetentionPace::kLongest);
}

}  // namespace
}  // namespace cairn::test
