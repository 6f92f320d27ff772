#include "thrift/security/client_security.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/regular_file.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "thrift/security/certificate.h"

namespace cairn {

absl::StatusOr<std::shared_ptr<ClientSecurity>> ClientSecurity::Load(
    const SecurityOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  if (!options.tls() && options.token_file.empty()) return std::shared_ptr<ClientSecurity>();
  std::shared_ptr<TlsContext> tls;
  if (options.tls()) {
    ASSIGN_OR_RETURN(tls, TlsContext::Load(options, TlsContext::Side::kClient));
  }
  auto security = std::make_shared<ClientSecurity>(options, std::move(tls));
  if (security->has_token()) RETURN_IF_ERROR(security->Token().status());
  return security;
}

absl::StatusOr<std::string> ClientSecurity::Token() const {
  const std::string& path = options_.token_file;
  RETURN_IF_ERROR(CheckSecretFile(path, "token_file"));
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxTokenFileBytes);
  if (!text.ok()) return Annotate(text.status(), "--token_file");
  const absl::string_view line = absl::string_view(*text).substr(0, text->find('\n'));
  std::string token(absl::StripAsciiWhitespace(line));
  if (token.size() >= kMinTokenBytes && token.size() <= kMaxTokenBytes) return token;
  return InvalidArgument("--token_file ", path, ": its first line has ", token.size(),
                         " bytes; a token has ", kMinTokenBytes, " … ", kMaxTokenBytes);
}

absl::Status ClientSecurity::CheckTokenMayTravel(const std::string& host) const {
  if (tls_ != nullptr || options_.allow_plaintext || IsLoopback(host)) return absl::OkStatus();
  return FailedPrecondition("the token of --token_file ", options_.token_file, " would go to ",
                            host,
                            " unencrypted: give --tls_certificate, --tls_key and --tls_ca, or "
                            "--allow_plaintext if the network is trusted");
}

}  // namespace cairn
