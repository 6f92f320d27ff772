// Tables of compact rows: pulled values equal the stored ones bit for bit, in memory, on disk, on
// another server and after a crash; and updates smaller than the format's resolution still
// accumulate.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"
#include "common/variables/row_layout.h"
#include "common/variables/row_rounding.h"
#include "tests/ps_server/moving_engine.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;
using ::testing::Values;

constexpr int64_t kDim = 16;

wire::VariableSpec Spec(const RowStorage& storage, int64_t dim = kDim,
                        const std::string& optimizer = "adagrad") {
  wire::VariableSpec spec = TableSpec("t", dim, WireOptimizer(optimizer, 0.1));
  spec.bucket_ps.assign(8, 0);
  wire::RowStorage wire;
  wire.__set_values(static_cast<wire::RowFormat::type>(storage.values));
  wire.__set_slots(static_cast<wire::RowFormat::type>(storage.slots));
  if (!(storage == RowStorage())) spec.__set_row_storage(wire);
  return spec;
}

std::vector<int64_t> Range(int64_t first, int64_t count) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back((first + i) * 1000003 - 77);
  return keys;
}

std::vector<float> Draw(size_t count, uint32_t seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The contents of a table for some keys.
struct Content {
  std::vector<float> values;
  std::vector<float> slots;
  bool operator==(const Content&) const = default;
};

Content Read(TestClient client, const std::vector<int64_t>& keys, const std::string& slot) {
  Content content;
  for (size_t first = 0; first < keys.size(); first += 5000) {
    const std::vector<int64_t> some(
        keys.begin() + static_cast<ptrdiff_t>(first),
        keys.begin() + static_cast<ptrdiff_t>(std::min(first + 5000, keys.size())));
    const auto values = client.PullKeys("t", some);
    EXPECT_OK(values);
    content.values.insert(content.values.end(), values->begin(), values->end());
    if (slot.empty()) continue;
    const auto slots = client.PullKeys("t", some, slot);
    EXPECT_OK(slots);
    content.slots.insert(content.slots.end(), slots->begin(), slots->end());
  }
  return content;
}

wire::ShardInfo Info(TestClient client) { return client.Describe()->variables[0].shards[0]; }

// The values of all rows by key.
std::map<int64_t, std::vector<float>> Scan(wire::ParameterServerIf& service, int64_t dim,
                                           const std::string& slot = "") {
  std::map<int64_t, std::vector<float>> rows;
  wire::ScanRequest request;
  request.caller.job = "job";
  request.variable = "t";
  request.slot = slot;
  request.max_rows = 500;  // a scan needs memory for three times as many
  do {
    wire::ScanReply reply;
    EXPECT_OK(CallStatus([&] { service.scan(reply, request); }));
    const std::vector<float> values = cairn::Values<float>(reply.values);
    auto from = values.begin();
    for (const int64_t key : cairn::Values<int64_t>(reply.keys)) {
      EXPECT_TRUE(rows.emplace(key, std::vector<float>(from, from + dim)).second) << key;
      from += dim;
    }
    request.cursor = reply.cursor;
  } while (!request.cursor.empty());
  return rows;
}

class CompactRowsTest : public ServerTest, public ::testing::WithParamInterface<RowStorage> {
 protected:
  CompactRowsTest() {
    options_.snapshot_interval = absl::Hours(1);
    options_.memory_wait = absl::Milliseconds(1);
  }
  static RowLayout Layout(int64_t dim = kDim, size_t slots = 1) {
    return {static_cast<size_t>(dim), slots, GetParam()};
  }
  // The values that a table returns after `values` were assigned to part `part`.
  static std::vector<float> Rounded(std::vector<float> values, size_t part = 0,
                                    int64_t dim = kDim) {
    const auto width = static_cast<size_t>(dim);
    for (size_t at = 0; at < values.size(); at += width) {
      Layout(dim).RoundTrip(part, values.data() + at);
    }
    return values;
  }
  // The distance between adjacent numbers, for any number in a row whose largest is `largest`.
  static float Step(float largest) {
    switch (GetParam().values) {
      case RowFormat::kFloat32: return 0;
      case RowFormat::kFloat16: return std::ldexp(1.0F, std::max(-14, std::ilogb(largest)) - 10);
      case RowFormat::kBFloat16: return std::ldexp(1.0F, std::ilogb(largest) - 7);
      case RowFormat::kInt8: return largest / 127;
    }
    return 0;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Storages, CompactRowsTest,
    Values(RowStorage{.values = RowFormat::kFloat16},
           RowStorage{.values = RowFormat::kBFloat16, .slots = RowFormat::kBFloat16},
           RowStorage{.values = RowFormat::kInt8, .slots = RowFormat::kFloat16},
           RowStorage{.values = RowFormat::kFloat32, .slots = RowFormat::kBFloat16},
           RowStorage{.values = RowFormat::kInt8}),
    [](const auto& info) {
      return absl::StrCat(RowFormatName(info.param.values), "_", RowFormatName(info.param.slots));
    });

TEST_P(CompactRowsTest, AKeyWithoutARowAnswersWhatItsRowHoldsOnceItIsMade) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(GetParam())}));
  const std::vector<int64_t> keys = Range(0, 100);
  const Content absent = Read(client, keys, "accumulator");
  EXPECT_EQ(Info(client).rows, 0);
  const std::vector<float> floats(keys.size() * kDim, 0.1F);
  EXPECT_EQ(absent.slots, Rounded(floats, 1));
  // For one half of the keys the values, for the other half the slots; parts that are not assigned
  // keep their initial values.
  const std::vector<int64_t> some = Range(0, 50), others = Range(50, 50);
  ASSERT_OK(client.AssignKeys("t", some, std::vector<float>(50 * kDim, 1)));
  ASSERT_OK(client.AssignKeys("t", others, std::vector<float>(50 * kDim, 1), "accumulator"));
  EXPECT_EQ(Info(client).rows, 100);
  const Content made = Read(client, keys, "accumulator");
  EXPECT_TRUE(std::equal(made.slots.begin(), made.slots.begin() + 50 * kDim, absent.slots.begin()));
  EXPECT_TRUE(std::equal(made.values.begin() + 50 * kDim, made.values.end(),
                         absent.values.begin() + 50 * kDim));
}

TEST_P(CompactRowsTest, AnAssignIsRoundedToTheNearest) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(GetParam())}));
  const std::vector<int64_t> keys = Range(0, 200);
  const std::vector<float> values = Draw(200 * kDim, 1), slots = Draw(200 * kDim, 2);
  ASSERT_OK(client.AssignKeys("t", keys, values));
  ASSERT_OK(client.AssignKeys("t", keys, slots, "accumulator"));
  const Content content = Read(client, keys, "accumulator");
  EXPECT_EQ(content.values, Rounded(values));
  EXPECT_EQ(content.slots, Rounded(slots, 1));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(content.values[i] - values[i]), 0.5001F * Step(8) + 1e-7F) << values[i];
  }
  // Wire formats encode the values that a plain pull returns.
  wire::PullItem item;
  item.variable = "t";
  item.selection = wire::Selection::KEYS;
  item.ids = PayloadOf(keys);
  item.format = wire::ValueFormat::BFLOAT16;
  const auto pulled = client.PullItem(item);
  ASSERT_OK(pulled);
  std::vector<std::byte> wanted(values.size() * 2);
  RoundToNearest(RowFormat::kBFloat16, content.values.data(), values.size(), wanted.data());
  EXPECT_EQ(cairn::Values<std::byte>(pulled->values), wanted);
}

// Compares with a float32 table with the same initial values: after one push the two differ by one
// rounding, up or down, of values and slots.
TEST_P(CompactRowsTest, APushIsThatOfFloatsRounded) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec floats = Spec({});
  floats.name = "floats";
  ASSERT_OK(client.Create({Spec(GetParam()), floats}));
  const std::vector<int64_t> keys = Range(0, 300);
  const std::vector<float> begin = Rounded(Draw(300 * kDim, 3));
  for (const char* table : {"t", "floats"}) {
    ASSERT_OK(client.AssignKeys(table, keys, begin));
    ASSERT_OK(client.AssignKeys(table, keys, Rounded(std::vector<float>(300 * kDim, 1), 1),
                                "accumulator"));
  }
  // The last keys occur twice.
  std::vector<int64_t> pushed = keys;
  pushed.insert(pushed.end(), keys.end() - 20, keys.end());
  const std::vector<float> gradients = Draw(pushed.size() * kDim, 4);
  for (const char* table : {"t", "floats"}) {
    ASSERT_OK(client.PushKeys(table, pushed, gradients));
  }
  const std::vector<float> want = *client.PullKeys("floats", keys),
                           got = *client.PullKeys("t", keys);
  size_t up = 0, down = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const auto row = want.begin() + static_cast<ptrdiff_t>(i / kDim * kDim);
    float largest = GetParam().values == RowFormat::kInt8 ? 0 : std::abs(want[i]);
    for (int64_t d = 0; largest == 0 && d < kDim; ++d)
      largest = std::max(largest, std::abs(row[d]));
    if (GetParam().values == RowFormat::kInt8) {
      for (int64_t d = 0; d < kDim; ++d) largest = std::max(largest, std::abs(row[d]));
    }
    // Slightly more, since a number may round up to a larger binade.
    ASSERT_LE(std::abs(got[i] - want[i]), 1.001F * Step(largest) + 1e-6F) << want[i];
    up += got[i] > want[i];
    down += got[i] < want[i];
  }
  if (GetParam().values != RowFormat::kFloat32) {
    EXPECT_NEAR(static_cast<double>(up) / static_cast<double>(up + down), 0.5, 0.05);
    EXPECT_GT(up + down, want.size() / 2);
  } else {
    EXPECT_EQ(got, want);
  }
  const std::vector<float> slots = *client.PullKeys("floats", keys, "accumulator");
  const std::vector<float> kept = *client.PullKeys("t", keys, "accumulator");
  const float relative = GetParam().slots == RowFormat::kFloat32    ? 1e-6F
                         : GetParam().slots == RowFormat::kBFloat16 ? 0x1p-7F
                                                                    : 0x1p-10F;
  for (size_t i = 0; i < slots.size(); ++i) ASSERT_NEAR(kept[i], slots[i], relative * slots[i]);
}

// Updates of a quarter of the format's resolution or less: rounding to nearest would lose each of
// them, and the rows' mean would not change.
TEST_P(CompactRowsTest, UpdatesTooSmallForANumberAddUp) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec spec = Spec(GetParam(), kDim, "sgd");
  spec.optimizer = WireOptimizer("sgd", 1);
  ASSERT_OK(client.Create({spec}));
  constexpr int64_t kKeys = 64;
  constexpr int kPushes = 512;
  const float step = 0x1p-12F;
  // The first number of a row is the largest, and determines the scale of a row of bytes.
  std::vector<float> begin(kKeys * kDim, 1), gradients(kKeys * kDim, -step);
  for (int64_t i = 0; i < kKeys * kDim; i += kDim) {
    begin[static_cast<size_t>(i)] = 4;
    gradients[static_cast<size_t>(i)] = 0;
  }
  ASSERT_OK(client.AssignKeys("t", Range(0, kKeys), begin));
  begin = Read(client, Range(0, kKeys), "").values;
  std::vector<float> lost = begin;
  for (size_t i = 0; i < lost.size(); ++i) lost[i] -= gradients[i];
  if (GetParam().values != RowFormat::kFloat32) {
    EXPECT_EQ(Rounded(lost), begin);
  }
  for (int push = 0; push < kPushes; ++push) {
    ASSERT_OK(client.PushKeys("t", Range(0, kKeys), gradients));
  }
  const std::vector<float> end = Read(client, Range(0, kKeys), "").values;
  double moved = 0;
  for (size_t i = 0; i < end.size(); ++i) {
    if (i % kDim == 0) {
      EXPECT_NEAR(end[i], 4, 1e-3);
    } else {
      moved += end[i] - begin[i];
    }
  }
  const double mean = moved / static_cast<double>(kKeys * (kDim - 1));
  EXPECT_NEAR(mean, kPushes * step, 0.1 * kPushes * step);
}

TEST_P(CompactRowsTest, ARowCostsItsBytes) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(GetParam())}));
  const int64_t empty = Info(client).memory_bytes;
  const int64_t used = client.Describe()->memory_used_bytes;
  ASSERT_OK(client.PushKeys("t", Range(0, 1000), std::vector<float>(1000 * kDim, 1)));
  const int64_t bytes = 1000 * (static_cast<int64_t>(Layout().bytes()) + 32);
  EXPECT_EQ(Info(client).memory_bytes - empty, bytes);
  EXPECT_EQ(client.Describe()->memory_used_bytes - used, bytes);
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(Info(Client()).memory_bytes - empty, bytes);
}

// The same job twice, once with crashes: repeated pushes are rounded as at first.
TEST_P(CompactRowsTest, ReplayAfterACrashGivesTheSameBytes) {
  constexpr int kSteps = 60;
  const std::vector<int64_t> all = Range(0, 300);
  std::vector<Content> ends;
  for (const bool crashes : {false, true}) {
    options_.directory = folder_.Join(crashes ? "crashes" : "whole");
    ASSERT_NO_FATAL_FAILURE(Start());
    auto client = std::make_unique<TestClient>(Joined(0));
    wire::VariableSpec spec = Spec(GetParam());
    // Pushes that create no row count as updates of their stripe, and a crash forgets them.
    wire::RowRules rules;
    rules.admit_after_pushes = 2;
    spec.__set_row_rules(rules);
    ASSERT_OK(client->Create({spec}));
    std::mt19937_64 random(5);
    std::vector<wire::PushRequest> sent;
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<int64_t> keys;
      for (int i = 0; i < 40; ++i) keys.push_back(all[random() % all.size()]);
      wire::PushRequest push = client->NextRequest();
      push.items = {IdItem("t", wire::Selection::KEYS, keys,
                           Draw(keys.size() * kDim, static_cast<uint32_t>(step), 0.1F))};
      sent.push_back(push);
      ASSERT_OK(client->Send(push));
      if (!crashes) continue;
      if (step % 10 == 3) {
        ASSERT_OK(client->Flush());
      }
      if (step % 20 != 15) continue;
      ASSERT_NO_FATAL_FAILURE(CrashAndSendAgain(sent, /*some_lost=*/true, client));
    }
    ends.push_back(Read(*client, all, "accumulator"));
    ASSERT_NO_FATAL_FAILURE(Stop());
  }
  EXPECT_TRUE(ends[0] == ends[1]);
}

TEST_P(CompactRowsTest, APushThatIsSentAgainMovesNothing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(GetParam())}));
  wire::PushRequest push = client.NextRequest();
  push.items = {IdItem("t", wire::Selection::KEYS, Range(0, 10), Draw(10 * kDim, 1))};
  ASSERT_OK(client.Send(push));
  const Content once = Read(client, Range(0, 10), "accumulator");
  ASSERT_OK(client.Send(push));
  EXPECT_TRUE(Read(client, Range(0, 10), "accumulator") == once);
}

// Rows on disk have the same values as rows in memory, for pulls, scans, assigns and pushes.
TEST_P(CompactRowsTest, ColdRowsAreTheSameBytes) {
  constexpr int64_t kWide = 64, kKeys = 60000, kBatch = 2000;
  options_.memory_budget_bytes = 5 << 20;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(GetParam(), kWide)}));
  const auto values = [](int64_t first) {
    return Draw(kBatch * kWide, static_cast<uint32_t>(first));
  };
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_OK(client.AssignKeys("t", Range(first, kBatch), values(first)));
  }
  const auto expect_held = [&](TestClient reader) {
    for (int64_t first = 0; first < kKeys; first += kBatch) {
      const Content content = Read(reader, Range(first, kBatch), "accumulator");
      ASSERT_EQ(content.values, Rounded(values(first), 0, kWide)) << first;
      ASSERT_EQ(content.slots, Rounded(std::vector<float>(kBatch * kWide, 0.1F), 1, kWide));
    }
  };
  ASSERT_NO_FATAL_FAILURE(expect_held(client));
  const wire::ShardInfo info = Info(client);
  EXPECT_EQ(info.rows, kKeys);
  EXPECT_LT(info.rows_in_memory, kKeys / 2);
  EXPECT_GT(info.row_figures.loaded, 0);
  auto scanned = Scan(service(), kWide);
  ASSERT_EQ(scanned.size(), static_cast<size_t>(kKeys));
  const std::vector<float> first = Rounded(values(0), 0, kWide);
  EXPECT_EQ(scanned[Range(1, 1)[0]],
            std::vector<float>(first.begin() + kWide, first.begin() + 2 * kWide));
  const auto slots = Scan(service(), kWide, "accumulator");
  ASSERT_EQ(slots.size(), static_cast<size_t>(kKeys));
  EXPECT_EQ(slots.begin()->second, Rounded(std::vector<float>(kWide, 0.1F), 1, kWide));
  ASSERT_NO_FATAL_FAILURE(Restart());
  ASSERT_NO_FATAL_FAILURE(expect_held(Client()));
  // A push updates rows on disk from their stored values.
  TestClient again = Joined(0);
  ASSERT_OK(again.PushKeys("t", Range(0, 500), std::vector<float>(500 * kWide, -10)));
  const Content pushed = Read(again, Range(0, 500), "");
  for (size_t i = 0; i < pushed.values.size(); ++i) {
    // Adagrad's first step is close to the learning rate.
    ASSERT_NEAR(pushed.values[i] - first[i], 0.1, 0.005 + 1.01 * Step(8)) << first[i];
  }
}

TEST_P(CompactRowsTest, ACheckpointIsRestoredByAsManyServersOrMoreAndByNoOtherStorage) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(GetParam())}));
  const std::vector<int64_t> keys = Range(0, 1000);
  ASSERT_OK(client.PushKeys("t", keys, Draw(keys.size() * kDim, 5)));
  const Content before = Read(client, keys, "accumulator");
  wire::RestoreRequest restore;
  ASSERT_NO_FATAL_FAILURE(MakeCheckpoint(&restore));
  for (const int32_t servers : {1, 2}) {
    size_t rows = 0;
    for (int32_t index = 0; index < servers; ++index) {
      ASSERT_NO_FATAL_FAILURE(StartRestored(restore, servers, index));
      ASSERT_NO_FATAL_FAILURE(Restart());
      TestClient tool = Client();
      const wire::VariableInfo info = tool.Describe()->variables[0];
      EXPECT_EQ(info.spec.row_storage, Spec(GetParam()).row_storage);
      for (size_t i = 0; i < keys.size(); ++i) {
        if (info.spec.bucket_ps[BucketOfKey(keys[i], 8)] != index) continue;
        ++rows;
        const Content row = Read(tool, {keys[i]}, "accumulator");
        const auto at = static_cast<ptrdiff_t>(i * kDim);
        ASSERT_TRUE(std::equal(row.values.begin(), row.values.end(), before.values.begin() + at));
        ASSERT_TRUE(std::equal(row.slots.begin(), row.slots.end(), before.slots.begin() + at));
      }
      wire::VariableSpec other = info.spec;
      other.__set_row_storage({});
      const absl::Status refused = tool.Create({other});
      EXPECT_THAT(refused, StatusIs(StatusCode::kAlreadyExists, HasSubstr("row_storage")));
      EXPECT_EQ(ReasonOf(refused), wire::ErrorReason::SPEC_CONFLICT);
    }
    EXPECT_EQ(rows, keys.size());
  }
}

// Moves the table from one server to another, in memory or not, and back.
class CompactMove {
 public:
  explicit CompactMove(const TempDir& folder) {
    for (int32_t s = 0; s < 2; ++s) {
      EngineOptions options;
      options.memory_budget_bytes = 5 << 20;
      options.memory_wait = absl::Milliseconds(1);
      servers_[s].directory = folder.Join(absl::StrCat("ps", s));
      servers_[s].Open(s, 2, options);
    }
  }
  wire::ParameterServerIf& service(int32_t s) { return servers_[s].service(); }
  TestClient Client(int32_t s) { return TestClient(service(s), -1); }

  absl::Status Run() {
    RETURN_IF_ERROR(Call(1, wire::MoveAction::PREPARE).status());
    RETURN_IF_ERROR(Call(0, wire::MoveAction::PREPARE).status());
    RETURN_IF_ERROR(Pass());
    RETURN_IF_ERROR(Call(0, wire::MoveAction::HOLD).status());
    RETURN_IF_ERROR(Pass());
    RETURN_IF_ERROR(Call(1, wire::MoveAction::READY).status());
    RETURN_IF_ERROR(Call(0, wire::MoveAction::COMMIT).status());
    return Call(1, wire::MoveAction::COMMIT).status();
  }

 private:
  absl::StatusOr<wire::MoveReply> Call(int32_t s, wire::MoveAction::type action,
                                       Payload data = {}) {
    wire::MoveRequest request;
    request.caller.job = "job";
    request.action = action;
    request.variable = "t";
    request.map_version = 2;
    request.bucket_ps.assign(8, 1);
    request.source = 0;
    request.target = 1;
    request.max_bytes = 256 << 10;
    request.hold_seconds = 60;  // long enough for a slow machine
    request.data = std::move(data);
    wire::MoveReply reply;
    RETURN_IF_ERROR(CallStatus([&] { service(s).move(reply, request); }));
    return reply;
  }
  absl::Status Pass() {
    for (int pieces = 0; pieces < 10000; ++pieces) {
      ASSIGN_OR_RETURN(wire::MoveReply read, Call(0, wire::MoveAction::READ));
      RETURN_IF_ERROR(Call(1, wire::MoveAction::WRITE, std::move(read.data)).status());
      if (read.bytes_left == 0) return absl::OkStatus();
    }
    return absl::DeadlineExceededError("pieces do not end");
  }

  MovingEngine servers_[2];
};

TEST_P(CompactRowsTest, RowsMoveToAnotherServerAsTheyAre) {
  constexpr int64_t kWide = 64, kKeys = 30000, kBatch = 2000;
  CompactMove move(folder_);
  for (int32_t s = 0; s < 2; ++s) ASSERT_OK(move.Client(s).Create({Spec(GetParam(), kWide)}));
  wire::VariableSpec other = Spec(GetParam(), kWide);
  other.__set_row_storage({});
  EXPECT_THAT(move.Client(1).Create({other}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("row_storage")));
  TestClient source = move.Client(0);
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_OK(source.PushKeys("t", Range(first, kBatch),
                              Draw(kBatch * kWide, static_cast<uint32_t>(first))));
  }
  EXPECT_LT(Info(source).rows_in_memory, kKeys);
  const Content before = Read(source, Range(0, kKeys), "accumulator");
  ASSERT_OK(move.Run());
  EXPECT_EQ(Info(move.Client(1)).rows, kKeys);
  EXPECT_TRUE(Read(move.Client(1), Range(0, kKeys), "accumulator") == before);
  EXPECT_EQ(Scan(move.service(1), kWide).size(), static_cast<size_t>(kKeys));
}

class RowStorageTest : public ServerTest {};

TEST_F(RowStorageTest, StorageThatCannotBeIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  EXPECT_THAT(client.Create({Spec({.slots = RowFormat::kInt8})}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("row_storage.slots is int8")));
  EXPECT_THAT(client.Create({Spec({.values = static_cast<RowFormat>(9)})}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("row_storage.values is number 9")));
  wire::VariableSpec dense = DenseSpec("w", {2}, WireOptimizer("sgd", 1));
  dense.__set_row_storage(Spec({.values = RowFormat::kFloat16}).row_storage);
  EXPECT_THAT(client.Create({dense}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("dense")));
  const RowStorage halves{.values = RowFormat::kFloat16};
  ASSERT_OK(client.Create({Spec(halves)}));
  ASSERT_OK(client.Create({Spec(halves)}));
  for (const RowStorage& other :
       {RowStorage(), RowStorage{.values = RowFormat::kBFloat16},
        RowStorage{.values = RowFormat::kFloat16, .slots = RowFormat::kFloat16}}) {
    const absl::Status refused = client.Create({Spec(other)});
    EXPECT_THAT(refused, StatusIs(StatusCode::kAlreadyExists,
                                  HasSubstr("row_storage: the job has float16 (slots float32)")));
    EXPECT_EQ(ReasonOf(refused), wire::ErrorReason::SPEC_CONFLICT);
  }
  EXPECT_EQ(client.Describe()->variables[0].spec.row_storage, Spec(halves).row_storage);
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(Client().Describe()->variables[0].spec.row_storage, Spec(halves).row_storage);
}

// A program that names float32 explicitly is the same program as one that names nothing.
TEST_F(RowStorageTest, FloatsThatAreAskedForByNameAreTheDefault) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec named = Spec({});
  named.__set_row_storage({});
  ASSERT_OK(client.Create({named}));
  ASSERT_OK(client.Create({Spec({})}));
  EXPECT_FALSE(client.Describe()->variables[0].spec.__isset.row_storage);
}

// A gradient that overflows the format, but is neither NaN nor infinite in float32.
TEST_F(RowStorageTest, BeyondTheLargestNumberThereIsItIsThat) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec spec = Spec({.values = RowFormat::kFloat16}, 2, "sgd");
  spec.optimizer = WireOptimizer("sgd", 1);
  ASSERT_OK(client.Create({spec}));
  ASSERT_OK(client.PushKeys("t", {1}, {1e6F, -1e9F}));
  EXPECT_THAT(*client.PullKeys("t", {1}), ::testing::ElementsAre(-65504, 65504));
  ASSERT_OK(client.AssignKeys("t", {2}, {1e30F, -7e4F}));
  EXPECT_THAT(*client.PullKeys("t", {2}), ::testing::ElementsAre(65504, -65504));
}

}  // namespace
}  // namespace cairn
