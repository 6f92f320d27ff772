// A worker that makes every call except plain pushing, and checks the results: creates variables,
// assigns, pushes, drops the job, creates it again. A restart at any point begins with the drop.
// Servers may be killed at any moment.
//
//   cairn-caller-crash SERVERS
//   cairn-caller-crash SERVERS cold
//     Pushes to a table several times as large as the memory of servers with 16 MiB each, and pulls
//     from the table. Servers may be killed, this program must not.
//   cairn-caller-crash SERVERS rules
//     The same with a table that deletes rows, and admits keys with their second push.
//
//   cairn-caller-crash SERVERS host
//     Creates a variable of a ParameterServerStrategy and expects its initial value. This program
//     may be killed too.
//
// Exit status: 0 all results were correct; 5 an update was lost or counted twice; 1 any other
// error.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/client/ps_client.h"
#include "worker/strategy/variable_host.h"

namespace cairn::test {
namespace {

constexpr int64_t kRows = 4096, kWidth = 32, kKeys = 200;  // two stripes, and a few buckets
constexpr int kRounds = 4;

Deadline Patience() { return Deadline::In(absl::Seconds(60)); }

std::vector<VariableSpec> Specs() {
  VariableSpec dense{.name = "dense", .shape = {kRows, kWidth}};
  VariableSpec table{.name = "table", .kind = VariableKind::kEmbedding, .shape = {2}};
  table.touched_rows = TouchedRows::kPushed;
  for (VariableSpec* spec : {&dense, &table}) {
    spec->optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
  }
  return {dense, table};
}

class Caller {
 public:
  explicit Caller(PsClient& client) : client_(client) {
    for (int64_t key = 0; key < kKeys; ++key) keys_.push_back(key);
  }

  absl::Status Run() {
    for (int life = 0; life < 2; ++life) {
      RETURN_IF_ERROR(client_.DropJob(Patience()));
      RETURN_IF_ERROR(client_.Create(Specs(), Patience()));
      RETURN_IF_ERROR(Expect(0, 0));
      for (int round = 1; round <= kRounds; ++round) {
        const auto assigned = static_cast<float>(100 * round);
        RETURN_IF_ERROR(client_.Assign(Sources(assigned), Patience()));
        for (int push = 1; push <= 3; ++push) {
          RETURN_IF_ERROR(client_.Push(Sources(-1), "", Patience()));
          const float value = assigned + static_cast<float>(push);
          RETURN_IF_ERROR(Expect(value, value));
        }
        RETURN_IF_ERROR(client_.AssignTogether(Dense(assigned + 50), "", Patience()));
        RETURN_IF_ERROR(Expect(assigned + 50, assigned + 3));
        RETURN_IF_ERROR(client_.Push(Sources(-1), "", Patience()));
        RETURN_IF_ERROR(Expect(assigned + 51, assigned + 4));
      }
    }
    return client_.Leave(Patience());
  }

 private:
  std::vector<PushSource> Dense(float value) {
    dense_.assign(kRows * kWidth, value);
    return {{.variable = "dense", .values = AsBytes(absl::MakeConstSpan(dense_))}};
  }

  std::vector<PushSource> Sources(float value) {
    std::vector<PushSource> sources = Dense(value);
    table_.assign(kKeys * 2, value);
    sources.push_back({.variable = "table",
                       .part = Part::kKeys,
                       .ids = keys_,
                       .values = AsBytes(absl::MakeConstSpan(table_))});
    return sources;
  }

  absl::Status Expect(float dense, float table) {
    RETURN_IF_ERROR(
        client_.Pull({{.variable = "dense", .out = AsWritableBytes(absl::MakeSpan(dense_seen_))},
                      {.variable = "table",
                       .part = Part::kKeys,
                       .ids = keys_,
                       .out = AsWritableBytes(absl::MakeSpan(table_seen_))}},
                     Patience()));
    for (const std::vector<float>* seen : {&dense_seen_, &table_seen_}) {
      const float value = seen == &dense_seen_ ? dense : table;
      for (size_t i = 0; i < seen->size(); ++i) {
        if ((*seen)[i] == value) continue;
        return absl::DataLossError(absl::StrCat(seen == &dense_seen_ ? "dense" : "table", "[", i,
                                                "] is ", (*seen)[i], ", not ", value));
      }
    }
    return absl::OkStatus();
  }

  PsClient& client_;
  std::vector<int64_t> keys_;
  std::vector<float> dense_, table_;
  std::vector<float> dense_seen_ = std::vector<float>(kRows * kWidth);
  std::vector<float> table_seen_ = std::vector<float>(kKeys * 2);
};

class ColdCaller {
 public:
  explicit ColdCaller(PsClient& client) : client_(client) {}

  // A table that admits keys with their second push and keeps some of them: keys that are pushed
  // all the time have every push but the first, and new keys have their second push. The rows are
  // float16, which represents all these sums exactly.
  absl::Status RunRules() {
    VariableSpec table{.name = "table", .kind = VariableKind::kEmbedding, .shape = {kColdWidth}};
    table.touched_rows = TouchedRows::kPushed;
    table.optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
    table.row_rules = {.admit_after_pushes = 2, .max_rows = 2 * kColdBatch};
    table.row_storage.values = RowFormat::kFloat16;
    RETURN_IF_ERROR(client_.Create({table}, Patience()));
    for (int round = 1; round <= kRulesRounds; ++round) {
      RETURN_IF_ERROR(Push(0));
      // Few keys at a time, so that each gets its own row.
      const int64_t fresh = kColdBatch + round * kFresh;
      for (int push = 0; push < 2; ++push) RETURN_IF_ERROR(Push(fresh, kFresh));
      RETURN_IF_ERROR(Expect(0, static_cast<float>(round - 1)));
      RETURN_IF_ERROR(Expect(fresh, 1, kFresh));
    }
    return client_.Leave(Patience());
  }

  absl::Status Run() {
    VariableSpec table{.name = "table", .kind = VariableKind::kEmbedding, .shape = {kColdWidth}};
    table.touched_rows = TouchedRows::kPushed;
    table.optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
    RETURN_IF_ERROR(client_.Create({table}, Patience()));
    for (int round = 1; round <= kColdRounds; ++round) {
      for (int64_t first = 0; first < kColdKeys; first += kColdBatch) {
        RETURN_IF_ERROR(Push(first));
      }
      // Starts with the least recently used row.
      for (int64_t first = 0; first < kColdKeys; first += kColdBatch) {
        RETURN_IF_ERROR(Expect(first, static_cast<float>(round)));
      }
    }
    return client_.Leave(Patience());
  }

 private:
  static constexpr int64_t kColdKeys = 160000, kColdBatch = 4000, kColdWidth = 64;
  static constexpr int kColdRounds = 2;
  static constexpr int kRulesRounds = 400;
  static constexpr int64_t kFresh = 400;

  absl::Span<const int64_t> Keys(int64_t first, int64_t count) {
    keys_.clear();
    for (int64_t key = first; key < first + count; ++key) keys_.push_back(key * 1000003);
    return keys_;
  }
  absl::Status Push(int64_t first, int64_t count = kColdBatch) {
    values_.assign(static_cast<size_t>(count * kColdWidth), -1);
    return client_.Push({{.variable = "table",
                          .part = Part::kKeys,
                          .ids = Keys(first, count),
                          .values = AsBytes(absl::MakeConstSpan(values_))}},
                        "", Patience());
  }
  absl::Status Expect(int64_t first, float want, int64_t count = kColdBatch) {
    values_.resize(static_cast<size_t>(count * kColdWidth));
    RETURN_IF_ERROR(client_.Pull({{.variable = "table",
                                   .part = Part::kKeys,
                                   .ids = Keys(first, count),
                                   .out = AsWritableBytes(absl::MakeSpan(values_))}},
                                 Patience()));
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i] == want) continue;
      return absl::DataLossError(absl::StrCat("the row of key ", keys_[i / kColdWidth], " is ",
                                              values_[i], ", not ", want));
    }
    return absl::OkStatus();
  }

  PsClient& client_;
  std::vector<int64_t> keys_;
  std::vector<float> values_;
};

// A variable with rows on two servers. A restart finds the initial value, or writes it.
absl::Status RunHost(std::unique_ptr<PsClient> client) {
  VariableHost host(std::move(client), absl::Seconds(60));
  VariableSpec spec{.name = "hosted", .shape = {2, kWidth}};
  spec.optimizer = PlainUpdates();
  spec.shards = {{.first_row = 0, .rows = 1, .ps = 0}, {.first_row = 1, .rows = 1, .ps = 1}};
  RETURN_IF_ERROR(host.Create(&spec, Tensor::Full(DType::kFloat32, spec.shape, 7)));
  ASSIGN_OR_RETURN(const Tensor read, host.Read({.variable = "hosted"}));
  for (const float value : read.values<float>()) {
    if (value != 7) return absl::DataLossError(absl::StrCat("hosted is ", value, ", not 7"));
  }
  return absl::OkStatus();
}

absl::Status Main(const std::string& servers, absl::string_view mode) {
  const ClientOptions options = {.job = "calls",
                                 .worker = 0,
                                 .task = "worker:0",
                                 .servers = absl::StrSplit(servers, ','),
                                 .ps_wait = absl::Seconds(50),
                                 .rpc_timeout = absl::Seconds(5)};
  ASSIGN_OR_RETURN(std::unique_ptr<PsClient> client, PsClient::Connect(options, Patience()));
  if (mode == "host") return RunHost(std::move(client));
  if (mode == "rules") return ColdCaller(*client).RunRules();
  return mode == "cold" ? ColdCaller(*client).Run() : Caller(*client).Run();
}

}  // namespace
}  // namespace cairn::test

int main(int argc, char** argv) {
  cairn::LogToGlog();  // tests read its log
  const std::string mode = argc == 3 ? argv[2] : "";
  if (argc != 2 && mode != "cold" && mode != "rules" && mode != "host") return 2;
  const absl::Status status = cairn::test::Main(argv[1], mode);
  if (!status.ok()) std::fprintf(stderr, "cairn-caller: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : absl::IsDataLoss(status) ? 5 : 1;
}
