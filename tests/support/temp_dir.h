// A folder of a test's own.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// Makes a new folder under $TEST_TMPDIR, else $TMPDIR, else /tmp; its destructor removes it with
// everything in it. Aborts where none can be made. Thread safety: immutable once made.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // "path/name".
  std::string Join(absl::string_view name) const;

 private:
  std::string path_;
};

}  // namespace cairn
