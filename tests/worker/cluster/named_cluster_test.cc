// The programs' --cluster_resolver flags give the cluster that they name, or an error about the
// flags.
#include "worker/cluster/named_cluster.h"

#include <fstream>
#include <map>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment Of(Variables variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::make_optional(found->second);
  };
}

const Variables& Step() {
  static const auto* const variables = new Variables{{"SLURM_PROCID", "2"},
                                                     {"SLURM_STEP_NUM_TASKS", "4"},
                                                     {"SLURM_STEP_NODELIST", "n[1-2]"},
                                                     {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  return *variables;
}

std::string WritePods(const TempDir& folder) {
  const std::string path = folder.Join("pods.json");
  std::ofstream(path) << R"({"items": [
    {"metadata": {"name": "b", "labels": {"role": "worker"}},
     "status": {"phase": "Running", "podIP": "10.0.0.2"}},
    {"metadata": {"name": "a", "labels": {"role": "ps"}},
     "status": {"phase": "Running", "podIP": "10.0.0.1"}}]})";
  return path;
}

TEST(NamedCluster, ASlurmStepIsDividedIntoJobs) {
  const auto config =
      ReadNamedCluster({.resolver = "slurm", .jobs = "ps=2, worker=2", .port = 7000}, Of(Step()));
  ASSERT_OK(config);
  EXPECT_THAT(config->addresses("ps"), ElementsAre("n1:7000", "n1:7001"));
  EXPECT_THAT(config->addresses("worker"), ElementsAre("n2:7000", "n2:7001"));
  EXPECT_EQ(config->task_type, "worker");
  EXPECT_EQ(config->task_index, 0);
}

TEST(NamedCluster, PodsAreReachedByTheirOwnAddresses) {
  const TempDir folder;
  const NamedCluster named = {.resolver = "kubernetes",
                              .file = WritePods(folder),
                              .jobs = "ps:role=ps;worker:role=worker,role!=old",
                              .port = 7001};
  const auto config = ReadNamedCluster(named, Of({{"POD_NAME", "b"}}));
  ASSERT_OK(config);
  EXPECT_THAT(config->addresses("ps"), ElementsAre("10.0.0.1:7001"));
  EXPECT_THAT(config->addresses("worker"), ElementsAre("10.0.0.2:7001"));
  EXPECT_EQ(config->task_type, "worker");
  EXPECT_EQ(config->task_index, 0);
  const auto outside = ReadNamedCluster(named, Of({}));
  ASSERT_OK(outside);
  EXPECT_EQ(outside->task_type, "");
}

TEST(NamedCluster, ThePrintedTextIsAClusterFile) {
  const auto config = ReadNamedCluster({.resolver = "slurm", .jobs = "ps=2,worker=2"}, Of(Step()));
  ASSERT_OK(config);
  const TempDir folder;
  const std::string path = folder.Join("cluster.json");
  std::ofstream(path) << ClusterFileText(*config);
  const auto read = ReadNamedCluster({.resolver = "file", .file = path}, Of({}));
  ASSERT_OK(read);
  EXPECT_EQ(read->tasks, config->tasks);
  EXPECT_EQ(read->task_type, "worker");
  EXPECT_EQ(read->task_index, 0);
  const auto same =
      ReadNamedCluster({.resolver = "tf_config"}, Of({{"TF_CONFIG", ClusterFileText(*config)}}));
  ASSERT_OK(same);
  EXPECT_EQ(same->tasks, config->tasks);
}

TEST(NamedCluster, UnsuitableFlagsAreRefused) {
  const TempDir folder;
  const std::string pods = WritePods(folder);
  const std::pair<NamedCluster, const char*> cases[] = {
      {{.resolver = "slrum"}, "(did you mean 'slurm'?)"},
      {{.resolver = "file"}, "give the file by --cluster FILE"},
      {{.resolver = "file", .file = pods, .port = 1}, "are for slurm and kubernetes"},
      {{.resolver = "tf_config"}, "TF_CONFIG is not set"},
      {{.resolver = "tf_config", .file = pods}, "leave one of them out"},
      {{.resolver = "tf_config", .jobs = "ps=1"}, "are for slurm and kubernetes"},
      {{.resolver = "slurm"}, "how many tasks of the step are servers"},
      {{.resolver = "slurm", .file = pods, .jobs = "ps=1"}, "leave one of them out"},
      {{.resolver = "slurm", .jobs = "ps"}, "found 'ps'"},
      {{.resolver = "slurm", .jobs = "ps=x"}, "found 'ps=x'"},
      {{.resolver = "slurm", .jobs = "ps=1,ps=2"}, "found 'ps=2'"},
      {{.resolver = "slurm", .jobs = "ps=1", .port = -1}, "ports go from 1 to 65535"},
      {{.resolver = "kubernetes", .jobs = "ps:role=ps"},
       "the program does not call the Kubernetes API"},
      {{.resolver = "kubernetes", .file = pods}, "which pods are which job"},
      {{.resolver = "kubernetes", .file = pods, .jobs = "ps"}, "found 'ps'"},
      {{.resolver = "kubernetes", .file = pods, .jobs = "ps:role in (ps)"}, "has a set"},
  };
  for (const auto& [named, why] : cases) {
    const auto refused = ReadNamedCluster(named, Of(Step()));
    ASSERT_FALSE(refused.ok()) << why;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(why));
  }
  EXPECT_THAT(
      ReadNamedCluster({.resolver = "slurm", .jobs = "ps=1"}, Of({})),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Start the program with srun")));
}

}  // namespace
}  // namespace cairn
