#include "thrift/security/token_table.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/regular_file.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "thrift/security/certificate.h"

namespace cairn {

TokenDigest DigestOf(absl::string_view token) {
  TokenDigest digest = {};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

absl::StatusOr<std::shared_ptr<TokenTable>> TokenTable::Load(const std::string& path) {
  std::shared_ptr<TokenTable> table(new TokenTable(path));
  const absl::MutexLock lock(&table->mutex_);
  table->stamp_ = FileStamp::Of(path);
  ASSIGN_OR_RETURN(table->entries_, table->Read());
  return table;
}

absl::StatusOr<std::vector<TokenTable::Entry>> TokenTable::Read() const {
  RETURN_IF_ERROR(CheckSecretFile(path_, "accepted_tokens"));
  const absl::StatusOr<std::string> text = ReadRegularFile(path_, kMaxTokenFileBytes);
  if (!text.ok()) return Annotate(text.status(), "--accepted_tokens");
  if (text->empty()) {
    return InvalidArgument("--accepted_tokens ", path_,
                           " is empty: a program may be about to write it; to accept no token, "
                           "leave a comment line (#) in it");
  }
  std::vector<Entry> entries;
  int number = 0;
  const auto refuse = [&](absl::string_view what) {
    return InvalidArgument("--accepted_tokens ", path_, ":", number, ": ", what,
                           "; a line is TOKEN ROLE[,ROLE] [NAME]");
  };
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    if (words.size() < 2 || words.size() > 3) {
      return refuse(absl::StrCat(words.size(), " words"));
    }
    if (words[0].size() < kMinTokenBytes || words[0].size() > kMaxTokenBytes) {
      return refuse(absl::StrCat("a token of ", words[0].size(), " bytes, not ", kMinTokenBytes,
                                 " … ", kMaxTokenBytes));
    }
    const absl::StatusOr<RoleSet> roles = RolesFromText(words[1]);
    if (!roles.ok()) return refuse(std::string(roles.status().message()));
    const TokenDigest digest = DigestOf(words[0]);
    const auto earlier = std::ranges::find_if(entries, [&](const Entry& entry) {
      return entry.digest == digest && entry.identity.roles != *roles;
    });
    if (earlier != entries.end()) {
      return refuse("an earlier line gives the token other roles; give each token one line");
    }
    if (entries.size() == kMaxTokens) return refuse("more than kMaxTokens tokens");
    entries.push_back({digest, {.roles = *roles, .name = words.size() == 3 ? words[2] : ""}});
  }
  return entries;
}

void TokenTable::Refresh() {
  const FileStamp stamp = FileStamp::Of(path_);
  if (stamp == stamp_) return;
  absl::StatusOr<std::vector<Entry>> entries = Read();
  if (!entries.ok()) {
    LOG_EVERY_T(ERROR, 10) << "the accepted tokens changed and cannot be used; the earlier ones "
                              "stay accepted until they can: "
                           << entries.status().message();
    return;
  }
  stamp_ = stamp;
  entries_ = *std::move(entries);
  ++version_;
  LOG(INFO) << "the accepted tokens are read again: " << entries_.size() << " in " << path_;
}

int64_t TokenTable::Version() {
  const absl::MutexLock lock(&mutex_);
  Refresh();
  return version_;
}

std::optional<PeerIdentity> TokenTable::Find(const TokenDigest& digest) {
  const absl::MutexLock lock(&mutex_);
  Refresh();
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    const bool is_equal = CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0;
    found = is_equal ? &entry : found;
  }
  if (found == nullptr) return std::nullopt;
  return found->identity;
}

}  // namespace cairn
