#include "storage/checkpoint_note.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "storage/directory.h"

namespace cairn {
namespace {

// The oldest directories are forgotten, also those for which a small file has no place.
constexpr size_t kMaxDirectories = 8;

std::string NotePath(const std::string& directory) {
  return absl::StrCat(directory, "/CHECKPOINTS");
}

std::vector<std::string> ReadNote(const std::string& directory) {
  std::vector<std::string> lines;
  const absl::StatusOr<std::string> text = ReadSmallFile(NotePath(directory));
  if (!text.ok()) return lines;
  std::vector<absl::string_view> written = absl::StrSplit(*text, '\n');
  written.pop_back();  // empty; in a file that is too large, a part of a line
  for (const absl::string_view line : written) {
    if (absl::StartsWith(line, "/")) lines.emplace_back(line);
  }
  return lines;
}

// The checkpoint below `directory` with the newest manifest, and the manifest's time.
std::pair<timespec, std::string> Newest(const std::string& directory) {
  std::pair<timespec, std::string> newest;
  const auto names = ListFolder(directory);
  if (!names.ok()) return newest;
  for (const std::string& name : *names) {
    const std::string folder = absl::StrCat(directory, "/", name);
    struct stat manifest {};
    // The worker (worker/trainer/checkpoints/checkpoint_manifest.h) writes this file last.
    if (stat(absl::StrCat(folder, "/MANIFEST.json").c_str(), &manifest) != 0) continue;
    const timespec& at = manifest.st_mtim;
    const timespec& best = newest.first;
    if (newest.second.empty() || at.tv_sec > best.tv_sec ||
        (at.tv_sec == best.tv_sec && at.tv_nsec > best.tv_nsec)) {
      newest = {at, folder};
    }
  }
  return newest;
}

}  // namespace

absl::Status NoteCheckpoints(const std::string& directory, absl::string_view checkpoint_directory) {
  std::vector<std::string> lines = ReadNote(directory);
  if (!lines.empty() && lines.back() == checkpoint_directory) return absl::OkStatus();
  lines.erase(std::remove(lines.begin(), lines.end(), std::string(checkpoint_directory)),
              lines.end());
  lines.emplace_back(checkpoint_directory);
  std::string text = absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
  while (lines.size() > kMaxDirectories || text.size() > kMaxSmallFileBytes) {
    text.erase(0, lines.front().size() + 1);
    lines.erase(lines.begin());
  }
  const std::string path = NotePath(directory);
  RETURN_IF_ERROR(WriteSynced(path + ".new", text));
  if (std::rename((path + ".new").c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", path, ".new"));
  }
  return SyncFolder(directory);
}

std::string RestoreAdvice(const std::string& directory) {
  const std::vector<std::string> noted = ReadNote(directory);
  std::string from = "the job's newest checkpoint, if it has one";
  for (auto at = noted.rbegin(); at != noted.rend(); ++at) {
    if (const std::string folder = Newest(*at).second; !folder.empty()) {
      from = folder;
      break;
    }
    if (at == noted.rbegin()) from = absl::StrCat("the newest checkpoint in ", *at);
  }
  return absl::StrCat("to go on from ", from, ": move ", directory,
                      " away, start every server of the job on an empty data directory, and start "
                      "the workers, which restore it (checkpoint.directory, or checkpoint.restore "
                      "with its directory)");
}

}  // namespace cairn
