#include "worker/ctl/doctor_tls.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/time_text.h"
#include "thrift/security/certificate.h"
#include "thrift/security/client_security.h"

namespace cairn {
namespace {

using Level = Finding::Level;

// A certificate that expires sooner than this gets a warning.
constexpr absl::Duration kSoon = absl::Hours(24 * 7);

// `fine` if the status is OK; otherwise its text, whose part after the last colon is the fix.
Finding FindingOf(const std::string& what, const absl::Status& status, const std::string& fine,
                  const std::string& fix) {
  if (status.ok()) return {Level::kFine, what, fine, ""};
  return {Level::kBad, what, std::string(status.message()), fix};
}

Finding Dates(const CertificateFacts& facts, absl::Time now) {
  Finding finding{.what = "TLS dates",
                  .found = absl::StrCat(facts.Text(), " is good from ", UtcText(facts.not_before),
                                        " until ", UtcText(facts.not_after))};
  if (now < facts.not_before) {
    finding.level = Level::kBad;
    finding.fix =
        absl::StrCat("set this machine's clock, or wait until ", UtcText(facts.not_before));
  } else if (now >= facts.not_after) {
    finding.level = Level::kBad;
    finding.fix = "it has expired: put a new one in place (cairnctl certs); no restart is needed";
  } else if (facts.not_after - now < kSoon) {
    finding.level = Level::kWarning;
    finding.fix = "it expires soon: put a new one in place (cairnctl certs); no restart is needed";
  }
  return finding;
}

Finding Use(const CertificateFacts& facts) {
  Finding finding{.what = "TLS roles", .found = RolesText(facts.roles)};
  if (!facts.unknown_roles.empty()) {
    return {Level::kBad, "TLS roles",
            absl::StrCat(absl::StrJoin(facts.unknown_roles, ", "), " names no role"),
            "the roles are cairn:role:reader, cairn:role:worker and cairn:role:admin"};
  }
  if (facts.connects && !facts.serves && facts.roles == 0) {
    finding.level = Level::kWarning;
    finding.fix =
        "a client without a role needs a token: make a certificate with one, or give "
        "--token_file";
  }
  return finding;
}

// Checks that the certificate's server is one of the cluster's.
Finding Address(const SecurityOptions& options, const CertificateFacts& facts,
                const ClusterConfig& cluster) {
  std::vector<std::string> hosts;
  for (const std::string& address : cluster.addresses("ps")) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
    if (!parsed.ok()) continue;
    hosts.push_back(parsed->host);
    const absl::StatusOr<bool> fits = IsForHost(options.tls_certificate, parsed->host);
    if (fits.ok() && *fits) {
      return {Level::kFine, "TLS names", absl::StrCat("it is for ", parsed->host), ""};
    }
  }
  return {
      Level::kBad, "TLS names",
      absl::StrCat("it is for ", facts.hosts.empty() ? "no host" : absl::StrJoin(facts.hosts, ", "),
                   "; the ps tasks are at ", absl::StrJoin(hosts, ", ")),
      "make one for the address in the cluster file (cairnctl certs), or change that"};
}

}  // namespace

std::vector<Finding> JudgeTls(const SecurityOptions& options, const ClusterConfig& cluster,
                              absl::Time now) {
  std::vector<Finding> findings;
  if (!options.token_file.empty()) {
    const absl::Status token = ClientSecurity(options, nullptr).Token().status();
    findings.push_back(FindingOf("token", token, absl::StrCat(options.token_file, " holds one"),
                                 "put a token on its first line, with mode 0600"));
  }
  const absl::Status complete = options.Validate();
  if (!complete.ok()) {
    findings.push_back(FindingOf("TLS", complete, "", "give all three"));
    return findings;
  }
  if (!options.tls()) return findings;
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(options.tls_certificate);
  if (!facts.ok()) {
    findings.push_back(FindingOf("TLS certificate", facts.status(), "", "name a PEM file"));
    return findings;
  }
  findings.push_back(Dates(*facts, now));
  findings.push_back(FindingOf("TLS key", CheckKeyMatches(options.tls_certificate, options.tls_key),
                               "fits the certificate", "give the two that were made together"));
  findings.push_back(FindingOf("TLS key's mode", CheckSecretFile(options.tls_key, "tls_key"),
                               "others cannot read it",
                               absl::StrCat("chmod 0600 ", options.tls_key)));
  findings.push_back(FindingOf("TLS CA", CheckSignedBy(options.tls_certificate, options.tls_ca),
                               "signed the certificate",
                               "all tasks need certificates of a CA that the others trust"));
  findings.push_back(Use(*facts));
  if (facts->serves && !cluster.addresses("ps").empty() && !facts->hosts.empty()) {
    findings.push_back(Address(options, *facts, cluster));
  }
  return findings;
}

}  // namespace cairn
