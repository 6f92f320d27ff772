// A launch that its flags or files would make fail is refused before any process starts, and
// started processes get the requested flags.
#include "worker/ctl/launch_plan.h"

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/exit_status.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/temp_dir.h"
#include "worker/cluster/named_cluster.h"

namespace cairn {
namespace {

class LaunchPlanTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(temp_.Join(name)) << text;
    return temp_.Join(name);
  }
  // Valid options, whose programs exist.
  LaunchOptions Options() {
    Write("rows.libsvm", "1 1:1\n0 2:1\n");
    LaunchOptions options;
    options.job_file = Write("job.yaml",
                             "name: small\nmodel: {type: linear}\n"
                             "data: {format: libsvm, features: 2, train: [rows.libsvm]}\n");
    options.cairn_ps = "/bin/true";
    options.cairn_worker = "/bin/true";
    return options;
  }
  std::string Refusal(const LaunchOptions& options) {
    const auto plan = PlanLaunch(options, temp_.path());
    EXPECT_FALSE(plan.ok());
    EXPECT_EQ(ExitCodeOf(plan.status()), 2);
    return std::string(plan.status().message());
  }

  TempDir temp_;
};

TEST_F(LaunchPlanTest, WorkersThatNeedServersGetSome) {
  LaunchOptions options = Options();
  options.servers = 0;
  const std::string refusal = Refusal(options);
  EXPECT_TRUE(absl::StartsWith(refusal, "--ps 0: the workers of job 'small'")) << refusal;
  EXPECT_TRUE(absl::StrContains(refusal, "cairn-worker --job ")) << refusal;
  options.sets = {"strategy.type=multi_worker_mirrored"};
  const auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->tasks[0].server);
}

TEST_F(LaunchPlanTest, ServersComeFirstAndEveryTaskHasItsFlags) {
  LaunchOptions options = Options();
  options.sets = {"data.epochs=2"};
  options.server_flags = {"--durability=off"};
  options.worker_flags = {"--fresh"};
  const auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->job, "small");
  ASSERT_EQ(plan->tasks.size(), 4U);
  EXPECT_EQ(plan->tasks[1].task, "ps:1");
  EXPECT_TRUE(plan->tasks[1].server);
  const std::string server = absl::StrJoin(plan->tasks[1].command, " ");
  EXPECT_TRUE(absl::StrContains(server, "--task_index 1")) << server;
  EXPECT_TRUE(absl::EndsWith(server, "--http_port 0 --durability=off")) << server;
  EXPECT_EQ(plan->tasks[3].task, "worker:1");
  const std::string worker = absl::StrJoin(plan->tasks[3].command, " ");
  EXPECT_TRUE(absl::StrContains(worker, "--task_type worker --task_index 1")) << worker;
  EXPECT_TRUE(absl::EndsWith(worker, "--http_port 0 --set data.epochs=2 --fresh")) << worker;
  EXPECT_EQ(plan->tasks[3].log_file, temp_.Join("logs/worker-1.log"));
  EXPECT_TRUE(plan->tasks[1].environment.empty());
  EXPECT_EQ(absl::StrJoin(plan->tasks[3].environment, " "), "LOCAL_RANK=1 LOCAL_WORLD_SIZE=2");
}

TEST_F(LaunchPlanTest, WorkersThatMayBeRestartedSayWhichFlagsTheyHaveObeyed) {
  LaunchOptions options = Options();
  options.restart_on_failure = true;
  options.worker_flags = {"--fresh"};
  const auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->tasks[3].applied_flags_file, temp_.Join("worker1.obeyed"));
  const std::string worker = absl::StrJoin(plan->tasks[3].command, " ");
  EXPECT_TRUE(absl::EndsWith(
      worker, absl::StrCat("--obeyed_file ", plan->tasks[3].applied_flags_file, " --fresh")))
      << worker;
}

TEST_F(LaunchPlanTest, OnlyTasksThatTrainDivideTheGpus) {
  LaunchOptions options = Options();
  options.cluster_file = Write(
      "evaluated.yaml", absl::StrCat("cluster: {ps: ['", OwnHost(), ":0'], chief: ['", OwnHost(),
                                     ":0'], evaluator: ['", OwnHost(), ":0'], worker: ['",
                                     OwnHost(), ":0', '", OwnHost(), ":0']}\n"));
  const auto environment = [&](const std::string& name) {
    const auto plan = PlanLaunch(options, temp_.path());
    EXPECT_TRUE(plan.ok()) << plan.status();
    for (const PlannedTask& task : plan->tasks) {
      if (task.task == name) return absl::StrJoin(task.environment, " ");
    }
    return absl::StrCat("no ", name);
  };
  EXPECT_EQ(environment("chief:0"), "LOCAL_RANK=0 LOCAL_WORLD_SIZE=3");
  EXPECT_EQ(environment("worker:1"), "LOCAL_RANK=2 LOCAL_WORLD_SIZE=3");
  EXPECT_EQ(environment("evaluator:0"), "CUDA_VISIBLE_DEVICES=");
  options.sets = {"strategy.devices=[cpu:0]"};  // the job chooses
  EXPECT_EQ(environment("evaluator:0"), "");
}

TEST_F(LaunchPlanTest, EveryTaskHasItsOwnMetricsFile) {
  LaunchOptions options = Options();
  for (const bool joined : {false, true}) {
    options.worker_flags = joined ? std::vector<std::string>{"--metrics_file=/a.b/m.jsonl"}
                                  : std::vector<std::string>{"--metrics_file", "/a.b/m.jsonl"};
    const std::string flag = joined ? "--metrics_file=" : "--metrics_file ";
    const auto plan = PlanLaunch(options, temp_.path());
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::string first = absl::StrJoin(plan->tasks[2].command, " ");
    EXPECT_TRUE(absl::EndsWith(first, flag + "/a.b/m.jsonl")) << first;
    const std::string second = absl::StrJoin(plan->tasks[3].command, " ");
    EXPECT_TRUE(absl::EndsWith(second, flag + "/a.b/m.worker-1.jsonl")) << second;
  }
}

TEST_F(LaunchPlanTest, AServersStatusPageIsWhereItIsAskedFor) {
  LaunchOptions options = Options();
  options.server_flags = {"--http_port=8081"};
  const auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string server = absl::StrJoin(plan->tasks[0].command, " ");
  EXPECT_TRUE(absl::EndsWith(server, "--http_port=8081")) << server;
  EXPECT_FALSE(absl::StrContains(server, "--http_port 0")) << server;
}

TEST_F(LaunchPlanTest, LogsGoWhereTheyAreAskedForElseBesideTheState) {
  LaunchOptions options = Options();
  options.state = temp_.Join("state");
  auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->log_directory, temp_.Join("state/logs"));
  options.log_directory = temp_.Join("there");
  plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->tasks[0].log_file, temp_.Join("there/ps-0.log"));
  // In the background nobody would see the tasks' output.
  options = Options();
  options.wait = true;
  EXPECT_TRUE(absl::StrContains(Refusal(options), "--log_directory"));
}

TEST_F(LaunchPlanTest, OtherCommandsAreToldTheUsersOwnClusterFileWhereItIsTrue) {
  LaunchOptions options = Options();
  options.cluster_file = Write("any.yaml", absl::StrCat("cluster: {ps: ['", OwnHost(),
                                                        ":0'], worker: ['", OwnHost(), ":0']}\n"));
  auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shown_cluster_file, plan->cluster_file);
  options.cluster_file = Write("own.yaml", ClusterFileText(plan->cluster));
  plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shown_cluster_file, options.cluster_file);
}

TEST_F(LaunchPlanTest, TheClusterFileHasTheAddressesAndPortZeroIsReplaced) {
  LaunchOptions options = Options();
  options.cluster_file = Write("given.yaml", absl::StrCat("cluster: {ps: ['", OwnHost(),
                                                          ":0'], chief: ['", OwnHost(), ":0']}\n"));
  const auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto written = ReadClusterFile(plan->cluster_file);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->tasks, plan->cluster.tasks);
  EXPECT_FALSE(absl::EndsWith(written->addresses("ps")[0], ":0"));
  EXPECT_TRUE(absl::StartsWith(written->addresses("ps")[0], OwnHost() + ":"));
  EXPECT_EQ(plan->tasks[1].task, "chief:0");
}

TEST_F(LaunchPlanTest, EveryTaskHasItsOwnCertificateWhichIsMadeWhereThereIsNone) {
  LaunchOptions options = Options();
  options.tls_directory = temp_.Join("tls");
  const auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const char* const names[] = {"ps-0", "ps-1", "worker-0", "worker-1"};
  for (size_t i = 0; i < plan->tasks.size(); ++i) {
    const std::string path = options.tls_directory + "/" + names[i];
    const std::string command = absl::StrJoin(plan->tasks[i].command, " ");
    EXPECT_TRUE(
        absl::EndsWith(command, absl::StrCat(" --tls_certificate ", path, ".crt --tls_key ", path,
                                             ".key --tls_ca ", options.tls_directory, "/ca.crt")))
        << command;
    EXPECT_TRUE(std::ifstream(path + ".crt").good()) << path;
  }
  const auto again = PlanLaunch(options, temp_.path());  // the existing certificates
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->reader_flags[1], options.tls_directory + "/reader.crt");
}

TEST_F(LaunchPlanTest, ServersAloneNeedNoJob) {
  LaunchOptions options;
  options.workers = 0;
  options.cairn_ps = "/bin/true";
  const auto plan = PlanLaunch(options, temp_.path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->tasks.size(), 2U);
}

TEST_F(LaunchPlanTest, RefusesWhatCouldNotRun) {
  LaunchOptions options = Options();
  options.job_file.clear();
  EXPECT_TRUE(absl::StrContains(Refusal(options), "--job FILE is needed"));

  options = Options();
  options.job_file = Write("bad.yaml", "modle: {type: linear}\n");
  EXPECT_TRUE(absl::StrContains(Refusal(options), "did you mean 'model'"));

  options = Options();
  options.cairn_ps = temp_.Join("no-such-program");
  EXPECT_TRUE(absl::StrContains(Refusal(options), "--cairn_ps"));

  options = Options();
  options.cluster_file = Write("far.yaml", "cluster: {ps: ['192.0.2.7:7001']}\n");
  EXPECT_TRUE(absl::StrContains(Refusal(options), "ps:0: 192.0.2.7:7001 is not an address of"));

  options = Options();
  options.sets = {"strategy.type=multi_worker_mirrored"};
  options.servers = 0;
  options.tls_directory = temp_.Join("tls");
  EXPECT_TRUE(absl::StrContains(Refusal(options), "--tls_directory is for calls to ps tasks"));

  options = Options();
  options.servers = -1;
  EXPECT_TRUE(absl::StrContains(Refusal(options), "--ps -1"));
}

}  // namespace
}  // namespace cairn
