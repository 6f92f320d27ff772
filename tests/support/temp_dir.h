// A temporary directory for a test.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// Makes a new directory under $TEST_TMPDIR, or else $TMPDIR, or else /tmp; its destructor removes
// it with all its contents. Aborts if no directory can be made. Thread safety: immutable once made.
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
