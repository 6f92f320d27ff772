#include "tests/support/known_pushes.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"
#include "thrift/wire_client.h"

namespace cairn::test {
namespace {

constexpr int kRowsAPush = 6, kKeysAPush = 12;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

uint64_t Mix(int32_t worker, int64_t number, int64_t what) {
  return MixBits(MixBits(static_cast<uint64_t>(number) << 8 | static_cast<uint64_t>(worker)) +
                 static_cast<uint64_t>(what));
}
// By how much item `what` of a push raises what it touches.
int Raise(int32_t worker, int64_t number, int64_t what) {
  return 1 + static_cast<int>(Mix(worker, number, what) % 2 + static_cast<uint64_t>(what) % 2);
}
int64_t Row(int32_t worker, int64_t number, int k) {
  return static_cast<int64_t>(Mix(worker, number, 1000 + k) % kSparseRows);
}
int64_t Key(int32_t worker, int64_t number, int k) {
  return static_cast<int64_t>(Mix(worker, number, 2000 + k) % kKeys);
}
bool IsSolo(int64_t number) { return number % 5 == 0; }

VariableSpec Spec(const char* name, DType dtype, Shape shape) {
  VariableSpec spec;
  spec.name = name;
  spec.dtype = dtype;
  spec.shape = std::move(shape);
  spec.optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
  return spec;
}

std::vector<DenseShard> Thirds(int64_t rows) {
  std::vector<DenseShard> shards;
  for (int32_t s = 0; s < kKnownServers; ++s) {
    shards.push_back({s * (rows / kKnownServers), rows / kKnownServers, s});
  }
  return shards;
}

// What the servers ought to hold.
struct Expected {
  std::vector<double> dense = std::vector<double>(kDenseRows * kDenseWidth);
  std::vector<double> solo = std::vector<double>(kSoloRows);
  std::vector<double> rows = std::vector<double>(kSparseRows);  // every element of a row
  std::vector<double> keys = std::vector<double>(kKeys);
  int64_t solo_updates = 0, other_updates = 0;

  void Add(int32_t worker, int64_t number) {
    if (IsSolo(number)) {
      for (size_t i = 0; i < solo.size(); ++i) solo[i] += Raise(worker, number, i);
      ++solo_updates;
      return;
    }
    for (size_t i = 0; i < dense.size(); ++i) dense[i] += Raise(worker, number, i);
    for (int k = 0; k < kRowsAPush; ++k) rows[Row(worker, number, k)] += Raise(worker, number, k);
    for (int k = 0; k < kKeysAPush; ++k) keys[Key(worker, number, k)] += Raise(worker, number, k);
    ++other_updates;
  }
};

class Differences {
 public:
  template <typename Found>
  void Compare(absl::string_view variable, const std::vector<Found>& found,
               const std::vector<double>& expected, int64_t width) {
    for (size_t i = 0; i < found.size(); ++i) {
      const double want = expected[i / width];
      if (found[i] != want) {
        Add(absl::StrCat(variable, "[", i / width, "] is ", found[i], ", not ", want));
      }
    }
  }
  void Add(const std::string& line) {
    constexpr int kLines = 40;
    if (++count_ <= kLines) absl::StrAppend(&text_, "\n  ", line);
  }
  absl::Status Status() const {
    if (count_ == 0) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(count_, " differences:", text_));
  }

 private:
  int64_t count_ = 0;
  std::string text_;
};

template <typename T>
absl::Status PullAll(PsClient& client, absl::string_view variable, const std::vector<int64_t>& keys,
                     std::vector<T>* out) {
  return client.Pull({{.variable = variable,
                       .part = keys.empty() ? Part::kWhole : Part::kKeys,
                       .ids = keys,
                       .out = AsWritableBytes(absl::MakeSpan(*out))}},
                     Soon());
}

absl::Status CompareSeen(PsClient& client, const std::vector<int64_t>& counts,
                         Differences* differences) {
  constexpr int64_t kBeyond = 20, kAtATime = 100000;
  for (size_t worker = 0; worker < counts.size(); ++worker) {
    for (int64_t first = 1; first <= counts[worker] + kBeyond; first += kAtATime) {
      const int64_t end = std::min(first + kAtATime, counts[worker] + kBeyond + 1);
      std::vector<int64_t> keys;
      for (int64_t number = first; number < end; ++number) {
        keys.push_back(SeenKey(static_cast<int32_t>(worker), number));
      }
      std::vector<float> seen(keys.size());
      RETURN_IF_ERROR(PullAll(client, "seen", keys, &seen));
      for (size_t i = 0; i < seen.size(); ++i) {
        const int64_t number = first + static_cast<int64_t>(i);
        const float want = number <= counts[worker] && !IsSolo(number) ? 1 : 0;
        if (seen[i] == want) continue;
        differences->Add(
            absl::StrCat("push ", number, " of worker ", worker, " counted ", seen[i], " times"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CompareUpdates(const std::vector<std::string>& servers, const std::string& job,
                            const Expected& expected, Differences* differences) {
  for (const std::string& server : servers) {
    ASSIGN_OR_RETURN(const auto client, WireClient::Connect(server, {}, Soon()));
    wire::DescribeRequest request;
    request.caller.job = job;
    wire::DescribeReply reply;
    RETURN_IF_ERROR(client->Call("describe", Soon(),
                                 [&](WireClient::Stub& stub) { stub.describe(reply, request); }));
    for (const wire::VariableInfo& variable : reply.variables) {
      const int64_t want =
          variable.spec.name == "solo" ? expected.solo_updates : expected.other_updates;
      for (const wire::ShardInfo& shard : variable.shards) {
        if (shard.version == want) continue;
        differences->Add(absl::StrCat("shard ", shard.shard, " of ", variable.spec.name, " has ",
                                      shard.version, " updates, not ", want));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<VariableSpec> KnownVariables() {
  VariableSpec dense = Spec("dense", DType::kFloat64, {kDenseRows, kDenseWidth});
  dense.shards = Thirds(kDenseRows);
  VariableSpec sparse = Spec("sparse", DType::kFloat32, {kSparseRows, kSparseWidth});
  sparse.shards = Thirds(kSparseRows);
  VariableSpec solo = Spec("solo", DType::kFloat64, {kSoloRows});
  solo.shards = {{0, kSoloRows, 1}};
  VariableSpec table = Spec("table", DType::kFloat32, {kTableWidth});
  VariableSpec seen = Spec("seen", DType::kFloat32, {1});
  for (VariableSpec* keyed : {&table, &seen}) {
    keyed->kind = VariableKind::kEmbedding;
    keyed->touched_rows = TouchedRows::kPushed;
  }
  return {dense, sparse, solo, table, seen};
}

int64_t SeenKey(int32_t worker, int64_t number) { return int64_t{worker} << 40 | number; }

std::vector<PushSource> KnownPush::Make(int32_t worker, int64_t number) {
  if (IsSolo(number)) {
    solo_.resize(kSoloRows);
    for (size_t i = 0; i < solo_.size(); ++i) solo_[i] = -Raise(worker, number, i);
    return {{.variable = "solo", .values = AsBytes(absl::MakeConstSpan(solo_))}};
  }
  dense_.resize(kDenseRows * kDenseWidth);
  for (size_t i = 0; i < dense_.size(); ++i) dense_[i] = -Raise(worker, number, i);
  rows_.clear();
  row_values_.clear();
  for (int k = 0; k < kRowsAPush; ++k) {
    rows_.push_back(Row(worker, number, k));
    row_values_.insert(row_values_.end(), kSparseWidth, -Raise(worker, number, k));
  }
  keys_.clear();
  key_values_.clear();
  for (int k = 0; k < kKeysAPush; ++k) {
    keys_.push_back(Key(worker, number, k));
    key_values_.insert(key_values_.end(), kTableWidth, -Raise(worker, number, k));
  }
  seen_key_ = {SeenKey(worker, number)};
  seen_value_ = {-1};
  const auto bytes = [](const std::vector<float>& values) {
    return AsBytes(absl::MakeConstSpan(values));
  };
  return {
      {.variable = "dense", .values = AsBytes(absl::MakeConstSpan(dense_))},
      {.variable = "sparse", .part = Part::kRows, .ids = rows_, .values = bytes(row_values_)},
      {.variable = "table", .part = Part::kKeys, .ids = keys_, .values = bytes(key_values_)},
      {.variable = "seen", .part = Part::kKeys, .ids = seen_key_, .values = bytes(seen_value_)}};
}

absl::Status CheckKnownPushes(const std::vector<std::string>& servers, const std::string& job,
                              const std::vector<int64_t>& counts) {
  Expected expected;
  for (size_t worker = 0; worker < counts.size(); ++worker) {
    for (int64_t number = 1; number <= counts[worker]; ++number) {
      expected.Add(static_cast<int32_t>(worker), number);
    }
  }
  ASSIGN_OR_RETURN(const auto client, PsClient::Connect({.job = job, .servers = servers}, Soon()));
  RETURN_IF_ERROR(client->Describe(Soon()).status());
  Differences differences;
  RETURN_IF_ERROR(CompareSeen(*client, counts, &differences));
  std::vector<double> dense(expected.dense.size()), solo(expected.solo.size());
  RETURN_IF_ERROR(PullAll(*client, "dense", {}, &dense));
  differences.Compare("dense", dense, expected.dense, 1);
  RETURN_IF_ERROR(PullAll(*client, "solo", {}, &solo));
  differences.Compare("solo", solo, expected.solo, 1);
  std::vector<float> rows(kSparseRows * kSparseWidth), values(kKeys * kTableWidth);
  RETURN_IF_ERROR(PullAll(*client, "sparse", {}, &rows));
  differences.Compare("sparse", rows, expected.rows, kSparseWidth);
  std::vector<int64_t> keys(kKeys);
  std::iota(keys.begin(), keys.end(), 0);
  RETURN_IF_ERROR(PullAll(*client, "table", keys, &values));
  differences.Compare("table", values, expected.keys, kTableWidth);
  RETURN_IF_ERROR(CompareUpdates(servers, job, expected, &differences));
  return differences.Status();
}

}  // namespace cairn::test
