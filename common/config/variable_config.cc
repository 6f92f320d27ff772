#include "common/config/variable_config.h"

#include <string>
#include <utility>

#include "common/config/config_node.h"
#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"
#include "common/variables/variable_map.h"

namespace cairn {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr int64_t kMaxVariableShards = 65536;

// Where shards may be: see ParseVariables.
struct Places {
  const PartitionerConfig& partitioner;
  absl::Span<const int32_t> servers;
  absl::Span<const VariableSpec> there;
};

struct Description {
  VariableSpec spec;
  std::vector<int64_t> shape;
  std::string dtype = "float32";
  std::string touched_rows;
  int64_t dim = 0;
  int64_t shards = 0;
  int64_t admit_after_pushes = 1;
  RowStorageConfig row_storage;
};

std::vector<Field> CommonFields(Description* out) {
  return {Text("name", &out->spec.name), Value("optimizer", ReadOneOptimizer, &out->spec.optimizer),
          Custom("initializer", [out](const ConfigNode& value, const std::string& path) {
            const bool is_embedding = out->spec.kind == VariableKind::kEmbedding;
            return ReadInitializer(value, path, is_embedding, &out->spec.initializer);
          })};
}

std::vector<Field> DenseFields(Description* out) {
  std::vector<Field> fields = CommonFields(out);
  fields.push_back(Integers("shape", &out->shape, 0, kMaxExtent));
  fields.push_back(Text("dtype", &out->dtype));
  fields.push_back(Choice("touched_rows", &out->touched_rows, {"all", "pushed"}));
  fields.push_back(Integer("shards", &out->shards, 1, kMaxVariableShards));
  return fields;
}

std::vector<Field> TableFields(Description* out) {
  std::vector<Field> fields = CommonFields(out);
  RowRules& rules = out->spec.row_rules;
  fields.push_back(Integer("dim", &out->dim, 1, kMaxDim));
  fields.push_back(Integer("admit_after_pushes", &out->admit_after_pushes, 1, kMostPushesToAdmit));
  fields.push_back(
      Integer("expire_after_seconds", &rules.expire_after_seconds, 0, kMostSecondsToExpire));
  fields.push_back(Integer("max_rows", &rules.max_rows, 0));
  fields.push_back(Value("row_storage", ReadRowStorage, &out->row_storage));
  return fields;
}

absl::Status Refuse(const ConfigNode& node, const Description& description, absl::string_view why) {
  return InvalidArgument(node.where, ": variable '", description.spec.name, "': ", why);
}

// The number of shards of a variable that the job does not have; 0 or 1: it is not cut.
absl::StatusOr<int64_t> CountShards(const Places& places, const Description& description) {
  const VariableSpec& spec = description.spec;
  if (description.shards != 0 || spec.shape.empty() || spec.shape[0] == 0) {
    return description.shards;
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Partitioner> cutter,
      MakePartitioner(places.partitioner, static_cast<int32_t>(places.servers.size())));
  if (cutter == nullptr) return 1;
  ASSIGN_OR_RETURN(const std::vector<int64_t> counts, cutter->Partition(spec.shape, spec.dtype));
  return counts[0];
}

absl::Status PlaceShards(const ConfigNode& node, const Places& places, Description* out) {
  VariableSpec& spec = out->spec;
  const VariableSpec* const like = FindLike(places.there, spec);
  const bool keeps =
      like != nullptr && (out->shards == 0 || std::cmp_equal(out->shards, like->shards.size()));
  if (keeps) {
    KeepPlacement({like, 1}, spec);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t shards, CountShards(places, *out));
  if (shards <= 1 || places.servers.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<DenseShard>> cut = DivShards(RowCount(spec.shape), shards);
  if (!cut.ok()) return Refuse(node, *out, cut.status().message());
  spec.shards = *std::move(cut);
  size_t next = 0;
  for (DenseShard& shard : spec.shards) {
    shard.ps = places.servers[next++ % places.servers.size()];
  }
  return absl::OkStatus();
}

absl::Status FinishDense(const ConfigNode& node, const Places& places, Description* out) {
  VariableSpec& spec = out->spec;
  if (node.Find("shape") == nullptr) {
    return Refuse(node, *out, "has neither shape (a dense variable) nor dim (an embedding table)");
  }
  spec.shape.assign(out->shape.begin(), out->shape.end());
  const absl::StatusOr<DType> dtype = DTypeFromName(out->dtype);
  if (!dtype.ok()) return Refuse(node, *out, dtype.status().message());
  spec.dtype = *dtype;
  if (out->touched_rows == "pushed") spec.touched_rows = TouchedRows::kPushed;
  RETURN_IF_ERROR(Annotate(ElementCount(spec.shape).status(), node.where));
  return PlaceShards(node, places, out);
}

void FinishTable(Description* out) {
  VariableSpec& spec = out->spec;
  spec.shape = {out->dim};
  spec.touched_rows = TouchedRows::kPushed;
  spec.row_rules.admit_after_pushes = static_cast<int32_t>(out->admit_after_pushes);
  spec.row_storage = RowStorageFor(out->row_storage, spec.name);
}

absl::Status ReadVariable(const ConfigNode& node, const std::string& path, const Places& places,
                          VariableSpec* spec) {
  if (node.kind != ConfigNode::Kind::kMap) {
    return Unexpected(node, path, "a variable, as in {name: w, shape: [10, 2], optimizer: adam}");
  }
  Description description;
  const bool is_table = node.Find("dim") != nullptr;
  description.spec.kind = is_table ? VariableKind::kEmbedding : VariableKind::kDense;
  description.spec.optimizer.type = "none";
  RETURN_IF_ERROR(
      ReadSection(node, path, is_table ? TableFields(&description) : DenseFields(&description)));
  if (description.spec.name.empty()) return InvalidArgument(node.where, ": a variable has no name");
  if (is_table) {
    FinishTable(&description);
  } else {
    RETURN_IF_ERROR(FinishDense(node, places, &description));
  }
  *spec = std::move(description.spec);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<VariableSpec>> Parse(absl::string_view text, absl::string_view source,
                                                const Places& places) {
  ASSIGN_OR_RETURN(const ConfigNode root, ParseTree(text, source));
  std::vector<VariableSpec> specs;
  if (root.kind != ConfigNode::Kind::kList) {
    RETURN_IF_ERROR(ReadVariable(root, "", places, &specs.emplace_back()));
    return specs;
  }
  for (const ConfigNode& child : root.children) {
    const std::string path = absl::StrCat("[", specs.size(), "]");
    RETURN_IF_ERROR(ReadVariable(child, path, places, &specs.emplace_back()));
  }
  return specs;
}

}  // namespace

absl::StatusOr<std::vector<VariableSpec>> ParseVariables(absl::string_view text,
                                                         absl::string_view source,
                                                         const PartitionerConfig& partitioner,
                                                         absl::Span<const int32_t> servers,
                                                         absl::Span<const VariableSpec> there) {
  absl::StatusOr<std::vector<VariableSpec>> specs =
      Parse(text, source, Places{partitioner, servers, there});
  if (!specs.ok()) return PrintableStatus(specs.status());  // the message quotes the text
  return specs;
}

absl::StatusOr<std::unique_ptr<Partitioner>> MakePartitioner(const PartitionerConfig& config,
                                                             int32_t server_count) {
  const int64_t max_shards = config.max_shards == 0 ? server_count : config.max_shards;
  if (config.type == "min_size") return MinSizePartitioner(config.min_shard_bytes, max_shards);
  if (config.type == "max_size") return MaxSizePartitioner(config.max_shard_bytes, max_shards);
  if (config.type == "fixed_shards") return FixedShardsPartitioner(config.num_shards);
  return nullptr;
}

}  // namespace cairn
