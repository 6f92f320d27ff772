// The accumulators' records of sync_replicas.json (tests/ps_server covers its scenarios), and the
// accumulators' waits.
#include <iostream>
#include <map>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/strategy/golden_strategies.h"
#include "worker/strategy/conditional_accumulator.h"

namespace cairn::test {
namespace {

using nlohmann::json;

Deadline Now() { return Deadline::In(absl::Milliseconds(1)); }

// Compares the result of each step of a record with the recorded one.
template <typename Accumulator, typename Apply, typename Take>
void Check(const json& record, Accumulator& accumulator, const Apply& apply, const Take& take) {
  for (size_t i = 0; i < record.at("steps").size(); ++i) {
    const json& step = record.at("steps")[i];
    const json& want = record.at("results")[i];
    SCOPED_TRACE(absl::StrCat(record.at("id").get<std::string>(), " ", step.dump()));
    const std::string call = step[0];
    absl::Status status;
    if (call == "apply") {
      status = apply(step);
    } else if (call == "take") {
      status = take(step[1].get<int64_t>(), want);
    } else if (call == "count") {
      EXPECT_EQ(accumulator.count(), want.get<int64_t>());
    } else if (call == "set_step") {
      accumulator.SetStep(step[1].get<int64_t>());
    } else {
      throw UnknownRecord(absl::StrCat("no call '", call, "'"));
    }
    if (want.is_object() && want.contains("error")) {
      EXPECT_TRUE(RefusedAs(status, want));
    } else {
      EXPECT_OK(status);
    }
  }
}

TEST(AccumulatorGolden, Dense) {
  ForEachGolden("sync_replicas.json", "accumulator", [&](const json& record) {
    ConditionalAccumulator accumulator(DType::kFloat32, {});
    Check(
        record, accumulator,
        [&](const json& step) {
          const std::vector<float> values = GoldenFloats(step[2]);
          return accumulator.Apply(step[1].get<int64_t>(), step[2].is_array()
                                                               ? Tensor::Vector<float>(values)
                                                               : Tensor::Scalar<float>(values[0]));
        },
        [&](int64_t required, const json& want) {
          const absl::StatusOr<Tensor> mean = accumulator.Take(required, Now());
          if (mean.ok()) {
            EXPECT_TRUE(NumbersAre(*mean, want));
          }
          return mean.status();
        });
  });
}

TEST(AccumulatorGolden, Sparse) {
  ForEachGolden("sync_replicas.json", "sparse_accumulator", [&](const json& record) {
    SparseConditionalAccumulator accumulator({1});
    Check(
        record, accumulator,
        [&](const json& step) {
          const auto indices = step[2].get<std::vector<int64_t>>();
          return accumulator.Apply(step[1].get<int64_t>(),
                                   {Tensor::Vector<int64_t>(indices),
                                    Tensor::Of<float>({static_cast<int64_t>(indices.size()), 1},
                                                      GoldenFloats(step[3]))});
        },
        [&](int64_t required, const json& want) -> absl::Status {
          const absl::StatusOr<IndexedSlices> means = accumulator.Take(required, Now());
          if (!means.ok()) return means.status();
          // TensorFlow keeps the row order of a single gradient; here rows are ascending.
          std::map<int64_t, float> got, wanted;
          for (size_t i = 0; i < want.at("indices").size(); ++i) {
            wanted[want.at("indices")[i].get<int64_t>()] = want.at("values")[i].get<float>();
            got[means->indices.values<int64_t>()[i]] = means->values.values<float>()[i];
          }
          EXPECT_EQ(got, wanted);
          return absl::OkStatus();
        });
  });
}

TEST(ConditionalAccumulator, TakeWaitsForEnoughAndReportsHowManyArrived) {
  ConditionalAccumulator accumulator(DType::kFloat32, {2});
  ASSERT_OK(accumulator.Apply(0, Tensor::Vector<float>({1, 2})));
  EXPECT_THAT(accumulator.Take(2, Now()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       ::testing::HasSubstr("2 gradients of step 0; 1 have arrived")));
  std::thread late([&accumulator] {
    EXPECT_OK(accumulator.Apply(0, Tensor::Vector<float>({3, 4})));
  });
  const absl::StatusOr<Tensor> mean = accumulator.Take(2, Deadline::In(absl::Seconds(30)));
  late.join();
  ASSERT_OK(mean);
  EXPECT_THAT(mean->values<float>(), ::testing::ElementsAre(2, 3));
}

}  // namespace
}  // namespace cairn::test
