#include "worker/client/delivery/joined_errors.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

constexpr absl::string_view kServer = "ps:";
constexpr size_t kMostListed = 8;

struct Mention {
  size_t begin = absl::string_view::npos;  // npos: there is none
  size_t name_end = 0;                     // of "ps:1"
  size_t end = 0;                          // of "ps:1 (127.0.0.1:7002)", where the address follows
};

// Finds the first server that `text` names from `from` on.
Mention FindServer(absl::string_view text, size_t from) {
  for (size_t at = text.find(kServer, from); at != text.npos; at = text.find(kServer, at + 1)) {
    size_t end = at + kServer.size();
    while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
    if (end == at + kServer.size() || (at > 0 && absl::ascii_isalnum(text[at - 1]))) continue;
    Mention found = {at, end, end};
    const size_t close = text.substr(end, 2) == " (" ? text.find(')', end) : text.npos;
    if (close != text.npos) found.end = close + 1;
    return found;
  }
  return {};
}

// Returns `text` with `first` in place of the first server, and `later` in place of others.
std::string WithServers(absl::string_view text, absl::string_view first, absl::string_view later) {
  std::string result;
  size_t done = 0;
  for (Mention at = FindServer(text, 0); at.begin != text.npos; at = FindServer(text, at.end)) {
    absl::StrAppend(&result, text.substr(done, at.begin - done), done == 0 ? first : later);
    done = at.end;
  }
  return absl::StrCat(result, text.substr(done));
}

// Errors with the same text but for the server.
struct Group {
  std::string text;     // of the first one
  std::string pattern;  // without servers
  std::vector<std::string> servers, names;
};

std::string Listed(std::vector<std::string> servers) {
  const size_t count = servers.size();
  servers.resize(std::min(count, kMostListed));
  std::string text = absl::StrJoin(servers, ", ");
  if (count > kMostListed) absl::StrAppend(&text, " and ", count - kMostListed, " more servers");
  return text;
}

// Whether `text` names one server, perhaps several times.
bool NamesOne(absl::string_view text) {
  const Mention first = FindServer(text, 0);
  if (first.begin == text.npos) return false;
  const auto name = [&](const Mention& m) { return text.substr(m.begin, m.name_end - m.begin); };
  for (Mention at = first; at.begin != text.npos; at = FindServer(text, at.end)) {
    if (name(at) != name(first)) return false;
  }
  return true;
}

void Add(absl::string_view text, std::vector<Group>* groups) {
  const Mention at = FindServer(text, 0);
  const bool names_one = NamesOne(text);
  std::string pattern = names_one ? WithServers(text, "ps", "ps") : std::string(text);
  auto group = std::ranges::find(*groups, pattern, &Group::pattern);
  if (group == groups->end()) {
    groups->push_back({.text = std::string(text), .pattern = std::move(pattern)});
    group = groups->end() - 1;
  }
  if (!names_one) return;
  group->servers.emplace_back(text.substr(at.begin, at.end - at.begin));
  group->names.emplace_back(text.substr(at.begin, at.name_end - at.begin));
}

std::string TextOf(const Group& group) {
  if (group.servers.size() < 2) return group.text;
  return WithServers(group.text, Listed(group.servers), Listed(group.names));
}

}  // namespace

absl::Status Join(absl::Span<const absl::Status> statuses) {
  absl::Status first;
  wire::ErrorReason::type reason = wire::ErrorReason::NONE;
  std::vector<Group> groups;
  int count = 0;
  for (const absl::Status& status : statuses) {
    if (status.ok()) continue;
    ++count;
    const wire::ErrorReason::type of_one = ReasonOf(status);
    // FENCED takes precedence: other errors may be transient, but this process must stop.
    const bool counts = reason == wire::ErrorReason::NONE || of_one == wire::ErrorReason::FENCED;
    if (counts) reason = of_one;
    if (first.ok()) first = status;
    Add(status.message(), &groups);
  }
  if (count == 0) return absl::OkStatus();
  const std::string text = absl::StrJoin(
      groups, "; ", [](std::string* out, const Group& g) { absl::StrAppend(out, TextOf(g)); });
  const absl::Status joined = count == 1 ? first : absl::Status(first.code(), text);
  return reason == wire::ErrorReason::NONE ? joined : WithReason(joined, reason);
}

}  // namespace cairn
