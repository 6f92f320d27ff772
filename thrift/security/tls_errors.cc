#include "thrift/security/tls_errors.h"

#include <openssl/err.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/errors.h"
#include "common/time_text.h"
#include "thrift/security/certificate.h"

namespace cairn {
namespace {

int KnownIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// Says why `certificate` is refused, and what to do.
std::string Distrust(const TlsKnown& known, const CertificateFacts& facts, int error) {
  switch (error) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::StrCat("is for ",
                          facts.hosts.empty() ? "no host" : absl::StrJoin(facts.hosts, ", "),
                          ", not for ", known.host,
                          ": name the server in the cluster file as its certificate does, or make "
                          "it one with that name (cairnctl certs)");
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat("expired at ", UtcText(facts.not_after), ", now it is ",
                          UtcText(absl::Now()),
                          ": replace the file by a new one, no restart is needed");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat("is valid from ", UtcText(facts.not_before), " on, now it is ",
                          UtcText(absl::Now()), ": check the clocks of both machines");
    case X509_V_ERR_INVALID_PURPOSE:
      return absl::StrCat("may not be used by a ", known.serves ? "client" : "server",
                          " (its extended key usage): give the one that was made for it");
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return absl::StrCat("is not signed by a CA in --tls_ca ", known.ca, " (",
                          X509_verify_cert_error_string(error),
                          "): both sides need certificates of a CA that the other trusts");
    default: return X509_verify_cert_error_string(error);
  }
}

// Describes the peer's alert from this side's point of view.
absl::Status AlertFailure(const TlsKnown& known, int alert, bool is_handshake) {
  const absl::string_view own =
      known.serves ? "this server's certificate" : "this process's certificate";
  const auto untrusted = [&](absl::string_view what) {
    return Unauthenticated(known.peer, " ", what);
  };
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return untrusted(absl::StrCat(
          "refuses ", own, " (", SSL_alert_desc_string_long(alert), "): ",
          known.serves
              ? "it is perhaps for another host than the client calls; cairnctl doctor looks"
              : "its log says why; cairnctl doctor looks at the files"));
    case SSL_AD_CERTIFICATE_EXPIRED:
      return untrusted(absl::StrCat("says that ", own,
                                    " has expired: replace the file by a new one, "
                                    "no restart is needed"));
    case SSL_AD_UNKNOWN_CA:
      return untrusted(absl::StrCat("does not trust the CA that signed ", own,
                                    ": its --tls_ca must hold that CA's certificate"));
    case SSL_AD_CERTIFICATE_REQUIRED:
      return untrusted("asks for a certificate: give --tls_certificate and --tls_key");
    case SSL_AD_PROTOCOL_VERSION:
      return FailedPrecondition(
          known.peer, known.serves ? " speaks no TLS of version 1.2 or 1.3"
                                   : " does not speak TLS (1.2 or 1.3): start it with "
                                     "--tls_certificate, --tls_key and --tls_ca, or leave them out "
                                     "here");
    case SSL_AD_HANDSHAKE_FAILURE:
      return untrusted(
          "found no terms for TLS (handshake failure): TLS 1.2 without a client "
          "certificate, or no cipher in common");
    case SSL_AD_INTERNAL_ERROR:
      if (is_handshake && !known.serves) {
        return Unavailable(
            known.peer,
            " ended the connection before the handshake: it has too many, of this host "
            "or in all, or is stopping; its log says which");
      }
      break;
    default: break;
  }
  return Unavailable(known.peer, " ended TLS: ", SSL_alert_desc_string_long(alert));
}

}  // namespace

void SetKnown(SSL* ssl, TlsKnown* known) { SSL_set_ex_data(ssl, KnownIndex(), known); }

int NoteVerification(int is_good, X509_STORE_CTX* context) {
  if (is_good == 1) return 1;
  const auto* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(context, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* const known = static_cast<TlsKnown*>(SSL_get_ex_data(ssl, KnownIndex()));
  if (known == nullptr || !known->trust.ok()) return 0;
  const int error = X509_STORE_CTX_get_error(context);
  const X509* const own = X509_STORE_CTX_get0_cert(context);
  const X509* const refused = X509_STORE_CTX_get_current_cert(context);
  if (own == nullptr || refused == nullptr) return 0;
  std::string who = absl::StrCat("its ", FactsOf(own).Text());
  const bool is_date =
      error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
  if (is_date && refused != own) {
    who = absl::StrCat("the ", FactsOf(refused).Text(), ", which signed its own,");
  }
  known->trust =
      Unauthenticated(known->peer, ": ", who, " ", Distrust(*known, FactsOf(refused), error));
  return 0;
}

absl::Status TlsFailure(const TlsKnown& known, bool is_handshake) {
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  const std::string text = TakeOpensslError();
  if (!known.trust.ok()) return known.trust;
  if (reason >= SSL_AD_REASON_OFFSET) {
    return AlertFailure(known, reason - SSL_AD_REASON_OFFSET, is_handshake);
  }
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return Unauthenticated(
          known.peer,
          " sent no certificate: it needs --tls_certificate and --tls_key, signed by a "
          "CA in this server's --tls_ca ",
          known.ca);
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
      return FailedPrecondition(
          known.peer, is_handshake ? " does not speak TLS 1.2 or 1.3 (" : " stopped speaking TLS (",
          text, "): see that both sides are given --tls_certificate, --tls_key and --tls_ca");
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return Unavailable(known.peer, " closed the connection");
    default: return Unavailable("TLS with ", known.peer, ": ", text);
  }
}

}  // namespace cairn
