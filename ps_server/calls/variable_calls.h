// create_variables, drop_job.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "ps_server/core/admission.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/core/row_access.h"
#include "ps_server/moves/moves.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Creates the variables that do not exist yet; all or none. A worker may give existing variables
// new arguments of their optimizer, unless another live worker has asked for the present ones.
absl::Status CreateVariables(JobCatalog& catalog, const Moves& moves, const RowAccess& rows,
                             const wire::Caller& caller,
                             const std::vector<wire::VariableSpec>& specs);

// Deletes the variables and the state of the job here. FENCED: the caller's worker has a newer
// incarnation.
absl::Status DropJob(JobCatalog& catalog, Admission& admission, const wire::Caller& caller);

}  // namespace cairn
