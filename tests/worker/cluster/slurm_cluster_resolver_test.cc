// The tasks of a Slurm step find their own place for any placement by Slurm, share the GPUs of
// their hosts, and invalid steps are refused.
#include "worker/cluster/slurm_cluster_resolver.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "worker/cluster/slurm_text.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Variables = std::map<std::string, std::string>;

Environment EnvironmentOf(Variables variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::make_optional(found->second);
  };
}

Variables SlurmStep() {
  return {{"SLURM_PROCID", "1"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_NODELIST", "n[9-10]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
}

SlurmOptions On(Variables variables) {
  return {.gpus_per_node = 0,
          .auto_set_gpu = false,
          .environment = EnvironmentOf(std::move(variables))};
}

TEST(SlurmClusterResolver, HostAndLocalIdDetermineTheTaskInAnyDistribution) {
  // srun --distribution=cyclic runs rank 1 as the first task of the second host.
  Variables variables = SlurmStep();
  variables["SLURMD_NODENAME"] = "n10";
  variables["SLURM_LOCALID"] = "0";
  SlurmOptions options = On(variables);
  options.jobs = {{"ps", 1}, {"worker", 3}};
  const auto resolver = SlurmClusterResolver::Create(options);
  ASSERT_OK(resolver);
  EXPECT_EQ((*resolver)->task_type().value(), "worker");
  EXPECT_EQ((*resolver)->task_id().value(), 1);
  EXPECT_EQ((*resolver)->Master().value(), "grpc://n10:8888");
  EXPECT_EQ((*resolver)->cluster_spec()->ToJson(),
            R"({"ps":["n9:8888"],"worker":["n9:8889","n10:8888","n10:8889"]})");
}

TEST(SlurmClusterResolver, RemainingTasksHaveNoRole) {
  Variables variables = SlurmStep();
  variables["SLURM_PROCID"] = "3";
  SlurmOptions options = On(variables);
  options.jobs = {{"worker", 3}};
  const auto resolver = SlurmClusterResolver::Create(options);
  ASSERT_OK(resolver);
  EXPECT_EQ((*resolver)->task_type().value(), std::nullopt);
  EXPECT_EQ((*resolver)->Master().value(), "");
}

TEST(SlurmClusterResolver, HostsMayBeGivenByTheProgram) {
  SlurmOptions options = On({{"SLURM_PROCID", "2"}});
  options.jobs = {{"worker", 3}};
  options.hosts = {{"b", 1}, {"a", 2}};
  options.gpus_per_node = 5;
  const auto resolver = SlurmClusterResolver::Create(options);
  ASSERT_OK(resolver);
  EXPECT_EQ((*resolver)->Master().value(), "grpc://a:8889");
  EXPECT_EQ((*resolver)->cuda_visible_devices(), "2,3");
  EXPECT_THAT((*resolver)->NumAccelerators().value(), UnorderedElementsAre(Pair("GPU", 2)));
}

TEST(SlurmClusterResolver, TheNodesGpuCountIsSlurms) {
  setenv("CUDA_VISIBLE_DEVICES", "as it was", 1);
  Variables variables = SlurmStep();
  variables["SLURM_GPUS_ON_NODE"] = "4";
  SlurmOptions options = {.auto_set_gpu = false, .environment = EnvironmentOf(variables)};
  const auto untouched = SlurmClusterResolver::Create(options);
  ASSERT_OK(untouched);
  EXPECT_EQ((*untouched)->gpus_per_task(), 2);
  EXPECT_STREQ(std::getenv("CUDA_VISIBLE_DEVICES"), "as it was");
  options.auto_set_gpu = true;
  EXPECT_OK(SlurmClusterResolver::Create(options));
  EXPECT_STREQ(std::getenv("CUDA_VISIBLE_DEVICES"), "2,3");
  options.gpus_per_task = 0;
  EXPECT_OK(SlurmClusterResolver::Create(options));
  EXPECT_STREQ(std::getenv("CUDA_VISIBLE_DEVICES"), "");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

struct Refusal {
  const char* variable;
  const char* value;  // null: not set
  absl::StatusCode code;
  const char* why;
};

TEST(SlurmClusterResolver, InvalidStepsAreRefused) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kFailed = absl::StatusCode::kFailedPrecondition;
  const Refusal refusals[] = {
      {"SLURM_PROCID", nullptr, kFailed,
       "SLURM_PROCID not found in environment. Not running inside"},
      {"SLURM_PROCID", "one", kInvalid, "SLURM_PROCID is 'one'"},
      {"SLURM_PROCID", "4", kInvalid, "SLURM_PROCID is 4; the step has 4 tasks"},
      {"SLURM_STEP_NUM_TASKS", "5", kFailed, "Requested 5 tasks but only 4 were assigned"},
      {"SLURM_STEP_NODELIST", nullptr, kFailed, "SLURM_STEP_NODELIST not found"},
      {"SLURM_STEP_NODELIST", "n[9-", kInvalid, "Invalid hostlist format"},
      {"SLURM_STEP_TASKS_PER_NODE", "4", kInvalid, "2 hosts and SLURM_STEP_TASKS_PER_NODE 1"},
      {"SLURM_STEP_TASKS_PER_NODE", "70000(x2)", kInvalid, "no port for 70000 tasks"},
      {"SLURMD_NODENAME", "n11", kInvalid, "task 0 on host n11"},
  };
  for (const Refusal& refusal : refusals) {
    Variables variables = SlurmStep();
    if (refusal.value == nullptr) {
      variables.erase(refusal.variable);
    } else {
      variables[refusal.variable] = refusal.value;
    }
    if (variables.contains("SLURMD_NODENAME")) variables["SLURM_LOCALID"] = "0";
    EXPECT_THAT(SlurmClusterResolver::Create(On(variables)),
                StatusIs(refusal.code, HasSubstr(refusal.why)))
        << refusal.variable;
  }
}

TEST(SlurmClusterResolver, InvalidOptionsAreRefused) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kFailed = absl::StatusCode::kFailedPrecondition;
  SlurmOptions ports = On(SlurmStep());
  ports.port_base = 65535;
  EXPECT_THAT(SlurmClusterResolver::Create(ports), StatusIs(kInvalid, HasSubstr("port_base")));
  SlurmOptions too_few = On(SlurmStep());
  too_few.gpus_per_node = 1;
  EXPECT_THAT(SlurmClusterResolver::Create(too_few),
              StatusIs(kFailed, HasSubstr("2 tasks on a host with 1 GPUs")));
  too_few.gpus_per_task = 1;
  EXPECT_THAT(SlurmClusterResolver::Create(too_few),
              StatusIs(kFailed, HasSubstr("Requested more GPUs per node than available")));
  SlurmOptions negative = On(SlurmStep());
  negative.jobs = {{"worker", -1}};
  EXPECT_THAT(SlurmClusterResolver::Create(negative), StatusIs(kInvalid, HasSubstr("-1 tasks")));
}

TEST(SlurmText, ARangeWithoutHostsIsRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(ExpandHostlist("n[5-3]"), StatusIs(code, HasSubstr("'5-3' ends before it begins")));
  EXPECT_THAT(ExpandHostlist("n[1 2]"), StatusIs(code, HasSubstr("neither a number")));
  EXPECT_THAT(ExpandHostlist("n[ ]"), StatusIs(code, HasSubstr("neither a number")));
}

// TensorFlow's hosts, whose width includes the blank.
TEST(SlurmText, BlanksAroundNumbersAreAllowed) {
  EXPECT_THAT(ExpandHostlist("n[1 - 2]").value(), ElementsAre("n01", "n02"));
  EXPECT_THAT(ExpandHostlist("n[1-2, 5],m").value(), ElementsAre("n1", "n2", "n05", "m"));
}

TEST(SlurmText, ListsThatWouldExhaustMemoryAreRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(ExpandHostlist("n[0-999999999]"), StatusIs(code, HasSubstr("more than 65536")));
  EXPECT_THAT(ExpandHostlist("n[0-99999999999]"), StatusIs(code, HasSubstr("neither a number")));
  EXPECT_THAT(ExpandHostlist("n[2147483647-2147483647]"), StatusIs(absl::StatusCode::kOk, ""));
  EXPECT_THAT(ExpandTasksPerNode("1(x2000000000)"), StatusIs(code, HasSubstr("more than 65536")));
  EXPECT_THAT(ExpandTasksPerNode("1(x65536),1"), StatusIs(code, HasSubstr("more than 65536")));
}

}  // namespace
}  // namespace cairn
