// Slurm's two short forms and whole job steps give TensorFlow's results, except for the order of
// hosts and for nodes without GPUs.
#include <cstdlib>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/worker/cluster/golden_record.h"
#include "worker/cluster/slurm_cluster_resolver.h"
#include "worker/cluster/slurm_text.h"

namespace cairn::test {
namespace {

// The correct results of records with a TensorFlow quirk that Cairn does not repeat.
const std::map<std::string, json>& RightResults() {
  static const auto* const results = new std::map<std::string, json>{
      // TensorFlow sorts hosts as text. Slurm numbers tasks in the order of its list of hosts, so
      // only that order gives every task its own address: ranks 0, 1 and 2 run on m2, 3 on m1.
      {"CL0042",
       {{"cluster",
         {{"chief", {"m2:8888"}}, {"ps", {"m2:8889"}}, {"worker", {"m2:8890", "m1:8888"}}}},
        {"task_type", "worker"},
        {"task_id", 0},
        {"master", "grpc://m2:8890"},
        {"cuda_visible_devices", "4,5"},
        {"gpus_per_task", 2}}},
      // The same: rank 0 runs on n9.
      {"CL0047",
       {{"cluster",
         {{"worker", {"n9:8888", "n9:8889", "n10:8888", "n10:8889", "n2:8888", "n2:8889"}}}},
        {"task_type", "worker"},
        {"task_id", 0},
        {"master", "grpc://n9:8888"},
        {"cuda_visible_devices", "0"},
        {"gpus_per_task", 1}}},
      // TensorFlow cannot count in steps of zero GPUs; here a node without GPUs trains on its CPUs.
      {"CL0046",
       {{"cluster", {{"worker", {"n1:8888", "n2:8888"}}}},
        {"task_type", "worker"},
        {"task_id", 0},
        {"master", "grpc://n1:8888"},
        {"cuda_visible_devices", ""},
        {"gpus_per_task", 0}}},
  };
  return *results;
}

SlurmOptions OptionsOf(const json& record) {
  SlurmOptions options;
  for (const auto& [key, value] : record.at("arguments").items()) {
    if (key == "jobs") {
      options.jobs = value.get<std::map<std::string, int32_t>>();
    } else if (key == "port_base") {
      options.port_base = value;
    } else if (key == "gpus_per_node") {
      options.gpus_per_node = value.get<int32_t>();
    } else if (key == "gpus_per_task") {
      options.gpus_per_task = value.get<int32_t>();
    } else if (key == "tasks_per_node") {
      options.tasks_per_node = value.get<int32_t>();
    } else {
      throw UnknownRecord("no argument '" + key + "'");
    }
  }
  const json& variables = record.at("environment");
  options.environment = [variables](const std::string& name) -> std::optional<std::string> {
    if (name.rfind("SLURM_", 0) != 0 || !variables.contains(name.substr(6))) return std::nullopt;
    return variables.at(name.substr(6)).get<std::string>();
  };
  return options;
}

absl::StatusOr<json> Resolve(const json& record) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  const auto resolver = SlurmClusterResolver::Create(OptionsOf(record));
  if (!resolver.ok()) return resolver.status();
  const auto master = (*resolver)->Master();
  const auto accelerators = (*resolver)->NumAccelerators();
  EXPECT_TRUE(master.ok()) << master.status();
  EXPECT_TRUE(accelerators.ok()) << accelerators.status();
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ((*resolver)->cuda_visible_devices(), visible == nullptr ? "" : visible);
  return json{{"cluster", json::parse((*resolver)->cluster_spec()->ToJson())},
              {"task_type", OptionalJson(*(*resolver)->task_type())},
              {"task_id", OptionalJson(*(*resolver)->task_id())},
              {"master", master.value_or("")},
              {"cuda_visible_devices", (*resolver)->cuda_visible_devices()},
              {"gpus_per_task", accelerators->contains("GPU") ? accelerators->at("GPU") : 0}};
}

bool HostsAreSorted(const json& record) {
  const auto hosts = ExpandHostlist(record.at("environment").value("STEP_NODELIST", ""));
  return hosts.ok() && std::is_sorted(hosts->begin(), hosts->end());
}

TEST(SlurmGolden, EveryCallReturnsTheRecordedResult) {
  ForEachGolden("cluster.json", "slurm", [&](const json& record) {
    const std::string id = record.at("id");
    const std::string call = record.at("call");
    if (call == "SlurmClusterResolver") {
      ExpectFields(record,
                   {"id", "call", "environment", "arguments", "value", "error", "contains"});
      const bool own = IsOwnGolden("cluster.json");
      const auto right = own ? RightResults().find(id) : RightResults().end();
      if (!own && !HostsAreSorted(record)) throw UnknownRecord("TensorFlow sorts hosts [quirk]");
      const json want = right == RightResults().end() ? record : json{{"value", right->second}};
      EXPECT_TRUE(Agrees(Resolve(record), want, id));
      return;
    }
    ExpectFields(record, {"id", "call", "input", "value", "error", "contains"});
    const std::string input = record.at("input");
    if (call == "expand_hostlist" && !input.empty() && record.contains("value") &&
        record.at("value").empty()) {
      // TensorFlow returns no hosts; Cairn reports the error in the list.
      EXPECT_EQ(ExpandHostlist(input).status().code(), absl::StatusCode::kInvalidArgument) << id;
    } else if (call == "expand_hostlist") {
      EXPECT_TRUE(Agrees(AsJson(ExpandHostlist(input)), record, id));
    } else if (call == "expand_tasks_per_node") {
      EXPECT_TRUE(Agrees(AsJson(ExpandTasksPerNode(input)), record, id));
    } else {
      throw UnknownRecord("no call '" + call + "'");
    }
  });
}

}  // namespace
}  // namespace cairn::test
