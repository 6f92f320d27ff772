// Pushes and pulls are sent in the order of the steps, each pull as far ahead as requested, and an
// error of the pipeline's thread reaches the caller.
#include "worker/trainer/steps/step_pipeline.h"

#include "gmock/gmock.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/trainer/engines.h"
#include "tests/worker/trainer/recording_client.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;

// One variable "a" with one number; computes nothing.
class OneNumber : public Model {
 public:
  OneNumber() : variables_(1) {
    variables_[0].name = "a";
    variables_[0].shape = {1};
  }
  absl::Span<const VariableSpec> variables() const override { return variables_; }
  int64_t outputs() const override { return 1; }
  absl::Status Plan(const Batch&, StepState* state) const override {
    state->uses.resize(1);
    state->uses[0].values.resize(1);
    state->uses[0].gradient.resize(1);
    return absl::OkStatus();
  }
  absl::StatusOr<double> Train(const Batch&, StepState*) const override { return 0; }
  absl::Status Predict(const Batch&, StepState*, std::vector<float>*) const override {
    return absl::OkStatus();
  }

 private:
  std::vector<VariableSpec> variables_;
};

// Runs `steps` steps, where step t pushes t + 1; returns the value that each step saw.
std::vector<float> RunSteps(RecordingClient& client, int64_t pull_ahead, int64_t steps) {
  const OneNumber model;
  const WireFormats plain = WireFormats::Create({}, model).value();
  StepPipeline pipeline(&client, &model, &plain, pull_ahead, absl::Seconds(10), nullptr);
  std::vector<float> seen;
  const auto plan = [&](int64_t number) {
    EXPECT_OK(model.Plan({}, &pipeline.step(number).state));
  };
  for (int64_t number = 0; number < pipeline.lookahead(); ++number) {
    plan(number);
    EXPECT_OK(pipeline.Pull(number));
  }
  for (int64_t number = 0; number < steps; ++number) {
    EXPECT_OK(pipeline.WaitPulled(number));
    Step& step = pipeline.step(number);
    seen.push_back(step.state.uses[0].values[0]);
    step.state.uses[0].gradient[0] = static_cast<float>(number + 1);
    step.position = absl::StrCat(number);
    ListSources(model, step.state, &step.sources);
    const int64_t next = number + pipeline.lookahead();
    if (next < steps) plan(next);
    EXPECT_OK(pipeline.Exchange(number, next < steps ? next : -1));
  }
  EXPECT_OK(pipeline.WaitPushed(steps - 1));
  return seen;
}

TEST(StepPipeline, WithoutPullAheadEveryStepSeesThePushBeforeIt) {
  RecordingClient client;
  EXPECT_THAT(RunSteps(client, 0, 3), ElementsAre(0, -1, -3));
  EXPECT_THAT(client.calls(), ElementsAre("step: pull a", "step: push a 1 @0, pull a",
                                          "step: push a 2 @1, pull a", "push a 3 @2"));
}

TEST(StepPipeline, PullAheadSeesOwnPushesThatMuchLater) {
  RecordingClient client;
  EXPECT_THAT(RunSteps(client, 2, 5), ElementsAre(0, 0, 0, -1, -3));
  EXPECT_THAT(client.calls(), ElementsAre("step: pull a", "pull a", "pull a",
                                          "step: push a 1 @0, pull a", "step: push a 2 @1, pull a",
                                          "push a 3 @2", "push a 4 @3", "push a 5 @4"));
}

// The system refuses the thread, as a limit of processes does.
TEST(StepPipeline, WithoutAThreadTheSameCallsAreMadeInTheCallersThread) {
  RecordingClient with_thread;
  const std::vector<float> seen = RunSteps(with_thread, 2, 5);
  RecordingClient client;
  const NoThreads none;
  EXPECT_EQ(RunSteps(client, 2, 5), seen);
  EXPECT_EQ(client.calls(), with_thread.calls());
}

TEST(StepPipeline, ManyStepsKeepTheirOrder) {
  for (const int64_t pull_ahead : {1, 3}) {
    RecordingClient client;
    const std::vector<float> seen = RunSteps(client, pull_ahead, 200);
    for (int64_t t = 0; t < 200; ++t) {
      const int64_t pushes = std::max<int64_t>(0, t - pull_ahead);
      EXPECT_EQ(seen[static_cast<size_t>(t)], static_cast<float>(-pushes * (pushes + 1) / 2));
    }
  }
}

// A dense variable of many blocks; every seventh step uses it by rows, and each step pushes two
// rows.
class FewRows : public Model {
 public:
  static constexpr int64_t kRows = 50000;

  FewRows() : variables_(1) {
    variables_[0].name = "a";
    variables_[0].shape = {kRows};
    variables_[0].optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
  }
  absl::Span<const VariableSpec> variables() const override { return variables_; }
  int64_t outputs() const override { return 1; }
  absl::Status Plan(const Batch& batch, StepState* state) const override {
    const int64_t row = batch.next_row * 7919 % (kRows - 1);
    state->uses.resize(1);
    VariableUse& use = state->uses[0];
    use.part = batch.next_row % 7 == 2 ? Part::kRows : Part::kWhole;
    use.ids = {row, row + 1};
    if (use.part == Part::kWhole) use.ids.clear();
    use.values.resize(use.part == Part::kWhole ? kRows : 2);
    use.gradient.assign(2, static_cast<float>(batch.next_row + 1));
    state->positions = {static_cast<int32_t>(row)};
    return absl::OkStatus();
  }
  absl::StatusOr<double> Train(const Batch&, StepState*) const override { return 0; }
  absl::Status Predict(const Batch&, StepState*, std::vector<float>*) const override {
    return absl::OkStatus();
  }

 private:
  std::vector<VariableSpec> variables_;
};

struct Seen {
  std::vector<HostVector<float>> values;  // by step
  int64_t bytes_pulled = 0;
};

Seen RunFewRows(bool delta_pulls, int64_t pull_ahead) {
  const FewRows model;
  WireConfig config;
  config.format.delta_pulls = delta_pulls;
  const WireFormats formats = WireFormats::Create(config, model).value();
  Engines engines(2);
  const auto client = engines.Connect("j", 0);
  VariableSpec spec = model.variables()[0];
  spec.shards = {{0, 30000, 0}, {30000, 20000, 1}};
  EXPECT_OK(client->Create({spec}, Deadline::In(absl::Seconds(20))));
  StepPipeline pipeline(client.get(), &model, &formats, pull_ahead, absl::Seconds(10), nullptr);
  constexpr int64_t kSteps = 60;
  const auto plan = [&](int64_t number) {
    Step& step = pipeline.step(number);
    step.batch.next_row = number;
    step.batch.rows = 1;
    EXPECT_OK(model.Plan(step.batch, &step.state));
  };
  Seen seen;
  for (int64_t number = 0; number < pipeline.lookahead(); ++number) {
    plan(number);
    EXPECT_OK(pipeline.Pull(number));
  }
  for (int64_t number = 0; number < kSteps; ++number) {
    EXPECT_OK(pipeline.WaitPulled(number));
    Step& step = pipeline.step(number);
    seen.values.push_back(step.state.uses[0].values);
    const int64_t row = step.state.positions[0];
    step.state.uses[0].ids = {row, row + 1};
    step.sources = {{.variable = "a",
                     .part = Part::kRows,
                     .ids = step.state.uses[0].ids,
                     .values = AsBytes(absl::MakeConstSpan(step.state.uses[0].gradient))}};
    step.position = absl::StrCat(number);
    const int64_t next = number + pipeline.lookahead();
    if (next < kSteps) plan(next);
    EXPECT_OK(pipeline.Exchange(number, next < kSteps ? next : -1));
  }
  EXPECT_OK(pipeline.WaitPushed(kSteps - 1));
  seen.bytes_pulled = client->counters().bytes_pulled;
  return seen;
}

TEST(StepPipeline, DeltaPullsGiveEveryStepTheSameValuesInFewerBytes) {
  for (const int64_t pull_ahead : {0, 1, 3}) {
    SCOPED_TRACE(pull_ahead);
    const Seen plain = RunFewRows(false, pull_ahead);
    const Seen delta = RunFewRows(true, pull_ahead);
    EXPECT_EQ(delta.values, plain.values);
    EXPECT_LT(2 * delta.bytes_pulled, plain.bytes_pulled);
  }
}

TEST(StepPipeline, AnErrorOfTheThreadEndsEveryWait) {
  RecordingClient client;
  const OneNumber model;
  const WireFormats plain = WireFormats::Create({}, model).value();
  StepPipeline pipeline(&client, &model, &plain, 1, absl::Seconds(10), nullptr);
  for (int64_t number = 0; number < 2; ++number) {
    ASSERT_OK(model.Plan({}, &pipeline.step(number).state));
    ASSERT_OK(pipeline.Pull(number));
  }
  client.FailWith(absl::UnavailableError("ps:0 is gone"));
  ListSources(model, pipeline.step(0).state, &pipeline.step(0).sources);
  ASSERT_OK(pipeline.Exchange(0, -1));
  EXPECT_THAT(pipeline.WaitPushed(0),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::Eq("ps:0 is gone")));
  EXPECT_THAT(pipeline.Exchange(1, -1), StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
}

}  // namespace
}  // namespace cairn::test
