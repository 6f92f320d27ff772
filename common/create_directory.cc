#include "common/create_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/descriptor.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// Empty: the working directory.
fs::path ParentOf(const fs::path& path) {
  // The slash makes `path` the parent, whether or not it ends with a slash itself.
  return (path / "").lexically_normal().parent_path().parent_path();
}

}  // namespace

int SyncDirectory(const std::string& directory) {
  const Descriptor fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return errno;
  return fsync(fd.get()) == 0 || errno == EINVAL ? 0 : errno;
}

std::error_code CreateDirectory(const fs::path& path, mode_t mode) {
  const bool made = mkdir(path.c_str(), mode) == 0;
  const int unmade = made ? 0 : errno;
  std::error_code unknown;
  if (!made && !fs::is_directory(path, unknown)) return {unmade, std::generic_category()};
  const fs::path parent = ParentOf(path);
  const int failed = SyncDirectory(parent.empty() ? "." : parent.string());
  const bool refused = failed == EACCES || failed == EPERM || failed == EROFS;
  if (failed == 0 || (refused && !made)) return {};
  return {failed, std::generic_category()};
}

std::error_code CreateDirectories(const fs::path& path) {
  const fs::path parent = ParentOf(path);
  std::error_code unknown;
  if (!parent.empty() && !fs::exists(parent, unknown)) {
    if (const std::error_code error = CreateDirectories(parent)) return error;
  }
  return CreateDirectory(path);
}

}  // namespace cairn
