// Ranks connected by Gloo reduce, gather and broadcast to bitwise equal results; disagreements are
// refused on every rank, and a failing rank is named. The ranks are threads here, each with its own
// connections; gloo_process_test.cc has processes.
#include "worker/collective/gloo_group.h"

#include <memory>
#include <new>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/deadline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps_server/refusing_memory.h"
#include "tests/support/addresses.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/control_server.h"
#include "worker/collective/control_wire.h"
#include "worker/collective/gather_slices.h"

namespace cairn::test {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// The name of a rank in errors.
std::string Rank(int rank) {
  return absl::StrCat("rank ", rank, " (", Addresses(rank + 1).back(), ")");
}

class GlooGroup : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GlooGroup, ::testing::Values(1, 2, 3, 5));

TEST_P(GlooGroup, AllReduceGivesTheSameBitsEverywhereAndTheSum) {
  Ranks ranks(GetParam());
  // One element, the largest greeting, just above it, one segment, the largest exchange of two
  // ranks and just above it, many segments with ragged chunks.
  for (const size_t count : {1, 1024, 1025, 20'011, 170'003, 262'144, 262'145, 1'500'007}) {
    std::vector<std::vector<float>> outs(static_cast<size_t>(ranks.size()));
    OnRanks(ranks.size(), [&](int r) {
      const std::vector<float> in = Values(r, count);
      std::vector<float> out(count, -1);
      ASSERT_OK(ranks[r].AllReduce(ReduceOp::kSum, Of(in), Into(out), Soon()));
      outs[static_cast<size_t>(r)] = in;
      std::vector<float>& in_place = outs[static_cast<size_t>(r)];
      ASSERT_OK(ranks[r].AllReduce(ReduceOp::kSum, Into(in_place), Soon()));
      EXPECT_EQ(in_place, out) << "out of place and in place, " << count;
    });
    std::vector<double> want(count);
    for (int r = 0; r < ranks.size(); ++r) {
      const std::vector<float> values = Values(r, count);
      for (size_t i = 0; i < count; ++i) want[i] += values[i];
      EXPECT_EQ(outs[static_cast<size_t>(r)], outs[0]) << count;
    }
    for (size_t i = 0; i < count; ++i) ASSERT_NEAR(outs[0][i], want[i], 1e-6 * want[i]) << i;
  }
}

TEST_P(GlooGroup, MeanDividesAndIntegersAreExact) {
  Ranks ranks(GetParam());
  const int n = ranks.size();
  OnRanks(n, [&](int r) {
    for (const size_t count : {7, 100'003}) {
      std::vector<double> values(count, r + 1);
      ASSERT_OK(ranks[r].AllReduce(ReduceOp::kMean, Into(values), Soon()));
      EXPECT_EQ(values, std::vector<double>(count, (n + 1) / 2.0));
      std::vector<int64_t> ints(count, (int64_t{1} << 53) + r);
      ASSERT_OK(ranks[r].AllReduce(ReduceOp::kSum, Into(ints), Soon()));
      EXPECT_EQ(ints, std::vector<int64_t>(count, n * (int64_t{1} << 53) + n * (n - 1) / 2));
      std::vector<uint16_t> halves(count, BFloat16FromFloat(static_cast<float>(r)));
      ASSERT_OK(ranks[r].AllReduce(
          ReduceOp::kSum, {DType::kBFloat16, halves.data(), static_cast<int64_t>(count)}, Soon()));
      EXPECT_EQ(FloatFromBFloat16(halves.back()), static_cast<float>(n * (n - 1) / 2));
    }
  });
}

TEST_P(GlooGroup, BroadcastReachesEveryRankFromEveryRoot) {
  Ranks ranks(GetParam());
  OnRanks(ranks.size(), [&](int r) {
    for (const size_t count : {0, 3, 400'000}) {
      for (int root = 0; root < ranks.size(); ++root) {
        std::vector<float> values = Values(r, count);
        ASSERT_OK(ranks[r].Broadcast(root, Into(values), Soon()));
        EXPECT_EQ(values, Values(root, count));
      }
    }
  });
}

TEST_P(GlooGroup, GatherConcatenatesDifferentLengthsInRankOrder) {
  Ranks ranks(GetParam());
  OnRanks(ranks.size(), [&](int r) {
    // The last one: some ranks' parts fit a greeting, others' do not.
    for (const int unit : {0, 1, 50'000, 700}) {
      std::vector<float> want;
      for (int k = 0; k < ranks.size(); ++k) {
        const std::vector<float> part = Values(k, static_cast<size_t>(k * unit));
        want.insert(want.end(), part.begin(), part.end());
      }
      const std::vector<float> in = Values(r, static_cast<size_t>(r * unit));
      std::vector<float> out(want.size());
      const auto place = [&](absl::Span<const int64_t>) -> absl::StatusOr<MutableBuffer> {
        return Into(out);
      };
      ASSERT_OK(ranks[r].AllGatherV(Of(in), place, Soon()));
      EXPECT_EQ(out, want) << unit;
    }
  });
}

TEST_P(GlooGroup, ReduceScatterGivesEachRankItsPartOfTheSum) {
  Ranks ranks(GetParam());
  const auto n = static_cast<size_t>(ranks.size());
  for (const size_t part : {1, 30'001}) {
    OnRanks(ranks.size(), [&](int r) {
      std::vector<int64_t> in(part * n);
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int64_t>(i) * (r + 1);
      std::vector<int64_t> out(part);
      ASSERT_OK(ranks[r].ReduceScatter(ReduceOp::kSum, Of(in), Into(out), Soon()));
      for (size_t i = 0; i < part; ++i) {
        const size_t at = static_cast<size_t>(r) * part + i;
        ASSERT_EQ(out[i], static_cast<int64_t>(at * n * (n + 1) / 2)) << at;
      }
    });
  }
}

TEST(GlooGroupErrors, DisagreementIsRefusedOnEveryRankAndTheGroupStaysUsable) {
  Ranks ranks(3);
  OnRanks(3, [&](int r) {
    std::vector<float> values(r == 2 ? 70'000 : 80'000, 1.0F);
    EXPECT_THAT(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("all_reduce #1 on rank ", r)),
                               HasSubstr(Rank(2) + " calls all_reduce sum of 70000"))));
    EXPECT_THAT(
        r == 1 ? ranks[r].Barrier(Soon()) : ranks[r].Broadcast(0, Into(values), Soon()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(Rank(1) + " calls barrier")));
    std::vector<int32_t> ints(4);
    EXPECT_THAT(ranks[r].AllReduce(r == 1 ? ReduceOp::kMean : ReduceOp::kSum, Into(ints), Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         r == 1 ? HasSubstr("mean of int32") : HasSubstr(Rank(1) + " refused")));
    values.assign(80'000, 1.0F);
    ASSERT_OK(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()));
    EXPECT_EQ(values, std::vector<float>(80'000, 3.0F));
  });
}

// A rank without arguments takes its place in any call: the others get its reason, however long.
TEST(GlooGroupErrors, ARefusalFailsAnyCallOfTheOthersWithItsReason) {
  for (const int size : {2, 3}) {
    Ranks ranks(size);
    OnRanks(size, [&](int r) {
      std::vector<float> values(40'000, 1.0F), gathered(40'000 * static_cast<size_t>(size));
      for (const std::string& why : {std::string("it has 3 parts"), std::string(100'000, 'x')}) {
        for (int call = 0; call < 4; ++call) {
          if (r == 1) {
            ranks[r].Refuse(absl::OutOfRangeError(why), Soon());
            continue;
          }
          const absl::Status status =
              call == 0   ? ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon())
              : call == 1 ? ranks[r].AllGather(Of(values), Into(gathered), Soon())
              : call == 2 ? ranks[r].Broadcast(0, Into(values), Soon())
                          : ranks[r].Barrier(Soon());
          EXPECT_THAT(status,
                      StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr(Rank(1) + " refused its call: " + why.substr(0, 4096))));
        }
      }
      values.assign(80'000, 1.0F);
      ASSERT_OK(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()));
      EXPECT_EQ(values, std::vector<float>(80'000, static_cast<float>(size)));
    });
  }
}

// The rank reports its error at once; its next call meets the others' next.
TEST(GlooGroupErrors, ARankThatRefusesDoesNotWaitForTheOthers) {
  for (const int size : {2, 3}) {
    Ranks ranks(size);
    absl::Notification refused;
    OnRanks(size, [&](int r) {
      std::vector<float> values(40'000, 1.0F);
      if (r == 1) {
        EXPECT_OK(ranks[r].open_refusal());
        ranks[r].Refuse(absl::OutOfRangeError("it has 3 parts"), Soon());
        EXPECT_THAT(ranks[r].open_refusal(), StatusIs(absl::StatusCode::kOutOfRange, _));
        refused.Notify();
      } else {
        ASSERT_TRUE(refused.WaitForNotificationWithTimeout(absl::Seconds(30)));
        EXPECT_THAT(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()),
                    StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it has 3 parts")));
      }
      ASSERT_OK(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()));
      EXPECT_EQ(values[0], static_cast<float>(size));
      EXPECT_OK(ranks[r].open_refusal());
    });
  }
}

// Its next call, too, names the ranks that do not come.
TEST(GlooGroupErrors, TheCallAfterARefusalHasADeadline) {
  Ranks ranks(2);
  ranks[1].Refuse(absl::OutOfRangeError("it has 3 parts"), Soon());
  EXPECT_THAT(ranks[1].Barrier(Deadline::In(absl::Seconds(1))),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("barrier #2 on rank 1"), HasSubstr(Rank(0)))));
  EXPECT_FALSE(ranks[0].Barrier(Soon()).ok());
}

// Two ranks send their inputs before they have compared their calls: those of a refused call must
// not be taken for those of the next.
TEST(GlooGroupErrors, TwoRanksThatDisagreeDropTheInputsThatTheySent) {
  Ranks ranks(2);
  OnRanks(2, [&](int r) {
    for (const size_t count : {2000, 100'000, 200'000, 262'144, 5}) {
      // Another count, which may be that of another algorithm.
      std::vector<float> values(r == 0 ? count : 150'000, 7.0F);
      EXPECT_THAT(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("calls all_reduce")));
      EXPECT_THAT(r == 0 ? ranks[r].Barrier(Soon())
                         : ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("calls barrier")));
      EXPECT_EQ(values[0], 7.0F);
      for (int i = 1; i < 4; ++i) {
        values.assign(count, static_cast<float>(i + r));
        ASSERT_OK(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()));
        EXPECT_EQ(values, std::vector<float>(count, static_cast<float>(2 * i + 1)));
      }
    }
  });
}

TEST(GlooGroupErrors, GatherIntoTooLittleMemoryFailsOnlyOnThatRank) {
  Ranks ranks(3);
  OnRanks(3, [&](int r) {
    const std::vector<float> in(3000, static_cast<float>(r));
    std::vector<float> out(r == 1 ? 8999 : 9000);
    const absl::Status status = ranks[r].AllGather(Of(in), Into(out), Soon());
    if (r == 1) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("the output is 8999 float32, the ranks bring 9000")));
    } else {
      EXPECT_OK(status);
      EXPECT_EQ(out[8999], 2.0F);
    }
    EXPECT_OK(ranks[r].Barrier(Soon()));
  });
}

// Gathers 1 MiB from each rank; rank 1 has no memory for it, and if `none`, not even for the bytes
// of one rank.
absl::Status GatherWithoutMemory(CollectiveGroup& rank, bool none) {
  const std::vector<float> in(kMiB / sizeof(float), static_cast<float>(rank.rank()));
  std::vector<float> out;
  const auto place = [&](absl::Span<const int64_t> counts) -> absl::StatusOr<MutableBuffer> {
    if (rank.rank() == 1) {
      if (none) refused_size = kMiB;
      throw std::bad_alloc();
    }
    out.resize(counts.size() * in.size());
    return Into(out);
  };
  const absl::Status status = rank.AllGatherV(Of(in), place, Soon());
  refused_size = 0;
  if (status.ok()) {
    EXPECT_EQ(out.back(), static_cast<float>(rank.size() - 1));
  }
  return status;
}

TEST(GlooGroupErrors, ARankWithoutMemoryForAGatherFailsAlone) {
  Ranks ranks(3);
  OnRanks(3, [&](int r) {
    const absl::Status status = GatherWithoutMemory(ranks[r], /*none=*/false);
    if (r == 1) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("no memory for the values of 3 ranks")));
    } else {
      EXPECT_OK(status);
    }
    EXPECT_OK(ranks[r].Barrier(Soon()));
  });
}

TEST(GlooGroupErrors, ARankWithoutMemoryForACallEndsItOnEveryRank) {
  Ranks ranks(2);
  OnRanks(2, [&](int r) {
    const absl::Duration begin = MonotonicNow();
    const absl::Status status = GatherWithoutMemory(ranks[r], /*none=*/true);
    EXPECT_THAT(status,
                StatusIs(r == 1 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kAborted,
                         AllOf(HasSubstr(Rank(1)), HasSubstr("bad_alloc"))));
    EXPECT_FALSE(ranks[r].Barrier(Soon()).ok());
    EXPECT_LT(MonotonicNow() - begin, absl::Seconds(20));
  });
}

TEST(GlooGroupErrors, AMissingRankIsNamedOnEveryRank) {
  Ranks ranks(3);
  OnRanks(3, [&](int r) {
    ASSERT_OK(ranks[r].Barrier(Soon()));
    if (r == 2) return;
    std::vector<float> values(100'000);
    const absl::Status status =
        ranks[r].AllReduce(ReduceOp::kSum, Into(values), Deadline::In(absl::Seconds(8)));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 AllOf(HasSubstr(absl::StrCat("all_reduce #2 on rank ", r)),
                                       HasSubstr(Rank(2) + " did not come in time"),
                                       HasSubstr("connect again"))));
  });
  // The late rank learns that the others gave up.
  EXPECT_THAT(ranks[2].Barrier(Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("reports"), HasSubstr(Rank(2) + " did not"))));
  EXPECT_THAT(ranks[0].usable(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("is broken")));
}

TEST(GlooGroupErrors, AbortWakesEveryRankWithTheReason) {
  Ranks ranks(3);
  OnRanks(3, [&](int r) {
    if (r == 1) return ranks[r].Abort(absl::InternalError("the replica function failed"));
    EXPECT_THAT(ranks[r].Barrier(Soon()),
                StatusIs(absl::StatusCode::kAborted,
                         AllOf(HasSubstr(Rank(1) + ""), HasSubstr("the replica function failed"))));
  });
}

// Rank 1 gives up after a call that rank 0 is still in, and rank 2 has begun the next one. Rank 0
// has all that its call needs; rank 2 does not wait for rank 0.
TEST(GlooGroupErrors, AnAbortFailsNoCallThatTheRankHadCompleted) {
  Ranks ranks(3);
  absl::Notification rank_2_has_failed;
  OnRanks(3, [&](int r) {
    const std::vector<float> own = {static_cast<float>(r)};
    std::vector<float> all(3);
    const auto place = [&](absl::Span<const int64_t>) -> absl::StatusOr<MutableBuffer> {
      if (r == 0) rank_2_has_failed.WaitForNotificationWithTimeout(absl::Seconds(30));
      return Into(all);
    };
    EXPECT_OK(ranks[r].AllGatherV(Of(own), place, Soon()));
    EXPECT_THAT(all, ElementsAre(0, 1, 2));
    if (r == 1) ranks[r].Abort(absl::InternalError("refused"));
    const absl::Duration begin = MonotonicNow();
    EXPECT_THAT(
        ranks[r].Barrier(Soon()),
        StatusIs(absl::StatusCode::kAborted, AllOf(HasSubstr(Rank(1)), HasSubstr("refused"))));
    EXPECT_LT(MonotonicNow() - begin, absl::Seconds(20));
    if (r == 2) rank_2_has_failed.Notify();
  });
}

// The same while inputs travel between two ranks, and in the ring.
TEST(GlooGroupErrors, AnAbortFailsNoLargeCallThatTheRankHadCompleted) {
  for (const int size : {2, 3}) {
    for (const size_t count : {size_t{200'000}, kMiB}) {
      for (int round = 0; round < 10; ++round) {
        Ranks ranks(size);
        OnRanks(size, [&](int r) {
          std::vector<float> values(count, 1);
          EXPECT_OK(ranks[r].AllReduce(ReduceOp::kSum, Into(values), Soon()));
          EXPECT_EQ(values.back(), size);
          if (r == 1) ranks[r].Abort(absl::InternalError("refused"));
          EXPECT_THAT(ranks[r].Barrier(Soon()),
                      StatusIs(absl::StatusCode::kAborted, HasSubstr("refused")));
        });
        if (HasFailure()) return;
      }
    }
  }
}

TEST(GlooGroupErrors, AbortFromAnotherThreadEndsTheRunningCall) {
  Ranks ranks(2);
  std::thread waiting([&] {
    EXPECT_THAT(ranks[0].Barrier(Soon()),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("not any more")));
  });
  ranks[0].Abort(absl::CancelledError("not any more"));
  waiting.join();
}

TEST(GlooGroupErrors, ARankThatHasLeftIsNamed) {
  Ranks ranks(3);
  OnRanks(3, [&](int r) { ASSERT_OK(ranks[r].Barrier(Soon())); });
  ranks.Destroy(1);
  OnRanks(3, [&](int r) {
    if (r == 1) return;
    EXPECT_THAT(ranks[r].Barrier(Soon()),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(Rank(1) + " is gone")));
  });
}

TEST(GlooGroupErrors, SlicesOfDifferentLengthsAreGathered) {
  Ranks ranks(3);
  OnRanks(3, [&](int r) {
    const std::vector<int64_t> ids(static_cast<size_t>(r), r);
    const std::vector<float> rows(ids.size() * 2, static_cast<float>(r));
    const GatheredSlices got =
        GatherSlices(ranks[r], ReduceOp::kSum, Of(ids), Of(rows), 2, Soon()).value();
    EXPECT_THAT(got.ids, ElementsAre(1, 2, 2));
  });
}

TEST(GlooConnect, MissingRanksAreNamed) {
  const auto server = ControlServer::Start(OwnAddress()).value();
  const std::vector<std::string> addresses = Addresses(4);
  OnRanks(2, [&](int r) {
    GlooOptions options = {.rank = 2 * r, .addresses = addresses};
    options.rendezvous_address = server->address();
    const std::string missing =
        absl::StrCat("rank 1 (", addresses[1], "), rank 3 (", addresses[3], ")");
    EXPECT_THAT(ConnectGloo(options, Deadline::In(absl::Seconds(5))).status(),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("did not come to"), HasSubstr(missing))));
  });
}

TEST(GlooConnect, TwoProcessesOfOneRankOrOfDifferentSizesAreRefused) {
  const auto server = ControlServer::Start(OwnAddress()).value();
  GlooOptions options = {.rank = 0, .addresses = Addresses(3)};
  options.rendezvous_address = server->address();
  std::thread first(
      [&] { EXPECT_FALSE(ConnectGloo(options, Deadline::In(absl::Seconds(5))).ok()); });
  const std::string ask = ControlWriter().Value(ControlOp::kMissing).Bytes("workers").Take();
  const auto joined = [&] {
    const absl::StatusOr<std::string> missing = AskAt(server->address(), ask, Soon());
    return missing.ok() && *missing == "1,2";
  };
  for (const Deadline deadline = Soon(); !joined() && !deadline.Expired();) {
    std::this_thread::yield();
  }
  GlooOptions other = options;
  other.rank = 1;
  other.addresses.pop_back();
  EXPECT_THAT(ConnectGloo(other, Soon()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 1 joins as one of 2, others as 3")));
  EXPECT_THAT(ConnectGloo(options, Soon()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("another process has joined as rank 0")));
  first.join();
}

TEST(GlooConnect, RankZeroServesTheRendezvousAtItsOwnAddress) {
  // Takes a free port, because another process may hold a fixed one.
  const std::string address = ControlServer::Start(OwnAddress()).value()->address();
  OnRanks(2, [&](int r) {
    const GlooOptions options = {.rank = r, .addresses = {address, NobodysAddress()}};
    const auto group = ConnectGloo(options, Soon());
    ASSERT_OK(group);
    EXPECT_OK((*group)->Barrier(Soon()));
  });
}

TEST(GlooConnect, WrongOptionsAreRefused) {
  EXPECT_THAT(ConnectGloo({.rank = 2, .addresses = Addresses(2)}, Soon()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 2 of 2 addresses")));
  EXPECT_THAT(ConnectGloo({.rank = 0, .addresses = {"nowhere"}}, Soon()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no port")));
}

}  // namespace
}  // namespace cairn::test
