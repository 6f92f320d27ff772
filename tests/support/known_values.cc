#include "tests/support/known_values.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"
#include "thrift/client/wire_client.h"

namespace cairn::test {
namespace {

constexpr int kRowsAPush = 6, kKeysAPush = 12;
constexpr int64_t kKeysAPull = 128;  // small enough for a small server's replies

Deadline ValuesDeadline() { return Deadline::In(absl::Seconds(60)); }

uint64_t Mix(int32_t worker, int64_t number, int64_t what) {
  return MixBits(MixBits(static_cast<uint64_t>(number) << 8 | static_cast<uint64_t>(worker)) +
                 static_cast<uint64_t>(what));
}
int64_t Row(int32_t worker, int64_t number, int k) {
  return static_cast<int64_t>(Mix(worker, number, 1000 + k) % kSparseRows);
}
int64_t Key(int32_t worker, int64_t number, int k) {
  return static_cast<int64_t>(Mix(worker, number, 2000 + k) % kKeys);
}

std::vector<DenseShard> Thirds(int64_t rows) {
  std::vector<DenseShard> shards;
  for (int32_t s = 0; s < kKnownServers; ++s) {
    shards.push_back({s * (rows / kKnownServers), rows / kKnownServers, s});
  }
  return shards;
}

}  // namespace

int64_t TableWidth() {
  static const int64_t width = [] {
    constexpr int64_t kUsual = 4;
    int64_t told = 0;
    const char* const text = std::getenv("CAIRN_KNOWN_WIDTH");
    return text != nullptr && absl::SimpleAtoi(text, &told) && told > 0 ? told : kUsual;
  }();
  return width;
}

int KnownRaise(int32_t worker, int64_t number, int64_t what) {
  return 1 + static_cast<int>(Mix(worker, number, what) % 2 + static_cast<uint64_t>(what) % 2);
}

int64_t SeenKey(int32_t worker, int64_t number) { return int64_t{worker} << 40 | number; }

VariableSpec KnownSpec(absl::string_view name, VariableKind kind, DType dtype, Shape shape) {
  VariableSpec spec;
  spec.name = std::string(name);
  spec.kind = kind;
  spec.dtype = dtype;
  spec.shape = std::move(shape);
  spec.optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
  if (kind == VariableKind::kEmbedding) spec.touched_rows = TouchedRows::kPushed;
  return spec;
}

std::vector<VariableSpec> KnownSpecs() {
  VariableSpec dense =
      KnownSpec("dense", VariableKind::kDense, DType::kFloat64, {kDenseRows, kDenseWidth});
  dense.shards = Thirds(kDenseRows);
  VariableSpec sparse =
      KnownSpec("sparse", VariableKind::kDense, DType::kFloat32, {kSparseRows, kSparseWidth});
  sparse.shards = Thirds(kSparseRows);
  VariableSpec table =
      KnownSpec("table", VariableKind::kEmbedding, DType::kFloat32, {TableWidth()});
  return {dense, sparse, table};
}

std::vector<PushSource> KnownGradients::Make(int32_t worker, int64_t number, int factor) {
  const auto gradient = [&](int64_t what) { return -factor * KnownRaise(worker, number, what); };
  dense_.resize(kDenseRows * kDenseWidth);
  for (size_t i = 0; i < dense_.size(); ++i) dense_[i] = gradient(static_cast<int64_t>(i));
  rows_.clear();
  row_values_.clear();
  for (int k = 0; k < kRowsAPush; ++k) {
    rows_.push_back(Row(worker, number, k));
    row_values_.insert(row_values_.end(), kSparseWidth, static_cast<float>(gradient(k)));
  }
  keys_.clear();
  key_values_.clear();
  for (int k = 0; k < kKeysAPush; ++k) {
    keys_.push_back(Key(worker, number, k));
    key_values_.insert(key_values_.end(), static_cast<size_t>(TableWidth()),
                       static_cast<float>(gradient(k)));
  }
  const auto bytes = [](const std::vector<float>& values) {
    return AsBytes(absl::MakeConstSpan(values));
  };
  return {{.variable = "dense", .values = AsBytes(absl::MakeConstSpan(dense_))},
          {.variable = "sparse", .part = Part::kRows, .ids = rows_, .values = bytes(row_values_)},
          {.variable = "table", .part = Part::kKeys, .ids = keys_, .values = bytes(key_values_)}};
}

void Differences::AddElement(absl::string_view variable, int64_t index, double found, double want) {
  Add(absl::StrCat(variable, "[", index, "] is ", found, ", not ", want));
}

void Differences::Add(absl::string_view line) {
  constexpr int kLines = 40;
  if (++count_ <= kLines) absl::StrAppend(&text_, "\n  ", line);
}

absl::Status Differences::Status() const {
  if (count_ == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(count_, " differences:", text_));
}

void KnownTotals::Add(int32_t worker, int64_t number, double factor) {
  const auto rise = [&](int64_t what) { return factor * KnownRaise(worker, number, what); };
  for (size_t i = 0; i < dense_.size(); ++i) dense_[i] += rise(static_cast<int64_t>(i));
  for (int k = 0; k < kRowsAPush; ++k) rows_[Row(worker, number, k)] += rise(k);
  for (int k = 0; k < kKeysAPush; ++k) keys_[Key(worker, number, k)] += rise(k);
}

absl::Status KnownTotals::Compare(PsClient& client, Differences* differences) const {
  std::vector<double> dense(dense_.size());
  RETURN_IF_ERROR(PullInto(client, "dense", {}, &dense, ValuesDeadline()));
  differences->Compare("dense", dense, dense_, 1);
  std::vector<float> rows(kSparseRows * kSparseWidth);
  RETURN_IF_ERROR(PullInto(client, "sparse", {}, &rows, ValuesDeadline()));
  differences->Compare("sparse", rows, rows_, kSparseWidth);
  std::vector<float> table;
  for (int64_t first = 0; first < kKeys; first += kKeysAPull) {
    std::vector<int64_t> keys(std::min(kKeysAPull, kKeys - first));
    std::iota(keys.begin(), keys.end(), first);
    std::vector<float> values(keys.size() * static_cast<size_t>(TableWidth()));
    RETURN_IF_ERROR(PullInto(client, "table", keys, &values, ValuesDeadline()));
    table.insert(table.end(), values.begin(), values.end());
  }
  differences->Compare("table", table, keys_, TableWidth());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<wire::DescribeReply>> DescribeServers(
    const std::vector<std::string>& servers, const std::string& job, Deadline deadline) {
  std::vector<wire::DescribeReply> replies(servers.size());
  for (size_t s = 0; s < servers.size(); ++s) {
    ASSIGN_OR_RETURN(const auto client, WireClient::Connect(servers[s], {}, deadline));
    wire::DescribeRequest request;
    request.caller.job = job;
    RETURN_IF_ERROR(client->Call(
        "describe", deadline, [&](WireClient::Stub& stub) { stub.describe(replies[s], request); }));
  }
  return replies;
}

}  // namespace cairn::test
