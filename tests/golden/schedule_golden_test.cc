// Learning-rate schedules give Keras' recorded rates.
#include <map>
#include <string>

#include "common/optimizer/schedule.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace cairn::test {
namespace {

const std::map<std::string, std::string>& TypeOfKerasName() {
  static const auto* types =
      new std::map<std::string, std::string>{{"ExponentialDecay", "exponential_decay"},
                                             {"InverseTimeDecay", "inverse_time_decay"},
                                             {"PolynomialDecay", "polynomial_decay"},
                                             {"PiecewiseConstantDecay", "piecewise_constant_decay"},
                                             {"CosineDecay", "cosine_decay"},
                                             {"CosineDecayRestarts", "cosine_decay_restarts"}};
  return *types;
}

ScheduleConfig ConfigOf(const nlohmann::json& record) {
  ScheduleConfig config;
  config.type = TypeOfKerasName().at(record.at("schedule"));
  for (const auto& [name, value] : record.at("hyperparameters").items()) {
    if (name == "boundaries") {
      config.boundaries = GoldenDoubles(value);
    } else if (name == "values") {
      config.values = GoldenDoubles(value);
    } else if (!value.is_null()) {
      config.arguments[name] = GoldenNumber(value);
    }
  }
  return config;
}

TEST(ScheduleGolden, RatesAreReproduced) {
  ForEachGolden("schedules.json", "cases", [](const nlohmann::json& record) {
    const Tolerance tolerance = GoldenTolerance(GoldenFile("schedules.json").at("tolerance"));
    const std::string name = record.at("name");
    if (!TypeOfKerasName().contains(record.at("schedule"))) {
      throw UnknownRecord("no schedule " + record.at("schedule").dump());
    }
    const ScheduleConfig config = ConfigOf(record);
    ASSERT_TRUE(ValidateSchedule(config).ok()) << name << ": " << ValidateSchedule(config);
    std::vector<double> rates;
    for (const nlohmann::json& step : record.at("steps")) {
      rates.push_back(LearningRateAt(config, step.get<int64_t>()));
    }
    EXPECT_TRUE(AllClose(rates, GoldenDoubles(record.at("expected")), tolerance, name));
  });
}

}  // namespace
}  // namespace cairn::test
