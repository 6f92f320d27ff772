#include "thrift/security/tls_stream.h"

#include <openssl/err.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "thrift/security/openssl_ptr.h"
#include "thrift/security/socket_bio.h"
#include "thrift/security/tls_errors.h"

namespace cairn {
namespace {

// The largest plaintext of a record (RFC 8446, 5.1), and as many records as SocketBio can gather
// with their headers and tags.
constexpr size_t kRecordBytes = 16 << 10;
constexpr size_t kBatchBytes = 4 * kRecordBytes;
static_assert(kBatchBytes + 4 * 256 < SocketBio::kGatherBytes);
// How often a waiting handshake checks its deadline.
constexpr absl::Duration kSlice = absl::Seconds(1);

void SetTimeouts(int fd, absl::Duration timeout) {
  const timeval value = absl::ToTimeval(std::max(timeout, absl::Milliseconds(1)));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value));
}

class OpensslStream : public TlsStream {
 public:
  OpensslStream(int fd, TlsKnown known) : bio_(fd), known_(std::move(known)), fd_(fd) {}
  absl::Status Begin(SSL_CTX* context);
  absl::Status Handshake(Deadline deadline);
  absl::StatusOr<Stage> Step(Deadline deadline) override;

  ssize_t Receive(const iovec* parts, size_t count) override;
  ssize_t Send(const iovec* parts, size_t count) override;
  void EndSending() override {
    Farewell();
    ::shutdown(fd_, SHUT_WR);
  }
  void Farewell() override;
  bool PeerHasData() override;
  bool HasBuffered() const override {
    return bio_.holds_bytes() || SSL_has_pending(ssl_.get()) == 1;
  }
  void Park() override { bio_.Park(); }
  absl::Status failure() const override { return failure_; }
  const CertificateFacts& peer_certificate() const override { return peer_certificate_; }
  std::string Terms() const override {
    return absl::StrCat(SSL_get_version(ssl_.get()), " ", SSL_get_cipher_name(ssl_.get()));
  }

 private:
  // One step, which waits for at most kSlice if `waits`.
  absl::StatusOr<Stage> Shake(Deadline deadline, bool waits);
  ssize_t Encrypt(const iovec* parts, size_t count);
  // Evaluates a call that returned `result` <= 0: returns 0, kNotYet or kFailed.
  ssize_t Judge(int result, bool is_handshake);

  SocketBio bio_;
  TlsKnown known_;
  const int fd_;
  OpensslPtr<SSL> ssl_;
  bool established_ = false;
  bool failed_ = false;
  ssize_t unreported_bytes_ = 0;  // passed to TLS, but not completely sent by the socket
  absl::Status failure_;
  CertificateFacts peer_certificate_;
};

absl::Status OpensslStream::Begin(SSL_CTX* context) {
  ssl_.reset(SSL_new(context));  // holds a reference to the context
  BIO* const bio = ssl_ == nullptr ? nullptr : bio_.NewBio();
  if (bio == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  SSL_set_bio(ssl_.get(), bio, bio);  // takes ownership
  SetKnown(ssl_.get(), &known_);
  if (known_.serves) {
    SSL_set_accept_state(ssl_.get());
    return absl::OkStatus();
  }
  SSL_set_connect_state(ssl_.get());
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl_.get());
  bool is_set = false;
  if (IsIpAddress(known_.host)) {
    is_set = X509_VERIFY_PARAM_set1_ip_asc(wanted, known_.host.c_str()) == 1;
  } else {
    X509_VERIFY_PARAM_set_hostflags(wanted, kHostCheckFlags);
    is_set = X509_VERIFY_PARAM_set1_host(wanted, known_.host.data(), known_.host.size()) == 1 &&
             SSL_set_tlsext_host_name(ssl_.get(), known_.host.c_str()) == 1;
  }
  if (is_set) return absl::OkStatus();
  return InvalidArgument(known_.peer, ": \"", known_.host,
                         "\" is not a host name: ", TakeOpensslError());
}

absl::StatusOr<TlsStream::Stage> OpensslStream::Shake(Deadline deadline, bool waits) {
  const absl::Duration left = deadline.RemainingInWait();
  if (left <= absl::ZeroDuration()) {
    failed_ = true;
    return DeadlineExceeded(known_.peer, " did not finish the TLS handshake in time");
  }
  if (bio_.received_bytes() > kMaxHandshakeBytes) {
    failed_ = true;
    return Unauthenticated(known_.peer, " sent more than ", kMaxHandshakeBytes,
                           " bytes (kMaxHandshakeBytes) for one TLS handshake");
  }
  if (waits) SetTimeouts(fd_, std::min(left, kSlice));
  bio_.AllowReads(1, waits);
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    established_ = true;
    const OpensslPtr<X509> certificate(SSL_get1_peer_certificate(ssl_.get()));
    if (certificate != nullptr) peer_certificate_ = FactsOf(certificate.get());
    return Stage::kDone;
  }
  const bool needs_room = SSL_want_write(ssl_.get());
  const ssize_t judged = Judge(result, /*is_handshake=*/true);
  if (judged == kNotYet) return needs_room ? Stage::kNeedsRoom : Stage::kNeedsBytes;
  if (judged == kFailed) return failure_;
  return Unavailable(known_.peer, " closed the connection in the TLS handshake",
                     known_.serves
                         ? ""
                         : ": it is a port without TLS, or has too many connections; its log says "
                           "which");
}

absl::Status OpensslStream::Handshake(Deadline deadline) {
  for (;;) {
    ASSIGN_OR_RETURN(const Stage stage, Shake(deadline, /*waits=*/true));
    if (stage == Stage::kDone) return absl::OkStatus();
  }
}

absl::StatusOr<TlsStream::Stage> OpensslStream::Step(Deadline deadline) {
  return Shake(deadline, /*waits=*/false);
}

ssize_t OpensslStream::Judge(int result, bool is_handshake) {
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return kNotYet;
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  failed_ = true;  // nothing more may be sent, not even a farewell
  if (error == SSL_ERROR_SYSCALL || bio_.error() != 0) {
    ERR_clear_error();
    if (bio_.error() == 0) return 0;
    failure_ = absl::UnavailableError(std::strerror(bio_.error()));
    return kFailed;
  }
  failure_ = TlsFailure(known_, is_handshake);
  (void)bio_.Flush();  // sends the alert with the reason
  const bool is_end = bio_.ended() && absl::IsUnavailable(failure_);
  return is_end ? 0 : kFailed;
}

ssize_t OpensslStream::Receive(const iovec* parts, size_t count) {
  if (!failure_.ok()) return kFailed;  // by PeerHasData
  bio_.AllowReads(1, waits());
  ERR_clear_error();
  ssize_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    auto* to = static_cast<uint8_t*>(parts[i].iov_base);
    size_t left = parts[i].iov_len;
    while (left > 0) {
      size_t got = 0;
      const int result = SSL_read_ex(ssl_.get(), to, left, &got);
      if (result != 1) return total > 0 ? total : Judge(result, /*is_handshake=*/false);
      bio_.AllowReads(0);  // wait only for the first bytes
      total += static_cast<ssize_t>(got);
      to += got;
      left -= got;
    }
  }
  return total;
}

ssize_t OpensslStream::Send(const iovec* parts, size_t count) {
  bio_.AllowReads(1, waits());
  ERR_clear_error();
  if (unreported_bytes_ == 0) {
    const ssize_t taken = Encrypt(parts, count);
    if (taken <= 0) return taken;
    unreported_bytes_ = taken;
  }
  if (bio_.Flush()) return std::exchange(unreported_bytes_, 0);
  if (bio_.error() == 0) return kNotYet;
  failed_ = true;
  failure_ = absl::UnavailableError(std::strerror(bio_.error()));
  return kFailed;
}

// Encrypts at most as many records as SocketBio can gather, so that nothing is sent yet and nothing
// waits.
ssize_t OpensslStream::Encrypt(const iovec* parts, size_t count) {
  ssize_t total = 0;
  size_t room = kBatchBytes;
  for (size_t i = 0; i < count && room > 0; ++i) {
    const auto* from = static_cast<const uint8_t*>(parts[i].iov_base);
    for (size_t left = parts[i].iov_len; left > 0 && room > 0;) {
      size_t took = 0;
      const size_t bytes = std::min({left, kRecordBytes, room});
      const int result = SSL_write_ex(ssl_.get(), from, bytes, &took);
      if (result != 1) return total > 0 ? total : Judge(result, /*is_handshake=*/false);
      total += static_cast<ssize_t>(took);
      from += took;
      left -= took;
      room -= took;
    }
  }
  return total;
}

bool OpensslStream::PeerHasData() {
  bio_.AllowReads(1, /*wait=*/false);
  ERR_clear_error();
  uint8_t byte = 0;
  size_t got = 0;
  const int result = SSL_peek_ex(ssl_.get(), &byte, 1, &got);
  return result == 1 || Judge(result, /*is_handshake=*/false) != kNotYet;
}

void OpensslStream::Farewell() {
  if (!established_ || failed_) return;
  failed_ = true;
  bio_.AllowReads(0, /*wait=*/false);
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  (void)bio_.Flush();
  ERR_clear_error();
}

absl::StatusOr<std::unique_ptr<OpensslStream>> Make(TlsContext& context, int fd, TlsKnown known) {
  known.ca = context.options().tls_ca;
  auto stream = std::make_unique<OpensslStream>(fd, std::move(known));
  RETURN_IF_ERROR(stream->Begin(context.Current().get()));
  return stream;
}

absl::StatusOr<std::unique_ptr<TlsStream>> Shake(TlsContext& context, int fd, TlsKnown known,
                                                 Deadline deadline) {
  ASSIGN_OR_RETURN(std::unique_ptr<OpensslStream> stream, Make(context, fd, std::move(known)));
  RETURN_IF_ERROR(stream->Handshake(deadline));
  return stream;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::Connect(TlsContext& context, int fd,
                                                              const std::string& host,
                                                              const std::string& peer,
                                                              Deadline deadline) {
  return Shake(context, fd, {.peer = peer, .serves = false, .host = host}, deadline);
}

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::Accept(TlsContext& context, int fd,
                                                             const std::string& peer,
                                                             Deadline deadline) {
  return Shake(context, fd, {.peer = peer, .serves = true}, deadline);
}

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::BeginAccept(TlsContext& context, int fd,
                                                                  const std::string& peer) {
  return Make(context, fd, {.peer = peer, .serves = true});
}

}  // namespace cairn
