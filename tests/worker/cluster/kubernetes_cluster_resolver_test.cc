// Pods become tasks by their labels, in name order; unreachable pods are refused. The lists are
// excerpts of the output of kubectl get pods -o json.
#include "worker/cluster/kubernetes_cluster_resolver.h"

#include <fstream>

#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/cluster/kubernetes_pods.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr auto kInvalidPods = absl::StatusCode::kInvalidArgument;
constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;

std::string PodJson(absl::string_view name, absl::string_view labels, absl::string_view status,
                    absl::string_view containers = "{}") {
  return absl::Substitute(
      R"({"kind": "Pod", "metadata": {"name": "$0", "labels": {$1}}, "spec": {"containers": [$3]},
          "status": {$2}})",
      name, labels, status, containers);
}

std::string Running(absl::string_view host_ip, absl::string_view pod_ip = "10.1.0.9") {
  return absl::Substitute(R"("phase": "Running", "hostIP": "$0", "podIP": "$1")", host_ip, pod_ip);
}

std::string List(const std::vector<std::string>& pods) {
  return R"({"apiVersion": "v1", "kind": "List", "items": [)" + absl::StrJoin(pods, ",") + "]}";
}

constexpr char kTensorFlow[] = R"("job-name": "tensorflow")";

TEST(KubernetesClusterResolver, PodsAreTasksInNameOrder) {
  const auto resolver = KubernetesClusterResolver::FromJson(
      List({PodJson("tensorflow-xyz", kTensorFlow, Running("10.1.2.3")),
            PodJson("other", R"("job-name": "web")", R"("phase": "Pending")"),
            PodJson("tensorflow-abc", kTensorFlow, Running("10.1.2.4"))}));
  ASSERT_OK(resolver);
  EXPECT_EQ((*resolver)->cluster_spec()->ToJson(),
            R"({"worker":["10.1.2.4:8470","10.1.2.3:8470"]})");
  EXPECT_EQ((*resolver)->Master().value(), "");
  EXPECT_EQ((*resolver)->Master({.task_type = "worker", .task_id = 1}).value(),
            "grpc://10.1.2.3:8470");
}

TEST(KubernetesClusterResolver, JobsHaveSelectorsAndAPodFindsItself) {
  KubernetesOptions options;
  options.job_to_label_mapping = {{"ps", {"role=ps"}},
                                  {"worker", {"role=big", "role==small,!old"}}};
  options.server_port = 7000;
  options.address = KubernetesOptions::Address::kPodIp;
  options.pod_name = "b";
  options.rpc_layer.reset();
  const std::string gpu = R"({"resources": {"limits": {"nvidia.com/gpu": "2"}}})";
  const auto resolver = KubernetesClusterResolver::FromJson(
      List({PodJson("a", R"("role": "small")", Running("h", "10.0.0.1")),
            PodJson("b", R"("role": "big")", Running("h", "fd00::2"), gpu + "," + gpu),
            PodJson("c", R"("role": "small", "old": "yes")", R"("phase": "Failed")"),
            PodJson("d", R"("role": "ps")", Running("h", "10.0.0.4"))}),
      options);
  ASSERT_OK(resolver);
  EXPECT_EQ((*resolver)->cluster_spec()->ToJson(),
            R"({"ps":["10.0.0.4:7000"],"worker":["[fd00::2]:7000","10.0.0.1:7000"]})");
  EXPECT_EQ((*resolver)->task_type().value(), "worker");
  EXPECT_EQ((*resolver)->task_id().value(), 0);
  EXPECT_EQ((*resolver)->Master().value(), "[fd00::2]:7000");
  EXPECT_THAT((*resolver)->NumAccelerators().value(), UnorderedElementsAre(Pair("GPU", 4)));
  EXPECT_THAT((*resolver)->NumAccelerators("ps", 0).value(), IsEmpty());
  EXPECT_THAT((*resolver)->NumAccelerators("ps", 1),
              StatusIs(kInvalidPods, HasSubstr("No task with index")));
}

TEST(KubernetesClusterResolver, PodsThatCannotBeReachedAreRefused) {
  const auto refusal = [](const std::vector<std::string>& pods) {
    return KubernetesClusterResolver::FromJson(List(pods));
  };
  EXPECT_THAT(refusal({PodJson("a", kTensorFlow, R"("phase": "Pending")")}),
              StatusIs(kFailed, HasSubstr(R"(Pod "a" is not running; phase: "Pending")")));
  EXPECT_THAT(refusal({PodJson("a", kTensorFlow, R"("phase": "Running")")}),
              StatusIs(kFailed, HasSubstr("no status.hostIP")));
  EXPECT_THAT(refusal({PodJson("a", kTensorFlow, Running("10.0.0.1")),
                       PodJson("b", kTensorFlow, Running("10.0.0.1"))}),
              StatusIs(kInvalidPods, HasSubstr("they share a node: use their podIP")));
  EXPECT_THAT(refusal({PodJson("a", kTensorFlow, Running("10.0.0.1"),
                               R"({"resources": {"limits": {"nvidia.com/gpu": "all"}}})")}),
              StatusIs(kInvalidPods, HasSubstr("'all'")));
  EXPECT_THAT(refusal({R"({"metadata": {}})"}), StatusIs(kInvalidPods, HasSubstr("items[0]")));
}

TEST(KubernetesClusterResolver, InvalidPodListsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {{"", "not JSON"},
                                                       {"{", "not JSON"},
                                                       {"[]", "no list \"items\""},
                                                       {"{\"items\": 3}", "items"}};
  for (const auto& [text, why] : cases) {
    EXPECT_THAT(KubernetesClusterResolver::FromJson(text), StatusIs(kInvalidPods, HasSubstr(why)));
  }
  KubernetesOptions lost;
  lost.pod_name = "z";
  EXPECT_THAT(KubernetesClusterResolver::FromJson(List({}), lost),
              StatusIs(kInvalidPods, HasSubstr("Pod \"z\"")));
  KubernetesOptions port;
  port.server_port = 0;
  EXPECT_THAT(KubernetesClusterResolver::FromJson(List({}), port),
              StatusIs(kInvalidPods, HasSubstr("server_port")));
}

TEST(KubernetesClusterResolver, AFileHoldsAListOrOnePod) {
  const TempDir folder;
  const std::string path = folder.path() + "/pods.json";
  std::ofstream(path) << PodJson("a", kTensorFlow, Running("10.0.0.1"));
  const auto resolver = KubernetesClusterResolver::FromFile(path);
  ASSERT_OK(resolver);
  EXPECT_EQ((*resolver)->cluster_spec()->ToJson(), R"({"worker":["10.0.0.1:8470"]})");
  std::ofstream(path) << "{";
  EXPECT_THAT(KubernetesClusterResolver::FromFile(path),
              StatusIs(kInvalidPods, HasSubstr("pods.json")));
  for (const std::string& none : {folder.path(), folder.path() + "/none"}) {
    EXPECT_THAT(KubernetesClusterResolver::FromFile(none),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(none)));
  }
}

TEST(LabelSelector, AllRequirementsMustHold) {
  const std::map<std::string, std::string> labels = {{"app", "ctr"}, {"gpu", ""}};
  const std::pair<const char*, bool> cases[] = {{"", true},
                                                {"app=ctr", true},
                                                {"app == ctr , gpu", true},
                                                {"app=web", false},
                                                {"app!=web", true},
                                                {"tier!=test", true},
                                                {"app!=ctr", false},
                                                {"gpu", true},
                                                {"tier", false},
                                                {"!tier", true},
                                                {"!gpu", false},
                                                {"gpu=", true},
                                                {"app=ctr,tier", false}};
  for (const auto& [text, matches] : cases) {
    const auto selector = LabelSelector::Parse(text);
    ASSERT_OK(selector);
    EXPECT_EQ(selector->Matches(labels), matches) << text;
  }
  EXPECT_THAT(LabelSelector::Parse("app in (a, b)"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has a set")));
  for (const char* const text : {",", "a,,b", "=x", "!", "a b"}) {
    EXPECT_THAT(LabelSelector::Parse(text), StatusIs(kInvalidPods, HasSubstr("KEY=VALUE"))) << text;
  }
}

}  // namespace
}  // namespace cairn
