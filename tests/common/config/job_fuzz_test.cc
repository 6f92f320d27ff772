// No text crashes the parsers: a documented job and a TF_CONFIG, mutated 20,000 times each, give a
// job or a refusal with a position. Deterministic: a failure prints its round.
#include <random>

#include "common/config/cluster_config.h"
#include "common/config/job_config.h"
#include "gtest/gtest.h"
#include "tests/common/config/job_text.h"

namespace cairn {
namespace {

constexpr int kRounds = 20'000;
// Tokens that matter to YAML, to the readers of numbers and to the tree's limits.
const char* const kPieces[] = {"&a ",     "*a",
                               "<<: ",    "[",
                               "]",       "{",
                               "}",       ": ",
                               "- ",      "\n",
                               "  ",      "\t",
                               "\"",      "'",
                               "#",       "|\n",
                               ">-\n",    "---\n",
                               "...",     "!!int",
                               "!x ",     "? ",
                               "%Y",      "~",
                               ".nan",    "-1",
                               "1e999",   "0x1F",
                               "\x04",    "\xff",
                               "\\u00",   "\r",
                               "null",    "99999999999999999999",
                               "&a [*a]", "type: ",
                               "[[[[[[[["};

std::string Damage(std::string text, std::mt19937_64* random) {
  const int edits = 1 + static_cast<int>((*random)() % 3);
  for (int i = 0; i < edits; ++i) {
    const size_t at = (*random)() % (text.size() + 1);
    const size_t length = (*random)() % 20;
    switch ((*random)() % 5) {
      case 0: text.insert(at, kPieces[(*random)() % std::size(kPieces)]); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr((*random)() % text.size(), length)); break;
      case 3: text.resize(at); break;
      default:
        if (at < text.size()) text[at] = static_cast<char>((*random)() % 256);
    }
    if (text.empty()) text.push_back(':');
  }
  return text;
}

TEST(ConfigFuzz, MutatedJobsAreReadOrRefusedWithAPosition) {
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = Damage(kManualJob, &random);
    const auto job = ParseJob(text, "job.yaml", {.check_files = false});
    accepted += job.ok() ? 1 : 0;
    if (!job.ok()) {
      ASSERT_TRUE(job.status().message().find("job.yaml") == 0) << round << ": " << job.status();
    }
  }
  // Both outcomes occur often.
  EXPECT_GT(accepted, kRounds / 50);
  EXPECT_LT(accepted, kRounds - kRounds / 50);
}

TEST(ConfigFuzz, MutatedClustersAreReadOrRefusedWithAPosition) {
  std::mt19937_64 random(2);
  const std::string whole =
      R"({"cluster": {"chief": ["c:1"], "ps": ["p:1", "p:2"], "worker": {"0": "w:1", "1": "w:2"}},)"
      R"( "task": {"type": "worker", "index": "1"}, "rpc_layer": "grpc"})";
  for (int round = 0; round < kRounds; ++round) {
    const auto cluster = ParseCluster(Damage(whole, &random), "TF_CONFIG");
    if (!cluster.ok()) {
      ASSERT_TRUE(cluster.status().message().find("TF_CONFIG") == 0)
          << round << ": " << cluster.status();
    }
  }
}

TEST(ConfigFuzz, MutatedOverridesAreAppliedOrRefused) {
  std::mt19937_64 random(3);
  for (int round = 0; round < kRounds; ++round) {
    const std::string text =
        Damage("optimizer.per_variable.0={match: 'a*', type: adam, beta_1: 0.5}", &random);
    const auto job = ParseJob(kManualJob, "job.yaml", {.overrides = {text}, .check_files = false});
    if (!job.ok()) {
      EXPECT_FALSE(job.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace cairn
