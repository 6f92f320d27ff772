// Workers that train as one, as threads. Their gradients together are those of all rows, with the
// same bits on each worker, whether a worker uses a variable whole, by ids or not at all, and
// whether it computes on CPUs or on GPUs. Epochs end together; a stop, an error and long work of
// one worker affect all.
#include "worker/trainer/joint/lockstep.h"

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/exit_status.h"
#include "common/shape.h"
#include "gmock/gmock.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/models/model_scene.h"
#include "tests/worker/models/random_batch.h"
#include "worker/ops/device_queue.h"
#include "worker/trainer/devices/replicated_model.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns prepared batches.
class ListReader : public Reader {
 public:
  explicit ListReader(std::deque<Batch> batches) : batches_(std::move(batches)) {}
  const Schema& schema() const override { return schema_; }
  void StartAt(int64_t, int64_t, int64_t) override {}
  absl::StatusOr<bool> Next(Batch* batch) override {
    if (batches_.empty()) return false;
    *batch = std::move(batches_.front());
    batches_.pop_front();
    return true;
  }
  absl::Span<const std::string> vocabulary() const override { return {}; }

 private:
  const Schema schema_;
  std::deque<Batch> batches_;
};

std::optional<bool> Loaded(const absl::StatusOr<bool>& more) {
  EXPECT_OK(more);
  return more.ok() ? std::optional<bool>(*more) : std::nullopt;
}

// Values like a pull's: the same for each id under any plan.
void FillValues(const Model& model, StepState* state) {
  for (size_t v = 0; v < state->uses.size(); ++v) {
    VariableUse& use = state->uses[v];
    const VariableSpec& spec = model.variables()[v];
    const auto width = static_cast<size_t>(spec.kind == VariableKind::kDense ? RowWidth(spec.shape)
                                                                             : spec.shape.front());
    for (size_t i = 0; i < use.values.size(); ++i) {
      const size_t row = i / width;
      const uint64_t id = use.part == Part::kWhole ? row : static_cast<uint64_t>(use.ids[row]);
      use.values[i] = static_cast<float>((id * 31 + i % width) % 17) * 0.02f;
    }
  }
}

// Rows [first, last) of a batch, as a batch.
Batch Rows(const ModelScene& scene, const Batch& batch, size_t first, size_t last) {
  Batch part;
  part.rows = static_cast<int64_t>(last - first);
  const auto cut = [&](const auto& from, size_t width, auto* to) {
    to->assign(from.begin() + static_cast<ptrdiff_t>(first * width),
               from.begin() + static_cast<ptrdiff_t>(last * width));
  };
  cut(batch.labels, 1, &part.labels);
  cut(batch.dense, static_cast<size_t>(scene.schema.dense_columns), &part.dense);
  cut(batch.keys, static_cast<size_t>(scene.schema.key_columns), &part.keys);
  if (scene.schema.sparse_columns == 0) return part;
  const auto begin = batch.row_offsets[first], end = batch.row_offsets[last];
  for (size_t row = first; row <= last; ++row) {
    part.row_offsets.push_back(batch.row_offsets[row] - begin);
  }
  part.columns.assign(batch.columns.begin() + begin, batch.columns.begin() + end);
  part.values.assign(batch.values.begin() + begin, batch.values.begin() + end);
  return part;
}

// The sum that a step's gradient adds to each id of a variable.
using ById = std::map<int64_t, std::vector<float>>;
ById GradientOf(const Model& model, const StepState& state, size_t variable) {
  const VariableUse& use = state.uses[variable];
  const VariableSpec& spec = model.variables()[variable];
  const auto width = static_cast<size_t>(spec.kind == VariableKind::kDense ? RowWidth(spec.shape)
                                                                           : spec.shape.front());
  ById by_id;
  for (size_t row = 0; row < use.gradient.size() / width; ++row) {
    const float* const at = use.gradient.data() + row * width;
    const std::vector<float> values(at, at + width);
    if (values == std::vector<float>(width)) continue;
    by_id[use.part == Part::kWhole ? static_cast<int64_t>(row) : use.ids[row]] = values;
  }
  return by_id;
}

class Workers {
 public:
  // `gpus`: of each worker, which sum by NCCL.
  explicit Workers(int count, const ModelScene& scene = SparseScene("linear", 12), int gpus = 0)
      : groups_(count), scene_(scene), gpus_(gpus), model_(scene.MakeModel()) {}

  const Model& model() const { return *model_; }
  int size() const { return groups_.size(); }
  // Runs body(lockstep, rank) for every rank concurrently.
  void Each(const std::function<void(Lockstep&, int)>& body) {
    OnRanks(size(), [&](int rank) {
      Lockstep lockstep(groups_[rank], *model_, {.timeout = absl::Seconds(60)},
                        [this, rank] { return asked_ == rank; });
      body(lockstep, rank);
    });
  }
  // The model of a worker, which shares the GPUs with those of the others. Every rank calls it.
  std::unique_ptr<Model> ModelOf(int rank) {
    if (gpus_ == 0) return scene_.MakeModel();
    std::vector<Device> devices;
    for (int g = 0; g < gpus_; ++g) devices.push_back(Gpu(rank * gpus_ + g));
    StrategyConfig config;
    config.type = "multi_worker_mirrored";
    config.communication.implementation = "nccl";
    auto ranks = RanksOfWorkers(config, devices, groups_[rank]);
    EXPECT_OK(ranks);
    return DivideOverReplicas(scene_.MakeModel(), config.type, devices, "auto", {},
                              ranks.ok() ? *std::move(ranks) : nullptr)
        .value();
  }
  void AskToStop(int rank) { asked_ = rank; }

 private:
  Ranks groups_;
  const ModelScene scene_;
  const int gpus_;
  const std::unique_ptr<Model> model_;
  std::atomic<int> asked_{-1};
};

// Trains the same step several times, on `gpus` of each worker.
void CheckScene(const ModelScene& scene, const std::vector<size_t>& rows_of_workers, int gpus = 0) {
  SCOPED_TRACE(absl::StrCat(scene.name, ", rows ", absl::StrJoin(rows_of_workers, ", "), ", ", gpus,
                            " GPUs"));
  Workers workers(static_cast<int>(rows_of_workers.size()), scene, gpus);
  const size_t times = gpus == 0 ? 1 : 3;
  const Model& model = workers.model();
  std::vector<size_t> first = {0};
  for (const size_t rows : rows_of_workers) first.push_back(first.back() + rows);
  const Batch all = RandomBatch(scene.schema, static_cast<int64_t>(first.back()), 1, 3);

  StepState want;
  ASSERT_OK(model.Plan(all, &want));
  FillValues(model, &want);
  const absl::StatusOr<double> want_loss = model.Train(all, &want);
  ASSERT_OK(want_loss);

  std::vector<Step> steps(rows_of_workers.size());
  std::vector<double> losses(rows_of_workers.size());
  workers.Each([&](Lockstep& lockstep, int rank) {
    const auto own = static_cast<size_t>(rank);
    std::deque<Batch> batches;
    if (rows_of_workers[own] > 0) {
      batches.assign(times, Rows(scene, all, first[own], first[own + 1]));
    }
    ListReader reader(std::move(batches));
    const std::unique_ptr<Model> trains = workers.ModelOf(rank);
    Step& step = steps[own];
    for (size_t time = 0; time < times; ++time) {
      ASSERT_EQ(Loaded(lockstep.Load(true, reader, &step)), true);
      FillValues(model, &step.state);
      const absl::StatusOr<double> loss = trains->Train(step.batch, &step.state);
      ASSERT_OK(loss);
      lockstep.Trained(*loss, step.batch.rows);
      ASSERT_OK(lockstep.Reduce(&step));
    }
    Step none;
    ASSERT_EQ(Loaded(lockstep.Load(true, reader, &none)), false);
    losses[own] = lockstep.loss_sum() / static_cast<double>(step.joint.rows);
  });
  // The variables that are summed between GPUs.
  const bool on_gpus =
      gpus > 0 && std::all_of(rows_of_workers.begin(), rows_of_workers.end(),
                              [gpus](size_t rows) { return rows >= static_cast<size_t>(gpus); });
  std::vector<bool> whole(want.uses.size(), true);
  for (const Step& step : steps) {
    for (size_t i = 0; i < step.joint.worker_ids.size(); ++i) {
      if (step.joint.worker_ids[i] != JointStep::kWhole) whole[i % whole.size()] = false;
    }
  }
  for (size_t w = 0; w < steps.size(); ++w) {
    EXPECT_NEAR(losses[w], *want_loss, 1e-6 * (1 + *want_loss));
    for (size_t v = 0; v < want.uses.size(); ++v) {
      EXPECT_EQ(steps[w].state.uses[v].part, steps[0].state.uses[v].part);
      EXPECT_EQ(steps[w].state.uses[v].of_all_workers, on_gpus && whole[v]);
      EXPECT_EQ(steps[w].state.uses[v].ids, steps[0].state.uses[v].ids);
      EXPECT_EQ(steps[w].state.uses[v].gradient, steps[0].state.uses[v].gradient);
      const ById wanted = GradientOf(model, want, v), got = GradientOf(model, steps[w].state, v);
      for (const auto& [id, values] : wanted) {
        const auto found = got.find(id);
        ASSERT_NE(found, got.end()) << model.variables()[v].name << " id " << id;
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(found->second[i], values[i], 3e-6 * (1 + std::abs(values[i])));
        }
      }
    }
  }
}

TEST(Lockstep, HasTheGradientsOfAllRows) {
  for (const ModelScene& scene : ModelScenes()) {
    CheckScene(scene, {8, 8});
    CheckScene(scene, {1, 33, 7});
    CheckScene(scene, {0, 5});
    CheckScene(scene, {5, 0, 2});
  }
}

// One row uses few of 400 columns, so it exchanges ids; 200 rows use all columns.
TEST(Lockstep, WhatOneUsesWholeAllExchangeWhole) {
  const ModelScene scene = SparseScene("linear", 400);
  CheckScene(scene, {1, 200});
  CheckScene(scene, {200, 1, 0});
}

// One communicator over the GPUs of all workers sums the variables that all use whole.
TEST(Lockstep, SumsBetweenTheGpusOfAllWorkers) {
  if (UsableGpuCount() < 4) GTEST_SKIP() << "needs four GPUs";
  for (const ModelScene& scene : ModelScenes()) {
    CheckScene(scene, {8, 9}, 1);
    CheckScene(scene, {11, 6}, 2);
    CheckScene(scene, {1, 6}, 2);
    CheckScene(scene, {0, 4}, 2);
  }
  CheckScene(SparseScene("linear", 400), {2, 200}, 2);
}

TEST(Lockstep, EpochsEndTogether) {
  Workers workers(2);
  const ModelScene scene = SparseScene("linear", 12);
  // Epochs and rows read in them: worker 0 has five rows in each epoch, worker 1 two.
  const std::vector<std::pair<int64_t, int64_t>> positions[] = {
      {{0, 2}, {0, 4}, {0, 5}, {1, 2}, {1, 4}, {1, 5}}, {{0, 2}, {1, 2}}};
  std::array<std::vector<std::string>, 2> seen;
  workers.Each([&](Lockstep& lockstep, int rank) {
    const auto own = static_cast<size_t>(rank);
    std::deque<Batch> batches;
    for (const auto& [epoch, row] : positions[own]) {
      batches.push_back(RandomBatch(scene.schema, row == 5 ? 1 : 2, 1, 3));
      batches.back().epoch = epoch;
      batches.back().next_row = row;
    }
    ListReader reader(std::move(batches));
    for (int i = 0; i < 7; ++i) {
      Step step;
      const absl::StatusOr<bool> more = lockstep.Load(true, reader, &step);
      ASSERT_OK(more);
      if (!*more) break;
      seen[own].push_back(absl::StrCat(step.batch.rows, " of ", step.joint.rows, " to ",
                                       step.batch.epoch, ":", step.batch.next_row));
    }
  });
  EXPECT_THAT(seen[0], ElementsAre("2 of 4 to 0:2", "2 of 2 to 0:4", "1 of 1 to 0:5",
                                   "2 of 4 to 1:2", "2 of 2 to 1:4", "1 of 1 to 1:5"));
  EXPECT_THAT(seen[1], ElementsAre("2 of 4 to 0:2", "0 of 2 to 0:4", "0 of 1 to 0:5",
                                   "2 of 4 to 1:2", "0 of 2 to 1:4", "0 of 1 to 1:5"));
}

// data.max_steps may end the training when one worker has read ahead into the next epoch.
TEST(Lockstep, ABatchThatIsHeldMakesNoStepThatNobodyWants) {
  Workers workers(2);
  const ModelScene scene = SparseScene("linear", 12);
  workers.Each([&](Lockstep& lockstep, int rank) {
    std::deque<Batch> batches;
    for (const int64_t epoch : {rank, 1}) {  // worker 1 begins with its second epoch
      batches.push_back(RandomBatch(scene.schema, 2, 1, 3));
      batches.back().epoch = epoch;
      batches.back().next_row = 2;
    }
    ListReader reader(std::move(batches));
    Step step;
    EXPECT_EQ(Loaded(lockstep.Load(true, reader, &step)), true);
    EXPECT_EQ(step.joint.rows, 2);
    EXPECT_EQ(Loaded(lockstep.Load(false, reader, &step)), false);
    EXPECT_EQ(Loaded(lockstep.Load(true, reader, &step)), true) << "it is still there";
    EXPECT_EQ(step.joint.rows, 4);
  });
}

TEST(Lockstep, AStopAskedOfOneIsKnownToAll) {
  Workers workers(3);
  workers.AskToStop(1);
  workers.Each([&](Lockstep& lockstep, int) {
    ListReader reader({});
    Step step;
    EXPECT_EQ(lockstep.stopped_by(), -1);
    EXPECT_EQ(Loaded(lockstep.Load(true, reader, &step)), false);
    EXPECT_EQ(lockstep.stopped_by(), 1);
  });
}

TEST(Lockstep, BadRowsOfOneAreItsErrorAndEndTheOthersWait) {
  Workers workers(2);
  workers.Each([&](Lockstep& lockstep, int rank) {
    Batch batch = RandomBatch(SparseScene("linear", 12).schema, 4, 1, 3);
    if (rank == 1) batch.columns.back() = 99;
    ListReader reader({batch});
    Step step;
    const absl::Status status = lockstep.Load(true, reader, &step).status();
    lockstep.group().Abort(status);
    EXPECT_THAT(status, StatusIs(rank == 1 ? absl::StatusCode::kInvalidArgument
                                           : absl::StatusCode::kAborted,
                                 HasSubstr("column 99")));
    EXPECT_EQ(ExitCodeOf(status), rank == 1 ? 2 : 1);
  });
}

TEST(Lockstep, WorkOfAnyLengthIsWaitedFor) {
  Workers workers(3);
  std::atomic<int> done = 0;
  workers.Each([&](Lockstep& lockstep, int) {
    EXPECT_OK(lockstep.Meanwhile([&] {
      ++done;
      return absl::OkStatus();
    }));
    EXPECT_EQ(done, 3);
  });
}

TEST(Lockstep, AnErrorInWorkIsEverybodys) {
  Workers workers(2);
  workers.Each([&](Lockstep& lockstep, int rank) {
    const absl::Status status = lockstep.Meanwhile(
        [&] { return rank == 0 ? absl::NotFoundError("no such folder") : absl::OkStatus(); });
    EXPECT_THAT(status,
                StatusIs(rank == 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kAborted,
                         HasSubstr("no such folder")));
  });
}

TEST(Lockstep, AThreadRefusedToOneIsEverybodysError) {
  Workers workers(2);
  std::atomic<int> refused = 0;
  workers.Each([&](Lockstep& lockstep, int rank) {
    ASSERT_OK(lockstep.Leave());  // both ranks run
    if (rank == 0) threads_left = 1;
    ASSERT_OK(lockstep.Leave());
    const absl::Status status = lockstep.Meanwhile([] { return absl::OkStatus(); });
    if (absl::IsResourceExhausted(status)) ++refused;
    EXPECT_THAT(status.message(), HasSubstr("the system refuses a thread"));
  });
  threads_left = -1;
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace cairn::test
