// The metrics of one server: what is told of the rows of tables.
#include "ps_server/monitor/ps_metrics.h"
#include "ps_server/core/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ps_server/monitor/server_stats.h"
#include "ps_server/rows/row_counts.h"
#include "thrift/server_counters.h"

namespace cairn {
namespace {

using testing::HasSubstr;

TEST(PsMetrics, RowsByAgeAndByUseAreGaugesOfEachJobWithALabelForEachRange) {
  EngineStatistics engine;
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

TEST(PsMetrics, CallsThatWaitForAMoveAndWorkersThatAreExpectedAreCounted) {
  EngineStatistics engine;
  engine.waiting_calls["move"] = 3;
  engine.jobs.push_back({.name = "j"});
  engine.jobs[0].workers.emplace_back().state = "expected";
  Families families;
  AddServerMetrics(engine, {}, families);
  const std::string text = MetricsText(families.Take());
  EXPECT_THAT(text, HasSubstr("cairn_ps_waiting_calls{waits_for=\"move\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("cairn_ps_workers{cairn_job=\"j\",state=\"expected\"} 1\n"));
}

// A new row of a table needs no further line to be scraped.
TEST(PsMetrics, EveryCounterOfTheTablesIsScraped) {
  EngineStatistics engine;
  engine.jobs.push_back({.name = "j"});
  int64_t value = 100;
  for (const ServerCounter& counter : kServerCounters) {
    engine.counters[std::string(counter.name)] = ++value;
  }
  for (const RowCounter& count : kRowCounters) engine.jobs[0].row_counts.*count.field = ++value;
  Families families;
  AddServerMetrics(engine, {}, families);
  const std::string text = MetricsText(families.Take());
  value = 100;
  for (const ServerCounter& counter : kServerCounters) {
    ++value;
    if (counter.metric.empty()) continue;
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", counter.metric, " ", value, "\n")));
  }
  for (const RowCounter& count : kRowCounters) {
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat("\n", count.metric, "{cairn_job=\"j\"} ", ++value, "\n")));
  }
}

// The name of a metric of bytes or seconds has its unit, and the help of every metric names it.
template <typename Reading>
void CheckUnits(absl::Span<const ServerStat<Reading>> stats, const std::string& text) {
  for (const ServerStat<Reading>& stat : stats) {
    for (const absl::string_view unit : {"bytes", "seconds"}) {
      EXPECT_EQ(stat.unit == unit, absl::StrContains(stat.name, absl::StrCat("_", unit)))
          << stat.name;
    }
    EXPECT_THAT(text, HasSubstr(absl::StrCat("# HELP cairn_ps_", stat.name, " ", stat.help,
                                             " Unit: ", stat.unit, ".\n")));
  }
}

TEST(PsMetrics, EveryStatisticHasAUnit) {
  EngineStatistics engine;
  engine.jobs.push_back({.name = "j"});
  Families families;
  AddServerMetrics(engine, {}, families);
  const std::string text = MetricsText(families.Take());
  CheckUnits(EngineStats(), text);
  CheckUnits(ListenerStats(), text);
  CheckUnits(JobStats(), text);
}

}  // namespace
}  // namespace cairn
