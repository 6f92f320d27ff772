#include "thrift/security/roles.h"

#include <array>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"

namespace cairn {
namespace {

constexpr std::array<std::pair<absl::string_view, RoleSet>, 3> kNames = {
    {{"reader", kReader}, {"worker", kWorker}, {"admin", kAdmin}}};

}  // namespace

RoleSet RoleFromName(absl::string_view name) {
  for (const auto& [known, role] : kNames) {
    if (known == name) return role;
  }
  return 0;
}

absl::StatusOr<RoleSet> RolesFromText(absl::string_view text) {
  RoleSet roles = 0;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    const RoleSet role = RoleFromName(name);
    if (role == 0) {
      return InvalidArgument("'", name, "' is no role: there are reader, worker and admin");
    }
    roles |= role;
  }
  return roles;
}

std::vector<std::string> RoleNames(RoleSet roles) {
  std::vector<std::string> names;
  for (const auto& [name, role] : kNames) {
    if ((roles & role) != 0) names.emplace_back(name);
  }
  return names;
}

std::string RolesText(RoleSet roles) {
  return roles == 0 ? "none" : absl::StrJoin(RoleNames(roles), ", ");
}

}  // namespace cairn
