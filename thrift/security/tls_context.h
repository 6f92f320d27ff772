// The TLS settings of a process: its certificate, its key and whom it trusts, read again when their
// files change. TLS 1.3 and 1.2, AEAD ciphers with forward secrecy, certificates on both sides, no
// session is resumed (so every connection is judged by what is true now).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/security_options.h"

struct ssl_ctx_st;

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class TlsContext {
 public:
  enum class Side { kServer, kClient };

  virtual ~TlsContext() = default;

  // kNotFound, kInvalidArgument, kFailedPrecondition: a file is missing, is no PEM, does not fit
  // the others, or is a key that everybody can read; the message names flag and file.
  static absl::StatusOr<std::shared_ptr<TlsContext>> Load(const SecurityOptions& options,
                                                          Side side);

  // As the files are now: looked at by every call, for every new connection. Where what changed
  // cannot be read (half of it is written yet), the last good one, and a line in the log.
  virtual std::shared_ptr<ssl_ctx_st> Current() = 0;
  virtual const SecurityOptions& options() const = 0;
};

}  // namespace cairn
