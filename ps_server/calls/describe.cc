#include "ps_server/calls/calls.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/core/reply_holds.h"
#include "ps_server/core/request_items.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

// Smaller replies are not charged, so that `cairnctl status` also works while memory is full.
constexpr int64_t kUnchargedDescribeBytes = 1 << 20;

// Approximate memory of a variable in a reply, and again in the message with it.
int64_t ReplyBytes(const Variable& variable, bool with_uses) {
  constexpr size_t kNames = 1 << 10;  // also of slots, optimizer and initializer
  const VariableSpec& spec = variable.spec();
  size_t bytes = sizeof(wire::VariableInfo) + kNames + spec.bucket_ps.size() * sizeof(int32_t) +
                 spec.shards.size() * sizeof(wire::DenseShard);
  for (const HostedShard* shard : variable.shards()) {
    bytes += sizeof(wire::ShardInfo) + sizeof(RowCensus);
    const bool is_table = shard == variable.table();
    if (with_uses) bytes += (is_table ? spec.bucket_ps.size() : 1) * sizeof(int64_t);
  }
  return static_cast<int64_t>(2 * bytes);
}

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

absl::Status Describe(const StatisticsReader& statistics, MemoryBudget& budget,
                      const Admitted& admitted, const wire::DescribeRequest& request,
                      wire::DescribeReply& reply) {
  const VariableMap& variables = *admitted.variables;
  std::vector<absl::string_view> names(request.variables.begin(), request.variables.end());
  if (names.empty()) {
    for (const auto& [name, variable] : variables) names.push_back(name);
    std::ranges::sort(names);
  }
  std::vector<const Variable*> named;
  int64_t bytes = 0;
  for (const absl::string_view name : names) {
    const auto found = variables.find(name);
    if (found == variables.end()) {
      return UnknownVariable(statistics.info.name, variables,
                             {.call = "describe", .variable = name});
    }
    named.push_back(found->second.get());
    bytes += ReplyBytes(*found->second, request.with_uses);
  }
  MemoryHold hold;
  if (bytes > kUnchargedDescribeBytes) {
    RETURN_IF_ERROR(
        budget.Acquire(bytes, absl::StrCat("the reply to a describe on ", statistics.info.name)));
    hold = MemoryHold(budget, bytes);
  }
  for (const Variable* variable : named) {
    reply.variables.push_back(InfoOf(*variable));
    if (request.with_uses) FillUses(*variable, reply.variables.back());
  }
  statistics.Fill(request.with_server, reply);
  if (admitted.job != nullptr) reply.timeline = admitted.job->timeline();
  const std::optional<absl::Duration> since =
      admitted.job == nullptr ? std::nullopt : admitted.job->SinceCheckpoint();
  reply.seconds_since_checkpoint = since.has_value() ? absl::ToDoubleSeconds(*since) : -1;
  if (hold.bytes() > 0) ReplyHolds::HoldUntilSent(std::move(hold));
  return absl::OkStatus();
}

}  // namespace cairn
