// The TLS settings of a process: its certificate, its key and the trusted CAs, read again when
// their files change. TLS 1.3 and 1.2, AEAD ciphers with forward secrecy, certificates on both
// sides. Sessions are not resumed, so that every connection is verified with the current files.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/config/security_options.h"
#include "thrift/security/file_stamp.h"

struct ssl_ctx_st;

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class TlsContext {
 public:
  enum class Side { kServer, kClient };

  // kNotFound, kInvalidArgument, kFailedPrecondition: a file is missing, is not PEM, does not match
  // the others, or is a key that other users can read; the message names flag and file.
  static absl::StatusOr<std::shared_ptr<TlsContext>> Load(const SecurityOptions& options,
                                                          Side side);

  // The settings from the current files, which every call checks for changes; call it for every new
  // connection. If changed files cannot be read (for example, half written), returns the last valid
  // settings and logs it.
  std::shared_ptr<ssl_ctx_st> Current();
  const SecurityOptions& options() const { return options_; }

 private:
  using Stamps = std::array<FileStamp, 3>;

  TlsContext(SecurityOptions options, Side side) : options_(std::move(options)), side_(side) {}
  Stamps StampsNow() const;
  absl::Status Reload(const Stamps& stamps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SecurityOptions options_;
  const Side side_;
  absl::Mutex mutex_;
  std::shared_ptr<ssl_ctx_st> current_ ABSL_GUARDED_BY(mutex_);
  Stamps loaded_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
