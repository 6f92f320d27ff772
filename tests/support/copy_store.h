// Copies the directory of an open store in its current state.
#pragma once

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>

namespace cairn::test {

inline std::set<std::string> FilesIn(const std::string& folder) {
  namespace fs = std::filesystem;
  std::set<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    names.insert(at->path().string());
  }
  return names;
}

// RocksDB's background work must not create or remove a file in the meantime. Throws on any error,
// which fails the test.
inline void CopyStore(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  for (int tries = 0; tries < 1000; ++tries) {
    const std::set<std::string> before = FilesIn(from);
    std::error_code failed;
    fs::copy(from, to, fs::copy_options::recursive, failed);
    if (!failed && FilesIn(from) == before) return;
    fs::remove_all(to);
  }
  throw std::runtime_error("files come and go in " + from);
}

}  // namespace cairn::test
