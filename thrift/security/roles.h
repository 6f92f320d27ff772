// The methods of the service, and the roles that may call each. A call that is not in the table is
// forbidden.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/table_row.h"

namespace cairn {

using RoleSet = uint32_t;  // bits

inline constexpr RoleSet kReader = 1;  // reads, and changes nothing
inline constexpr RoleSet kWorker = 2;  // trains
inline constexpr RoleSet kAdmin = 4;   // everything: drops jobs, copies them to disk, replaces them
inline constexpr RoleSet kEveryRole = kReader | kWorker | kAdmin;
inline constexpr RoleSet kTrains = kWorker | kAdmin;

struct MethodRoles {
  absl::string_view name;  // of service ParameterServer
  RoleSet roles;           // any of them suffices
};

// A caller with only the reader role may read, but not as a worker: PeerService enforces this.
// `checkpoint`, `drop_checkpoint` and `restore` read and write files on the server's host,
// `drop_job` cannot be undone, and `drain` ends the server. The first worker of a job needs admin
// if the job file makes checkpoints or the job is started with --fresh.
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

// A method of the service.
using Method = TableRow<kMethodRoles>;

// None (0): the call is forbidden or does not exist.
constexpr RoleSet RolesFor(absl::string_view method) {
  for (const MethodRoles& row : kMethodRoles) {
    if (row.name == method) return row.roles;
  }
  return 0;
}

// The identity that a server assigns to a connection's caller.
struct PeerIdentity {
  RoleSet roles = 0;
  std::string name;  // from the certificate, else from the token

  // May only read: see kMethodRoles.
  bool reads_only() const { return roles == kReader; }
};

// "worker" → kWorker; 0: no such role.
RoleSet RoleFromName(absl::string_view name);
// "worker,admin". kInvalidArgument: an unknown role; names it and the known roles.
absl::StatusOr<RoleSet> RolesFromText(absl::string_view text);
// {"worker", "admin"}; in messages "worker, admin", or "none".
std::vector<std::string> RoleNames(RoleSet roles);
std::string RolesText(RoleSet roles);

}  // namespace cairn
