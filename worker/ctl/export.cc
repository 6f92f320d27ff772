#include "worker/ctl/job_commands.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "worker/client/ps_client.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/jobs.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"
#include "worker/trainer/files/exporter.h"
#include "worker/trainer/run/in_process_server.h"
#include "worker/trainer/steps/roster.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kVariableTimeout = absl::Minutes(10);
constexpr absl::Duration kConnectTimeout = absl::Minutes(1);

// `config`: the job file, if one was named; null: not known.
absl::StatusOr<Answer> Export(PsClient& client, const std::string& job, const JobConfig* config,
                              const std::string& from, const std::string& file) {
  ASSIGN_OR_RETURN(std::vector<VariableSpec> specs, client.Describe(Deadline::In(kConnectTimeout)));
  // Cairn's own table is not part of any model.
  specs.erase(std::remove_if(specs.begin(), specs.end(),
                             [](const auto& spec) { return spec.name == RosterSpec().name; }),
              specs.end());
  if (specs.empty()) {
    return NotFound("no variable of a job '", job, "' is in ", from, ": is that its name?");
  }
  RETURN_IF_ERROR(ExportVariables(client, specs, {.job = config}, file, kVariableTimeout));
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(file, error));
  std::vector<std::string> names;
  names.reserve(specs.size());
  for (const VariableSpec& spec : specs) names.push_back(spec.name);
  Answer answer;
  answer.json = {{"file", file},
                 {"job", job},
                 {"from", from},
                 {"variables", std::move(names)},
                 {"bytes", error ? 0 : bytes}};
  answer.text = absl::StrCat(file, ": ", specs.size(), " variables of job ", job, ", ",
                             BytesText(error ? 0 : bytes), ", from ", from, "\n");
  return answer;
}

absl::StatusOr<Answer> ExportCheckpoint(const ExportOptions& options) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                   AsBadInput(CheckpointManifest::ReadFrom(options.checkpoint)));
  std::error_code error;
  const fs::path parent =
      options.scratch.empty() ? fs::temp_directory_path(error) : fs::path(options.scratch);
  std::string folder = (parent / "cairn-export.XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("making a directory in ", parent.string(),
                                                   ": name another place by --scratch"));
  }
  const auto remove = absl::MakeCleanup([&] { fs::remove_all(folder, error); });
  JobConfig job;
  job.name = manifest.job;
  job.storage.directory = folder;
  ASSIGN_OR_RETURN(const std::unique_ptr<InProcessServer> server,
                   OpenCheckpoint(job, options.checkpoint, "export"));
  ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> client,
                   server->Connect({.job = job.name}, Deadline::In(kConnectTimeout)));
  return Export(*client, job.name, nullptr, options.checkpoint, options.file);
}

}  // namespace

absl::StatusOr<Answer> RunExport(const ExportOptions& options) {
  RETURN_IF_ERROR(AsBadInput(CheckExportFile(options.file)));
  const TargetOptions& wanted = options.target;
  if (!options.checkpoint.empty()) {
    if (!wanted.cluster_file.empty() || !wanted.servers.empty()) {
      return AsBadInput(absl::InvalidArgumentError(
          "--checkpoint reads files, --cluster and --servers ask servers: give one of them"));
    }
    return ExportCheckpoint(options);
  }
  ASSIGN_OR_RETURN(const Target target, ResolveOnlyJob(wanted));
  ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> client,
                   target.ConnectClient(options.local_transport));
  const JobConfig* const config = target.job_file.has_value() ? &*target.job_file : nullptr;
  return Export(*client, target.job, config, "the servers", options.file);
}

}  // namespace cairn
