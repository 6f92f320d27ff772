#include "worker/ctl/certs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "common/time_text.h"
#include "common/write_all.h"
#include "thrift/security/certificate.h"
#include "thrift/security/certificate_authority.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// The longest life of a certificate, and the life of a new CA: certificates can be renewed for
// years before the CA must change.
constexpr double kMaxDays = 3650;
constexpr char kAuthority[] = "ca";
// How far the clocks of the cluster's machines may be behind.
constexpr absl::Duration kClockSlack = absl::Minutes(10);

std::string CertificatePath(const CertsOptions& options, absl::string_view name) {
  return absl::StrCat(options.directory, "/", name, ".crt");
}
std::string KeyPath(const CertsOptions& options, absl::string_view name) {
  return absl::StrCat(options.directory, "/", name, ".key");
}

CertificateRequest ServerRequest(std::string name, std::vector<std::string> hosts) {
  // A caller on this host may use any of its names, so the certificate lists them all.
  if (std::ranges::any_of(hosts, [](const auto& host) { return IsLoopback(host); })) {
    for (const char* const own : {"localhost", "127.0.0.1", "::1"}) {
      if (std::ranges::find(hosts, own) == hosts.end()) hosts.emplace_back(own);
    }
  }
  // A server asks the others for the state that its status page shows of the whole cluster.
  return {.name = std::move(name),
          .hosts = std::move(hosts),
          .roles = kReader,
          .serves = true,
          .connects = true};
}

CertificateRequest ClientRequest(std::string name, RoleSet roles) {
  return {.name = std::move(name), .roles = roles, .connects = true};
}

absl::Status AddCluster(const std::string& path, std::vector<CertificateRequest>* requests) {
  ASSIGN_OR_RETURN(const ClusterConfig cluster, ReadClusterFile(path));
  const std::vector<std::string>& servers = cluster.addresses("ps");
  for (size_t i = 0; i < servers.size(); ++i) {
    ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(servers[i]));
    requests->push_back(ServerRequest(absl::StrCat("ps-", i), {address.host}));
  }
  RoleSet roles = kWorker | kAdmin;  // the first training task makes checkpoints and restarts the
                                     // job, so it is admin too
  for (const char* const job : {"chief", "worker"}) {
    for (size_t i = 0; i < cluster.addresses(job).size(); ++i) {
      requests->push_back(ClientRequest(absl::StrCat(job, "-", i), roles));
      roles = kWorker;
    }
  }
  requests->push_back(ClientRequest("admin", kAdmin));
  requests->push_back(ClientRequest("reader", kReader));
  return absl::OkStatus();
}

// "grafana=reader", "ps-7=server:ps-7.example,10.0.0.7".
absl::StatusOr<CertificateRequest> ParseIssue(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const auto refuse = [&](absl::string_view what) {
    return InvalidArgument("--issue ", text, ": ", what,
                           "; it is NAME=ROLE[,ROLE] or NAME=server:HOST[,HOST]");
  };
  const std::string& name = parts.first;
  if (name.empty() || name == kAuthority || name.find('/') != std::string::npos || name[0] == '.') {
    return refuse(absl::StrCat("'", name, "' cannot be the name of a file"));
  }
  absl::string_view rest = parts.second;
  if (absl::ConsumePrefix(&rest, "server:")) {
    std::vector<std::string> hosts = absl::StrSplit(rest, ',', absl::SkipEmpty());
    if (hosts.empty()) return refuse("no host");
    return ServerRequest(name, std::move(hosts));
  }
  const absl::StatusOr<RoleSet> roles = RolesFromText(rest);
  if (!roles.ok()) return refuse(roles.status().message());
  return ClientRequest(name, *roles);
}

absl::StatusOr<std::vector<CertificateRequest>> Requests(const CertsOptions& options) {
  std::vector<CertificateRequest> requests;
  if (!options.cluster_file.empty()) RETURN_IF_ERROR(AddCluster(options.cluster_file, &requests));
  for (const std::string& text : options.issue) {
    ASSIGN_OR_RETURN(requests.emplace_back(), ParseIssue(text));
  }
  if (requests.empty()) {
    return absl::InvalidArgumentError(
        "no certificate is requested: give --cluster FILE, or --issue NAME=ROLE");
  }
  std::set<absl::string_view> names;
  for (const CertificateRequest& request : requests) {
    if (names.insert(request.name).second) continue;
    return InvalidArgument("two certificates would have the name '", request.name,
                           "': --cluster makes one for each task, admin and reader, and each "
                           "--issue NAME=... one more; give another NAME");
  }
  return requests;
}

absl::Status WriteNew(const std::string& path, const std::string& text, mode_t mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("making ", path));
  const bool written = WriteAll(file, text);
  const int error = errno;
  if (::close(file) != 0 && written)
    return absl::ErrnoToStatus(errno, absl::StrCat("closing ", path));
  return written ? absl::OkStatus() : absl::ErrnoToStatus(error, absl::StrCat("writing ", path));
}

absl::Status WritePair(const CertsOptions& options, const std::string& name, const KeyPair& pair) {
  RETURN_IF_ERROR(WriteNew(KeyPath(options, name), pair.key, 0600));
  return WriteNew(CertificatePath(options, name), pair.certificate, 0644);
}

absl::Status CheckNew(const CertsOptions& options,
                      const std::vector<CertificateRequest>& requests) {
  for (const CertificateRequest& request : requests) {
    for (const std::string& path :
         {CertificatePath(options, request.name), KeyPath(options, request.name)}) {
      struct stat found = {};
      if (::lstat(path.c_str(), &found) != 0) continue;
      return AlreadyExists(
          path,
          " exists, and is not overwritten: name another directory, or move it away to renew "
          "it (ca.crt and ca.key stay)");
    }
  }
  return absl::OkStatus();
}

// Reads the CA in the directory, which must be valid until `until`, or makes a new one.
absl::StatusOr<std::unique_ptr<CertificateAuthority>> Authority(const CertsOptions& options,
                                                                absl::Time now, absl::Time until,
                                                                bool* is_new) {
  const std::string certificate = CertificatePath(options, kAuthority);
  const std::string key = KeyPath(options, kAuthority);
  std::error_code error;  // Read reports a file that cannot be examined
  *is_new = !fs::exists(certificate, error) && !error && !fs::exists(key, error) && !error;
  if (!*is_new) {
    ASSIGN_OR_RETURN(std::unique_ptr<CertificateAuthority> found,
                     CertificateAuthority::Read(certificate, key));
    ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(certificate));
    if (until <= facts.not_after) return found;
    return InvalidArgument(certificate, " is valid until ", UtcText(facts.not_after),
                           ", and no certificate can outlive it: give ",
                           "fewer --days, or another directory for a new CA");
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<CertificateAuthority> made,
      CertificateAuthority::Make("Cairn CA", now - kClockSlack, now + absl::Hours(24) * kMaxDays));
  RETURN_IF_ERROR(WritePair(options, kAuthority, made->own()));
  return made;
}

absl::StatusOr<Answer> Make(const CertsOptions& options) {
  if (options.directory.empty())
    return absl::InvalidArgumentError("the output directory DIR is missing");
  if (!(options.days > 0 && options.days <= kMaxDays)) {
    return InvalidArgument("--days is ", options.days, "; it is above 0, and at most ", kMaxDays);
  }
  ASSIGN_OR_RETURN(std::vector<CertificateRequest> requests, Requests(options));
  RETURN_IF_ERROR(CheckNew(options, requests));
  if (::mkdir(options.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("making ", options.directory));
  }
  const absl::Time now = absl::Now();
  const absl::Time end = now + absl::Hours(24) * options.days;
  bool is_new = false;
  ASSIGN_OR_RETURN(const std::unique_ptr<CertificateAuthority> authority,
                   Authority(options, now, end, &is_new));
  Answer answer;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (is_new) absl::StrAppend(&answer.text, CertificatePath(options, kAuthority), "  a new CA\n");
  for (CertificateRequest& request : requests) {
    request.not_before = now - kClockSlack;
    request.not_after = end;
    ASSIGN_OR_RETURN(const KeyPair pair, authority->Issue(request));
    RETURN_IF_ERROR(WritePair(options, request.name, pair));
    const std::string what = request.serves
                                 ? absl::StrCat("server at ", absl::StrJoin(request.hosts, ", "))
                                 : RolesText(request.roles);
    absl::StrAppend(&answer.text, CertificatePath(options, request.name), "  ", what, "\n");
    list.push_back({{"name", request.name},
                    {"certificate", CertificatePath(options, request.name)},
                    {"key", KeyPath(options, request.name)},
                    {"hosts", request.hosts},
                    {"roles", RoleNames(request.roles)}});
  }
  const std::string until = UtcText(end);
  absl::StrAppendFormat(
      &answer.text,
      "valid until %s. Give each task its own --tls_certificate and --tls_key, all of them\n"
      "--tls_ca %s; keep %s secret: whoever has it can impersonate any task.\n",
      until, CertificatePath(options, kAuthority), KeyPath(options, kAuthority));
  answer.json = {{"ca", CertificatePath(options, kAuthority)},
                 {"new_ca", is_new},
                 {"good_until", until},
                 {"certificates", std::move(list)}};
  return answer;
}

}  // namespace

absl::StatusOr<Answer> MakeCerts(const CertsOptions& options) {
  absl::StatusOr<Answer> answer = Make(options);
  if (answer.ok() || absl::IsInternal(answer.status())) return answer;
  return AsBadInput(answer.status());
}

}  // namespace cairn
