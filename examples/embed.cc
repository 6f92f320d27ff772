// A program with a model and gradients of its own: y = w . x + taste(user), on rows that it makes
// up. usage: cairn-embed [host:port ...]; without servers, one in this process on
// ./cairn-data/embed
#include <cmath>
#include <cstdio>
#include <random>

#include "cairn/common/log_sink.h"
#include "cairn/common/status.h"
#include "cairn/worker/trainer/run/in_process_server.h"

namespace cairn {
namespace {
constexpr int kColumns = 4, kRows = 64, kSteps = 2000, kUsers = 500;
Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

absl::Status Train(PsClient& ps) {
  const OptimizerConfig adagrad = {.type = "adagrad", .learning_rate = ConstantRate(0.5)};
  const VariableSpec w_spec = {.name = "w", .shape = {kColumns}, .optimizer = adagrad};
  VariableSpec taste_spec = {.name = "taste", .shape = {1}, .optimizer = adagrad};
  taste_spec.kind = VariableKind::kEmbedding;  // a row for every user that is met
  taste_spec.touched_rows = TouchedRows::kPushed;
  RETURN_IF_ERROR(ps.Create({w_spec, taste_spec}, Soon()));

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> w(kColumns), d_w(kColumns), taste(kRows), d_taste(kRows);
  std::vector<int64_t> users(kRows);
  for (int step = 1; step <= kSteps; ++step) {
    for (int64_t& user : users) user = random() % kUsers;
    RETURN_IF_ERROR(ps.Pull({{"w", Part::kWhole, {}, AsWritableBytes(absl::MakeSpan(w))},
                             {"taste", Part::kKeys, users, AsWritableBytes(absl::MakeSpan(taste))}},
                            Soon()));
    double loss = 0;
    d_w.assign(kColumns, 0);
    for (int r = 0; r < kRows; ++r) {
      float x[kColumns], error = taste[r] - std::sin(static_cast<float>(users[r]));
      for (int c = 0; c < kColumns; ++c) {
        x[c] = normal(random);
        error += x[c] * (w[c] - static_cast<float>(c + 1));  // the truth: w = 1, 2, 3, 4
      }
      loss += error * error / kRows;
      for (int c = 0; c < kColumns; ++c) d_w[c] += 2 * error * x[c] / kRows;
      d_taste[r] = 2 * error / kRows;  // a user met twice: the rows are added
    }
    RETURN_IF_ERROR(ps.Push({{"w", Part::kWhole, {}, AsBytes(absl::MakeConstSpan(d_w))},
                             {"taste", Part::kKeys, users, AsBytes(absl::MakeConstSpan(d_taste))}},
                            /*position=*/"", Soon()));
    if (step % 500 == 0) std::printf("step %d loss %.4f w[3] %.3f\n", step, loss, w[3]);
  }
  return ps.Leave(Soon());
}

absl::Status Run(std::vector<std::string> servers) {
  const ClientOptions options = {.job = "embed",
                                 .worker = 0,
                                 .task = "embed",
                                 .servers = std::move(servers),
                                 .ps_wait = absl::Seconds(10)};  // for a server that is down
  if (!options.servers.empty()) {
    ASSIGN_OR_RETURN(const auto ps, PsClient::Connect(options, Soon()));
    return Train(*ps);
  }
  JobConfig job;
  job.name = "embed";
  ASSIGN_OR_RETURN(const auto server, InProcessServer::Open(job, /*create=*/true));
  ASSIGN_OR_RETURN(auto ps, server->Connect(options, Soon()));
  RETURN_IF_ERROR(Train(*ps));
  ps.reset();
  return server->Close();
}
}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::SetLogLevel(cairn::LogLevel::kWarning);
  cairn::SetLogSink(cairn::StderrLogSink());  // says which server the program waits for
  const absl::Status status = cairn::Run({argv + 1, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "cairn-embed: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
