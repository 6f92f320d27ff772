#include "common/variables/spec_difference.h"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/arguments.h"

namespace cairn {
namespace {

using Compare = absl::FunctionRef<void(absl::string_view field, const std::string& have,
                                       const std::string& want)>;

std::string TextOf(const OptimizerConfig& full, const std::string& argument) {
  const auto found = full.arguments.find(argument);
  return found == full.arguments.end() ? "none" : NumberText(found->second);
}

void CompareOptimizers(const OptimizerConfig& have, const OptimizerConfig& want, Compare compare) {
  const OptimizerConfig a = WithDefaults(have), b = WithDefaults(want);
  compare("type", a.type, b.type);
  if (a.type != b.type) return;  // their arguments cannot be compared
  compare("learning_rate", ScheduleText(a.learning_rate), ScheduleText(b.learning_rate));
  std::set<std::string> names;
  for (const auto& [name, value] : a.arguments) names.insert(name);
  for (const auto& [name, value] : b.arguments) names.insert(name);
  for (const std::string& name : names) compare(name, TextOf(a, name), TextOf(b, name));
  compare("clipvalue", NumberText(a.clipvalue), NumberText(b.clipvalue));
  compare("clipnorm", NumberText(a.clipnorm), NumberText(b.clipnorm));
  compare("global_clipnorm", NumberText(a.global_clipnorm), NumberText(b.global_clipnorm));
}

std::string KindText(VariableKind kind) {
  return kind == VariableKind::kEmbedding ? "embedding" : "dense";
}

std::string RowStorageText(const RowStorage& storage) {
  return absl::StrCat(RowFormatName(storage.values), " (slots ", RowFormatName(storage.slots), ")");
}

std::string ShardsText(const VariableSpec& spec) {
  return absl::StrJoin(spec.shards, ", ", [](std::string* out, const DenseShard& shard) {
    absl::StrAppend(out, shard.rows, " rows on ps:", shard.ps);
  });
}

}  // namespace

bool MayFollow(const OptimizerConfig& have, const OptimizerConfig& want) {
  if (have.type != want.type) return false;
  const absl::StatusOr<std::unique_ptr<Optimizer>> a = Optimizer::Create(have);
  const absl::StatusOr<std::unique_ptr<Optimizer>> b = Optimizer::Create(want);
  if (!a.ok() || !b.ok()) return false;
  const auto same = [](const SlotSpec& x, const SlotSpec& y) {
    return x.name == y.name && x.initial_value == y.initial_value;
  };
  return std::equal((*a)->slots().begin(), (*a)->slots().end(), (*b)->slots().begin(),
                    (*b)->slots().end(), same);
}

std::string OptimizerChangeText(const OptimizerConfig& have, const OptimizerConfig& want) {
  std::vector<std::string> texts;
  CompareOptimizers(have, want,
                    [&](absl::string_view field, const std::string& a, const std::string& b) {
                      if (a != b) texts.push_back(absl::StrCat(field, " ", a, " -> ", b));
                    });
  return absl::StrJoin(texts, ", ");
}

std::string SpecDifferenceText(const VariableSpec& have, const VariableSpec& want) {
  std::vector<std::string> texts;
  const auto compare = [&](absl::string_view field, const std::string& a, const std::string& b) {
    if (a == b) return;
    texts.push_back(absl::StrCat(field, ": the job has ", a.empty() ? "none" : a, ", asked for ",
                                 b.empty() ? "none" : b));
  };
  compare("kind", KindText(have.kind), KindText(want.kind));
  compare("dtype", std::string(DTypeName(have.dtype)), std::string(DTypeName(want.dtype)));
  compare("shape", ShapeText(have.shape), ShapeText(want.shape));
  CompareOptimizers(have.optimizer, want.optimizer,
                    [&](absl::string_view field, const std::string& a, const std::string& b) {
                      compare(absl::StrCat("optimizer.", field), a, b);
                    });
  compare("initializer", InitializerText(have.initializer), InitializerText(want.initializer));
  compare("touched_rows", have.touched_rows == TouchedRows::kAll ? "all" : "pushed",
          want.touched_rows == TouchedRows::kAll ? "all" : "pushed");
  compare("admit_after_pushes", absl::StrCat(have.row_rules.admit_after_pushes),
          absl::StrCat(want.row_rules.admit_after_pushes));
  compare("expire_after_seconds", absl::StrCat(have.row_rules.expire_after_seconds),
          absl::StrCat(want.row_rules.expire_after_seconds));
  compare("max_rows", absl::StrCat(have.row_rules.max_rows), absl::StrCat(want.row_rules.max_rows));
  compare("row_storage", RowStorageText(have.row_storage), RowStorageText(want.row_storage));
  // The placement of rows follows from the shape, so compare it only if nothing else differs.
  if (texts.empty()) {
    compare("buckets", absl::StrCat(have.bucket_ps.size()), absl::StrCat(want.bucket_ps.size()));
    compare("shards", ShardsText(have), ShardsText(want));
    compare("map_version", absl::StrCat(have.map_version), absl::StrCat(want.map_version));
  }
  if (texts.empty()) texts.push_back("buckets: the job has them on other servers than asked for");
  return absl::StrJoin(texts, "; ");
}

}  // namespace cairn
