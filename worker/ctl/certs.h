// Makes a certificate authority and certificates for the tasks of a cluster.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct CertsOptions {
  std::string directory;           // created with mode 0700 if missing
  std::string cluster_file;        // empty: only the certificates in `issue`
  std::vector<std::string> issue;  // "NAME=ROLE[,ROLE]" or "NAME=server:HOST[,HOST]"
  double days = 30;
};

// Writes ca.crt and ca.key, or uses the existing ones, and NAME.crt and NAME.key of
//   ps-0, …          servers, for the hosts of their addresses
//   worker-0, …      worker; the first training task (chief, else worker 0) also has admin
//   admin, reader    for people and tools, if there is a cluster file
// A new CA is valid for ten years, so that certificates can be renewed. Keys have mode 0600. No
// file is overwritten: if one of the files exists, none is written.
absl::StatusOr<Answer> MakeCerts(const CertsOptions& options);

}  // namespace cairn
