// Which role may make which call: the one table of it. A call that is not in it is nobody's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

using RoleSet = uint32_t;  // bits

inline constexpr RoleSet kReader = 1;  // looks, and changes nothing
inline constexpr RoleSet kWorker = 2;  // trains
inline constexpr RoleSet kAdmin = 4;   // everything: jobs are dropped, copied to disk and replaced
inline constexpr RoleSet kEveryRole = kReader | kWorker | kAdmin;
inline constexpr RoleSet kTrains = kWorker | kAdmin;

struct MethodRoles {
  absl::string_view method;  // of service ParameterServer
  RoleSet roles;             // any of them is enough
};

// A caller that is a reader alone may only ask, with no worker's name: CheckedService sees to that.
// `checkpoint`, `drop_checkpoint` and `restore` read and write files of the server's host,
// `drop_job` cannot be taken back, and `drain` ends the server: of a job's workers the first needs
// admin where its job file makes checkpoints, or is begun with --fresh.
inline constexpr MethodRoles kMethodRoles[] = {
    {"hello", kEveryRole},
    {"describe", kEveryRole},
    {"scan", kEveryRole},
    {"why", kEveryRole},
    {"pull", kEveryRole},
    {"push", kTrains},
    {"step", kTrains},
    {"assign", kTrains},
    {"heartbeat", kTrains},
    {"leave", kTrains},
    {"create_variables", kTrains},
    {"flush", kTrains},
    {"drop_job", kAdmin},
    {"checkpoint", kAdmin},
    {"drop_checkpoint", kAdmin},
    {"restore", kAdmin},
    {"move", kAdmin},
    {"members", kEveryRole},
    {"change_members", kAdmin},
    {"drain", kAdmin},
};

// None (0): nobody may, or there is no such call.
constexpr RoleSet RolesFor(absl::string_view method) {
  for (const MethodRoles& row : kMethodRoles) {
    if (row.method == method) return row.roles;
  }
  return 0;
}

// Who a connection's caller is taken for.
struct PeerIdentity {
  RoleSet roles = 0;
  std::string name;  // the certificate's, else the token's

  // May look only: see kMethodRoles.
  bool reads_only() const { return roles == kReader; }
};

// "worker" → kWorker; 0: there is no such role.
RoleSet RoleFromName(absl::string_view name);
// "worker,admin". kInvalidArgument: there is no such role; names it, and those there are.
absl::StatusOr<RoleSet> RolesFromText(absl::string_view text);
// {"worker", "admin"}; for people "worker, admin", or "none".
std::vector<std::string> RoleNames(RoleSet roles);
std::string RolesText(RoleSet roles);

}  // namespace cairn
