// Makes a certificate authority and certificates for the tasks of a cluster.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct CertsOptions {
  std::string directory;           // made with mode 0700 where it is not there
  std::string cluster_file;        // empty: only `issue`
  std::vector<std::string> issue;  // "NAME=ROLE[,ROLE]" or "NAME=server:HOST[,HOST]"
  double days = 30;
};

// Writes ca.crt and ca.key, or takes those that are there, and NAME.crt and NAME.key of
//   ps-0, …          servers, for the hosts of their addresses
//   worker-0, …      worker; the first training task (chief, else worker 0) admin besides
//   admin, reader    for people and tools, where there is a cluster file
// A new CA is good for ten years, so that certificates can be renewed. Keys have mode 0600. Nothing
// is overwritten: where one of the files is there, none is written.
absl::StatusOr<Answer> MakeCerts(const CertsOptions& options);

}  // namespace cairn
