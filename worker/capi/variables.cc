// The C interface: variables, and scans of tables.
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/variable_config.h"
#include "common/status.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/capi/handle_table.h"
#include "worker/capi/variable_json.h"

namespace cairn::capi {
namespace {

struct Scanned {
  int64_t dim = 0;
  std::vector<int64_t> keys;
  std::vector<float> values;
};

absl::Status Create(Client& client, const char* description, Deadline deadline) {
  RETURN_IF_ERROR(CheckNotNull(description, "description"));
  const std::vector<int32_t> servers = client.ps->servers();
  const absl::StatusOr<std::vector<VariableSpec>> specs =
      ParseVariables(description, "description", client.partitioner, servers);
  if (!specs.ok()) {
    return Annotate(WithoutLine(specs.status(), description, "description"), "create");
  }
  RETURN_IF_ERROR(client.ps->Create(*specs, deadline));
  client.Learn(*specs);
  return absl::OkStatus();
}

absl::Status Scan(Client& client, const char* variable, Deadline deadline, cairn_scan** handle) {
  RETURN_IF_ERROR(CheckNotNull(handle, "scan"));
  *handle = nullptr;
  RETURN_IF_ERROR(CheckNotNull(variable, "variable"));
  ASSIGN_OR_RETURN(const KnownVariable known, client.Find(variable));
  if (known.kind != VariableKind::kEmbedding) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable '", variable, "' is dense: pull it instead"));
  }
  const auto scanned = std::make_shared<Scanned>();
  scanned->dim = known.shape[0];
  const auto dim = static_cast<size_t>(scanned->dim);
  RETURN_IF_ERROR(client.ps->Scan(
      variable,
      [&](int64_t key, absl::Span<const std::byte> values) {
        scanned->keys.push_back(key);
        scanned->values.resize(scanned->values.size() + dim);
        std::memcpy(scanned->values.data() + scanned->values.size() - dim, values.data(),
                    dim * sizeof(float));
      },
      deadline));
  *handle = static_cast<cairn_scan*>(InsertHandle(HandleKind::kScan, scanned));
  return absl::OkStatus();
}

}  // namespace
}  // namespace cairn::capi

using cairn::Deadline;
using cairn::capi::CheckNotNull;
using cairn::capi::Client;
using cairn::capi::HandleKind;
using cairn::capi::Run;
using cairn::capi::RunWith;

extern "C" {

int cairn_create(cairn_client* client, const char* description, double timeout) {
  return RunWith("cairn_create", client, timeout, [&](Client& c, Deadline deadline) {
    return cairn::capi::Create(c, description, deadline);
  });
}

int cairn_describe(cairn_client* client, double timeout, char** json) {
  return RunWith("cairn_describe", client, timeout,
                 [&](Client& c, Deadline deadline) -> absl::Status {
                   RETURN_IF_ERROR(CheckNotNull(json, "json"));
                   ASSIGN_OR_RETURN(const auto specs, c.ps->Describe(deadline));
                   c.Learn(specs);
                   *json = cairn::capi::CopyText(cairn::capi::VariablesJson(specs));
                   return absl::OkStatus();
                 });
}

int cairn_scan_table(cairn_client* client, const char* variable, double timeout,
                     cairn_scan** scan) {
  return RunWith("cairn_scan_table", client, timeout, [&](Client& c, Deadline deadline) {
    return cairn::capi::Scan(c, variable, deadline, scan);
  });
}

int cairn_scan_rows(cairn_scan* scan, uint64_t* rows, int64_t* dim, const int64_t** keys,
                    const float** values) {
  return Run("cairn_scan_rows", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto found, cairn::capi::FindHandle(HandleKind::kScan, scan));
    const auto& scanned = *static_cast<const cairn::capi::Scanned*>(found.get());
    if (rows != nullptr) *rows = scanned.keys.size();
    if (dim != nullptr) *dim = scanned.dim;
    if (keys != nullptr) *keys = scanned.keys.data();
    if (values != nullptr) *values = scanned.values.data();
    return absl::OkStatus();
  });
}

int cairn_scan_free(cairn_scan* scan) {
  return Run("cairn_scan_free",
             [&] { return cairn::capi::RemoveHandle(HandleKind::kScan, scan).status(); });
}

}  // extern "C"
