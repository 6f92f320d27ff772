#include "common/config/job_config.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "common/config/cluster_section.h"
#include "common/config/config_node.h"
#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxNameBytes = 128;  // the name becomes a folder's name

// "a/b.yaml" -> "a/"; "" if the path has no folder.
std::string FolderOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? "" : std::string(path.substr(0, slash + 1));
}

// "a/b.yaml" -> "b".
std::string StemOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  absl::string_view name = slash == absl::string_view::npos ? path : path.substr(slash + 1);
  for (const absl::string_view suffix : {".yaml", ".yml", ".json"}) {
    if (absl::ConsumeSuffix(&name, suffix)) break;
  }
  return std::string(name);
}

absl::Status CheckName(const ConfigNode& root, const JobConfig& job) {
  const bool good = !job.name.empty() && job.name.size() <= kMaxNameBytes && job.name[0] != '.' &&
                    std::ranges::all_of(job.name, [](unsigned char c) {
                      return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
                    });
  if (good) return absl::OkStatus();
  return JobError(root, "name",
                  absl::StrCat("is '", job.name.substr(0, kMaxNameBytes),
                               "'; expected 1 to 128 of the characters A-Z a-z 0-9 _ - . that do "
                               "not begin with '.' (default: the file's name)"));
}

absl::Status ReadRoot(const ConfigNode& root, const JobOptions& options, JobConfig* job) {
  using Reader = absl::Status (*)(const ConfigNode&, const std::string&, JobConfig*);
  const auto section = [job](absl::string_view key, Reader read) {
    return Custom(key, [job, read](const ConfigNode& value, const std::string& path) {
      return read(value, path, job);
    });
  };
  const auto later = [](const ConfigNode&, const std::string&) { return absl::OkStatus(); };
  RETURN_IF_ERROR(
      ReadSection(root, "",
                  {Text("name", &job->name), section("model", ReadModel),
                   Custom("data",
                          [&](const ConfigNode& value, const std::string& path) {
                            return ReadData(value, path, FolderOf(job->path), options, &job->data);
                          }),
                   section("optimizer", ReadOptimizer), section("strategy", ReadStrategy),
                   section("storage", ReadStorage), section("checkpoint", ReadCheckpoint),
                   section("evaluation", ReadEvaluation), section("output", ReadOutput),
                   Custom("cluster", later), Custom("task", later)}));
  job->has_cluster = root.Find("cluster") != nullptr;
  return ReadClusterSections(root, &job->cluster);
}

}  // namespace

absl::Status JobError(const ConfigNode& root, absl::string_view path, absl::string_view why) {
  return InvalidArgument(WhereOf(root, path), ": ", path, ": ", why);
}

namespace {

absl::StatusOr<JobConfig> Parse(absl::string_view text, absl::string_view source,
                                const JobOptions& options) {
  ASSIGN_OR_RETURN(ConfigNode root, ParseTree(text, source));
  for (const std::string& override_text : options.overrides) {
    RETURN_IF_ERROR(ApplyOverride(override_text, &root));
  }
  JobConfig job;
  job.path = std::string(source);
  job.name = StemOf(source);
  RETURN_IF_ERROR(ReadRoot(root, options, &job));
  RETURN_IF_ERROR(CheckName(root, job));
  RETURN_IF_ERROR(FinishModel(root, &job));
  RETURN_IF_ERROR(FinishData(root, &job));
  RETURN_IF_ERROR(CheckKeyUses(root, &job));
  FinishOptimizer(&job);
  RETURN_IF_ERROR(FinishStrategy(root, &job));
  return job;
}

}  // namespace

absl::StatusOr<JobConfig> ParseJob(absl::string_view text, absl::string_view source,
                                   const JobOptions& options) {
  absl::StatusOr<JobConfig> job = Parse(text, source, options);
  if (!job.ok()) return PrintableStatus(job.status());  // the message quotes the file
  for (std::string& warning : job->warnings) warning = PrintableText(warning);
  return job;
}

absl::StatusOr<JobConfig> ReadJobFile(const std::string& path, const JobOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return ParseJob(text, path, options);
}

}  // namespace cairn
