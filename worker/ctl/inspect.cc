#include "worker/ctl/job_commands.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/config/job_config.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/nearest.h"
#include "common/status.h"
#include "common/timeline.h"
#include "common/variables/row_storage.h"
#include "thrift/convert.h"
#include "worker/ctl/data_directory.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/jobs.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

bool Wanted(const std::vector<std::string>& patterns, const std::string& name) {
  return patterns.empty() ||
         std::ranges::any_of(patterns, [&](const auto& one) { return MatchesPattern(one, name); });
}

// kNotFound: a pattern that matches none of `names`.
absl::Status AllFound(const std::vector<std::string>& patterns,
                      const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    const bool found = std::ranges::any_of(
        names, [&pattern](const auto& name) { return MatchesPattern(pattern, name); });
    if (found) continue;
    const std::vector<absl::string_view> known(names.begin(), names.end());
    return NotFound("no variable is named '", pattern, "'", DidYouMean(pattern, known),
                    "; without names all ", names.size(), " are shown");
  }
  return absl::OkStatus();
}

std::string TypeText(wire::DType::type dtype) {
  const absl::StatusOr<DType> known = FromWire(dtype);
  return known.ok() ? std::string(DTypeName(*known)) : absl::StrCat("dtype ", dtype);
}

std::string KindText(const wire::VariableSpec& spec) {
  return spec.kind == wire::VariableKind::DENSE ? "dense" : "embedding";
}

std::string ShapeText(const wire::VariableSpec& spec) {
  const std::string shape = absl::StrJoin(spec.shape, ", ");
  return spec.kind == wire::VariableKind::DENSE ? absl::StrCat("[", shape, "]")
                                                : absl::StrCat("[keys, ", shape, "]");
}

std::string FormatText(wire::RowFormat::type format) {
  const auto number = static_cast<size_t>(format);
  return number < std::size(kRowFormatNames) ? std::string(kRowFormatNames[number])
                                             : absl::StrCat("format ", number);
}

Json SpecJson(const wire::VariableSpec& spec) {
  const wire::Optimizer& optimizer = spec.optimizer;
  Json json = {{"name", spec.name},
               {"kind", KindText(spec)},
               {"dtype", TypeText(spec.dtype)},
               {"shape", spec.shape},
               {"optimizer", optimizer.type},
               {"learning_rate", optimizer.learning_rate.type},
               {"learning_rate_arguments", optimizer.learning_rate.arguments},
               {"optimizer_arguments", optimizer.arguments},
               {"map_version", spec.map_version}};
  if (spec.kind == wire::VariableKind::EMBEDDING) {
    json["buckets"] = spec.bucket_ps.size();
    const wire::RowRules& rules = spec.row_rules;
    json["row_rules"] = {{"admit_after_pushes", rules.admit_after_pushes},
                         {"expire_after_seconds", rules.expire_after_seconds},
                         {"max_rows", rules.max_rows}};
    json["row_storage"] = {{"values", FormatText(spec.row_storage.values)},
                           {"slots", FormatText(spec.row_storage.slots)}};
  }
  return json;
}

// A variable with its shards on all servers.
struct Spread {
  const wire::VariableInfo* info = nullptr;  // of one server
  std::vector<std::pair<const ServerView*, const wire::ShardInfo*>> shards;
};

int64_t Sum(const Spread& spread, int64_t wire::ShardInfo::*field) {
  int64_t sum = 0;
  for (const auto& [server, shard] : spread.shards) sum += shard->*field;
  return sum;
}

// The shards' update counts differ while pushes are in flight.
std::pair<int64_t, int64_t> Versions(const Spread& spread) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (const auto& [server, shard] : spread.shards) {
    lowest =
        &shard == &spread.shards.front().second ? shard->version : std::min(lowest, shard->version);
    highest = std::max(highest, shard->version);
  }
  return {lowest, highest};
}

bool IsTable(const Spread& spread) {
  return spread.info->spec.kind == wire::VariableKind::EMBEDDING;
}

// Statistics summed over all servers, each since its start.
struct SummedRows {
  int64_t in_memory = 0;
  wire::RowFigures counts;
  // the rows by age, keyed by the lower bound of each range
  std::map<int64_t, int64_t> by_age;
  std::map<int64_t, int64_t> by_use;

  // The share of lookups of existing keys that found the row in memory.
  double HitRate() const {
    const int64_t there = counts.found + counts.loaded;
    return there == 0 ? 1 : static_cast<double>(counts.found) / static_cast<double>(there);
  }
};

SummedRows RowStatisticsOf(const Spread& spread) {
  SummedRows sum;
  for (const auto& [server, shard] : spread.shards) {
    sum.in_memory += shard->rows_in_memory;
    sum.counts.found += shard->row_figures.found;
    sum.counts.loaded += shard->row_figures.loaded;
    sum.counts.absent += shard->row_figures.absent;
    sum.counts.evicted += shard->row_figures.evicted;
    sum.counts.not_admitted += shard->row_figures.not_admitted;
    sum.counts.expired += shard->row_figures.expired;
    sum.counts.crowded_out += shard->row_figures.crowded_out;
    for (const wire::RowRange& range : shard->row_census.by_age) {
      sum.by_age[range.least] += range.rows;
    }
    for (const wire::RowRange& range : shard->row_census.by_use) {
      sum.by_use[range.least] += range.rows;
    }
  }
  return sum;
}

Json RangesJson(const std::map<int64_t, int64_t>& ranges) {
  Json json = Json::array();
  for (const auto& [least, rows] : ranges) json.push_back({{"least", least}, {"rows", rows}});
  return json;
}

Json RowStatisticsJson(const SummedRows& rows) {
  return {{"in_memory", rows.in_memory},      {"found", rows.counts.found},
          {"loaded", rows.counts.loaded},     {"absent", rows.counts.absent},
          {"evicted", rows.counts.evicted},   {"not_admitted", rows.counts.not_admitted},
          {"expired", rows.counts.expired},   {"crowded_out", rows.counts.crowded_out},
          {"hit_rate", rows.HitRate()},       {"by_age", RangesJson(rows.by_age)},
          {"by_use", RangesJson(rows.by_use)}};
}

// "4-15"; "64 or more" for the last range.
std::string RangeText(int64_t least, int64_t next) {
  if (next == least + 1) return absl::StrCat(least);
  return next > least ? absl::StrCat(least, "-", next - 1) : absl::StrCat(least, " or more");
}

// One line for each table; empty if there are no tables.
std::string RangesText(const std::map<std::string, Spread>& by_name, absl::string_view what,
                       std::map<int64_t, int64_t> SummedRows::*ranges) {
  std::map<int64_t, int64_t> all;
  std::vector<std::pair<std::string, SummedRows>> tables;
  for (const auto& [name, spread] : by_name) {
    if (!IsTable(spread)) continue;
    tables.emplace_back(name, RowStatisticsOf(spread));
    for (const auto& [least, rows] : tables.back().second.*ranges) all[least] += rows;
  }
  if (all.empty()) return "";
  std::vector<std::string> head = {"table"};
  for (auto at = all.begin(); at != all.end(); ++at) {
    const auto next = std::next(at);
    head.push_back(RangeText(at->first, next == all.end() ? at->first : next->first));
  }
  TextTable table(head);
  for (auto& [name, rows] : tables) {
    std::vector<std::string> line = {name};
    for (const auto& [least, unused] : all) line.push_back(absl::StrCat((rows.*ranges)[least]));
    table.Add(line);
  }
  return absl::StrCat("\n", what, ":\n", table.Text());
}

// One line for each table; empty if there are no tables.
std::string RowsText(const std::map<std::string, Spread>& by_name) {
  TextTable table({"table", "rows", "in memory", "found there", "loaded", "hit rate",
                   "without a row", "not admitted", "left memory", "deleted"});
  for (const auto& [name, spread] : by_name) {
    if (!IsTable(spread)) continue;
    const SummedRows rows = RowStatisticsOf(spread);
    table.Add({name, absl::StrCat(Sum(spread, &wire::ShardInfo::rows)),
               absl::StrCat(rows.in_memory), absl::StrCat(rows.counts.found),
               absl::StrCat(rows.counts.loaded), absl::StrFormat("%.3f", rows.HitRate()),
               absl::StrCat(rows.counts.absent), absl::StrCat(rows.counts.not_admitted),
               absl::StrCat(rows.counts.evicted),
               absl::StrCat(rows.counts.expired + rows.counts.crowded_out)});
  }
  return table.empty() ? "" : absl::StrCat("\nkeys of pulls and pushes:\n", table.Text());
}

Json SpreadJson(const Spread& spread) {
  Json json = SpecJson(spread.info->spec);
  json["slots"] = spread.info->slots;
  json["rows"] = Sum(spread, &wire::ShardInfo::rows);
  json["stripes"] = Sum(spread, &wire::ShardInfo::stripes);
  json["memory_bytes"] = Sum(spread, &wire::ShardInfo::memory_bytes);
  if (IsTable(spread)) json["row_figures"] = RowStatisticsJson(RowStatisticsOf(spread));
  const auto [lowest, highest] = Versions(spread);
  json["lowest_version"] = lowest;
  json["highest_version"] = highest;
  Json shards = Json::array();
  for (const auto& [server, shard] : spread.shards) {
    shards.push_back({{"server", server->name},
                      {"shard", shard->shard},
                      {"first_row", shard->first_row},
                      {"rows", shard->rows},
                      {"stripes", shard->stripes},
                      {"version", shard->version},
                      {"memory_bytes", shard->memory_bytes}});
  }
  json["shards"] = std::move(shards);
  return json;
}

std::string ShardsText(const Spread& spread) {
  TextTable table({"server", "shard", "first row", "rows", "stripes", "updates", "memory"});
  for (const auto& [server, shard] : spread.shards) {
    table.Add({server->name, absl::StrCat(shard->shard), absl::StrCat(shard->first_row),
               absl::StrCat(shard->rows), absl::StrCat(shard->stripes),
               absl::StrCat(shard->version), BytesText(shard->memory_bytes)});
  }
  return table.Text();
}

std::string NoneText(absl::string_view where, const std::vector<std::string>& patterns) {
  return patterns.empty() ? absl::StrCat(where, " hold no variables of it\n")
                          : absl::StrCat(where, " hold no variable with these names\n");
}

absl::StatusOr<Answer> InspectDirectory(const InspectOptions& options) {
  ASSIGN_OR_RETURN(const DataDirectory found, ReadDataDirectory(options.data_directory));
  Answer answer;
  Json variables = Json::array();
  TextTable table({"job", "variable", "kind", "dtype", "shape", "optimizer", "updates", "stripes",
                   "rows", "on disk"});
  std::vector<std::string> names;
  for (const StoredVariable& variable : found.variables) {
    names.push_back(variable.spec.name);
    if (!Wanted(options.variables, variable.spec.name)) continue;
    Json json = SpecJson(variable.spec);
    Json shards = Json::array();
    int64_t updates = 0;
    for (const StoredShard& shard : variable.shards) {
      shards.push_back({{"shard", shard.shard}, {"version", shard.update_count}});
      updates = std::max(updates, shard.update_count);
    }
    json["job"] = variable.job;
    json["stripes"] = variable.stripes;
    if (variable.spec.kind == wire::VariableKind::EMBEDDING) json["rows"] = variable.rows;
    json["bytes"] = variable.bytes;
    json["shards"] = std::move(shards);
    variables.push_back(std::move(json));
    table.Add(
        {variable.job, variable.spec.name, KindText(variable.spec), TypeText(variable.spec.dtype),
         ShapeText(variable.spec), variable.spec.optimizer.type, absl::StrCat(updates),
         absl::StrCat(variable.stripes),
         variable.spec.kind == wire::VariableKind::EMBEDDING ? absl::StrCat(variable.rows) : "",
         BytesText(variable.bytes)});
  }
  Json workers = Json::array();
  TextTable standing({"job", "worker", "starts", "durable sequence", ""});
  for (const StoredWorker& worker : found.workers) {
    workers.push_back({{"job", worker.job},
                       {"ordinal", worker.worker},
                       {"incarnation", worker.incarnation},
                       {"sequence", worker.sequence},
                       {"left", worker.left}});
    standing.Add({worker.job, absl::StrCat(worker.worker),
                  absl::StrCat(StartsOf(worker.incarnation)), absl::StrCat(worker.sequence),
                  worker.left ? "left" : ""});
  }
  answer.text = absl::StrCat(
      "ps:", found.server, ", started ", found.boot_count, " times, ", options.data_directory,
      "\n\n", table.empty() ? NoneText("these files", options.variables) : table.Text(),
      standing.empty() ? "" : "\n" + standing.Text());
  answer.json = {{"data_dir", options.data_directory},
                 {"server", absl::StrCat("ps:", found.server)},
                 {"boot_count", found.boot_count},
                 {"variables", std::move(variables)},
                 {"workers", std::move(workers)}};
  answer.problem = AllFound(options.variables, names);
  return answer;
}

}  // namespace

Answer InspectAnswer(const Target& target, const std::vector<ServerView>& servers,
                     const std::vector<std::string>& patterns) {
  std::map<std::string, Spread> by_name;
  std::set<std::string> names;
  for (const ServerView& server : servers) {
    for (const wire::VariableInfo& info : server.described.variables) {
      names.insert(info.spec.name);
      if (!Wanted(patterns, info.spec.name)) continue;
      Spread& spread = by_name[info.spec.name];
      spread.info = &info;
      for (const wire::ShardInfo& shard : info.shards) spread.shards.emplace_back(&server, &shard);
    }
  }
  Answer answer;
  Json variables = Json::array();
  TextTable table({"variable", "kind", "dtype", "shape", "rows", "optimizer", "slots", "updates",
                   "stripes", "shards", "memory"});
  for (const auto& [name, spread] : by_name) {
    variables.push_back(SpreadJson(spread));
    const auto [lowest, highest] = Versions(spread);
    table.Add({name, KindText(spread.info->spec), TypeText(spread.info->spec.dtype),
               ShapeText(spread.info->spec), absl::StrCat(Sum(spread, &wire::ShardInfo::rows)),
               spread.info->spec.optimizer.type, absl::StrJoin(spread.info->slots, ","),
               lowest == highest ? absl::StrCat(lowest) : absl::StrCat(lowest, "-", highest),
               absl::StrCat(Sum(spread, &wire::ShardInfo::stripes)),
               absl::StrCat(spread.shards.size()),
               BytesText(Sum(spread, &wire::ShardInfo::memory_bytes))});
  }
  answer.text = absl::StrCat("job ", target.job, "\n\n",
                             table.empty() ? NoneText("the servers", patterns) : table.Text(),
                             RowsText(by_name),
                             RangesText(by_name,
                                        "rows in memory, by pushes to their bucket since "
                                        "their last one (a sample)",
                                        &SummedRows::by_age),
                             RangesText(by_name,
                                        "rows in memory, by rounds of eviction that they "
                                        "would stay unused (a sample)",
                                        &SummedRows::by_use));
  if (by_name.size() == 1) {
    absl::StrAppend(&answer.text, "\n", ShardsText(by_name.begin()->second));
  }
  answer.json = {{"job", target.job}, {"variables", std::move(variables)}};
  answer.problem = AnythingWrong(target.job, servers);
  // If a server is missing, a pattern may match nothing because its variables are missing.
  if (answer.problem.ok()) answer.problem = AllFound(patterns, {names.begin(), names.end()});
  return answer;
}

absl::StatusOr<Answer> RunInspect(const InspectOptions& options) {
  if (!options.data_directory.empty()) {
    if (!options.target.cluster_file.empty() || !options.target.servers.empty()) {
      return AsBadInput(absl::InvalidArgumentError(
          "--data_dir reads files, --cluster and --servers ask servers: give one of them"));
    }
    return InspectDirectory(options);
  }
  ASSIGN_OR_RETURN(const Target target, ResolveOnlyJob(options.target));
  return InspectAnswer(target, AskServers(target), options.variables);
}

}  // namespace cairn
