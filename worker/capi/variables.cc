// The C interface: variables, and scans of tables.
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/config/variable_config.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/optimizer/optimizer.h"
#include "common/status.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/capi/handle_table.h"
#include "worker/client/job_holdings.h"

namespace cairn::capi {
namespace {

using Json = nlohmann::ordered_json;

Json RateJson(const ScheduleConfig& schedule) {
  if (schedule.type == "constant") {
    const auto rate = schedule.arguments.find("learning_rate");
    return rate == schedule.arguments.end() ? Json() : Json(rate->second);
  }
  Json json = {{"type", schedule.type}};
  for (const auto& [name, value] : schedule.arguments) json[name] = value;
  if (!schedule.boundaries.empty()) json["boundaries"] = schedule.boundaries;
  if (!schedule.values.empty()) json["values"] = schedule.values;
  return json;
}

Json OptimizerJson(const OptimizerConfig& given) {
  if (given.type == "none") return given.type;
  const OptimizerConfig config = WithDefaults(given);
  Json json = {{"type", config.type}, {"learning_rate", RateJson(config.learning_rate)}};
  for (const auto& [name, value] : config.arguments) json[name] = value;
  if (config.clipvalue > 0) json["clipvalue"] = config.clipvalue;
  if (config.clipnorm > 0) json["clipnorm"] = config.clipnorm;
  if (config.global_clipnorm > 0) json["global_clipnorm"] = config.global_clipnorm;
  return json;
}

Json InitializerJson(const InitializerConfig& given) {
  const InitializerConfig config = WithDefaults(given);
  Json json = {{"type", config.type}};
  for (const auto& [name, value] : config.arguments) json[name] = value;
  if (config.seed != 0) json["seed"] = config.seed;
  return json;
}

Json VariableJson(const VariableSpec& spec) {
  const bool is_table = spec.kind == VariableKind::kEmbedding;
  Json json = {{"name", spec.name}, {"kind", is_table ? "embedding" : "dense"}};
  std::set<int32_t> servers(spec.bucket_ps.begin(), spec.bucket_ps.end());
  if (is_table) {
    json["dim"] = spec.shape.empty() ? 1 : spec.shape[0];
    json["admit_after_pushes"] = spec.row_rules.admit_after_pushes;
    json["expire_after_seconds"] = spec.row_rules.expire_after_seconds;
    json["max_rows"] = spec.row_rules.max_rows;
    json["row_storage"] = {{"values", RowFormatName(spec.row_storage.values)},
                           {"slots", RowFormatName(spec.row_storage.slots)}};
  } else {
    json["shape"] = spec.shape;
    json["dtype"] = DTypeName(spec.dtype);
    json["touched_rows"] = spec.touched_rows == TouchedRows::kPushed ? "pushed" : "all";
    json["shards"] = spec.shards.size();
    for (const DenseShard& shard : spec.shards) servers.insert(shard.ps);
  }
  json["optimizer"] = OptimizerJson(spec.optimizer);
  json["initializer"] = InitializerJson(spec.initializer);
  json["servers"] = servers;
  return json;
}

// A JSON list with an object for each variable. Besides the keys of a description
// (common/config/variable_config.h), an object has `kind` (dense, embedding) and `servers`, the
// servers that hold a part; `shards` of a dense variable is the number of its shards.
std::string VariablesJson(absl::Span<const VariableSpec> specs) {
  Json list = Json::array();
  for (const VariableSpec& spec : specs) list.push_back(VariableJson(spec));
  return list.dump();
}

struct Scanned {
  int64_t dim = 0;
  std::vector<int64_t> keys;
  std::vector<float> values;
};

absl::Status Create(Client& client, const char* description, Deadline deadline) {
  RETURN_IF_ERROR(CheckNotNull(description, "description"));
  const std::vector<int32_t> servers = client.ps->servers();
  // Otherwise shards would depend on the number of servers that there are now.
  ASSIGN_OR_RETURN(const JobHoldings there, client.ps->Examine(deadline));
  const absl::StatusOr<std::vector<VariableSpec>> specs =
      ParseVariables(description, "description", client.partitioner, servers, there.specs);
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
    return InvalidArgument("variable '", variable, "' is dense: pull it instead");
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

extern "C" {

int cairn_create(cairn_client* client, const char* description, double timeout) {
  return RunWith("cairn_create", client, timeout,
                 [&](Client& c, Deadline deadline) { return Create(c, description, deadline); });
}

int cairn_describe(cairn_client* client, double timeout, char** json) {
  return RunWith("cairn_describe", client, timeout,
                 [&](Client& c, Deadline deadline) -> absl::Status {
                   RETURN_IF_ERROR(CheckNotNull(json, "json"));
                   ASSIGN_OR_RETURN(const auto specs, c.ps->Describe(deadline));
                   c.Learn(specs);
                   *json = CopyText(VariablesJson(specs));
                   return absl::OkStatus();
                 });
}

int cairn_scan_table(cairn_client* client, const char* variable, double timeout,
                     cairn_scan** scan) {
  return RunWith("cairn_scan_table", client, timeout,
                 [&](Client& c, Deadline deadline) { return Scan(c, variable, deadline, scan); });
}

int cairn_scan_rows(cairn_scan* scan, uint64_t* rows, int64_t* dim, const int64_t** keys,
                    const float** values) {
  return Run("cairn_scan_rows", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto found, FindHandle(HandleKind::kScan, scan));
    const auto& scanned = *static_cast<const Scanned*>(found.get());
    if (rows != nullptr) *rows = scanned.keys.size();
    if (dim != nullptr) *dim = scanned.dim;
    if (keys != nullptr) *keys = scanned.keys.data();
    if (values != nullptr) *values = scanned.values.data();
    return absl::OkStatus();
  });
}

int cairn_scan_free(cairn_scan* scan) {
  return Run("cairn_scan_free", [&] { return RemoveHandle(HandleKind::kScan, scan).status(); });
}

}  // extern "C"

}  // namespace cairn::capi
