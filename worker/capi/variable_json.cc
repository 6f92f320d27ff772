#include "worker/capi/variable_json.h"

#include <nlohmann/json.hpp>
#include <set>

#include "common/dtype.h"
#include "common/optimizer/optimizer.h"

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

}  // namespace

std::string VariablesJson(absl::Span<const VariableSpec> specs) {
  Json list = Json::array();
  for (const VariableSpec& spec : specs) list.push_back(VariableJson(spec));
  return list.dump();
}

}  // namespace cairn::capi
