#include "worker/trainer/joint/group_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/collective/gather_values.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr size_t kWordBytes = sizeof(int32_t);
constexpr size_t kChunkBytes = 4 << 20;

// Collectives move words, not bytes.
int64_t WordsFor(size_t bytes) {
  return static_cast<int64_t>((bytes + kWordBytes - 1) / kWordBytes);
}

absl::Status BroadcastText(CollectiveGroup& group, int root, std::string* text,
                           absl::Duration timeout) {
  auto bytes = static_cast<int64_t>(text->size());
  RETURN_IF_ERROR(group.Broadcast(root, {DType::kInt64, &bytes, 1}, Deadline::In(timeout)));
  std::vector<int32_t> words(static_cast<size_t>(WordsFor(static_cast<size_t>(bytes))));
  if (group.rank() == root) std::memcpy(words.data(), text->data(), text->size());
  RETURN_IF_ERROR(group.Broadcast(root,
                                  {DType::kInt32, words.data(), static_cast<int64_t>(words.size())},
                                  Deadline::In(timeout)));
  text->assign(reinterpret_cast<const char*>(words.data()), static_cast<size_t>(bytes));
  return absl::OkStatus();
}

struct NamedFile {
  std::string name;  // relative to the directory
  int64_t bytes = 0;
};

absl::StatusOr<std::vector<NamedFile>> FilesIn(const std::string& folder) {
  std::vector<NamedFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    files.push_back({at->path().lexically_relative(folder).string(),
                     static_cast<int64_t>(at->file_size(error))});
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("listing ", folder));
  std::ranges::sort(files, [](const NamedFile& a, const NamedFile& b) { return a.name < b.name; });
  return files;
}

std::string ListText(const std::vector<NamedFile>& files) {
  std::string text;
  for (const NamedFile& file : files) absl::StrAppend(&text, file.bytes, " ", file.name, "\n");
  return text;
}

// kDataLoss: not the output of ListText, or a name that leads out of the directory.
absl::StatusOr<std::vector<NamedFile>> ReadList(const std::string& text) {
  std::vector<NamedFile> files;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    NamedFile file = {std::string(parts.second), 0};
    const bool inside =
        !file.name.empty() && file.name[0] != '/' && !absl::StrContains(file.name, "..");
    if (!inside || !absl::SimpleAtoi(parts.first, &file.bytes) || file.bytes < 0) {
      return DataLoss("another worker sends a file as '", line, "'");
    }
    files.push_back(std::move(file));
  }
  return files;
}

// The root sends the file `path`; the others write it, unless `path` is empty.
absl::Status BroadcastFile(CollectiveGroup& group, int root, const std::string& path, int64_t bytes,
                           absl::Duration timeout) {
  const bool sends = group.rank() == root;
  std::fstream file;
  const auto check = [&] {
    if (path.empty() || file.good()) return absl::OkStatus();
    return absl::ErrnoToStatus(errno == 0 ? EIO : errno,
                               absl::StrCat(sends ? "reading " : "writing ", path));
  };
  if (!path.empty()) {
    std::error_code error;
    if (!sends) fs::create_directories(fs::path(path).parent_path(), error);
    file.open(path, (sends ? std::ios::in : std::ios::out | std::ios::trunc) | std::ios::binary);
  }
  std::vector<int32_t> words(
      static_cast<size_t>(WordsFor(std::min(kChunkBytes, static_cast<size_t>(bytes)))));
  char* const chunk = reinterpret_cast<char*>(words.data());
  for (auto left = static_cast<size_t>(bytes); left > 0;) {
    const size_t now = std::min(left, kChunkBytes);
    if (sends) file.read(chunk, static_cast<std::streamsize>(now));
    RETURN_IF_ERROR(check());
    RETURN_IF_ERROR(
        group.Broadcast(root, {DType::kInt32, words.data(), WordsFor(now)}, Deadline::In(timeout)));
    if (!sends && !path.empty()) file.write(chunk, static_cast<std::streamsize>(now));
    left -= now;
  }
  if (!path.empty()) file.close();
  return check();
}

absl::Status Broadcast(CollectiveGroup& group, int root, const std::string& folder,
                       absl::Duration timeout) {
  const bool sends = group.rank() == root;
  std::string text;
  if (sends) {
    ASSIGN_OR_RETURN(const std::vector<NamedFile> own, FilesIn(folder));
    text = ListText(own);
  }
  RETURN_IF_ERROR(BroadcastText(group, root, &text, timeout));
  ASSIGN_OR_RETURN(const std::vector<NamedFile> files, ReadList(text));
  for (const NamedFile& file : files) {
    const std::string path = folder.empty() ? "" : absl::StrCat(folder, "/", file.name);
    RETURN_IF_ERROR(BroadcastFile(group, root, path, file.bytes, timeout));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GatherTexts(CollectiveGroup& group, absl::string_view text,
                                                     absl::Duration timeout) {
  const auto ranks = static_cast<size_t>(group.size());
  const auto own_bytes = static_cast<int64_t>(text.size());
  std::vector<int64_t> bytes(ranks);
  RETURN_IF_ERROR(group.AllGather({DType::kInt64, &own_bytes, 1},
                                  {DType::kInt64, bytes.data(), group.size()},
                                  Deadline::In(timeout)));
  std::vector<int32_t> own(static_cast<size_t>(WordsFor(text.size())));
  if (!text.empty()) std::memcpy(own.data(), text.data(), text.size());
  std::vector<int32_t> all;
  RETURN_IF_ERROR(GatherValues(group, own, &all, Deadline::In(timeout)));
  std::vector<std::string> texts;
  const int32_t* at = all.data();
  for (const int64_t length : bytes) {
    texts.emplace_back(reinterpret_cast<const char*>(at), static_cast<size_t>(length));
    at += WordsFor(static_cast<size_t>(length));
  }
  return texts;
}

absl::Status BroadcastFolder(CollectiveGroup& group, int root, const std::string& folder,
                             absl::Duration timeout) {
  absl::Status status = Broadcast(group, root, folder, timeout);
  group.Abort(status);
  return status;
}

}  // namespace cairn
