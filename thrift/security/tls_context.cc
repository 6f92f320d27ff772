#include "thrift/security/tls_context.h"

#include <utility>

#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "thrift/security/certificate.h"
#include "thrift/security/openssl_ptr.h"
#include "thrift/security/tls_errors.h"

namespace cairn {
namespace {

constexpr char kCiphers13[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr char kCiphers12[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

absl::Status Refused(absl::string_view flag, const std::string& path) {
  return InvalidArgument("--", flag, " ", path, " cannot be used: ", TakeOpensslError());
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> Make(const SecurityOptions& options,
                                              TlsContext::Side side) {
  RETURN_IF_ERROR(Annotate(ReadCertificate(options.tls_ca).status(), "--tls_ca"));
  RETURN_IF_ERROR(CheckSecretFile(options.tls_key, "tls_key"));
  RETURN_IF_ERROR(CheckKeyMatches(options.tls_certificate, options.tls_key));
  const bool serves = side == TlsContext::Side::kServer;
  const std::shared_ptr<SSL_CTX> context(
      SSL_CTX_new(serves ? TLS_server_method() : TLS_client_method()), OpensslFree());
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_mode(raw, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN);
  if (SSL_CTX_set_ciphersuites(raw, kCiphers13) != 1 ||
      SSL_CTX_set_cipher_list(raw, kCiphers12) != 1) {
    return Internal("TLS ciphers: ", TakeOpensslError());
  }
  if (SSL_CTX_use_certificate_chain_file(raw, options.tls_certificate.c_str()) != 1) {
    return Refused("tls_certificate", options.tls_certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(raw, options.tls_key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Refused("tls_key", options.tls_key);
  }
  if (SSL_CTX_load_verify_file(raw, options.tls_ca.c_str()) != 1) {
    return Refused("tls_ca", options.tls_ca);
  }
  // A private CA may itself be signed by a CA that must not be trusted here.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(raw), X509_V_FLAG_PARTIAL_CHAIN);
  if (serves) {
    // Takes ownership of the list. Clients use it to choose the certificate that they send.
    SSL_CTX_set_client_CA_list(raw, SSL_load_client_CA_file(options.tls_ca.c_str()));
  }
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, &NoteVerification);
  return context;
}

}  // namespace

TlsContext::Stamps TlsContext::StampsNow() const {
  return {FileStamp::Of(options_.tls_certificate), FileStamp::Of(options_.tls_key),
          FileStamp::Of(options_.tls_ca)};
}

absl::Status TlsContext::Reload(const Stamps& stamps) {
  ASSIGN_OR_RETURN(std::shared_ptr<SSL_CTX> made, Make(options_, side_));
  current_ = std::move(made);
  loaded_ = stamps;
  return absl::OkStatus();
}

std::shared_ptr<SSL_CTX> TlsContext::Current() {
  const absl::MutexLock lock(&mutex_);
  const Stamps stamps = StampsNow();
  if (stamps == loaded_) return current_;
  const absl::Status status = Reload(stamps);
  if (status.ok()) {
    LOG(INFO) << "TLS: new connections use the changed files, " << options_.tls_certificate;
  } else {
    LOG_EVERY_T(ERROR, 10) << "TLS: the files changed and cannot be used; the earlier ones stay "
                              "in use until they can: "
                           << status.message();
  }
  return current_;
}

absl::StatusOr<std::shared_ptr<TlsContext>> TlsContext::Load(const SecurityOptions& options,
                                                             Side side) {
  RETURN_IF_ERROR(options.Validate());
  std::shared_ptr<TlsContext> context(new TlsContext(options, side));
  const absl::MutexLock lock(&context->mutex_);
  RETURN_IF_ERROR(context->Reload(context->StampsNow()));
  return context;
}

}  // namespace cairn
