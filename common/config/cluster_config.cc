#include "common/config/cluster_config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/config/cluster_section.h"
#include "common/config/config_node.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/printable_text.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr absl::string_view kJobs[] = {"ps", "worker", "chief", "evaluator"};
constexpr int64_t kMaxTasks = 65536;  // of one job; a partition map has 16 bits for a server

bool IsJob(absl::string_view name) {
  return std::find(std::begin(kJobs), std::end(kJobs), name) != std::end(kJobs);
}

std::string Ignored(const ConfigNode& member, absl::string_view section,
                    absl::Span<const absl::string_view> known) {
  return absl::StrCat(member.key_where, ": key '", member.key, "' in ", section,
                      " is not known and ignored", DidYouMean(member.key, known));
}

absl::Status ReadAddress(const ConfigNode& value, const std::string& path, std::string* out) {
  if (value.kind != ConfigNode::Kind::kScalar) {
    return Unexpected(value, path, "an address, as in \"127.0.0.1:7001\"");
  }
  const absl::StatusOr<HostPort> parsed = ParseHostPort(value.text);
  if (!parsed.ok()) {
    return InvalidArgument(value.where, ": ", path, ": ", parsed.status().message());
  }
  *out = value.text;
  return absl::OkStatus();
}

// Reads an index, which other programs may have quoted.
absl::Status ReadIndex(const ConfigNode& value, const std::string& path, int64_t high,
                       int64_t* out) {
  ConfigNode plain = value;
  plain.quoted = false;
  return ReadInteger(plain, path, 0, high, out);
}

// Reads a list of addresses, or TF_CONFIG's {"0": address, …}, which must not have gaps.
absl::Status ReadTasks(const ConfigNode& value, const std::string& path,
                       std::vector<std::string>* tasks) {
  if (value.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
  const bool is_map = value.kind == ConfigNode::Kind::kMap;
  if (!is_map && value.kind != ConfigNode::Kind::kList) {
    return Unexpected(value, path, "a list of addresses");
  }
  const auto count = static_cast<int64_t>(value.children.size());
  if (count > kMaxTasks) {
    return Unexpected(value, path, absl::StrCat("at most ", kMaxTasks, " tasks"));
  }
  tasks->resize(count);
  for (int64_t i = 0; i < count; ++i) {
    const ConfigNode& child = value.children[i];
    int64_t index = i;
    if (is_map && (!absl::SimpleAtoi(child.key, &index) || index < 0 || index >= count ||
                   !(*tasks)[index].empty())) {
      return InvalidArgument(child.key_where, ": ", path, ": task '", child.key, "': the ", count,
                             " tasks must be numbered 0 to ", count - 1, " without gaps");
    }
    RETURN_IF_ERROR(ReadAddress(child, absl::StrCat(path, "[", index, "]"), &(*tasks)[index]));
  }
  return absl::OkStatus();
}

absl::Status ReadCluster(const ConfigNode& cluster, ClusterConfig* config) {
  if (cluster.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
  if (cluster.kind != ConfigNode::Kind::kMap) {
    return Unexpected(cluster, "cluster",
                      "jobs and their addresses, as in {ps: [...], worker: [...]}");
  }
  absl::flat_hash_map<std::string, std::string> taken;
  for (const ConfigNode& job : cluster.children) {
    if (!IsJob(job.key)) {
      config->warnings.push_back(Ignored(job, "cluster", kJobs));
      continue;
    }
    const std::string path = absl::StrCat("cluster.", job.key);
    std::vector<std::string>& tasks = config->tasks[job.key];
    RETURN_IF_ERROR(ReadTasks(job, path, &tasks));
    for (size_t i = 0; i < tasks.size(); ++i) {
      const std::string task = absl::StrCat(job.key, ":", i);
      const auto [other, is_new] = taken.try_emplace(tasks[i], task);
      // Port 0 means any free port, so several tasks may use it.
      if (!is_new && !absl::EndsWith(tasks[i], ":0")) {
        return InvalidArgument(job.where, ": ", path, ": ", tasks[i], " is given to ",
                               other->second, " and to ", task, "; each task needs its own");
      }
    }
  }
  for (const absl::string_view job : {"chief", "evaluator"}) {
    const size_t count = config->addresses(job).size();
    if (count > 1) {
      return InvalidArgument(cluster.Find(job)->where, ": cluster.", job, " has ", count,
                             " tasks; there is at most one ", job);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTask(const ConfigNode& task, const ClusterConfig& config) {
  // An evaluator is outside the cluster, as in TensorFlow.
  if (config.tasks.empty() || config.task_type.empty() || config.task_type == "evaluator") {
    return absl::OkStatus();
  }
  const size_t count = config.addresses(config.task_type).size();
  if (count == 0) {
    return InvalidArgument(WhereOf(task, "type"), ": task.type is ", config.task_type,
                           "; the cluster has no such task");
  }
  if (config.task_index >= static_cast<int64_t>(count)) {
    return InvalidArgument(WhereOf(task, "index"), ": task.index is ", config.task_index,
                           "; cluster.", config.task_type, " has tasks 0 to ", count - 1);
  }
  return absl::OkStatus();
}

absl::Status ReadTask(const ConfigNode& task, ClusterConfig* config) {
  if (task.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
  if (task.kind != ConfigNode::Kind::kMap) {
    return Unexpected(task, "task", "this process's place, as in {type: worker, index: 0}");
  }
  constexpr absl::string_view kKnown[] = {"type", "index"};
  for (const ConfigNode& member : task.children) {
    if (member.key == "type") {
      RETURN_IF_ERROR(Choice("type", &config->task_type, Names(std::begin(kJobs), std::end(kJobs)))
                          .read(member, "task.type"));
    } else if (member.key == "index") {
      int64_t index = 0;
      RETURN_IF_ERROR(ReadIndex(member, "task.index", kMaxTasks - 1, &index));
      config->task_index = static_cast<int32_t>(index);
    } else {
      config->warnings.push_back(Ignored(member, "task", kKnown));
    }
  }
  return CheckTask(task, *config);
}

}  // namespace

absl::Status ReadClusterSections(const ConfigNode& root, ClusterConfig* config) {
  if (const ConfigNode* cluster = root.Find("cluster")) {
    RETURN_IF_ERROR(ReadCluster(*cluster, config));
  }
  const ConfigNode* task = root.Find("task");
  return task == nullptr ? absl::OkStatus() : ReadTask(*task, config);
}

const std::vector<std::string>& ClusterConfig::addresses(absl::string_view job) const {
  static const auto* const kNone = new std::vector<std::string>;
  const auto found = tasks.find(std::string(job));
  return found == tasks.end() ? *kNone : found->second;
}

int32_t ClusterConfig::training_task_count() const {
  return static_cast<int32_t>(addresses("chief").size() + addresses("worker").size());
}

int32_t ClusterConfig::training_ordinal(absl::string_view type, int32_t index) const {
  if (index < 0 || index >= static_cast<int64_t>(addresses(type).size())) return -1;
  if (type == "chief") return index;
  if (type == "worker") return static_cast<int32_t>(addresses("chief").size()) + index;
  return -1;
}

std::string ClusterConfig::training_task(int32_t ordinal) const {
  const int32_t chiefs = static_cast<int32_t>(addresses("chief").size());
  return ordinal < chiefs ? absl::StrCat("chief:", ordinal)
                          : absl::StrCat("worker:", ordinal - chiefs);
}

namespace {

absl::StatusOr<ClusterConfig> Parse(absl::string_view text, absl::string_view source) {
  ASSIGN_OR_RETURN(const ConfigNode root, ParseTree(text, source));
  // JSON is a TF_CONFIG, to which other programs add keys.
  const bool is_json = absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  constexpr absl::string_view kKnown[] = {"cluster", "task"};
  ClusterConfig config;
  std::vector<Field> fields;
  for (const absl::string_view key : kKnown) {
    fields.push_back(Custom(key, [](const ConfigNode&, const std::string&) {
      return absl::OkStatus();  // read below: cluster first, whatever the order in the file
    }));
  }
  for (const ConfigNode& member : root.children) {
    if (is_json && member.key != "cluster" && member.key != "task") {
      config.warnings.push_back(Ignored(member, source, kKnown));
      fields.push_back(Custom(
          member.key, [](const ConfigNode&, const std::string&) { return absl::OkStatus(); }));
    }
  }
  RETURN_IF_ERROR(ReadSection(root, "", fields));
  RETURN_IF_ERROR(ReadClusterSections(root, &config));
  return config;
}

}  // namespace

absl::StatusOr<ClusterConfig> ParseCluster(absl::string_view text, absl::string_view source) {
  absl::StatusOr<ClusterConfig> cluster = Parse(text, source);
  if (!cluster.ok()) return PrintableStatus(cluster.status());  // the message quotes the file
  for (std::string& warning : cluster->warnings) warning = PrintableText(warning);
  return cluster;
}

absl::StatusOr<ClusterConfig> ReadClusterFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return ParseCluster(text, path);
}

absl::StatusOr<std::optional<ClusterConfig>> ReadTfConfig() {
  const char* const text = std::getenv("TF_CONFIG");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return ParseCluster(text, "TF_CONFIG");
}

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // Only numeric addresses: a name that begins with "127." may belong to any host.
  in_addr number;
  return absl::StartsWith(host, "127.") &&
         inet_pton(AF_INET, std::string(host).c_str(), &number) == 1;
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const auto refuse = [&](absl::string_view why) {
    return InvalidArgument("address '", EscapedText(address.substr(0, 300)), "' ", why);
  };
  if (absl::StrContains(address, "://")) return refuse("has a scheme; give host:port alone");
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return refuse("has no port; expected host:port");
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return refuse("lacks ']' before the port");
  } else if (absl::StrContains(host, ":")) {
    return refuse("has several ':'; write an IPv6 address in brackets: [::1]:7001");
  }
  if (host.empty()) return refuse("has no host before ':'");
  constexpr size_t kMaxHostBytes = 253;  // RFC 1035
  if (host.size() > kMaxHostBytes) return refuse("has a host of more than 253 bytes");
  for (const char c : host) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c)) ||
        absl::StrContains("[]/\"'", std::string(1, c))) {
      return refuse("has a character in its host that host names do not allow");
    }
  }
  const absl::string_view port_text = address.substr(colon + 1);
  HostPort result;
  const bool digits = !port_text.empty() && std::ranges::all_of(port_text, absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(port_text, &result.port) || result.port > 65535) {
    return refuse(absl::StrCat("has port '", EscapedText(port_text.substr(0, 20)),
                               "'; expected a number from 0 to 65535"));
  }
  result.host = std::string(host);
  return result;
}

std::string HostPortText(absl::string_view host, int32_t port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

}  // namespace cairn
