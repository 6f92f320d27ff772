#include "ps_server/calls/calls.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "ps_server/core/request_items.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

template <size_t n>
std::vector<wire::RowRange> RangesOf(const std::array<int64_t, n>& least,
                                     const std::array<int64_t, n>& rows) {
  std::vector<wire::RowRange> ranges(n);
  for (size_t i = 0; i < n; ++i) {
    ranges[i].least = least[i];
    ranges[i].rows = rows[i];
  }
  return ranges;
}

void FillRows(const HostedTable& table, wire::ShardInfo& info) {
  info.rows_in_memory = table.rows_in_memory();
  wire::RowFigures counts;
  AddCounts(table.counts(), counts);
  info.__set_row_figures(counts);
  const RowCensus taken = table.census();
  wire::RowCensus census;
  census.by_age = RangesOf(RowCensus::kAges, taken.by_age);
  census.by_use = RangesOf(RowCensus::kUses, taken.by_use);
  info.__set_row_census(census);
}

void FillUses(const Variable& variable, wire::VariableInfo& info) {
  const auto shards = variable.shards();
  for (size_t i = 0; i < shards.size(); ++i) info.shards[i].uses = shards[i]->uses();
}

}  // namespace

wire::VariableInfo InfoOf(const Variable& variable) {
  wire::VariableInfo info;
  info.spec = ToWire(variable.spec());
  for (const HostedShard* shard : variable.shards()) {
    wire::ShardInfo part;
    part.shard = shard->index();
    part.first_row = shard->first_row();
    part.rows = shard->row_count();
    part.stripes = shard->stripe_count();
    part.version = shard->version();
    part.memory_bytes = shard->memory_bytes();
    if (shard == variable.table()) FillRows(*variable.table(), part);
    info.shards.push_back(part);
  }
  for (const SlotSpec& slot : variable.slots()) info.slots.push_back(slot.name);
  return info;
}

absl::Status Describe(const StatisticsReader& statistics, const Admitted& admitted,
                      const wire::DescribeRequest& request, wire::DescribeReply& reply) {
  const VariableMap& variables = *admitted.variables;
  std::vector<absl::string_view> names(request.variables.begin(), request.variables.end());
  if (names.empty()) {
    for (const auto& [name, variable] : variables) names.push_back(name);
    std::sort(names.begin(), names.end());
  }
  for (const absl::string_view name : names) {
    const auto found = variables.find(name);
    if (found == variables.end()) {
      return UnknownVariable(statistics.info.name, variables,
                             {.call = "describe", .variable = name});
    }
    reply.variables.push_back(InfoOf(*found->second));
    if (request.with_uses) FillUses(*found->second, reply.variables.back());
  }
  statistics.Fill(request.with_server, reply);
  if (admitted.job != nullptr) reply.timeline = admitted.job->timeline();
  const std::optional<absl::Duration> since =
      admitted.job == nullptr ? std::nullopt : admitted.job->SinceCheckpoint();
  reply.seconds_since_checkpoint = since.has_value() ? absl::ToDoubleSeconds(*since) : -1;
  return absl::OkStatus();
}

}  // namespace cairn
