#include "worker/trainer/checkpoints/checkpoint_folders.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/create_directory.h"
#include "common/status.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kStep = ".step-";
constexpr size_t kStepDigits = 10;
constexpr size_t kAttemptDigits = 8;

std::string PathOf(const std::string& directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

}  // namespace

std::string NewCheckpointName(absl::string_view job, int64_t step) {
  std::random_device random;
  return absl::StrFormat("%s%s%010d-%08x", job, kStep, step, static_cast<uint32_t>(random()));
}

bool IsCheckpointName(absl::string_view job, absl::string_view name) {
  if (!absl::ConsumePrefix(&name, job) || !absl::ConsumePrefix(&name, kStep)) return false;
  if (name.size() < kStepDigits + 1 + kAttemptDigits) return false;
  const size_t dash = name.size() - kAttemptDigits - 1;  // step numbers may outgrow their padding
  return name[dash] == '-' &&
         std::all_of(name.begin(), name.begin() + static_cast<ptrdiff_t>(dash),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }) &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(dash) + 1, name.end(), [](char c) {
           return absl::ascii_isxdigit(static_cast<unsigned char>(c)) &&
                  !absl::ascii_isupper(static_cast<unsigned char>(c));
         });
}

absl::StatusOr<CheckpointFolders> ListCheckpoints(const std::string& directory,
                                                  absl::string_view job) {
  CheckpointFolders folders;
  std::error_code error;
  if (!fs::exists(directory, error) && !error) return folders;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!IsCheckpointName(job, name)) continue;
    absl::StatusOr<CheckpointManifest> manifest =
        CheckpointManifest::ReadFrom(PathOf(directory, name));
    if (manifest.ok() && manifest->name == name && manifest->job == job) {
      folders.finished.push_back(*std::move(manifest));
    } else if (absl::IsNotFound(manifest.status())) {
      folders.unfinished.push_back(name);
    } else {
      folders.damaged.push_back(manifest.ok() ? absl::StrCat(name, " was renamed")
                                              : std::string(manifest.status().message()));
    }
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("listing checkpoints in ", directory));
  }
  std::ranges::sort(folders.finished, [](const CheckpointManifest& a, const CheckpointManifest& b) {
    return std::tie(a.number, a.made, a.name) < std::tie(b.number, b.made, b.name);
  });
  return folders;
}

std::vector<std::string> NotKept(const CheckpointFolders& folders, int64_t keep) {
  const std::vector<CheckpointManifest>& all = folders.finished;
  std::vector<std::string> names;
  for (size_t i = 0; static_cast<int64_t>(i) + keep < static_cast<int64_t>(all.size()); ++i) {
    const bool surpassed =
        std::any_of(all.begin() + static_cast<ptrdiff_t>(i) + 1, all.end(),
                    [&](const CheckpointManifest& later) { return later.step >= all[i].step; });
    if (surpassed) names.push_back(all[i].name);
  }
  return names;
}

std::vector<std::string> UnchangedFor(absl::Duration age, const std::string& directory,
                                      const std::string& newest,
                                      const std::vector<std::string>& unfinished) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::file_time_type now = fs::last_write_time(PathOf(directory, newest), error);
  if (error) return names;
  for (const std::string& name : unfinished) {
    const fs::file_time_type changed = fs::last_write_time(PathOf(directory, name), error);
    if (!error && absl::FromChrono(now - changed) > age) names.push_back(name);
  }
  return names;
}

bool IsFinished(const std::string& folder) {
  std::error_code error;
  return fs::exists(PathOf(folder, CheckpointManifest::kFileName), error) || error;
}

absl::Status RemoveManifest(const std::string& folder) {
  const std::string path = PathOf(folder, CheckpointManifest::kFileName);
  if (unlink(path.c_str()) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("deleting ", path));
  }
  const int error = SyncDirectory(folder);
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(error, absl::StrCat("syncing ", folder));
}

absl::Status RemoveEmptyCheckpoint(const std::string& folder) {
  const std::string part = PathOf(folder, absl::StrCat(CheckpointManifest::kFileName, ".part"));
  if (unlink(part.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("deleting ", part));
  }
  if (rmdir(folder.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("deleting ", folder));
}

}  // namespace cairn
