// list and verify: checkpoints as files.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "worker/ctl/data_directory.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/job_commands.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr absl::string_view kByOperator = ".kept-";

int64_t BytesOf(const CheckpointManifest& manifest) {
  int64_t bytes = 0;
  for (const ServerCheckpoint& server : manifest.servers) {
    for (const CheckpointFile& file : server.files) bytes += file.bytes;
  }
  return bytes;
}

struct Found {
  std::vector<std::pair<std::string, CheckpointManifest>> finished;  // with their directories
  std::vector<std::string> unfinished;  // directories with parts of servers but no manifest
  std::vector<std::string> corrupt;     // why each is corrupt
};

bool HasParts(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (absl::StartsWith(at->path().filename().string(), "ps-")) return true;
  }
  return false;
}

absl::StatusOr<Found> Look(const std::string& directory) {
  Found found;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string folder = at->path().string();
    if (!at->is_directory(error)) continue;
    absl::StatusOr<CheckpointManifest> manifest = CheckpointManifest::ReadFrom(folder);
    if (manifest.ok()) {
      found.finished.emplace_back(folder, *std::move(manifest));
    } else if (!absl::IsNotFound(manifest.status())) {
      found.corrupt.emplace_back(manifest.status().message());
    } else if (HasParts(at->path())) {
      found.unfinished.push_back(folder);
    }
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("listing checkpoints in ", directory));
  }
  std::ranges::sort(found.finished, [](const auto& a, const auto& b) {
    return std::tie(a.second.job, a.second.made, a.second.number, a.first) <
           std::tie(b.second.job, b.second.made, b.second.number, b.first);
  });
  std::ranges::sort(found.unfinished);
  return found;
}

absl::Status FillFromJob(CheckpointListOptions* options) {
  if (!options->job.empty()) {
    Target target;
    RETURN_IF_ERROR(ResolveJob(options->job, &target));
    options->job = target.job;
    if (options->directory.empty() && target.job_file.has_value()) {
      options->directory = target.job_file->checkpoint.directory;
    }
  }
  if (!options->directory.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "no checkpoint directory: name one, or give --job FILE, a job file with "
      "checkpoint.directory");
}

Json SummaryJson(const std::string& folder, const CheckpointManifest& manifest) {
  return {{"folder", folder},
          {"job", manifest.job},
          {"step", manifest.step},
          {"finished_run", manifest.finished},
          {"made", manifest.made},
          {"seconds", manifest.seconds},
          {"servers", manifest.servers.size()},
          {"bytes", BytesOf(manifest)},
          {"kept_by_operator", absl::StrContains(manifest.name, kByOperator)}};
}

// The result of verifying one checkpoint's files.
struct Verified {
  int64_t files = 0;
  int64_t bytes = 0;
  std::vector<std::string> wrong;
};

void VerifyServer(const std::string& folder, const ServerCheckpoint& server, Verified* verified) {
  if (server.files.empty()) return;  // the server had left the cluster: it has no part
  // The parts are looked for beside the manifest, since the checkpoint may have been moved.
  const std::string part = absl::StrCat(folder, "/ps-", server.server);
  std::error_code error;
  if (!fs::exists(part, error) && !error) {
    verified->wrong.push_back(absl::StrCat(part, " is not here; ps:", server.server,
                                           " wrote it on ", server.host,
                                           ": verify it there, or copy it here"));
    return;
  }
  for (const CheckpointFile& file : server.files) {
    const absl::Status status = VerifyFile(part, file);
    ++verified->files;
    verified->bytes += file.bytes;
    if (!status.ok()) verified->wrong.emplace_back(status.message());
  }
}

void ReportCheckpoint(const std::string& folder, const CheckpointManifest& manifest, Json* list,
                      std::string* text, size_t* wrong) {
  Verified verified;
  for (const ServerCheckpoint& server : manifest.servers) VerifyServer(folder, server, &verified);
  Json json = SummaryJson(folder, manifest);
  json["files"] = verified.files;
  json["ok"] = verified.wrong.empty();
  json["wrong"] = verified.wrong;
  list->push_back(std::move(json));
  absl::StrAppend(text, folder, ": ", verified.wrong.empty() ? "intact" : "CORRUPT", ", step ",
                  manifest.step, ", ", verified.files, " files of ", manifest.servers.size(),
                  " servers, ", BytesText(verified.bytes), "\n");
  for (const std::string& why : verified.wrong) absl::StrAppend(text, "  ", why, "\n");
  *wrong += verified.wrong.size();
}

}  // namespace

absl::StatusOr<Answer> ListCheckpointsOf(const CheckpointListOptions& given) {
  CheckpointListOptions options = given;
  if (const absl::Status filled = FillFromJob(&options); !filled.ok()) return AsBadInput(filled);
  ASSIGN_OR_RETURN(const Found found, AsBadInput(Look(options.directory)));
  Answer answer;
  Json checkpoints = Json::array();
  TextTable table({"job", "step", "made", "servers", "size", "", "directory"});
  for (const auto& [folder, manifest] : found.finished) {
    if (!options.job.empty() && manifest.job != options.job) continue;
    Json json = SummaryJson(folder, manifest);
    const bool kept = json["kept_by_operator"].get<bool>();
    checkpoints.push_back(std::move(json));
    table.Add({manifest.job, absl::StrCat(manifest.step), manifest.made,
               absl::StrCat(manifest.servers.size()), BytesText(BytesOf(manifest)),
               kept                ? "kept"
               : manifest.finished ? "end of run"
                                   : "",
               folder});
  }
  answer.text = table.empty() ? absl::StrCat("no finished checkpoint in ", options.directory, "\n")
                              : table.Text(0);
  for (const std::string& folder : found.unfinished) {
    absl::StrAppend(&answer.text, "unfinished: ", folder, "\n");
  }
  for (const std::string& why : found.corrupt) {
    absl::StrAppend(&answer.text, "corrupt: ", why, "\n");
  }
  answer.json = {{"directory", options.directory},
                 {"checkpoints", std::move(checkpoints)},
                 {"unfinished", found.unfinished},
                 {"corrupt", found.corrupt},
                 {"damaged", found.corrupt}};  // the earlier name of the key
  return answer;
}

absl::StatusOr<Answer> VerifyCheckpoints(const std::string& folder) {
  Answer answer;
  Json list = Json::array();
  size_t wrong = 0;
  const absl::StatusOr<CheckpointManifest> one = CheckpointManifest::ReadFrom(folder);
  if (one.ok()) {
    ReportCheckpoint(folder, *one, &list, &answer.text, &wrong);
  } else if (!absl::IsNotFound(one.status())) {
    answer.text = absl::StrCat(one.status().message(), "\n");
    list.push_back({{"folder", folder},
                    {"ok", false},
                    {"wrong", Json::array({std::string(one.status().message())})}});
    wrong = 1;
  } else {
    ASSIGN_OR_RETURN(const Found found, AsBadInput(Look(folder)));
    if (found.finished.empty() && found.corrupt.empty()) {
      return AsBadInput(
          NotFound(folder, " is no finished checkpoint (no ", CheckpointManifest::kFileName,
                   ") and holds none: cairnctl checkpoint list DIR lists the existing ones"));
    }
    for (const auto& [path, manifest] : found.finished) {
      ReportCheckpoint(path, manifest, &list, &answer.text, &wrong);
    }
    for (const std::string& why : found.corrupt) {
      absl::StrAppend(&answer.text, why, "\n");
      list.push_back({{"ok", false}, {"wrong", Json::array({why})}});
    }
    wrong += found.corrupt.size();
  }
  answer.json = {{"ok", wrong == 0}, {"checkpoints", std::move(list)}};
  if (wrong > 0) {
    answer.problem =
        DataLoss(wrong, wrong == 1 ? " file is" : " files are",
                 " corrupt or missing: restore another checkpoint, or bring the files back from a "
                 "copy");
  }
  return answer;
}

}  // namespace cairn
