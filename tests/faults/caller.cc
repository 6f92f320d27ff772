// A worker that makes every call there is beside pushes, and knows what must come of each: creates
// variables, assigns, pushes, drops the job, creates it again. Started again at any point it begins
// anew, with the drop. Servers may die under it at any moment.
//
//   cairn-caller-crash SERVERS
//
// Exit status: 0 everything was as it must be; 5 something counted not at all or twice; 1 else.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

constexpr int64_t kRows = 4096, kWidth = 32, kKeys = 200;  // two stripes, and some buckets
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
      RETURN_IF_ERROR(Expect(0));
      for (int round = 1; round <= kRounds; ++round) {
        const auto assigned = static_cast<float>(100 * round);
        RETURN_IF_ERROR(client_.Assign(Sources(assigned), Patience()));
        for (int push = 1; push <= 3; ++push) {
          RETURN_IF_ERROR(client_.Push(Sources(-1), "", Patience()));
          RETURN_IF_ERROR(Expect(assigned + static_cast<float>(push)));
        }
      }
    }
    return client_.Leave(Patience());
  }

 private:
  std::vector<PushSource> Sources(float value) {
    dense_.assign(kRows * kWidth, value);
    table_.assign(kKeys * 2, value);
    return {{.variable = "dense", .values = AsBytes(absl::MakeConstSpan(dense_))},
            {.variable = "table",
             .part = Part::kKeys,
             .ids = keys_,
             .values = AsBytes(absl::MakeConstSpan(table_))}};
  }

  absl::Status Expect(float value) {
    RETURN_IF_ERROR(
        client_.Pull({{.variable = "dense", .out = AsWritableBytes(absl::MakeSpan(dense_seen_))},
                      {.variable = "table",
                       .part = Part::kKeys,
                       .ids = keys_,
                       .out = AsWritableBytes(absl::MakeSpan(table_seen_))}},
                     Patience()));
    for (const std::vector<float>* seen : {&dense_seen_, &table_seen_}) {
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

absl::Status Main(const std::string& servers) {
  const ClientOptions options = {.job = "calls",
                                 .worker = 0,
                                 .task = "worker:0",
                                 .servers = absl::StrSplit(servers, ','),
                                 .ps_wait = absl::Seconds(50),
                                 .rpc_timeout = absl::Seconds(5)};
  ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> client, PsClient::Connect(options, Patience()));
  return Caller(*client).Run();
}

}  // namespace
}  // namespace cairn::test

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const absl::Status status = cairn::test::Main(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "cairn-caller: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : absl::IsDataLoss(status) ? 5 : 1;
}
