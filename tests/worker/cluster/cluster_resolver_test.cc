// Behaviour of resolvers beyond the recorded results: accelerators, files, unions, and conversion
// to the cluster that the programs take.
#include "worker/cluster/cluster_resolver.h"

#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/cluster/file_cluster_resolver.h"
#include "worker/cluster/local_gpus.h"
#include "worker/cluster/resolved_config.h"
#include "worker/cluster/simple_cluster_resolver.h"
#include "worker/cluster/tf_config_cluster_resolver.h"
#include "worker/cluster/union_resolver.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ClusterSpec TwoWorkers() { return ClusterSpec::FromLists({{"worker", {"a:1", "b:1"}}}); }

std::string WriteFile(const std::string& path, absl::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(SimpleClusterResolver, MasterIsTheGivenMasterUnlessATaskIsNamed) {
  const SimpleClusterResolver resolver(TwoWorkers(),
                                       {.task_type = "worker", .task_id = 0, .rpc_layer = "grpc"},
                                       "m:1", {{"GPU", 2}});
  EXPECT_EQ(resolver.Master().value(), "grpc://m:1");
  EXPECT_EQ(resolver.Master({.task_type = "worker", .task_id = 1}).value(), "grpc://b:1");
  EXPECT_THAT(resolver.Master({.task_type = "worker", .task_id = 2}),
              StatusIs(kInvalid, HasSubstr("No task with index 2")));
  EXPECT_THAT(resolver.NumAccelerators().value(), UnorderedElementsAre(Pair("GPU", 2)));
}

// An unfilled template value must not make a task train alone.
TEST(TFConfigClusterResolver, NullIsAnErrorNotAnAbsentMember) {
  const auto resolver = [](absl::string_view text) {
    return std::make_unique<TFConfigClusterResolver>(std::string(text), ResolverOverrides());
  };
  EXPECT_THAT(resolver(R"({"cluster": null})")->cluster_spec(),
              StatusIs(kInvalid, HasSubstr("found null")));
  EXPECT_THAT(resolver(R"({"cluster": null})")->Master(),
              StatusIs(kInvalid, HasSubstr("found null")));
  EXPECT_THAT(resolver(R"({"task": null})")->task_id(),
              StatusIs(kInvalid, HasSubstr("'task' is null")));
  EXPECT_THAT(resolver(R"({"task": {"type": null}})")->task_type(),
              StatusIs(kInvalid, HasSubstr("'type' is null")));
  EXPECT_THAT(resolver(R"({"task": {"type": "worker", "index": null}})")->task_id(),
              StatusIs(kInvalid, HasSubstr("'index' is null")));
  EXPECT_TRUE(resolver(R"({})")->cluster_spec()->empty());
}

TEST(TFConfigClusterResolver, AnIndexMayBeWrittenAsAFloatingPointNumber) {
  const auto index = [](absl::string_view number) {
    return TFConfigClusterResolver(absl::StrCat(R"({"task": {"index": )", number, "}}"), {})
        .task_id();
  };
  EXPECT_EQ(index("1.0").value(), 1);
  EXPECT_EQ(index("0.0").value(), 0);
  for (const absl::string_view wrong : {"1.5", "1e30", "-1e30"}) {
    EXPECT_THAT(index(wrong), StatusIs(kInvalid, HasSubstr("expected a number"))) << wrong;
  }
}

TEST(ClusterResolver, AcceleratorsOfATaskAreCountedOverTheListedDevices) {
  TFConfigClusterResolver resolver(
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})", {});
  std::string asked;
  resolver.set_device_lister([&](const std::string& master) -> std::vector<std::string> {
    asked = master;
    return {
        "/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:GPU:0",
        "/job:worker/replica:0/task:0/device:GPU:1", "/job:worker/replica:0/task:1/device:GPU:0",
        "/job:worker/replica:0/task:1/device:TPU:0"};
  });
  EXPECT_THAT(resolver.NumAccelerators("worker", 0).value(), UnorderedElementsAre(Pair("GPU", 2)));
  EXPECT_EQ(asked, "a:1");
  EXPECT_THAT(resolver.NumAccelerators("worker", 1).value(),
              UnorderedElementsAre(Pair("GPU", 1), Pair("TPU", 1)));
  EXPECT_EQ(asked, "b:1");
  EXPECT_THAT(resolver.NumAccelerators().value(),
              UnorderedElementsAre(Pair("GPU", 3), Pair("TPU", 1)));
}

TEST(ClusterResolver, AcceleratorsOfAnotherTaskAreUnknownWithoutALister) {
  const TFConfigClusterResolver resolver(
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})", {});
  EXPECT_OK(resolver.NumAccelerators("worker", 0));
  EXPECT_THAT(resolver.NumAccelerators("worker", 1),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("worker:1")));
}

TEST(LocalGpus, OnlyVisibleDeviceFilesAreCounted) {
  const TempDir folder;
  for (const char* const name :
       {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null"}) {
    WriteFile(folder.path() + "/" + name, "");
  }
  EXPECT_EQ(CountGpus(folder.path(), std::nullopt), 3);
  const std::pair<const char*, int> cases[] = {{"", 0},       {"0", 1},    {"2, 0", 2},
                                               {"0,-1,1", 1}, {"3", 0},    {"GPU-8a5b,MIG-77", 2},
                                               {"x,0", 0},    {"1,9,0", 1}};
  for (const auto& [visible, count] : cases) {
    EXPECT_EQ(CountGpus(folder.path(), visible), count) << '"' << visible << '"';
  }
  EXPECT_EQ(CountGpus(folder.path() + "/none", std::nullopt), 0);
}

// Every process of a machine has GPUs, and no GPU is left over.
TEST(LocalGpus, AreDividedAmongTheProcessesOfAMachine) {
  using ::testing::ElementsAre;
  EXPECT_THAT(ShareOfGpus(8, 0, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ShareOfGpus(8, 1, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(ShareOfGpus(8, 2, 3), ElementsAre(6, 7));
  EXPECT_THAT(ShareOfGpus(2, 2, 3), ElementsAre(0));
  EXPECT_THAT(ShareOfGpus(0, 1, 3), ElementsAre());
  EXPECT_THAT(ShareOfGpus(2, 3, 3), ElementsAre(0, 1)) << "no rank of three";
  ::setenv("LOCAL_RANK", "1", 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  EXPECT_THAT(OwnGpus(4), ElementsAre(2, 3));
  ::unsetenv("LOCAL_RANK");
  ::unsetenv("LOCAL_WORLD_SIZE");
  EXPECT_THAT(OwnGpus(2), ElementsAre(0, 1));
}

// Slurm tells each task its number on the node, and the tasks of every node.
TEST(LocalGpus, AreDividedAmongTheTasksOfASlurmNode) {
  using ::testing::ElementsAre;
  const std::map<std::string, std::string> variables = {{"SLURM_LOCALID", "1"},
                                                        {"SLURM_NODEID", "2"},
                                                        {"SLURM_STEP_TASKS_PER_NODE", "4(x2),2"},
                                                        {"SLURM_GPUS_ON_NODE", "8"}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  EXPECT_THAT(OwnGpus(8), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(OwnGpus(4), ElementsAre(0, 1, 2, 3)) << "Slurm has bound four GPUs to this task";
  ::setenv("SLURM_NODEID", "1", 1);
  EXPECT_THAT(OwnGpus(8), ElementsAre(2, 3));
  ::setenv("SLURM_STEP_TASKS_PER_NODE", "many", 1);
  EXPECT_THAT(OwnGpus(8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
}

TEST(UnionResolver, TheFirstResolverDeterminesTheTask) {
  const auto first = std::make_shared<SimpleClusterResolver>(
      TwoWorkers(), ResolverOverrides{.task_type = "worker", .task_id = 1, .environment = "here"},
      "m:1");
  const auto second =
      std::make_shared<SimpleClusterResolver>(ClusterSpec::FromLists({{"ps", {"p:1"}}}));
  const auto both = UnionResolver::Create({first, second}, {.rpc_layer = "test"});
  ASSERT_OK(both);
  EXPECT_EQ((*both)->task_type().value(), "worker");
  EXPECT_EQ((*both)->task_id().value(), 1);
  EXPECT_EQ((*both)->environment(), "here");
  EXPECT_EQ((*both)->Master().value(), "test://m:1");
  EXPECT_EQ((*both)->Master({.task_type = "ps", .task_id = 0}).value(), "test://p:1");
  EXPECT_THAT(UnionResolver::Create({}), StatusIs(kInvalid, HasSubstr("at least one")));
  EXPECT_THAT(UnionResolver::Create({first, nullptr}), StatusIs(kInvalid, HasSubstr("null")));
}

TEST(UnionResolver, AJobWithoutTasksJoinsLists) {
  const auto part = [](std::vector<std::string> addresses) {
    return std::make_shared<SimpleClusterResolver>(
        ClusterSpec::FromLists({{"worker", std::move(addresses)}}));
  };
  const auto all = UnionResolver::Create({part({"a:1"}), part({}), part({"b:1"})});
  ASSERT_OK(all);
  EXPECT_EQ((*all)->cluster_spec()->ToJson(), R"({"worker":["a:1","b:1"]})");
}

TEST(FileClusterResolver, AClusterFileIsRead) {
  const TempDir folder;
  const std::string path = WriteFile(folder.path() + "/c.yaml",
                                     "cluster: {ps: ['p:1'], worker: ['a:1', 'b:1'], tpu: []}\n"
                                     "task: {type: worker, index: 1}\n");
  const auto resolver = FileClusterResolver::Open(path);
  ASSERT_OK(resolver);
  EXPECT_EQ((*resolver)->cluster_spec()->ToJson(), R"({"ps":["p:1"],"worker":["a:1","b:1"]})");
  EXPECT_EQ((*resolver)->Master().value(), "b:1");
  EXPECT_THAT((*resolver)->warnings(), ElementsAre(HasSubstr("'tpu'")));
  const auto other = FileClusterResolver::Open(path, {.task_type = "ps", .task_id = 0});
  ASSERT_OK(other);
  EXPECT_EQ((*other)->Master().value(), "p:1");
  EXPECT_THAT(FileClusterResolver::Open(folder.path() + "/none.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.yaml")));
  WriteFile(path, "cluster: {ps: [nowhere]}");
  EXPECT_THAT(FileClusterResolver::Open(path), StatusIs(kInvalid, HasSubstr("c.yaml:1")));
}

TEST(ResolvedConfig, TheProgramsReadEveryResolversCluster) {
  const SimpleClusterResolver resolver(
      ClusterSpec::FromLists({{"ps", {"p:1"}}, {"worker", {"a:1", "b:1"}}}),
      {.task_type = "worker", .task_id = 1});
  const auto config = ResolveClusterConfig(resolver, "here");
  ASSERT_OK(config);
  EXPECT_THAT(config->addresses("ps"), ElementsAre("p:1"));
  EXPECT_EQ(config->training_ordinal(config->task_type, config->task_index), 1);
  EXPECT_THAT(config->warnings, IsEmpty());
  const auto of_nothing = ResolveClusterConfig(SimpleClusterResolver(ClusterSpec()), "here");
  ASSERT_OK(of_nothing);
  EXPECT_TRUE(of_nothing->tasks.empty());
}

TEST(ResolvedConfig, ClustersThatNoProgramCanRunAreRefused) {
  const auto refusal = [](const ClusterSpec& spec, ResolverOverrides task = {}) {
    return ResolveClusterConfig(SimpleClusterResolver(spec, std::move(task)), "here");
  };
  EXPECT_THAT(refusal(ClusterSpec::FromTasks({{"ps", {{1, "p:1"}}}}).value()),
              StatusIs(kInvalid, HasSubstr("without gaps")));
  EXPECT_THAT(refusal(ClusterSpec::FromLists({{"ps", {"nowhere"}}})),
              StatusIs(kInvalid, HasSubstr("no port")));
  EXPECT_THAT(refusal(ClusterSpec::FromLists({{"ps", {"p:1", "p:1"}}})),
              StatusIs(kInvalid, HasSubstr("each task needs its own")));
  EXPECT_THAT(refusal(TwoWorkers(), {.task_type = "worker", .task_id = 2}),
              StatusIs(kInvalid, HasSubstr("tasks 0 to 1")));
  EXPECT_THAT(refusal(TwoWorkers(), {.task_type = "moon", .task_id = 0}),
              StatusIs(kInvalid, HasSubstr("moon")));
}

TEST(ClusterSpec, AddressesThatAreNotTextAndLargeIndicesAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"worker": [null]})", "job 'worker' task 0 is null"},
      {R"({"worker": {"70000": "a:1"}})", "from 0 to 65535"},
      {R"({"worker": {"-1": "a:1"}})", "from 0 to 65535"},
      {R"({"worker": {"1": "a:1", "01": "b:1"}})", "names task 1 twice"},
      {R"({"worker": ["a:1"])", "not JSON"},
      {"\xff", "not JSON"},
      {"3", "must be a dictionary"}};
  for (const auto& [text, why] : cases) {
    EXPECT_THAT(ClusterSpec::FromJson(text), StatusIs(kInvalid, HasSubstr(why))) << text;
  }
  EXPECT_THAT(ClusterSpec::FromJson(std::string(2 << 20, ' ')),
              StatusIs(kInvalid, HasSubstr("at most 1048576")));
  // Deep nesting uses no stack.
  EXPECT_THAT(ClusterSpec::FromJson(std::string(1 << 19, '[')),
              StatusIs(kInvalid, HasSubstr("JSON")));
  EXPECT_THAT(ClusterSpec::FromTasks({{"worker", {{-1, "a:1"}}}}),
              StatusIs(kInvalid, HasSubstr("task -1")));
}

}  // namespace
}  // namespace cairn
