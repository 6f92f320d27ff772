// The metrics of one server: what is told of the rows of tables.
#include "ps_server/monitor/ps_metrics.h"
#include "ps_server/core/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using testing::HasSubstr;

TEST(PsMetrics, RowsByAgeAndByUseAreGaugesOfEachJobWithALabelForEachRange) {
  EngineFigures engine;
  engine.jobs.push_back({.name = "j"});
  RowCensus& census = engine.jobs[0].census;
  for (size_t i = 0; i < census.by_age.size(); ++i) census.by_age[i] = 100 + int64_t(i);
  for (size_t i = 0; i < census.by_use.size(); ++i) census.by_use[i] = 200 + int64_t(i);
  Families families;
  AddServerMetrics(engine, {}, families);
  const std::string text = MetricsText(families.Take());
  for (size_t i = 0; i < census.by_age.size(); ++i) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("cairn_ps_rows_by_age{cairn_job=\"j\",least=\"",
                                             RowCensus::kAges[i], "\"} ", 100 + i)));
  }
  for (size_t i = 0; i < census.by_use.size(); ++i) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("cairn_ps_rows_by_use{cairn_job=\"j\",least=\"",
                                             RowCensus::kUses[i], "\"} ", 200 + i)));
  }
}

}  // namespace
}  // namespace cairn
