// Checks the TLS and token files: part of cairnctl doctor.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "common/config/cluster_config.h"
#include "common/config/security_options.h"
#include "worker/ctl/doctor.h"

namespace cairn {

// One finding for each check: dates, key, CA, modes, role, and, for a server's certificate, whether
// it is valid for an address among the cluster's ps tasks. Empty if `options` name no file.
std::vector<Finding> JudgeTls(const SecurityOptions& options, const ClusterConfig& cluster,
                              absl::Time now);

}  // namespace cairn
