// Owners of OpenSSL's objects, and its errors as text. OpenSSL is private to this directory: only
// its internal headers include it.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace cairn {

struct OpensslFree {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
};
template <typename T>
using OpensslPtr = std::unique_ptr<T, OpensslFree>;

// Host names in certificates: only subject alternative names; a wildcard must be a whole label.
inline constexpr unsigned kHostCheckFlags =
    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;
// True for "10.0.0.1" and "::1", which must match a certificate's addresses, not its names.
bool IsIpAddress(const std::string& host);

// Returns the oldest error of this thread's queue, and empties the queue: "bad end line".
std::string TakeOpensslError();

}  // namespace cairn
