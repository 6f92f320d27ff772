// Creates directories whose names survive a loss of power. A new name is durable once the directory
// that contains it has been synced.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace cairn {

// Makes the names in `directory` durable. Returns the system's error, or 0; file systems that
// cannot sync directories need no sync.
int SyncDirectory(const std::string& directory);

// Creates `path`, whose parent exists, unless it is a directory already, and syncs the parent. If
// `path` exists, an unreadable parent is no error: the user that created `path` can sync it.
// EEXIST: another kind of file is there, or a link that leads nowhere.
std::error_code CreateDirectory(const std::filesystem::path& path, mode_t mode = 0777);
// Creates the parents, too.
std::error_code CreateDirectories(const std::filesystem::path& path);

}  // namespace cairn
