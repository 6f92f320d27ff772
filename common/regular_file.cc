#include "common/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

// A file of size 0 may be one of /proc, which has contents.
constexpr int64_t kFirstReadBytes = 4096;

absl::Status Failed(int error, absl::string_view what, const std::string& path) {
  const std::string text = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT: return absl::NotFoundError(text);
    case EACCES:
    case EPERM: return PermissionDenied(text, ": let this user read it");
    default: return absl::UnavailableError(text);
  }
}

absl::string_view TypeOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::Status CheckType(const struct stat& found, const std::string& path) {
  if (S_ISREG(found.st_mode)) return absl::OkStatus();
  return FailedPrecondition(path, " is ", TypeOf(found.st_mode), "; a regular file is needed");
}

}  // namespace

absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path) {
  struct stat found = {};
  // Opening a device may have effects, so check the type first, and again afterwards, because the
  // path may have changed in between.
  if (::stat(path.c_str(), &found) != 0) return Failed(errno, "open", path);
  RETURN_IF_ERROR(CheckType(found, path));
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd.get() < 0 || ::fstat(fd.get(), &found) != 0) return Failed(errno, "open", path);
  RETURN_IF_ERROR(CheckType(found, path));
  return RegularFile{std::move(fd), int64_t{found.st_size}};
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  std::string text;
  size_t size = 0;
  // One byte beyond the limit shows that the file is too long.
  const auto most = static_cast<size_t>(max_bytes) + 1;
  while (size < most) {
    const auto wanted = static_cast<size_t>(std::max(file.bytes + 1, kFirstReadBytes));
    if (size == text.size()) text.resize(std::min(most, std::max(wanted, 2 * size)));
    const ssize_t got = ::read(file.fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(errno, "read", path);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size == most) {
    return OutOfRange(path, " has more than the ", max_bytes, " bytes that such a file may have");
  }
  text.resize(size);
  return text;
}

}  // namespace cairn
