// Replicas on different GPUs sum gradients there, in parallel with the backward pass. Loss and
// gradients are those of one replica; only the root of a sum copies it to the host; and an error of
// one replica is the step's error, blocks no other replica, and does not affect later steps. The
// GPUs are loops on the CPU, with one thread each, which rendezvous for every sum.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/loop_queue.h"
#include "tests/support/loop_ranks.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/random_batch.h"
#include "tests/worker/trainer/joint/divided_model.h"
#include "worker/strategy/mirrored_strategy.h"
#include "worker/trainer/devices/replicated_model.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

// Replaces the step of one replica, identified by its number of rows, with a given result.
class FailingModel final : public Model {
 public:
  explicit FailingModel(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  // In steps of `rows` rows.
  void InsteadOfTraining(int64_t rows, absl::StatusOr<double> result) {
    rows_ = rows;
    result_ = std::move(result);
  }
  absl::Span<const VariableSpec> variables() const override { return model_->variables(); }
  int64_t outputs() const override { return model_->outputs(); }
  absl::Status Plan(const Batch& batch, StepState* state) const override {
    return model_->Plan(batch, state);
  }
  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override {
    ++trainings_;
    return batch.rows == rows_ ? result_ : model_->Train(batch, state);
  }
  // Number of calls of Train, by all replicas.
  int trainings() const { return trainings_; }
  absl::Status Predict(const Batch& batch, StepState* state,
                       std::vector<float>* scores) const override {
    return model_->Predict(batch, state, scores);
  }

 private:
  const std::unique_ptr<Model> model_;
  int64_t rows_ = -1;
  absl::StatusOr<double> result_ = 0.0;
  mutable std::atomic<int> trainings_ = 0;
};

// A model on GPUs 0, 1, … that are loops, and the model itself for comparison.
class Divided {
 public:
  Divided(const ModelCase& c, size_t replicas, absl::Duration timeout = absl::Seconds(60))
      : schema_(c.schema),
        whole_(Model::Create(c.config, {}, c.schema).value()),
        replicas_(replicas),
        timeout_(timeout),
        queues_(replicas) {
    std::vector<Device> devices, places;
    for (size_t r = 0; r < replicas; ++r) {
      devices.push_back(Gpu(static_cast<int32_t>(r)));
      places.push_back(Cpu(static_cast<int32_t>(r)));
    }
    auto failing = std::make_unique<FailingModel>(Model::Create(c.config, {}, c.schema).value());
    failing_ = failing.get();
    const auto open = [this](Device device) -> absl::StatusOr<std::unique_ptr<DeviceQueue>> {
      auto queue = std::make_unique<LoopQueue>();
      absl::MutexLock lock(&mutex_);
      queues_[static_cast<size_t>(device.index)] = queue.get();
      return queue;
    };
    const auto join = [this](absl::Span<const Device> joined, const NcclPeers&) {
      return Join(joined);
    };
    model_ = std::make_unique<ReplicatedModel>(
        std::move(failing), MirroredStrategy::Create(std::move(places)).value(), devices, open,
        std::make_unique<GpuRanks>(devices, join, /*required=*/false));
  }

  Batch RandomRows(int64_t rows, uint32_t seed) const {
    return RandomBatch(schema_, rows, whole_->outputs(), seed);
  }

  absl::Status Train(const Batch& batch, StepState* state) const {
    RETURN_IF_ERROR(model_->Plan(batch, state));
    FillValues(state);
    ASSIGN_OR_RETURN(const double loss, model_->Train(batch, state));
    StepState want;
    RETURN_IF_ERROR(whole_->Plan(batch, &want));
    FillValues(&want);
    ASSIGN_OR_RETURN(const double wanted, whole_->Train(batch, &want));
    EXPECT_NEAR(loss, wanted, 1e-6 * (1 + wanted));
    ExpectSameGradients(*state, want, *whole_);
    return absl::OkStatus();
  }
  absl::Status Train(const Batch& batch) { return Train(batch, &state_); }

  // How often the ranks have met at the rendezvous since they were last joined.
  uint64_t turns() const { return rendezvous_ == nullptr ? 0 : rendezvous_->turns(); }
  int joins() const { return joins_; }
  // The queue opened last.
  LoopQueue& queue(size_t replica) {
    absl::MutexLock lock(&mutex_);
    return *queues_[replica];
  }
  const Model& model() const { return *model_; }
  FailingModel& failing() { return *failing_; }
  StepState& state() { return state_; }

  absl::Status join_error;

 private:
  absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> Join(absl::Span<const Device> devices) {
    ++joins_;
    RETURN_IF_ERROR(join_error);
    EXPECT_EQ(devices.size(), replicas_);
    rendezvous_ = std::make_shared<LoopRendezvous>(devices.size(), timeout_);
    std::vector<std::unique_ptr<DeviceRank>> ranks;
    for (size_t r = 0; r < devices.size(); ++r) {
      ranks.push_back(std::make_unique<LoopRank>(rendezvous_, r));
    }
    return ranks;
  }

  const Schema schema_;
  const std::unique_ptr<Model> whole_;
  const size_t replicas_;
  const absl::Duration timeout_;
  absl::Mutex mutex_;
  std::vector<LoopQueue*> queues_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<LoopRendezvous> rendezvous_;
  int joins_ = 0;
  FailingModel* failing_ = nullptr;
  std::unique_ptr<Model> model_;
  StepState state_;
};

ModelCase Case(const std::string& name) {
  for (ModelCase& c : EveryModel()) {
    if (c.name == name) return std::move(c);
  }
  ADD_FAILURE() << "no model " << name;
  return {};
}

bool UsesWhole(const StepState& state) {
  return std::any_of(state.uses.begin(), state.uses.end(),
                     [](const VariableUse& use) { return use.part == Part::kWhole; });
}

class ReplicaSums : public ::testing::TestWithParam<ModelCase> {};

// Sizes grow and shrink: the first step of a new size sums on the host, the next one on the
// devices.
TEST_P(ReplicaSums, AreTheGradientsOfOneReplica) {
  for (const size_t replicas : {size_t{2}, size_t{3}, size_t{4}}) {
    SCOPED_TRACE(absl::StrCat(replicas, " replicas"));
    Divided divided(GetParam(), replicas);
    uint32_t seed = 0;
    for (const int64_t rows : {33, 33, 7, 70, 70, 2, 64}) {
      SCOPED_TRACE(absl::StrCat(rows, " rows"));
      const uint64_t before = divided.turns();
      ASSERT_OK(divided.Train(divided.RandomRows(rows, ++seed)));
      const bool may = rows >= static_cast<int64_t>(replicas);
      const bool must = rows == 64 && UsesWhole(divided.state());
      EXPECT_TRUE(may || divided.turns() == before);
      EXPECT_TRUE(!must || divided.turns() > before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReplicaSums, ::testing::ValuesIn(EveryModel()),
                         [](const auto& info) { return info.param.name; });

// Each sum leaves one device, and the roots share the bytes: no root has more than the largest
// variable above another. Without sums every device copies out every gradient.
TEST(SumsOnDevices, OnlyTheRootCopiesASumOut) {
  ModelCase c = Case("mlp_dense");
  c.config.hidden = {64, 64, 64, 64};
  for (const size_t replicas : {size_t{2}, size_t{3}}) {
    Divided divided(c, replicas);
    const Batch batch = divided.RandomRows(30, 1);
    ASSERT_OK(divided.Train(batch));
    size_t gradients = 0, largest = 0, losses = 0;
    for (const VariableUse& use : divided.state().uses) {
      gradients += use.gradient.size() * sizeof(float);
      largest = std::max(largest, use.gradient.size() * sizeof(float));
    }
    losses = 30 / replicas * sizeof(float);
    std::vector<size_t> first, second;
    for (size_t r = 0; r < replicas; ++r) first.push_back(divided.queue(r).bytes_out());
    ASSERT_OK(divided.Train(batch));
    size_t all = 0;
    for (size_t r = 0; r < replicas; ++r) {
      EXPECT_EQ(first[r], gradients + losses);
      second.push_back(divided.queue(r).bytes_out() - first[r] - losses);
      all += second[r];
    }
    EXPECT_EQ(all, gradients);
    const auto [least, most] = std::minmax_element(second.begin(), second.end());
    EXPECT_LE(*most - *least, largest);
  }
}

// Gradients larger than a group are queued while the backward pass continues.
TEST(SumsOnDevices, LargeGradientsAreQueuedInSeveralGroups) {
  ModelCase c = Case("mlp_dense");
  c.config.hidden = {600, 600, 600};
  Divided divided(c, 2);
  const Batch batch = divided.RandomRows(6, 1);
  for (int step = 0; step < 3; ++step) ASSERT_OK(divided.Train(batch));
  EXPECT_EQ(divided.joins(), 1);
  EXPECT_GT(divided.turns(), 2 * 2u);
}

// Replicas may use rows or the whole of a variable, which is known only after all have planned.
TEST(SumsOnDevices, VariablesThatSomeUseByRowsAreAddedUpOnTheHost) {
  ModelCase c = Case("linear_sparse");
  c.schema.sparse_columns = 400;
  Divided divided(c, 2);
  Batch batch = divided.RandomRows(8, 1);
  // The second half of the rows has almost no entries.
  batch.row_offsets = {0, 100, 200, 300, 400, 401, 401, 401, 401};
  batch.columns.resize(401);
  batch.values.assign(401, 0.5f);
  for (size_t i = 0; i < 401; ++i) batch.columns[i] = static_cast<int32_t>(i / 100 + i % 100 * 4);
  for (int step = 0; step < 3; ++step) ASSERT_OK(divided.Train(batch));
  const std::vector<ReplicaShare>& shares = divided.state().shares;
  ASSERT_EQ(shares[0].state.uses[0].part, Part::kWhole);
  ASSERT_EQ(shares[1].state.uses[0].part, Part::kRows);
  EXPECT_GT(divided.turns(), 0u);  // the bias
}

// Rows with few entries get many: in the middle of a step, memory is needed that no step has
// allocated.
TEST(SumsOnDevices, AStepThatOutgrowsItsMemoryIsDoneAgainOnTheHost) {
  Divided divided(Case("mlp_sparse"), 3);
  Batch sparse = divided.RandomRows(30, 1);
  const Batch dense = GrowSparseRows(&sparse);
  for (int step = 0; step < 2; ++step) ASSERT_OK(divided.Train(sparse));
  const uint64_t turns = divided.turns();
  const int trainings = divided.failing().trainings();
  ASSERT_OK(divided.Train(dense));
  EXPECT_EQ(divided.turns(), turns + 1);  // in vain
  EXPECT_EQ(divided.failing().trainings(), trainings + 2 * 3);
  ASSERT_OK(divided.Train(dense));
  EXPECT_EQ(divided.turns(), turns + 2);
  EXPECT_EQ(divided.failing().trainings(), trainings + 3 * 3);
  EXPECT_EQ(divided.joins(), 1);
}

// For each replica, whether the others have queued their sums by then or not.
TEST(SumsOnDevicesErrors, AReplicaThatFailsBeforeItsSumsEndsThoseOfAll) {
  // Of 7 rows the first replica has 3, the others 2, so both of those fail alike.
  for (const int64_t rows : {3, 2}) {
    Divided divided(Case("mlp_dense"), 3);
    const Batch batch = divided.RandomRows(7, 1);
    for (int step = 0; step < 2; ++step) ASSERT_OK(divided.Train(batch));
    divided.failing().InsteadOfTraining(rows, absl::InternalError("gpu:1: product: no"));
    EXPECT_THAT(divided.Train(batch),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("gpu:1: product: no")));
    divided.failing().InsteadOfTraining(-1, 0.0);
    ASSERT_OK(divided.Train(batch));
    EXPECT_EQ(divided.joins(), 2);
    EXPECT_GT(divided.turns(), 0u);
  }
}

// Its ops and sums are queued when the device reports that an op has failed.
TEST(SumsOnDevicesErrors, AQueueThatFailsTakesPartAndItsErrorIsTheSteps) {
  for (size_t failing = 0; failing < 2; ++failing) {
    Divided divided(Case("dlrm"), 2);
    const Batch batch = divided.RandomRows(20, 1);
    for (int step = 0; step < 2; ++step) ASSERT_OK(divided.Train(batch));
    divided.queue(failing).Fail(absl::InternalError("an illegal memory access"));
    EXPECT_THAT(divided.Train(batch),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("an illegal memory access")));
    ASSERT_OK(divided.Train(batch));
    EXPECT_EQ(divided.joins(), 2);
  }
}

// For each allocation, of the first steps and of a larger one.
TEST(SumsOnDevicesErrors, MemoryThatCannotBeHadIsTheStepsErrorAndTheNextOneIsWell) {
  int failures = 0;
  for (int limit = 0;; ++limit) {
    Divided divided(Case("dlrm"), 2);
    const Batch small = divided.RandomRows(8, 1), large = divided.RandomRows(60, 2);
    for (int step = 0; step < 2; ++step) ASSERT_OK(divided.Train(small));
    divided.queue(1).LimitAllocations(limit);
    const absl::Status status = divided.Train(large);
    divided.queue(1).LimitAllocations(-1);
    for (int step = 0; step < 2; ++step) ASSERT_OK(divided.Train(large));
    EXPECT_EQ(divided.joins(), 1);  // a step that allocates does not add up on the devices
    if (status.ok()) break;
    ++failures;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many")));
  }
  EXPECT_GT(failures, 5);
}

// A rank that never arrives and does not call Fail: the wait for it ends.
TEST(SumsOnDevicesErrors, ARankThatDoesNotComeIsWaitedForUntilTheDeadline) {
  Divided divided(Case("mlp_dense"), 2, absl::Milliseconds(200));
  const Batch batch = divided.RandomRows(5, 1);  // 3 and 2
  for (int step = 0; step < 2; ++step) ASSERT_OK(divided.Train(batch));
  divided.failing().InsteadOfTraining(2, 0.25);
  EXPECT_THAT(divided.Train(batch),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1 of 2 ranks came")));
  divided.failing().InsteadOfTraining(-1, 0.0);
  EXPECT_OK(divided.Train(batch));
}

TEST(SumsOnDevicesErrors, APlanThatFailsKeepsNobodyWaiting) {
  Divided divided(Case("linear_sparse"), 2);
  const Batch batch = divided.RandomRows(8, 1);
  for (int step = 0; step < 2; ++step) ASSERT_OK(divided.Train(batch));
  const uint64_t before = divided.turns();
  Batch bad = batch;
  bad.labels.back() = 7;
  EXPECT_THAT(divided.model().Train(bad, &divided.state()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("label 7")));
  EXPECT_EQ(divided.turns(), before);
  EXPECT_OK(divided.Train(batch));
  EXPECT_EQ(divided.joins(), 1);
}

TEST(SumsOnDevicesErrors, RanksThatCannotBeJoinedLeaveTheSumsToTheHost) {
  Divided divided(Case("mlp_dense"), 2);
  divided.join_error = absl::InternalError("NCCL: connect: no");
  const Batch batch = divided.RandomRows(8, 1);
  for (int step = 0; step < 4; ++step) ASSERT_OK(divided.Train(batch));
  EXPECT_EQ(divided.joins(), 1);
}

// Unless NCCL was requested by name.
TEST(SumsOnDevicesErrors, RanksThatMustBeJoinedAndCannotAreAnError) {
  const JoinGpus join = [](absl::Span<const Device>, const NcclPeers&) {
    return absl::InternalError("NCCL: connect: no");
  };
  GpuRanks ranks({Gpu(0), Gpu(1)}, join, /*required=*/true);
  ASSERT_TRUE(ranks.Acquire());
  EXPECT_THAT(ranks.Joined(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("NCCL: connect: no")));
  ranks.Release();
}

// One step at a time has the ranks: of two concurrent steps, one sums on the host, and neither
// waits.
TEST(SumsOnDevices, StepsOfSeveralThreadsHaveTheirOwnGradients) {
  Divided divided(Case("wide_deep"), 2);
  const auto steps = [&](uint32_t seed, StepState* state) {
    const Batch batch = divided.RandomRows(20, seed);
    for (int step = 0; step < 10; ++step) ASSERT_OK(divided.Train(batch, state));
  };
  StepState first, second;
  std::thread other(steps, 1, &first);
  steps(2, &second);
  other.join();
}

TEST(SumsOnGpus, AreTheGradientsOfOneReplica) {
  if (UsableGpuCount() < 2) GTEST_SKIP() << "needs two GPUs";
  std::vector<Device> devices;
  for (int32_t r = 0; r < UsableGpuCount(); ++r) devices.push_back(Gpu(r));
  for (const ModelCase& c : EveryModel()) {
    SCOPED_TRACE(c.name);
    const auto whole = Model::Create(c.config, {}, c.schema).value();
    const auto divided = DivideOverReplicas(Model::Create(c.config, {}, c.schema).value(),
                                            "mirrored", devices, "nccl");
    ASSERT_OK(divided);
    StepState got, want;
    for (uint32_t seed = 1; seed < 4; ++seed) {
      const Batch batch = RandomBatch(c.schema, 64, whole->outputs(), seed);
      ASSERT_OK((*divided)->Plan(batch, &got));
      ASSERT_OK(whole->Plan(batch, &want));
      FillValues(&got);
      FillValues(&want);
      const absl::StatusOr<double> loss = (*divided)->Train(batch, &got);
      ASSERT_OK(loss);
      EXPECT_NEAR(*loss, whole->Train(batch, &want).value(), 1e-5 * (1 + *loss));
      ExpectSameGradients(got, want, *whole, 1e-5);
    }
  }
}

TEST(GpuRanks, AreForDifferentGpusAlone) {
  for (const std::vector<Device>& devices : std::vector<std::vector<Device>>{
           {Gpu(0)}, {Gpu(0), Gpu(0)}, {Gpu(0), Gpu(1), Cpu(0)}, {Cpu(0), Cpu(1)}}) {
    EXPECT_THAT(CheckNccl(devices),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("NCCL")));
  }
  EXPECT_EQ(CheckNccl({Gpu(0), Gpu(1)}).ok(), NcclStatus().ok() && UsableGpuCount() > 1);
  EXPECT_FALSE(CheckNccl({Gpu(0), Gpu(99)}).ok());
}

TEST(GpuRanks, ServeOneStepAtATime) {
  const JoinGpus join = [](absl::Span<const Device>, const NcclPeers&) {
    return absl::InternalError("not asked for");
  };
  GpuRanks ranks({Gpu(0), Gpu(1)}, join, /*required=*/true);
  EXPECT_TRUE(ranks.Acquire());
  EXPECT_FALSE(ranks.Acquire()) << "another step has them";
  ranks.Release();
  EXPECT_TRUE(ranks.Acquire());
}

}  // namespace
}  // namespace cairn::test
