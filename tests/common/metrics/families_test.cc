#include "common/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <string>

namespace cairn {
namespace {

using testing::HasSubstr;

constexpr double kBounds[] = {0.5, 1};

TEST(Families, SamplesOfOneNameAreGroupedUnderOneHeading) {
  Families families;
  families.Counter("cairn_a_total", "What a is.", 3, {{"x", "1"}});
  families.Gauge("cairn_b_bytes", "What b is.", -2);
  families.Counter("cairn_a_total", "What a is.", 4, {{"x", "2"}});
  EXPECT_EQ(MetricsText(families.Take()),
            "# HELP cairn_a_total What a is.\n"
            "# TYPE cairn_a_total counter\n"
            "cairn_a_total{x=\"1\"} 3\n"
            "cairn_a_total{x=\"2\"} 4\n"
            "# HELP cairn_b_bytes What b is.\n"
            "# TYPE cairn_b_bytes gauge\n"
            "cairn_b_bytes -2\n");
}

TEST(Families, BucketsOfADistributionAreCumulative) {
  Histogram histogram(kBounds);
  for (const double value : {0.25, 0.75, 0.75, 8.0}) histogram.Observe(value);
  Families families;
  families.Distribution("cairn_d_seconds", "What d is.", histogram.Read());
  EXPECT_EQ(MetricsText(families.Take()),
            "# HELP cairn_d_seconds What d is.\n"
            "# TYPE cairn_d_seconds histogram\n"
            "cairn_d_seconds_count 4\n"
            "cairn_d_seconds_sum 9.75\n"
            "cairn_d_seconds_bucket{le=\"0.5\"} 1\n"
            "cairn_d_seconds_bucket{le=\"1\"} 3\n"
            "cairn_d_seconds_bucket{le=\"+Inf\"} 4\n");
}

TEST(Families, LabelValuesAreEscaped) {
  Families families;
  families.Gauge("cairn_e", "e", 1, {{"text", "a\"b\\c\nd"}});
  EXPECT_THAT(MetricsText(families.Take()), HasSubstr(R"(cairn_e{text="a\"b\\c\nd"} 1)"));
}

TEST(Families, ProcessMetricsHavePrometheusStandardNames) {
  Families families;
  AddProcessMetrics(families);
  const std::string text = MetricsText(families.Take());
  for (const char* name :
       {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
        "process_max_fds", "process_virtual_memory_bytes", "process_start_time_seconds"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + name + " "));
  }
}

TEST(Families, TheStartOfTheProcessIsATimeSince1970) {
  Families families;
  AddProcessMetrics(families);
  const std::string text = MetricsText(families.Take());
  const std::string name = "\nprocess_start_time_seconds ";
  const size_t at = text.find(name);
  ASSERT_NE(at, std::string::npos);
  const double start = std::strtod(text.c_str() + at + name.size(), nullptr);
  EXPECT_NEAR(start, static_cast<double>(time(nullptr)), 600);
}

}  // namespace
}  // namespace cairn
