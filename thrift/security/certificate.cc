#include "thrift/security/certificate.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "thrift/security/openssl_ptr.h"

namespace cairn {
namespace {

constexpr absl::string_view kRoleUri = "cairn:role:";

// Texts are printable: anybody can make a certificate, and its facts are shown on terminals before
// it is trusted.
std::string CommonName(const X509_NAME* name) {
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at < 0) return "";
  const ASN1_STRING* const text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
  unsigned char* utf8 = nullptr;
  const int bytes = ASN1_STRING_to_UTF8(&utf8, text);
  if (bytes < 0) return "";
  std::string found = PrintableText({reinterpret_cast<char*>(utf8), static_cast<size_t>(bytes)});
  OPENSSL_free(utf8);
  return found;
}

std::string TextOf(const ASN1_STRING* text) {
  return PrintableText({reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                        static_cast<size_t>(ASN1_STRING_length(text))});
}

std::string AddressText(const ASN1_STRING* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const int family = ASN1_STRING_length(address) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(address) != 16) return "";
  inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof(text));
  return text;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

void AddName(const GENERAL_NAME& name, CertificateFacts* facts) {
  if (name.type == GEN_DNS) {
    facts->hosts.push_back(TextOf(name.d.dNSName));
  } else if (name.type == GEN_IPADD) {
    facts->hosts.push_back(AddressText(name.d.iPAddress));
  } else if (name.type == GEN_URI) {
    const std::string uri = TextOf(name.d.uniformResourceIdentifier);
    absl::string_view role = uri;
    if (!absl::ConsumePrefix(&role, kRoleUri)) return;
    const RoleSet known = RoleFromName(role);
    facts->roles |= known;
    if (known == 0) facts->unknown_roles.push_back(uri);
  }
}

absl::StatusOr<OpensslPtr<BIO>> Open(const std::string& path) {
  OpensslPtr<BIO> file(BIO_new_file(path.c_str(), "r"));
  if (file != nullptr) return file;
  const int error = errno;
  TakeOpensslError();
  return NotFound(path, ": ", std::strerror(error));
}

// Reads all certificates of a PEM file, at least one.
absl::StatusOr<std::vector<OpensslPtr<X509>>> ReadAll(const std::string& path) {
  ASSIGN_OR_RETURN(const OpensslPtr<BIO> file, Open(path));
  std::vector<OpensslPtr<X509>> found;
  while (X509* const one = PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(one);
  }
  const std::string error = TakeOpensslError();
  if (!found.empty()) return found;
  return InvalidArgument(path, ": no certificate in PEM is in it (", error, ")");
}

// Rejects private keys with a password instead of asking for it.
int NoPassword(char* /*to*/, int /*size*/, int /*is_writing*/, void* /*data*/) { return -1; }

}  // namespace

bool IsIpAddress(const std::string& host) {
  in6_addr address = {};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

std::string CertificateFacts::Text() const {
  return absl::StrCat("certificate \"", name, "\" of \"", issuer, "\"");
}

CertificateFacts FactsOf(const X509* certificate) {
  CertificateFacts facts;
  facts.name = CommonName(X509_get_subject_name(certificate));
  facts.issuer = CommonName(X509_get_issuer_name(certificate));
  facts.not_before = TimeOf(X509_get0_notBefore(certificate));
  facts.not_after = TimeOf(X509_get0_notAfter(certificate));
  auto* const mutable_certificate = const_cast<X509*>(certificate);  // it caches parsed fields
  const uint32_t usage = X509_get_extended_key_usage(mutable_certificate);  // all bits: none given
  facts.serves = (usage & (XKU_SSL_SERVER | XKU_ANYEKU)) != 0;
  facts.connects = (usage & (XKU_SSL_CLIENT | XKU_ANYEKU)) != 0;
  const OpensslPtr<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (names != nullptr) {
    for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
      AddName(*sk_GENERAL_NAME_value(names.get(), i), &facts);
    }
  }
  if (facts.name.empty() && !facts.hosts.empty()) facts.name = facts.hosts.front();
  return facts;
}

absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& path) {
  ASSIGN_OR_RETURN(const auto certificates, ReadAll(path));
  return FactsOf(certificates.front().get());
}

absl::Status CheckKeyMatches(const std::string& certificate_path, const std::string& key_path) {
  ASSIGN_OR_RETURN(const auto certificates, ReadAll(certificate_path));
  ASSIGN_OR_RETURN(const OpensslPtr<BIO> file, Open(key_path));
  const OpensslPtr<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(file.get(), nullptr, &NoPassword, nullptr));
  if (key == nullptr) {
    return InvalidArgument(key_path, ": no private key in PEM without a password is in it (",
                           TakeOpensslError(), ")");
  }
  if (X509_check_private_key(certificates.front().get(), key.get()) == 1) return absl::OkStatus();
  TakeOpensslError();
  return InvalidArgument(key_path, " is not the key of ",
                         FactsOf(certificates.front().get()).Text(), " in ", certificate_path,
                         ": give the pair that was made together");
}

absl::Status CheckSignedBy(const std::string& certificate_path, const std::string& ca_path) {
  ASSIGN_OR_RETURN(const auto certificates, ReadAll(certificate_path));
  ASSIGN_OR_RETURN(const auto authorities, ReadAll(ca_path));
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> store(X509_STORE_new(),
                                                                      &X509_STORE_free);
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(
      X509_STORE_CTX_new(), &X509_STORE_CTX_free);
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  if (store == nullptr || context == nullptr || between == nullptr) {
    return absl::ResourceExhaustedError("no memory for certificates");
  }
  for (const auto& one : authorities) X509_STORE_add_cert(store.get(), one.get());
  for (const auto& one : certificates) sk_X509_push(between.get(), one.get());
  X509* const first = certificates.front().get();
  if (X509_STORE_CTX_init(context.get(), store.get(), first, between.get()) != 1) {
    return absl::InternalError(TakeOpensslError());
  }
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME | X509_V_FLAG_PARTIAL_CHAIN);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  TakeOpensslError();
  return InvalidArgument(FactsOf(first).Text(), " in ", certificate_path,
                         " is not signed by a CA in ", ca_path, ": ",
                         X509_verify_cert_error_string(error));
}

absl::Status CheckSecretFile(const std::string& path, absl::string_view flag) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) {
    return NotFound("--", flag, " ", path, ": ", std::strerror(errno));
  }
  if ((found.st_mode & (S_IRWXO)) == 0) return absl::OkStatus();
  return FailedPrecondition("--", flag, " ", path, " has mode ",
                            absl::StrFormat("%04o", found.st_mode & 07777),
                            ", so everybody on this machine has the secret in it: chmod 0600 ",
                            path, ", and make a new secret if others use the machine");
}

absl::StatusOr<bool> IsForHost(const std::string& certificate_path, const std::string& host) {
  ASSIGN_OR_RETURN(const auto certificates, ReadAll(certificate_path));
  X509* const first = certificates.front().get();
  if (IsIpAddress(host)) return X509_check_ip_asc(first, host.c_str(), 0) == 1;
  return X509_check_host(first, host.data(), host.size(), kHostCheckFlags, nullptr) == 1;
}

}  // namespace cairn
