#include "worker/trainer/steps/variable_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/partitioner.h"
#include "common/config/variable_config.h"
#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "common/variables/spec_difference.h"
#include "worker/models/key_tables.h"

namespace cairn {
namespace {

absl::StatusOr<std::vector<DenseShard>> MakeShards(const VariableSpec& spec,
                                                   const Partitioner* partitioner,
                                                   Placement* placement) {
  int64_t count = 1;
  if (partitioner != nullptr && !spec.shape.empty()) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> counts,
                     partitioner->Partition(spec.shape, spec.dtype));
    count = counts[0];
  }
  ASSIGN_OR_RETURN(std::vector<DenseShard> shards, DivShards(RowCount(spec.shape), count));
  const int64_t row_bytes = RowWidth(spec.shape) * static_cast<int64_t>(DTypeBytes(spec.dtype));
  for (DenseShard& shard : shards) shard.ps = placement->Next(shard.rows * row_bytes);
  return shards;
}

}  // namespace

absl::StatusOr<std::vector<VariableSpec>> PlanVariables(const JobConfig& job, const Model& model,
                                                        absl::Span<const int32_t> servers) {
  const auto server_count = static_cast<int32_t>(servers.size());
  ASSIGN_OR_RETURN(const std::unique_ptr<Partitioner> partitioner,
                   MakePartitioner(job.strategy.partitioner, server_count));
  const std::unique_ptr<Placement> placement = RoundRobinPlacement(server_count);
  std::vector<VariableSpec> specs(model.variables().begin(), model.variables().end());
  for (VariableSpec& spec : specs) {
    spec.optimizer = OptimizerFor(job, spec.name);
    if (spec.kind == VariableKind::kDense) {
      absl::StatusOr<std::vector<DenseShard>> shards =
          MakeShards(spec, partitioner.get(), placement.get());
      if (!shards.ok()) {
        return Annotate(shards.status(), absl::StrCat("variable '", spec.name, "'"));
      }
      spec.shards = *std::move(shards);
      for (DenseShard& shard : spec.shards) shard.ps = servers[static_cast<size_t>(shard.ps)];
    } else {
      const EmbeddingConfig& embedding = job.model.embedding;
      spec.row_rules = {.admit_after_pushes = static_cast<int32_t>(embedding.admit_after_pushes),
                        .expire_after_seconds = embedding.expire_after_seconds,
                        .max_rows = embedding.max_rows};
      spec.row_storage = RowStorageFor(embedding.row_storage, spec.name);
    }
  }
  return specs;
}

absl::Status CheckTables(absl::Span<const VariableSpec> there,
                         absl::Span<const VariableSpec> specs) {
  // The tables of key columns, each with the setting that makes it.
  constexpr std::pair<absl::string_view, absl::string_view> kTables[] = {
      {kSharedTable, "shared"},
      {kSharedVocabulary, "shared_vocabulary"},
      {kFirstColumnsTable, "per_column"}};
  const auto has = [&](absl::string_view name) {
    return std::ranges::any_of(there, [&](const VariableSpec& spec) { return spec.name == name; });
  };
  for (const VariableSpec& spec : specs) {
    const absl::string_view name = spec.name;
    const size_t slash = name.rfind('/');
    if (spec.kind != VariableKind::kEmbedding || slash == name.npos || has(name)) continue;
    const absl::string_view own = name.substr(slash + 1);
    for (const auto& [table, sharing] : kTables) {
      const bool shares_nothing = table == kFirstColumnsTable;
      if (shares_nothing && own != kSharedTable && own != kSharedVocabulary) continue;
      const std::string other = absl::StrCat(name.substr(0, slash + 1), table);
      if (!has(other)) continue;
      return AlreadyExists(
          "the job has the table \"", other, "\" and not \"", name,
          "\": set model.tables: ", sharing,
          " in the job file, give the job another name, or start over with --fresh");
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> UnmatchedPatterns(const JobConfig& job,
                                           absl::Span<const VariableSpec> specs) {
  std::vector<std::string> warnings;
  const auto check = [&](absl::string_view list, const auto& entries, bool tables_only) {
    std::vector<absl::string_view> names;
    for (const VariableSpec& spec : specs) {
      if (!tables_only || spec.kind == VariableKind::kEmbedding) names.push_back(spec.name);
    }
    const auto first = absl::MakeConstSpan(names).first(std::min<size_t>(names.size(), 20));
    for (const auto& entry : entries) {
      const bool matches = std::ranges::any_of(
          names, [&](absl::string_view name) { return MatchesPattern(entry.match, name); });
      if (matches) continue;
      warnings.push_back(absl::StrCat(list, ": match '", EscapedText(entry.match),
                                      "' has no effect: the model's ",
                                      tables_only ? "tables are " : "variables are ",
                                      names.empty() ? "none" : absl::StrJoin(first, ", "),
                                      names.size() > first.size() ? ", …" : ""));
    }
  };
  check("optimizer.per_variable", job.per_variable, false);
  check("strategy.wire.per_variable", job.strategy.wire.per_variable, false);
  check("model.embedding.row_storage.per_table", job.model.embedding.row_storage.per_table, true);
  return warnings;
}

std::vector<std::string> OptimizerChanges(absl::Span<const VariableSpec> there,
                                          absl::Span<const VariableSpec> specs) {
  std::map<std::string, int64_t> changes;
  for (const VariableSpec& spec : specs) {
    const auto before = std::ranges::find(there, spec.name, &VariableSpec::name);
    if (before == there.end() || !MayFollow(before->optimizer, spec.optimizer)) continue;
    const std::string change = OptimizerChangeText(before->optimizer, spec.optimizer);
    if (!change.empty()) ++changes[change];
  }
  std::vector<std::string> lines;
  for (const auto& [change, count] : changes) {
    lines.push_back(
        absl::StrCat("optimizer of ", count, count == 1 ? " variable: " : " variables: ", change));
  }
  return lines;
}

}  // namespace cairn
