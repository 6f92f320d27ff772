// Pushes and pulls reach the right rows for any number of servers and are numbered as
// EXACTLY_ONCE.md requires; bad calls are refused before anything is sent. In process and over
// sockets.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "tests/worker/client/fleet.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Setting {
  int32_t servers;
  bool remote;
};
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.servers << (setting.remote ? " remote" : " in process");
}

class ClientDataTest : public ::testing::TestWithParam<Setting> {
 protected:
  Fleet fleet_{GetParam().servers, GetParam().remote};
};
INSTANTIATE_TEST_SUITE_P(Settings, ClientDataTest,
                         ::testing::Values(Setting{1, false}, Setting{3, false}, Setting{1, true},
                                           Setting{3, true}));

// The expected contents, as plain maps.
struct Oracle {
  std::map<std::string, std::map<int64_t, std::vector<float>>> variables;

  void Push(const std::string& name, const std::vector<int64_t>& ids, size_t width,
            const std::vector<float>& values) {
    for (size_t i = 0; i < ids.size(); ++i) {
      std::vector<float>& row = variables[name][ids[i]];
      row.resize(width);
      for (size_t j = 0; j < width; ++j) row[j] -= values[i * width + j];
    }
  }
  std::vector<float> Pull(const std::string& name, const std::vector<int64_t>& ids, size_t width) {
    std::vector<float> out;
    for (const int64_t id : ids) {
      std::vector<float> row = variables[name][id];
      row.resize(width);
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }
};

struct Sample {
  std::string name;
  Part part = Part::kWhole;
  std::vector<int64_t> ids;
  std::vector<float> values;
  bool combine_repeats = false;
};

// Values are small integers, so that sums are exact in any order.
class RandomCalls {
 public:
  RandomCalls(int32_t servers, uint64_t seed) : random_(seed) {
    for (int v = 0; v < 6; ++v) {
      const int64_t width = Int(1, 5);
      VariableSpec spec = Table("table/" + std::to_string(v), width);
      if (v < 4) {
        spec = Dense("dense/" + std::to_string(v), {Int(1, 40), width});
        const int64_t shards = Int(1, std::min<int64_t>(spec.shape[0], 2 * servers));
        spec.shards = DivShards(spec.shape[0], shards).value();
        for (DenseShard& shard : spec.shards) shard.ps = static_cast<int32_t>(Int(0, servers - 1));
      }
      specs.push_back(spec);
    }
  }

  Sample Next(const VariableSpec& spec, bool push) {
    Sample sample{.name = spec.name};
    const bool table = spec.kind == VariableKind::kEmbedding;
    sample.combine_repeats = table && Int(0, 1) == 0;
    const int64_t rows = sample.combine_repeats ? 10 : table ? 1000 : spec.shape[0];
    const int64_t width = spec.shape.back();
    if (!table && Int(0, 1) == 0) {
      for (int64_t row = 0; row < rows; ++row) sample.ids.push_back(row);
    } else {
      sample.part = table ? Part::kKeys : Part::kRows;
      const int64_t count = Int(0, 30);
      for (int64_t i = 0; i < count; ++i) sample.ids.push_back(Int(0, rows - 1));
    }
    sample.values.resize(sample.ids.size() * width);
    if (push) {
      for (float& value : sample.values) value = static_cast<float>(Int(-8, 8));
    }
    return sample;
  }

  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  std::vector<VariableSpec> specs;

 private:
  std::mt19937_64 random_;
};

TEST_P(ClientDataTest, EqualsOneServerForRandomShapesAndKeys) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Fleet fleet(GetParam().servers, GetParam().remote);
    const auto client = fleet.Connect();
    RandomCalls calls(GetParam().servers, seed);
    ASSERT_OK(client->Create(calls.specs, Soon()));
    Oracle oracle;
    for (int step = 0; step < 40; ++step) {
      std::vector<Sample> pushed, pulled;
      for (const VariableSpec& spec : calls.specs) {
        if (calls.Int(0, 2) > 0) pushed.push_back(calls.Next(spec, true));
        if (calls.Int(0, 2) > 0) pulled.push_back(calls.Next(spec, false));
      }
      std::vector<PushSource> sources;
      for (const Sample& sample : pushed) {
        sources.push_back({.variable = sample.name,
                           .part = sample.part,
                           .ids = sample.part == Part::kWhole ? absl::Span<const int64_t>()
                                                              : absl::MakeConstSpan(sample.ids),
                           .values = AsBytes(absl::MakeConstSpan(sample.values)),
                           .combine_repeats = sample.combine_repeats});
        const size_t width = sample.ids.empty() ? 1 : sample.values.size() / sample.ids.size();
        oracle.Push(sample.name, sample.ids, width, sample.values);
      }
      std::vector<PullTarget> targets;
      for (Sample& sample : pulled) {
        targets.push_back({.variable = sample.name,
                           .part = sample.part,
                           .ids = sample.part == Part::kWhole ? absl::Span<const int64_t>()
                                                              : absl::MakeConstSpan(sample.ids),
                           .out = AsWritableBytes(absl::MakeSpan(sample.values)),
                           .combine_repeats = sample.combine_repeats});
      }
      if (step % 2 == 0) {
        ASSERT_OK(client->PushPull(sources, "p", targets, Soon()));
      } else {
        ASSERT_OK(client->Push(sources, "p", Soon()));
        ASSERT_OK(client->Pull(targets, Soon()));
      }
      for (const Sample& sample : pulled) {
        const size_t width = sample.ids.empty() ? 1 : sample.values.size() / sample.ids.size();
        ASSERT_EQ(sample.values, oracle.Pull(sample.name, sample.ids, width))
            << sample.name << " seed " << seed << " step " << step;
      }
    }
  }
}

TEST_P(ClientDataTest, NumbersPushesWithoutGaps) {
  const auto client = fleet_.Connect();
  const int32_t last = GetParam().servers - 1;
  ASSERT_OK(client->Create(
      {Dense("first", {2}, {{0, 2, 0}}), Dense("last", {2}, {{0, 2, last}}), Table("table", 1)},
      Soon()));
  const std::vector<float> ones = {1, 1};
  ASSERT_OK(client->Push({Whole("first", ones)}, "", Soon()));
  ASSERT_OK(client->Push({Whole("last", ones)}, "", Soon()));
  // A key on one server: the push is still an update of the table on all servers.
  ASSERT_OK(client->Push({Some("table", Part::kKeys, {42}, {1})}, "", Soon()));
  ASSERT_OK(client->Assign({Whole("first", ones)}, Soon()));
  ASSERT_OK(client->Push({Whole("last", ones)}, "", Soon()));
  if (last == 0) {
    EXPECT_THAT(fleet_.fake(0).sequences(), ElementsAre(1, 2, 3, 4, 5));
    return;
  }
  EXPECT_THAT(fleet_.fake(0).sequences(), ElementsAre(1, 3, 4));
  EXPECT_THAT(fleet_.fake(1).sequences(), ElementsAre(3));
  EXPECT_THAT(fleet_.fake(2).sequences(), ElementsAre(2, 3, 5));
  // The next message of any kind tells a server the numbers of pushes that have no part there.
  EXPECT_EQ(fleet_.fake(0).applied(0), 4);
  PullWhole(*client, "first", 2);
  EXPECT_EQ(fleet_.fake(0).applied(0), 5);
}

TEST_P(ClientDataTest, RefusesWhatIsNotFiniteBeforeItIsNumbered) {
  const auto client = fleet_.Connect();
  ASSERT_OK(client->Create({Dense("v", {4})}, Soon()));
  EXPECT_THAT(client->Push({Whole("v", {0, 1, NAN, 3})}, "", Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"v\""), HasSubstr("[2]"), HasSubstr("nan"))));
  EXPECT_EQ(fleet_.fake(0).calls("push"), 0);
  ASSERT_OK(client->Push({Whole("v", {1, 1, 1, 1})}, "", Soon()));
  EXPECT_THAT(fleet_.fake(0).sequences(), ElementsAre(1));
}

TEST_P(ClientDataTest, SkipsAndCountsWhatIsNotFiniteWhereAsked) {
  ClientOptions options = Fleet::Options();
  options.skip_not_finite = true;
  const auto client = fleet_.Connect(options);
  ASSERT_OK(client->Create({Dense("v", {2})}, Soon()));
  std::vector<float> out(2, 7);
  ASSERT_OK(client->PushPull({Whole("v", {INFINITY, 1})}, "", {WholeInto("v", &out)}, Soon()));
  EXPECT_THAT(out, ElementsAre(0, 0));
  EXPECT_EQ(client->counters().pushes_dropped, 1);
}

TEST_P(ClientDataTest, ExplainsBadCalls) {
  const auto client = fleet_.Connect();
  ASSERT_OK(client->Create({Dense("v", {3, 2}), Table("t", 2)}, Soon()));
  std::vector<float> out(6);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto pull = [&](const PullTarget& target) { return client->Pull({target}, Soon()); };
  EXPECT_THAT(pull(WholeInto("w", &out)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"w\"")));
  EXPECT_THAT(
      pull(SomeInto("v", Part::kRows, {0, 3, 1}, &out)),
      StatusIs(invalid, AllOf(HasSubstr("ids[1]"), HasSubstr("row 3"), HasSubstr("[0, 3)"))));
  EXPECT_THAT(pull(SomeInto("v", Part::kRows, {0, -1, 1}, &out)),
              StatusIs(invalid, HasSubstr("-1")));
  EXPECT_THAT(pull(SomeInto("v", Part::kRows, {0}, &out)),
              StatusIs(invalid, AllOf(HasSubstr("24 bytes"), HasSubstr("8"))));
  EXPECT_THAT(pull(SomeInto("v", Part::kKeys, {0, 1, 2}, &out)),
              StatusIs(invalid, HasSubstr("dense")));
  EXPECT_THAT(pull(WholeInto("t", &out)), StatusIs(invalid, HasSubstr("embedding")));
  const std::vector<float> gradient(6);
  EXPECT_THAT(client->Push({Whole("v", gradient), Whole("v", gradient)}, "", Soon()),
              StatusIs(invalid, HasSubstr("twice")));
  EXPECT_THAT(client->Push({Whole("v", gradient)}, std::string(513, 'x'), Soon()),
              StatusIs(invalid, HasSubstr("512")));
  EXPECT_EQ(fleet_.fake(0).calls("push"), 0);
}

TEST_P(ClientDataTest, CutsPullsThatOneMessageCannotHold) {
  for (int32_t s = 0; s < GetParam().servers; ++s) fleet_.fake(s).max_message_bytes = 1 << 20;
  const auto client = fleet_.Connect();
  const int64_t rows = 6000, width = 64;  // 1.5 MB
  ASSERT_OK(client->Create({Table("t", width), Dense("big", {rows, width})}, Soon()));
  std::vector<int64_t> keys(rows);
  for (int64_t i = 0; i < rows; ++i) keys[i] = i * 31;
  std::vector<float> values(rows * width), out(rows * width);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  const int64_t half = rows / 2;
  const auto push = [&](int64_t from, int64_t to) {
    return client->Push({{.variable = "t",
                          .part = Part::kKeys,
                          .ids = absl::MakeConstSpan(keys).subspan(from, to - from),
                          .values = AsBytes(absl::MakeConstSpan(values).subspan(
                              from * width, (to - from) * width))}},
                        "", Soon());
  };
  if (GetParam().servers == 1) {
    // A push must fit one message for each server; the error says what to do.
    EXPECT_THAT(push(0, rows), StatusIs(absl::StatusCode::kResourceExhausted,
                                        AllOf(HasSubstr("\"t\""), HasSubstr("max_message_bytes"))));
  }
  ASSERT_OK(push(0, half));
  ASSERT_OK(push(half, rows));
  ASSERT_OK(client->Pull({SomeInto("t", Part::kKeys, keys, &out)}, Soon()));
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], -values[i]) << i;
  // A whole shard that fits no message is refused, by name.
  EXPECT_THAT(client->Pull({WholeInto("big", &out)}, Soon()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("\"big\"")));
}

TEST_P(ClientDataTest, CountsBytesAndStaleness) {
  const auto client = fleet_.Connect();
  const auto other = fleet_.Connect(Fleet::Options(1));
  ASSERT_OK(client->Create({Dense("v", {2})}, Soon()));
  ASSERT_OK(other->Create({Dense("v", {2})}, Soon()));
  PullWhole(*client, "v", 2);
  ASSERT_OK(other->Push({Whole("v", {1, 1})}, "", Soon()));
  ASSERT_OK(other->Push({Whole("v", {1, 1})}, "", Soon()));
  ASSERT_OK(client->Push({Whole("v", {1, 1})}, "", Soon()));
  EXPECT_EQ(client->staleness().max, 2);
  EXPECT_EQ(client->counters().bytes_pulled, 8);
  EXPECT_EQ(client->counters().bytes_pushed, 8);
}

TEST_P(ClientDataTest, CountsUpdatesOfAVariableWithoutRows) {
  const auto client = fleet_.Connect();
  ASSERT_OK(client->Create({Dense("empty", {0, 4})}, Soon()));
  int64_t updates = -1;
  const PullTarget target{.variable = "empty", .updates = &updates};
  ASSERT_OK(client->Pull({target}, Soon()));
  EXPECT_EQ(updates, 0);
  ASSERT_OK(client->Push({Whole("empty", {})}, "", Soon()));
  ASSERT_OK(client->Pull({target}, Soon()));
  EXPECT_EQ(updates, 1);
}

// Pulls and pushes run concurrently; ThreadSanitizer checks them, and the sum is exact.
TEST_P(ClientDataTest, ServesManyThreads) {
  const auto client = fleet_.Connect();
  ASSERT_OK(client->Create({Dense("v", {64}, {}), Table("t", 4)}, Soon()));
  constexpr int kThreads = 4, kSteps = 30;
  const std::vector<int64_t> keys = {1, 2, 3, 4, 5, 6, 7};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const std::vector<float> ones(64, 1), rows(28, 1);
      std::vector<float> out(64), pulled(28);
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_OK(client->Push({Whole("v", ones), Some("t", Part::kKeys, keys, rows)}, "", Soon()));
        EXPECT_OK(client->Pull({WholeInto("v", &out), SomeInto("t", Part::kKeys, keys, &pulled)},
                               Soon()));
        EXPECT_EQ(std::count(out.begin(), out.end(), out[0]), 64);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(PullWhole(*client, "v", 64), std::vector<float>(64, -kThreads * kSteps));
}

TEST_P(ClientDataTest, DoesNothingAfterTheDeadline) {
  const auto client = fleet_.Connect();
  ASSERT_OK(client->Create({Dense("v", {2})}, Soon()));
  EXPECT_THAT(client->Push({Whole("v", {1, 1})}, "", Deadline::In(absl::ZeroDuration())),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("nothing was sent")));
  EXPECT_EQ(fleet_.fake(0).calls("push"), 0);
  ASSERT_OK(client->Push({Whole("v", {1, 1})}, "", Soon()));
}

// A refused push is void but not fatal: the order continues with the next number.
TEST_P(ClientDataTest, GoesOnAfterARefusedPush) {
  const auto client = fleet_.Connect();
  ASSERT_OK(client->Create({Dense("v", {2}, {{0, 2, 0}})}, Soon()));
  fleet_.fake(0).before = [](absl::string_view method) {
    if (method == "push") {
      Refuse(wire::ErrorCode::RESOURCE_EXHAUSTED, wire::ErrorReason::MEMORY_BUDGET, "no memory");
    }
  };
  EXPECT_THAT(client->Push({Whole("v", {1, 1})}, "", Soon()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("ps:0"), HasSubstr("no memory"))));
  fleet_.fake(0).before = nullptr;
  ASSERT_OK(client->Push({Whole("v", {1, 1})}, "", Soon()));
  EXPECT_THAT(PullWhole(*client, "v", 2), ElementsAre(-1, -1));
}

// The caller may pull again, and must not push again.
TEST_P(ClientDataTest, AnErrorAfterAnAppliedPushSaysThatItIsApplied) {
  for (int32_t s = 0; s < GetParam().servers; ++s) fleet_.fake(s).max_message_bytes = 1 << 20;
  const auto client = fleet_.Connect();
  // Two of the pulled variables fit into no message.
  const int64_t size = 150'000;
  ASSERT_OK(client->Create({Dense("v", {2}, {{0, 2, 0}}), Dense("a", {size}, {{0, size, 0}}),
                            Dense("b", {size}, {{0, size, 0}})},
                           Soon()));
  std::vector<float> out(2), a(size), b(size);
  fleet_.fake(0).before = [](absl::string_view method) {
    if (method == "pull") {
      Refuse(wire::ErrorCode::RESOURCE_EXHAUSTED, wire::ErrorReason::MEMORY_BUDGET, "no memory");
    }
  };
  EXPECT_THAT(
      client->PushPull({Whole("v", {1, 1})}, "", {WholeInto("a", &a), WholeInto("b", &b)}, Soon()),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("the push is applied"), HasSubstr("no memory"))));
  // Of a call that has only the pull, and of one that was refused itself.
  EXPECT_THAT(client->Pull({WholeInto("v", &out)}, Soon()).message(),
              Not(HasSubstr("the push is applied")));
  fleet_.fake(0).before = [](absl::string_view method) {
    if (method == "step") {
      Refuse(wire::ErrorCode::RESOURCE_EXHAUSTED, wire::ErrorReason::MEMORY_BUDGET, "no memory");
    }
  };
  EXPECT_THAT(client->PushPull({Whole("v", {1, 1})}, "", {WholeInto("v", &out)}, Soon()).message(),
              HasSubstr("the push is applied"));
  fleet_.fake(0).before = nullptr;
  EXPECT_THAT(PullWhole(*client, "v", 2), ElementsAre(-2, -2));
  // A call that ends before its push is sent. Its exchange has been used before.
  EXPECT_THAT(client
                  ->PushPull({Whole("v", {1, 1})}, "", {WholeInto("v", &out)},
                             Deadline::In(absl::ZeroDuration()))
                  .message(),
              Not(HasSubstr("the push is applied")));
  if (GetParam().servers == 1) return;
  // Another server has the pull alone.
  ASSERT_OK(client->Create({Dense("w", {2}, {{0, 2, 1}})}, Soon()));
  fleet_.fake(1).before = [](absl::string_view method) {
    if (method == "pull") {
      Refuse(wire::ErrorCode::RESOURCE_EXHAUSTED, wire::ErrorReason::MEMORY_BUDGET, "no memory");
    }
  };
  EXPECT_THAT(client->PushPull({Whole("v", {1, 1})}, "", {WholeInto("w", &out)}, Soon()).message(),
              AllOf(HasSubstr("the push is applied"), HasSubstr("ps:1")));
  EXPECT_THAT(PullWhole(*client, "v", 2), ElementsAre(-3, -3));
}

TEST_P(ClientDataTest, StopsAProcessThatAnotherReplaced) {
  const auto client = fleet_.Connect();
  ASSERT_OK(client->Create({Dense("v", {2}, {{0, 2, 0}})}, Soon()));
  fleet_.fake(0).Fence(0);
  EXPECT_THAT(client->Push({Whole("v", {1, 1})}, "", Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("incarnation 1"), HasSubstr("must stop"))));
}

}  // namespace
}  // namespace cairn::test
