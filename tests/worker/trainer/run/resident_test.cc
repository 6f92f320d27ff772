// Whole runs on fake GPUs with the variables on them between steps: they end with the numbers of
// runs whose variables travel through host memory, bit for bit, also when they are killed, stopped,
// restored, out of memory, or when a call of the runtime fails. With one replica, with several that
// sum by NCCL or share a GPU, and with several workers.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/engine/engine.h"
#include "tests/support/cpu_rounding.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/trainer/linear_rows.h"
#include "thrift/ParameterServer.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"
#include "worker/trainer/devices/resident_state.h"
#include "worker/trainer/run/trainer.h"

namespace cairn::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// An epoch's last step has fewer rows than three replicas.
constexpr int64_t kRows = 482;
constexpr int64_t kColumns = 8;
constexpr int64_t kEpochSteps = 13;
constexpr int64_t kSteps = 2 * kEpochSteps;

constexpr double kTolerance = kCpuRoundsOtherwise ? 1e-4 : 0;

// What the server has of a variable.
struct Stored {
  std::vector<std::vector<float>> parts;  // value and slots
  int64_t updates = 0;

  // Up to kTolerance.
  friend bool operator==(const Stored& a, const Stored& b) {
    const auto near = [](float x, float y) {
      return std::abs(x - y) <= kTolerance * (1 + std::abs(y));
    };
    return a.updates == b.updates &&
           std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(),
                      [&](const auto& x, const auto& y) {
                        return std::equal(x.begin(), x.end(), y.begin(), y.end(), near);
                      });
  }
};

using Devices = std::vector<std::string>;

class ResidentTest : public ::testing::TestWithParam<Devices> {
 protected:
  void SetUp() override {
    WriteLinearRows(folder_.Join("rows.libsvm"), kRows, kColumns);
    JobConfig& job = options_.job;
    job.name = "j";
    job.strategy.type = GetParam().size() == 1 ? "one_device" : "mirrored";
    job.strategy.devices = GetParam();
    job.model.type = "mlp";
    job.model.hidden = {6, 5};
    job.model.loss = "sigmoid_cross_entropy";
    job.data.format = "libsvm";
    job.data.features = kColumns;
    job.data.batch_size = 40;
    job.data.epochs = 2;
    job.data.shuffle_buffer_rows = 100;
    job.data.train = job.data.eval = {{folder_.Join("rows.libsvm"), ""}};
    job.optimizer.type = "adam";
    job.optimizer.learning_rate = ConstantRate(0.05);
    job.storage.snapshot_interval_seconds = 1000;
    options_.stop_requested = [] { return false; };
  }
  ~ResidentTest() override {
    fake::settings().fail_at = 0;
    fake::settings().largest_allocation = SIZE_MAX;
  }

  std::string Folder(const std::string& name) const { return folder_.Join(name); }

  // A run with the server in `folder`.
  static absl::StatusOr<Report> TryTrain(const TrainerOptions& trainer, const std::string& folder) {
    EngineOptions options;
    options.directory = folder;
    if (trainer.job.not_finite == "skip") options.not_finite = NotFinitePolicy::kSkip;
    ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Open(options));
    const Connector connector = [&](ClientOptions client, Deadline deadline) {
      client.retained_bytes = 0;
      return PsClient::ConnectInProcess(client, {&engine->service()}, deadline);
    };
    absl::StatusOr<Report> report = RunTraining(trainer, connector);
    const absl::Status closed = engine->Close();
    return closed.ok() ? report : closed;
  }
  absl::StatusOr<Report> TryTrain(const std::string& folder) { return TryTrain(options_, folder); }
  Report Train(const std::string& folder) {
    absl::StatusOr<Report> report = TryTrain(folder);
    EXPECT_OK(report);
    return report.ok() ? *std::move(report) : Report();
  }

  // With the variables in host memory between steps.
  Report TrainThroughHost(const std::string& folder) {
    const std::string durability = std::exchange(options_.job.storage.durability, "log");
    Report report = Train(folder);
    options_.job.storage.durability = durability;
    return report;
  }

  // All variables that a process finds in `folder`.
  static std::vector<Stored> ReadAll(const std::string& folder) {
    EngineOptions options;
    options.directory = folder;
    const std::unique_ptr<Engine> engine = Engine::Open(options).value();
    ClientOptions client_options;
    client_options.job = "j";
    const Deadline deadline = Deadline::In(absl::Seconds(60));
    const std::unique_ptr<PsClient> client =
        PsClient::ConnectInProcess(client_options, {&engine->service()}, deadline).value();
    std::vector<Stored> all;
    const std::vector<VariableSpec> specs = client->Describe(deadline).value();
    for (const VariableSpec& spec : specs) {
      if (spec.kind != VariableKind::kDense) continue;
      size_t floats = 1;
      for (const int64_t extent : spec.shape) floats *= static_cast<size_t>(extent);
      Stored& stored = all.emplace_back();
      std::vector<std::string> names = {""};
      const std::unique_ptr<Optimizer> optimizer = Optimizer::Create(spec.optimizer).value();
      for (const SlotSpec& slot : optimizer->slots()) names.push_back(slot.name);
      for (const std::string& name : names) {
        std::vector<float>& part = stored.parts.emplace_back(floats);
        PullTarget target{
            .variable = spec.name, .out = AsWritableBytes(absl::MakeSpan(part)), .slot = name};
        if (name.empty()) target.updates = &stored.updates;
        EXPECT_OK(client->Pull({target}, deadline));
      }
    }
    EXPECT_FALSE(all.empty());
    return all;
  }

  void StopAfter(int64_t steps) {
    auto asked = std::make_shared<int64_t>(0);
    options_.stop_requested = [steps, asked] { return ++*asked >= steps; };
  }
  void NeverStop() {
    options_.stop_requested = [] { return false; };
  }

  TempDir folder_;
  TrainerOptions options_;
};

TEST_P(ResidentTest, NumbersAreThoseOfTheHostPath) {
  for (const char* optimizer : {"sgd", "adam", "adagrad", "rmsprop", "ftrl", "lion"}) {
    SCOPED_TRACE(optimizer);
    options_.job.optimizer.type = optimizer;
    if (GetParam().size() > 1 && optimizer == std::string("lion")) {
      options_.job.strategy.type = "central_storage";
    }
    const std::string host = Folder(absl::StrCat("host-", optimizer));
    const std::string resident = Folder(absl::StrCat("gpu-", optimizer));
    const Report want = TrainThroughHost(host);
    const Report got = Train(resident);
    EXPECT_EQ(got.status, "completed");
    EXPECT_EQ(got.total_steps, kSteps);
    EXPECT_NEAR(got.train_loss.value(), want.train_loss.value(), kTolerance);
    EXPECT_NEAR(got.eval->log_loss.value(), want.eval->log_loss.value(), kTolerance);
    const std::vector<Stored> stored = ReadAll(resident);
    EXPECT_EQ(stored, ReadAll(host));
    for (const Stored& variable : stored) EXPECT_EQ(variable.updates, kSteps);
    // Only the write-back at the end, instead of all gradients.
    EXPECT_LT(got.counters.bytes_pushed, want.counters.bytes_pushed / 4);
  }
}

// With write-backs beside the steps all the time.
TEST_P(ResidentTest, FrequentWriteBacksChangeNothing) {
  TrainThroughHost(Folder("host"));
  options_.job.storage.snapshot_interval_seconds = 1e-6;
  const Report report = Train(Folder("gpu"));
  EXPECT_GT(report.counters.bytes_pushed, 10 * kColumns * 6 * 4);
  EXPECT_EQ(ReadAll(Folder("gpu")), ReadAll(Folder("host")));
}

TEST_P(ResidentTest, AFinishedRunTrainsMoreWhereItsTotalsGrow) {
  Train(Folder("gpu"));
  EXPECT_EQ(Train(Folder("gpu")).steps, 0);
  options_.job.data.epochs = 3;
  EXPECT_EQ(Train(Folder("gpu")).total_steps, 3 * kEpochSteps);
  TrainThroughHost(Folder("host"));
  EXPECT_EQ(ReadAll(Folder("gpu")), ReadAll(Folder("host")));
}

TEST_P(ResidentTest, AStoppedRunContinuedEqualsOneThatNeverStopped) {
  TrainThroughHost(Folder("host"));
  int64_t steps = 0;
  for (int start = 0; start < 20 && steps < kSteps; ++start) {
    StopAfter(1 + start * 2);
    const Report report = Train(Folder("gpu"));
    EXPECT_EQ(report.total_steps, steps + report.steps);
    steps = report.total_steps;
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_EQ(ReadAll(Folder("gpu")), ReadAll(Folder("host")));
}

// The folder is copied in the middle of a run: what a process finds that is started after SIGKILL.
TEST_P(ResidentTest, AKilledRunContinuesFromItsLastWriteBack) {
  TrainThroughHost(Folder("host"));
  options_.job.evaluation.every_steps = 5;  // each evaluation writes back
  for (const int64_t killed_at : {3, 7, 14, 23}) {
    SCOPED_TRACE(killed_at);
    const std::string folder = Folder(absl::StrCat("gpu-", killed_at));
    const std::string copy = Folder(absl::StrCat("killed-", killed_at));
    auto polled = std::make_shared<int64_t>(0);
    options_.stop_requested = [=] {
      if (++*polled == killed_at)
        std::filesystem::copy(folder, copy, std::filesystem::copy_options::recursive);
      return false;
    };
    Train(folder);
    NeverStop();
    const Report rest = Train(copy);
    EXPECT_EQ(rest.total_steps, kSteps);
    EXPECT_EQ((kSteps - rest.steps) % 5, 0);
    EXPECT_EQ(rest.steps == kSteps, killed_at < 5);
    EXPECT_EQ(ReadAll(copy), ReadAll(Folder("host")));
  }
}

TEST_P(ResidentTest, ACheckpointInTheMiddleIsRestoredExactly) {
  TrainThroughHost(Folder("host"));
  options_.job.checkpoint.directory = Folder("checkpoints");
  options_.job.checkpoint.every_steps = 10;
  options_.job.checkpoint.keep = 5;
  const auto finished = [this] {
    return ListCheckpoints(Folder("checkpoints"), "j").value().finished;
  };
  // A checkpoint contains what is written back before its copy is made, so the next write-back,
  // at step 20, comes when it is there.
  auto polled = std::make_shared<int64_t>(0);
  options_.stop_requested = [=] {
    const Deadline deadline = Deadline::In(absl::Seconds(60));
    while (*polled == 12 && finished().empty() && !deadline.Expired()) std::this_thread::yield();
    ++*polled;
    return false;
  };
  Train(Folder("gpu"));
  ASSERT_EQ(finished().size(), 3u);
  EXPECT_EQ(finished()[0].step, 10);
  NeverStop();
  options_.job.checkpoint.restore = absl::StrCat(Folder("checkpoints"), "/", finished()[0].name);
  options_.job.checkpoint.directory = Folder("others");
  const Report report = Train(Folder("restored"));
  EXPECT_EQ(report.steps, kSteps - 10);
  EXPECT_EQ(ReadAll(Folder("restored")), ReadAll(Folder("host")));
}

// Whichever call of the runtime fails, the run ends with an error of the GPU or completes (where it
// can do without), and the next run ends with the right numbers.
TEST_P(ResidentTest, ARunInWhichAnyCallFailedIsContinuedExactly) {
  options_.job.data.max_steps = 6;
  options_.job.evaluation.every_steps = 2;
  TrainThroughHost(Folder("host"));
  const std::vector<Stored> want = ReadAll(Folder("host"));
  const int64_t before = fake::Calls();
  Train(Folder("healthy"));
  const int64_t calls = fake::Calls() - before;
  int failed = 0;
  for (int64_t n = 1; n <= calls; n += 1 + calls / (GetParam().size() == 1 ? 25 : 12)) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    const std::string folder = Folder(absl::StrCat("gpu-", n));
    fake::settings().fail_at = static_cast<int>(n);
    const absl::Status status = TryTrain(folder).status();
    fake::settings().fail_at = 0;
    if (!status.ok()) {
      ++failed;
      EXPECT_THAT(status.message(), AnyOf(HasSubstr("gpu:"), HasSubstr("NCCL")));
    }
    EXPECT_EQ(Train(folder).total_steps, 6);
    EXPECT_EQ(ReadAll(folder), want);
  }
  EXPECT_GT(failed, 3);
}

TEST_P(ResidentTest, AGpuWithTooLittleMemoryForTheSlotsComputesWithHostMemory) {
  options_.job.model.hidden = {512, 64};
  options_.job.data.max_steps = 3;
  options_.job.data.eval.clear();  // more rows at a time than a step
  TrainThroughHost(Folder("host"));
  fake::settings().largest_allocation = size_t{500} << 10;
  const Report report = Train(Folder("gpu"));
  fake::settings().largest_allocation = SIZE_MAX;
  EXPECT_EQ(report.status, "completed");
  EXPECT_GT(report.counters.bytes_pushed, 3 * 512 * 64 * 4);
  EXPECT_EQ(ReadAll(Folder("gpu")), ReadAll(Folder("host")));
}

TEST_P(ResidentTest, GradientsThatAreNotFiniteFailOrAreSkippedAsOnTheHost) {
  std::ofstream(folder_.Join("huge.libsvm")) << "1 1:1\n0 1:3e38 2:3e38\n0 1:3e38 2:3e38\n1 1:1\n";
  options_.job.model.type = "linear";
  options_.job.data.train = {{folder_.Join("huge.libsvm"), ""}};
  options_.job.data.eval.clear();
  options_.job.data.shuffle_buffer_rows = 0;
  options_.job.data.batch_size = 2;
  options_.job.model.loss = "mean_squared_error";
  options_.job.divergence = "ignore";
  const absl::Status got = TryTrain(Folder("gpu")).status();
  EXPECT_THAT(got, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be finite")));
  options_.job.storage.durability = "log";
  EXPECT_EQ(TryTrain(Folder("host")).status(), got);
  EXPECT_EQ(ReadAll(Folder("gpu")), ReadAll(Folder("host")));  // the steps before it count
  options_.job.not_finite = "skip";
  const Report want = Train(Folder("host"));
  options_.job.storage.durability = "snapshot";
  const Report report = Train(Folder("gpu"));
  EXPECT_EQ(report.steps, want.steps);
  EXPECT_GT(report.counters.pushes_dropped, 0);
  EXPECT_EQ(report.counters.pushes_dropped, want.counters.pushes_dropped);
  EXPECT_EQ(ReadAll(Folder("gpu")), ReadAll(Folder("host")));
}

// Malformed rows end the run; the finished steps are kept.
TEST_P(ResidentTest, AnErrorOfTheInputKeepsTheStepsBefore) {
  std::ofstream(folder_.Join("rows.libsvm"), std::ios::app) << "1 1:x\n";
  options_.job.data.shuffle_buffer_rows = 0;
  options_.job.data.eval.clear();
  EXPECT_FALSE(TryTrain(Folder("gpu")).ok());
  options_.job.storage.durability = "log";
  EXPECT_FALSE(TryTrain(Folder("host")).ok());
  const std::vector<Stored> stored = ReadAll(Folder("gpu"));
  EXPECT_GT(stored.front().updates, 0);
  EXPECT_EQ(stored, ReadAll(Folder("host")));
}

// Two workers with two GPUs each that train as one, as threads. Worker r has its server in
// FolderOf(name, r).
class ResidentWorkersTest : public ResidentTest {
 protected:
  using Change = std::function<void(int rank, TrainerOptions& options)>;
  using Reports = std::vector<absl::StatusOr<Report>>;

  std::string FolderOf(const std::string& name, int rank) const {
    return Folder(absl::StrCat(name, "-", rank));
  }
  Reports TryTrainTogether(const std::string& name, const Change& change = nullptr) {
    Ranks groups(2);
    Reports reports(2, absl::UnknownError("did not run"));
    OnRanks(2, [&](int rank) {
      TrainerOptions options = options_;
      StrategyConfig& strategy = options.job.strategy;
      strategy.type = "multi_worker_mirrored";
      strategy.communication.implementation = "nccl";
      strategy.devices = {absl::StrCat("gpu:", 2 * rank), absl::StrCat("gpu:", 2 * rank + 1)};
      options.job.storage.directory = FolderOf(absl::StrCat(name, "-scratch"), rank);
      options.worker = rank;
      options.workers = 2;
      options.group = &groups[rank];
      options.task = absl::StrCat("worker:", rank);
      if (change) change(rank, options);
      reports[static_cast<size_t>(rank)] = TryTrain(options, FolderOf(name, rank));
    });
    return reports;
  }
  // The first worker's report.
  Report TrainTogether(const std::string& name, const Change& change = nullptr) {
    Reports reports = TryTrainTogether(name, change);
    for (const absl::StatusOr<Report>& report : reports) EXPECT_OK(report);
    return reports[0].ok() ? *std::move(reports[0]) : Report();
  }
  static void ThroughHost(int, TrainerOptions& options) { options.job.storage.durability = "log"; }
  // What both workers have.
  std::vector<Stored> ReadBoth(const std::string& name) {
    std::vector<Stored> first = ReadAll(FolderOf(name, 0));
    EXPECT_EQ(ReadAll(FolderOf(name, 1)), first);
    return first;
  }
  // The first step after a start sums in host memory, which rounds differently. Adagrad's steps are
  // so large that one too few or too many is found.
  void ExpectBothNear(const std::string& name, const std::vector<Stored>& want) {
    const std::vector<Stored> got = ReadBoth(name);
    ASSERT_EQ(got.size(), want.size());
    for (size_t v = 0; v < got.size(); ++v) {
      EXPECT_EQ(got[v].updates, want[v].updates);
      for (size_t part = 0; part < got[v].parts.size(); ++part) {
        EXPECT_THAT(got[v].parts[part],
                    Pointwise(::testing::FloatNear(1e-5f), want[v].parts[part]));
      }
    }
  }
};

TEST_P(ResidentWorkersTest, NumbersAreThoseOfTheHostPathOnEveryWorker) {
  for (const char* optimizer : {"sgd", "adam", "ftrl"}) {
    SCOPED_TRACE(optimizer);
    options_.job.optimizer.type = optimizer;
    const std::string host = absl::StrCat("host-", optimizer),
                      gpu = absl::StrCat("gpu-", optimizer);
    const Report want = TrainTogether(host, ThroughHost);
    const Report got = TrainTogether(gpu);
    EXPECT_NEAR(got.train_loss.value(), want.train_loss.value(), kTolerance);
    EXPECT_NEAR(got.eval->log_loss.value(), want.eval->log_loss.value(), kTolerance);
    EXPECT_LT(got.counters.bytes_pushed, want.counters.bytes_pushed / 4);
    EXPECT_EQ(ReadBoth(gpu), ReadBoth(host));
  }
}

TEST_P(ResidentWorkersTest, OneWorkerThatCannotKeepThemLeavesThemInHostMemoryOnAll) {
  const Report want = TrainTogether("host", ThroughHost);
  const Report got = TrainTogether("mixed", [](int rank, TrainerOptions& options) {
    if (rank == 1) options.job.storage.durability = "log";
  });
  EXPECT_EQ(got.counters.bytes_pushed, want.counters.bytes_pushed);
  EXPECT_EQ(ReadBoth("mixed"), ReadBoth("host"));
}

// The folders are copied in the middle of a run, that of one worker after an earlier write-back.
TEST_P(ResidentWorkersTest, KilledWorkersContinueFromTheNewestWriteBack) {
  options_.job.optimizer.type = "adagrad";
  TrainTogether("host", ThroughHost);
  options_.job.evaluation.every_steps = 3;  // each evaluation writes back
  TrainTogether("gpu", [this](int rank, TrainerOptions& options) {
    auto polled = std::make_shared<int64_t>(0);
    options.stop_requested = [this, rank, polled] {
      if (++*polled == (rank == 0 ? 5 : 9)) {
        std::filesystem::copy(FolderOf("gpu", rank), FolderOf("killed", rank),
                              std::filesystem::copy_options::recursive);
      }
      return false;
    };
  });
  const Report rest = TrainTogether("killed");
  EXPECT_GT(rest.steps, 0);
  EXPECT_LT(rest.steps, rest.total_steps - 3);
  ExpectBothNear("killed", ReadBoth("host"));
}

// Whichever call of any worker fails. The other worker writes back the steps before it.
TEST_P(ResidentWorkersTest, ARunInWhichAnyCallFailedIsContinuedWithoutALostStep) {
  options_.job.optimizer.type = "adagrad";
  options_.job.data.max_steps = 6;
  options_.job.data.eval.clear();
  TrainTogether("host", ThroughHost);
  const std::vector<Stored> want = ReadBoth("host");
  const int64_t before = fake::Calls();
  TrainTogether("healthy");
  const int64_t calls = fake::Calls() - before;
  int failed = 0, continued = 0;
  for (int64_t n = 1; n <= calls; n += 1 + calls / 10) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    const std::string name = absl::StrCat("gpu-", n);
    fake::settings().fail_at = static_cast<int>(n);
    const Reports reports = TryTrainTogether(name);
    fake::settings().fail_at = 0;
    const Report rest = TrainTogether(name);
    ExpectBothNear(name, want);
    if (reports[0].ok() && reports[1].ok()) continue;
    ++failed;
    continued += rest.steps < 6 ? 1 : 0;
  }
  EXPECT_GT(continued, 3);
  EXPECT_GT(failed, 3);
}

INSTANTIATE_TEST_SUITE_P(Workers, ResidentWorkersTest, ::testing::Values(Devices{"gpu:0"}),
                         [](const auto&) { return "two"; });

INSTANTIATE_TEST_SUITE_P(Replicas, ResidentTest,
                         ::testing::Values(Devices{"gpu:0"}, Devices{"gpu:0", "gpu:1"},
                                           Devices{"gpu:0", "gpu:1", "gpu:2"},
                                           Devices{"gpu:0", "gpu:0"}),
                         [](const auto& info) {
                           return absl::StrReplaceAll(absl::StrJoin(info.param, "_"), {{":", ""}});
                         });

TEST(ResidentWhyNot, NamesWhatStandsInTheWay) {
  JobConfig job;
  job.strategy.type = "mirrored";
  const VariableSpec spec{.name = "w", .shape = {2, 3}};
  EngineOptions options;
  const TempDir folder;
  options.directory = folder.Join("store");
  const std::unique_ptr<Engine> engine = Engine::Open(options).value();
  const std::unique_ptr<PsClient> client =
      PsClient::ConnectInProcess({.job = "j"}, {&engine->service()},
                                 Deadline::In(absl::Seconds(60)))
          .value();
  const auto why = [&](const JobConfig& of, const VariableSpec& variable,
                       const std::vector<Device>& devices = {Gpu(0), Gpu(1), Gpu(0)},
                       int32_t workers = 1) {
    return ResidentState::WhyNot({.job = of,
                                  .specs = {&variable, 1},
                                  .client = *client,
                                  .devices = devices,
                                  .workers = workers});
  };
  EXPECT_EQ(why(job, spec), "");
  EXPECT_THAT(why(job, spec, {Gpu(0), Cpu(0)}), HasSubstr("a replica is on a CPU"));
  EXPECT_THAT(why(job, spec, {Gpu(0)}, 2), HasSubstr("several workers"));
  JobConfig other = job;
  other.strategy.type = "parameter_server";
  EXPECT_THAT(why(other, spec), HasSubstr("parameter_server"));
  other = job;
  other.storage.durability = "log";
  EXPECT_THAT(why(other, spec), HasSubstr("storage.durability log"));
  other = job;
  other.strategy.wire.format.push = "int8";
  EXPECT_THAT(why(other, spec), HasSubstr("strategy.wire"));
  other = job;
  other.strategy.pull_ahead_steps = 1;
  EXPECT_THAT(why(other, spec), HasSubstr("pull_ahead_steps"));
  VariableSpec variable = spec;
  variable.kind = VariableKind::kEmbedding;
  EXPECT_THAT(why(job, variable), HasSubstr("'w' is a table"));
  variable = spec;
  variable.optimizer.global_clipnorm = 1;
  EXPECT_THAT(why(job, variable), HasSubstr("global_clipnorm"));
  variable = spec;
  variable.shape = {int64_t{1} << 20, 1 << 10};
  EXPECT_THAT(why(job, variable), HasSubstr("one write takes"));
}

}  // namespace
}  // namespace cairn::test
