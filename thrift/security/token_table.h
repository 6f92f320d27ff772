// The tokens that a server accepts: a file, read again when it changes.
//
//   # TOKEN ROLE[,ROLE...] [NAME]
//   2f1d0c7b9a6e4f53 reader grafana
//
// Tokens have 16 … 512 bytes and no spaces. The file must not be readable by others. An empty file
// is an error, because a program that rewrites the file may have truncated it a moment before; a
// comment line is a valid file without tokens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "thrift/security/file_stamp.h"
#include "thrift/security/roles.h"

namespace cairn {

// SHA-256 of a token. Only digests are kept and compared, so that neither length nor time reveals
// anything.
using TokenDigest = std::array<uint8_t, 32>;
TokenDigest DigestOf(absl::string_view token);

// Thread safety: every method may be called from several threads at once.
class TokenTable {
 public:
  // kFailedPrecondition: others can read the file, or it is not a regular file. kInvalidArgument
  // (with the line). Other errors as ReadRegularFile. The message names the file, never a token.
  static absl::StatusOr<std::shared_ptr<TokenTable>> Load(const std::string& path);

  // Checks the file for changes. The version changes with the tokens. If the changed file cannot be
  // used (or is gone), the last valid tokens stay in use, which is logged.
  int64_t Version();
  // Compares with every token in constant time. Checks the file for changes.
  std::optional<PeerIdentity> Find(const TokenDigest& digest);

  const std::string& path() const { return path_; }

 private:
  struct Entry {
    TokenDigest digest;
    PeerIdentity identity;
  };

  explicit TokenTable(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<std::vector<Entry>> Read() const;
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  absl::Mutex mutex_;
  FileStamp stamp_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
