// The savings and costs of delta pulls if a step touches a small part of large dense variables: a
// factorization of ratings whose worker pulls both factors whole and pushes rows, over loopback to
// two servers. Batches contain random users, or consecutive users as logs often do. For comparison
// the same run measures plain pulls, int8 pushes and pulls, and pulls of only the touched rows.
// JSON lines; "verified": the model equals, bit for bit, the one from plain pulls of that format,
// and the last pulled values equal the servers'.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/status.h"
#include "ps_server/engine/process_setup.h"
#include "tests/bench/bench.h"
#include "tests/support/engine_cluster.h"
#include "worker/client/held_values.h"
#include "worker/client/ps_client.h"

namespace cairn {
namespace {

constexpr int64_t kUsers = 200000, kItems = 20000, kDim = 16;
constexpr int64_t kBatch = 256, kSteps = 1000, kRatingsOfAUser = 10;
constexpr int64_t kTestRatings = 20000;
constexpr float kRate = 0.1F;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

struct Rating {
  int64_t user = 0, item = 0;
  float liked = 0;
};

// Items follow Zipf's law. Half of them are good, and most users like those.
Rating Rate(int64_t user, std::mt19937_64& random) {
  const double u = std::uniform_real_distribution<double>(0, 1)(random);
  const auto item = static_cast<int64_t>(std::pow(double{kItems}, u)) - 1;
  const double likes = item % 2 == 0 ? 0.85 : 0.3;
  return {user, item, std::bernoulli_distribution(likes)(random) ? 1.0F : 0.0F};
}

// The batch of a step: of random users, or of the next ones.
std::vector<Rating> Batch(int64_t step, bool in_order) {
  std::mt19937_64 random(static_cast<uint64_t>(step) + 1);
  std::vector<Rating> batch;
  for (int64_t i = 0; i < kBatch; ++i) {
    const int64_t number = step * kBatch + i;
    const int64_t user =
        in_order ? number / kRatingsOfAUser : static_cast<int64_t>(random() % kUsers);
    batch.push_back(Rate(user % kUsers, random));
  }
  return batch;
}

// How the model's variables are transferred.
struct Plan {
  const char* name;
  ValueFormat push = ValueFormat::kPlain, pull = ValueFormat::kPlain;
  bool delta = false;
  bool rows = false;  // pulls only the rows that the batch touches
};

// A factor in the worker's memory, and the rows of the batch.
struct Factor {
  std::string name;
  int64_t rows = 0;
  std::vector<float> values;
  HeldValues held;
  std::vector<int64_t> ids;
  absl::flat_hash_map<int64_t, size_t> number;  // the index of a row in `ids`
  std::vector<float> gradient, pulled_rows;

  void Touch(int64_t row) {
    if (number.try_emplace(row, ids.size()).second) ids.push_back(row);
  }
  float* of(int64_t row) { return values.data() + row * kDim; }
  float* gradient_of(int64_t row) { return gradient.data() + number[row] * kDim; }
};

double Score(Factor& users, Factor& items, const Rating& rating) {
  const float* const u = users.of(rating.user);
  return std::inner_product(u, u + kDim, items.of(rating.item), 0.0F);
}

// The share of pairs of a liked and another item whose scores are in the right order.
double Auc(Factor& users, Factor& items) {
  std::mt19937_64 random(0);
  std::vector<std::pair<double, bool>> scores;
  for (int64_t i = 0; i < kTestRatings; ++i) {
    // Chooses users that both orders have visited.
    const auto user = static_cast<int64_t>(random() % (kSteps * kBatch / kRatingsOfAUser));
    const Rating rating = Rate(user, random);
    scores.emplace_back(Score(users, items, rating), rating.liked > 0);
  }
  std::sort(scores.begin(), scores.end());
  double ranks = 0, liked = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!scores[i].second) continue;
    ranks += static_cast<double>(i + 1);
    ++liked;
  }
  const double others = static_cast<double>(scores.size()) - liked;
  return (ranks - liked * (liked + 1) / 2) / (liked * others);
}

struct Result {
  double push_bytes = 0, pull_bytes = 0, step_seconds = 0, auc = 0;
  bool current = false;  // the last pulled values equal the servers'
  std::vector<float> users;
};

class Run {
 public:
  Run(test::EngineCluster& cluster, const Plan& plan, bool in_order)
      : plan_(plan), in_order_(in_order) {
    const ClientOptions options{.job = "bench", .worker = 0, .task = "worker:0"};
    auto client = cluster.Connect(options, /*in_process=*/false, Soon());
    Require(client.status());
    client_ = *std::move(client);
    // Not around zero, so that the first ratings already distinguish the items.
    Make(&users_, "users", kUsers, 0, 0.5);
    Make(&items_, "items", kItems, -0.1, 0.1);
  }

  Result Train() {
    Require(client_->Step({}, "", Targets(0), Soon()));
    const ClientCounters before = client_->counters();
    const absl::Duration start = MonotonicNow();
    for (int64_t step = 0; step < kSteps; ++step) Step(step);
    const absl::Duration seconds = MonotonicNow() - start;
    const ClientCounters after = client_->counters();
    Result result;
    result.step_seconds = absl::ToDoubleSeconds(seconds) / kSteps;
    result.push_bytes = static_cast<double>(after.bytes_pushed - before.bytes_pushed) / kSteps;
    result.pull_bytes = static_cast<double>(after.bytes_pulled - before.bytes_pulled) / kSteps;
    Finish(&result);
    return result;
  }

 private:
  void Make(Factor* factor, const std::string& name, int64_t rows, double least, double most) {
    factor->name = name;
    factor->rows = rows;
    factor->values.resize(static_cast<size_t>(rows * kDim));
    VariableSpec spec;
    spec.name = name;
    spec.shape = {rows, kDim};
    spec.shards = {{0, rows / 2, 0}, {rows / 2, rows - rows / 2, 1}};
    spec.optimizer = {.type = "sgd", .learning_rate = ConstantRate(kRate)};
    spec.initializer.type = "uniform";
    spec.initializer.arguments = {{"minval", least}, {"maxval", most}};
    Require(client_->Create({spec}, Soon()));
  }

  // The targets of the pull before step `step`.
  std::vector<PullTarget> Targets(int64_t step) {
    batch_ = Batch(step, in_order_);
    for (Factor* factor : {&users_, &items_}) {
      factor->ids.clear();
      factor->number.clear();
    }
    for (const Rating& rating : batch_) {
      users_.Touch(rating.user);
      items_.Touch(rating.item);
    }
    std::vector<PullTarget> targets;
    for (Factor* factor : {&users_, &items_}) {
      PullTarget target{.variable = factor->name, .format = plan_.pull};
      if (plan_.rows) {
        factor->pulled_rows.resize(factor->ids.size() * kDim);
        target.part = Part::kRows;
        target.ids = factor->ids;
        target.out = AsWritableBytes(absl::MakeSpan(factor->pulled_rows));
      } else {
        target.out = AsWritableBytes(absl::MakeSpan(factor->values));
        if (plan_.delta) target.held = &factor->held;
      }
      targets.push_back(target);
    }
    return targets;
  }

  void Step(int64_t step) {
    std::vector<PushSource> sources;
    for (Factor* factor : {&users_, &items_}) {
      for (size_t i = 0; plan_.rows && i < factor->ids.size(); ++i) {
        std::copy_n(factor->pulled_rows.data() + i * kDim, kDim, factor->of(factor->ids[i]));
      }
      factor->gradient.assign(factor->ids.size() * kDim, 0);
    }
    for (const Rating& rating : batch_) {
      const double score = Score(users_, items_, rating);
      const auto error = static_cast<float>(1 / (1 + std::exp(-score))) - rating.liked;
      float* const to_user = users_.gradient_of(rating.user);
      float* const to_item = items_.gradient_of(rating.item);
      for (int64_t d = 0; d < kDim; ++d) {
        to_user[d] += error * items_.of(rating.item)[d];
        to_item[d] += error * users_.of(rating.user)[d];
      }
    }
    // Copies, because the pushed ids must not change while the next batch is listed.
    const std::vector<int64_t> user_ids = users_.ids, item_ids = items_.ids;
    sources.push_back(Source(users_, user_ids));
    sources.push_back(Source(items_, item_ids));
    const std::vector<PullTarget> targets = Targets(step + 1);
    Require(client_->Step(sources, "", targets, Soon()));
  }
  PushSource Source(const Factor& factor, absl::Span<const int64_t> ids) const {
    return {.variable = factor.name,
            .part = Part::kRows,
            .ids = ids,
            .values = AsBytes(absl::MakeConstSpan(factor.gradient)),
            .format = plan_.push};
  }

  void Finish(Result* result) {
    result->current = true;
    for (Factor* factor : {&users_, &items_}) {
      std::vector<float> now(factor->values.size());
      Require(client_->Pull({{.variable = factor->name,
                              .out = AsWritableBytes(absl::MakeSpan(now)),
                              .format = plan_.pull}},
                            Soon()));
      result->current &= plan_.rows || now == factor->values;
      factor->values = now;
    }
    result->auc = Auc(users_, items_);
    result->users = users_.values;
    Require(client_->DropJob(Soon()));
  }

  const Plan plan_;
  const bool in_order_;
  std::unique_ptr<PsClient> client_;
  Factor users_, items_;
  std::vector<Rating> batch_;
};

void Measure(test::EngineCluster& cluster, bool in_order) {
  const Plan plans[] = {
      {.name = "plain"},
      {.name = "delta", .delta = true},
      {.name = "push int8", .push = ValueFormat::kInt8},
      {.name = "push int8, delta", .push = ValueFormat::kInt8, .delta = true},
      {.name = "push and pull int8", .push = ValueFormat::kInt8, .pull = ValueFormat::kInt8},
      {.name = "push and pull int8, delta",
       .push = ValueFormat::kInt8,
       .pull = ValueFormat::kInt8,
       .delta = true},
      {.name = "rows", .rows = true},
  };
  Result plain, pair;
  for (const Plan& plan : plans) {
    const Result result = Run(cluster, plan, in_order).Train();
    if (plain.users.empty()) plain = result;
    const Result& same = plan.delta ? pair : plan.rows ? plain : result;
    const bool verified = result.current && result.users == same.users;
    pair = result;
    std::printf(
        "{\"bench\":\"delta pulls\",\"batches\":\"%s\",\"format\":\"%s\",\"push_bytes\":%.0f,"
        "\"pull_bytes\":%.0f,\"push_over_plain\":%.4f,\"pull_over_plain\":%.4f,\"step_ms\":%.3f,"
        "\"step_time_over_plain\":%.3f,\"auc\":%.4f,\"auc_minus_plain\":%.4f,\"verified\":%s}\n",
        in_order ? "users in order" : "users at random", plan.name, result.push_bytes,
        result.pull_bytes, result.push_bytes / plain.push_bytes,
        result.pull_bytes / plain.pull_bytes, 1e3 * result.step_seconds,
        result.step_seconds / plain.step_seconds, result.auc, result.auc - plain.auc,
        verified ? "true" : "false");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace cairn

int main() {
  cairn::SetUpServerProcess();
  cairn::test::EngineCluster cluster(2, cairn::Durability::kSnapshot);
  for (const bool in_order : {false, true}) cairn::Measure(cluster, in_order);
  return 0;
}
