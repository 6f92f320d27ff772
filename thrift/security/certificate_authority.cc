#include "thrift/security/certificate_authority.h"

#include <openssl/pem.h>
#include <openssl/rand.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/security/certificate.h"
#include "thrift/security/openssl_ptr.h"

namespace cairn {
namespace {

constexpr size_t kMaxNameBytes = 64;  // ub-common-name, RFC 5280

absl::Status Failed(absl::string_view what) {
  return Internal("making a certificate, ", what, ": ", TakeOpensslError());
}

absl::StatusOr<std::string> TextOf(BIO* bio) {
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio, &text);
  if (bytes <= 0) return Failed("writing PEM");
  return std::string(text, static_cast<size_t>(bytes));
}

absl::StatusOr<std::string> PemOf(X509* certificate) {
  const OpensslPtr<BIO> bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), certificate) != 1) return Failed("as PEM");
  return TextOf(bio.get());
}

absl::StatusOr<std::string> PemOf(EVP_PKEY* key) {
  const OpensslPtr<BIO> bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("its key as PEM");
  }
  return TextOf(bio.get());
}

absl::Status SetName(X509_NAME* to, const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return InvalidArgument("a certificate's name is \"", name, "\"; it has 1 … ", kMaxNameBytes,
                           " bytes");
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(name.data());
  if (X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_UTF8, bytes, static_cast<int>(name.size()), -1,
                                 0) != 1) {
    return Failed("its name");
  }
  return absl::OkStatus();
}

absl::Status AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509V3_set_ctx_nodb(&context);
  const OpensslPtr<X509_EXTENSION> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return Failed(absl::StrCat(OBJ_nid2sn(kind), " ", value));
  }
  return absl::OkStatus();
}

// A certificate without names and usages.
absl::StatusOr<OpensslPtr<X509>> Begin(const std::string& name, EVP_PKEY* key,
                                       absl::Time not_before, absl::Time not_after) {
  OpensslPtr<X509> certificate(X509_new());
  if (certificate == nullptr || X509_set_version(certificate.get(), X509_VERSION_3) != 1) {
    return Failed("beginning");
  }
  // 159 random bits: unique and never negative.
  std::array<unsigned char, 20> serial = {};
  if (RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) return Failed("its serial");
  serial[0] = static_cast<unsigned char>((serial[0] & 0x7f) | 0x40);
  ASN1_INTEGER* const number = X509_get_serialNumber(certificate.get());
  if (ASN1_STRING_set(number, serial.data(), static_cast<int>(serial.size())) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(not_before)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(not_after)) == nullptr ||
      X509_set_pubkey(certificate.get(), key) != 1) {
    return Failed("its serial, dates and key");
  }
  RETURN_IF_ERROR(SetName(X509_get_subject_name(certificate.get()), name));
  return certificate;
}

// "DNS:ps-0.example,IP:10.0.0.1,URI:cairn:role:worker". A comma would begin another entry.
absl::StatusOr<std::string> AlternativeNames(const CertificateRequest& request) {
  std::vector<std::string> names;
  for (const std::string& host : request.hosts) {
    const bool is_plain = !host.empty() && host.find_first_of(", \t\r\n;=") == std::string::npos;
    if (!is_plain || (!IsIpAddress(host) && host.find(':') != std::string::npos)) {
      return InvalidArgument("\"", host,
                             "\" is no host: give a DNS name or an address, without a port");
    }
    names.push_back(absl::StrCat(IsIpAddress(host) ? "IP:" : "DNS:", host));
  }
  for (const std::string& role : RoleNames(request.roles)) {
    names.push_back(absl::StrCat("URI:cairn:role:", role));
  }
  return absl::StrJoin(names, ",");
}

class Authority : public CertificateAuthority {
 public:
  absl::Status MakeSelf(const std::string& name, absl::Time not_before, absl::Time not_after) {
    key_.reset(EVP_EC_gen("P-256"));
    if (key_ == nullptr) return Failed("a key");
    ASSIGN_OR_RETURN(certificate_, Begin(name, key_.get(), not_before, not_after));
    X509* const self = certificate_.get();
    if (X509_set_issuer_name(self, X509_get_subject_name(self)) != 1) return Failed("its issuer");
    RETURN_IF_ERROR(AddExtension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
    RETURN_IF_ERROR(AddExtension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign"));
    RETURN_IF_ERROR(AddExtension(self, self, NID_subject_key_identifier, "hash"));
    if (X509_sign(self, key_.get(), EVP_sha256()) == 0) return Failed("signing");
    ASSIGN_OR_RETURN(own_.certificate, PemOf(self));
    ASSIGN_OR_RETURN(own_.key, PemOf(key_.get()));
    return absl::OkStatus();
  }

  absl::Status Load(const std::string& certificate_path, const std::string& key_path) {
    RETURN_IF_ERROR(CheckKeyMatches(certificate_path, key_path));
    const OpensslPtr<BIO> certificate(BIO_new_file(certificate_path.c_str(), "r"));
    const OpensslPtr<BIO> key(BIO_new_file(key_path.c_str(), "r"));
    if (certificate == nullptr || key == nullptr) return Failed("reading its CA");
    certificate_.reset(PEM_read_bio_X509(certificate.get(), nullptr, nullptr, nullptr));
    key_.reset(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
    if (certificate_ == nullptr || key_ == nullptr) return Failed("reading its CA");
    if (X509_check_ca(certificate_.get()) == 0) {
      return InvalidArgument(
          certificate_path, " is not a CA's certificate: give the ca.crt that cairnctl certs made");
    }
    ASSIGN_OR_RETURN(own_.certificate, PemOf(certificate_.get()));
    ASSIGN_OR_RETURN(own_.key, PemOf(key_.get()));
    return absl::OkStatus();
  }

  absl::StatusOr<KeyPair> Issue(const CertificateRequest& request) override {
    ASSIGN_OR_RETURN(const std::string names, AlternativeNames(request));
    const OpensslPtr<EVP_PKEY> key(EVP_EC_gen("P-256"));
    if (key == nullptr) return Failed("a key");
    ASSIGN_OR_RETURN(const OpensslPtr<X509> made,
                     Begin(request.name, key.get(), request.not_before, request.not_after));
    X509* const raw = made.get();
    X509* const issuer = certificate_.get();
    if (X509_set_issuer_name(raw, X509_get_subject_name(issuer)) != 1) return Failed("its issuer");
    RETURN_IF_ERROR(AddExtension(raw, issuer, NID_basic_constraints, "critical,CA:FALSE"));
    RETURN_IF_ERROR(AddExtension(raw, issuer, NID_key_usage, "critical,digitalSignature"));
    std::vector<std::string> usage;
    if (request.serves) usage.emplace_back("serverAuth");
    if (request.connects) usage.emplace_back("clientAuth");
    if (!usage.empty()) {
      RETURN_IF_ERROR(AddExtension(raw, issuer, NID_ext_key_usage, absl::StrJoin(usage, ",")));
    }
    RETURN_IF_ERROR(AddExtension(raw, issuer, NID_authority_key_identifier, "keyid"));
    if (!names.empty()) RETURN_IF_ERROR(AddExtension(raw, issuer, NID_subject_alt_name, names));
    if (X509_sign(raw, key_.get(), EVP_sha256()) == 0) return Failed("signing");
    KeyPair pair;
    ASSIGN_OR_RETURN(pair.certificate, PemOf(raw));
    ASSIGN_OR_RETURN(pair.key, PemOf(key.get()));
    return pair;
  }

  const KeyPair& own() const override { return own_; }

 private:
  OpensslPtr<X509> certificate_;
  OpensslPtr<EVP_PKEY> key_;
  KeyPair own_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CertificateAuthority>> CertificateAuthority::Make(
    const std::string& name, absl::Time not_before, absl::Time not_after) {
  auto authority = std::make_unique<Authority>();
  RETURN_IF_ERROR(authority->MakeSelf(name, not_before, not_after));
  return authority;
}

absl::StatusOr<std::unique_ptr<CertificateAuthority>> CertificateAuthority::Read(
    const std::string& certificate_path, const std::string& key_path) {
  auto authority = std::make_unique<Authority>();
  RETURN_IF_ERROR(authority->Load(certificate_path, key_path));
  return authority;
}

}  // namespace cairn
