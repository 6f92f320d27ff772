#include "tests/support/known_contributions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace cairn::test {
namespace {

constexpr int kFactor = 12;
constexpr int64_t kMostAtOnce = 4;  // contributions of a step

Deadline ContributionDeadline() { return Deadline::In(absl::Seconds(60)); }

constexpr absl::string_view kOncePrefix = "once";
std::string OnceName(int32_t server) { return absl::StrCat(kOncePrefix, server); }

bool Near(double found, double want) { return std::abs(found - want) < 1e-3; }

// The state of one contribution on one server.
struct Standing {
  bool counted = false;
  int64_t among = 0;  // number of contributions to its step
};

// The states of a worker's contributions 1 … count and a few more, by server.
using Standings = std::array<std::vector<Standing>, kKnownServers>;

class Check {
 public:
  Check(PsClient& client, LostContributions lost)
      : client_(client), any_lost_(!lost.empty()), lost_(std::move(lost)) {}

  absl::Status Worker(int32_t worker, int64_t count);
  // Checks `closed_step` and the other fields of each server.
  void Steps(const std::vector<wire::DescribeReply>& described, bool updates_too);
  absl::StatusOr<ContributionCounts> Finish();

 private:
  absl::Status Find(int32_t server, int32_t worker, int64_t count, std::vector<Standing>* found);
  void Judge(int32_t worker, int64_t number, const Standings& standings);

  PsClient& client_;
  const bool any_lost_;
  LostContributions lost_;  // not yet found missing
  ContributionCounts counts_;
  KnownTotals totals_;
  std::array<int64_t, kKnownServers> twelfths_ = {};  // of steps, by the counted weights
  Differences differences_;
};

absl::Status Check::Find(int32_t server, int32_t worker, int64_t count,
                         std::vector<Standing>* found) {
  constexpr int64_t kBeyond = 20;
  std::vector<int64_t> keys;
  for (int64_t number = 1; number <= count + kBeyond; ++number) {
    keys.push_back(SeenKey(worker, number));
  }
  std::vector<float> times(keys.size()), accumulated(keys.size());
  RETURN_IF_ERROR(PullInto(client_, OnceName(server), keys, &times, ContributionDeadline()));
  RETURN_IF_ERROR(PullInto(client_, OnceName(server), keys, &accumulated, ContributionDeadline(),
                           "accumulator"));
  for (size_t i = 0; i < keys.size(); ++i) {
    Standing& standing = found->emplace_back();
    const int64_t number = static_cast<int64_t>(i) + 1;
    const auto say = [&](const std::string& what) {
      differences_.Add(absl::StrCat("contribution ", number, " of worker ", worker, " ", what,
                                    " on ps:", server));
    };
    if (Near(times[i], 0)) continue;
    standing.counted = true;
    if (!IsOnce(times[i])) say(absl::StrCat("moved its key by ", times[i], ", not once by 1,"));
    if (number > count) say("counted, which is not known to have been made,");
    standing.among = std::lround(kFactor / std::sqrt(accumulated[i]));
    const bool possible = standing.among >= 1 && standing.among <= kMostAtOnce;
    if (!possible || !Near(kFactor / std::sqrt(accumulated[i]), standing.among)) {
      say(absl::StrCat("has accumulated ", accumulated[i], ", not the square of 12, 6, 4 or 3,"));
      standing.among = 1;
    }
  }
  return absl::OkStatus();
}

void Check::Judge(int32_t worker, int64_t number, const Standings& standings) {
  bool anywhere = false;
  int64_t among = 0;
  for (const std::vector<Standing>& server : standings) {
    const Standing& standing = server[number - 1];
    anywhere = anywhere || standing.counted;
    among = std::max(among, standing.among);
  }
  for (int32_t s = 0; s < kKnownServers; ++s) {
    const Standing& standing = standings[s][number - 1];
    if (standing.counted) twelfths_[s] += 12 / standing.among;
    if (standing.counted == anywhere && standing.among == among) continue;
    // If a server lost a contribution, the others of its step have a larger weight there.
    if (standing.counted ? any_lost_ : --lost_[{s, worker}] >= 0) continue;
    differences_.Add(
        absl::StrCat("contribution ", number, " of worker ", worker, " counted among ", among,
                     " on some server, on ps:", s,
                     standing.counted ? absl::StrCat(" among ", standing.among) : " not at all"));
  }
  if (!anywhere) {
    ++counts_.dropped[worker];
    return;
  }
  ++counts_.counted;
  totals_.Add(worker, number, static_cast<double>(kFactor) / static_cast<double>(among));
}

absl::Status Check::Worker(int32_t worker, int64_t count) {
  counts_.dropped.push_back(0);
  Standings standings;
  for (int32_t s = 0; s < kKnownServers; ++s) {
    RETURN_IF_ERROR(Find(s, worker, count, &standings[s]));
  }
  for (int64_t number = 1; number <= count; ++number) Judge(worker, number, standings);
  return absl::OkStatus();
}

void Check::Steps(const std::vector<wire::DescribeReply>& described, bool updates_too) {
  counts_.steps = described[0].state.closed_step;
  for (int32_t s = 0; s < kKnownServers; ++s) {
    const int64_t closed = described[s].state.closed_step;
    if (closed != counts_.steps) {
      differences_.Add(
          absl::StrCat("ps:", s, " has closed ", closed, " steps, ps:0 ", counts_.steps));
    }
    if (!any_lost_ && twelfths_[s] != 12 * closed) {
      differences_.Add(absl::StrCat("the weights on ps:", s, " are those of ", twelfths_[s],
                                    "/12 steps, not of ", closed));
    }
    if (!updates_too) continue;
    for (const wire::VariableInfo& variable : described[s].variables) {
      for (const wire::ShardInfo& shard : variable.shards) {
        if (shard.version * 12 == twelfths_[s]) continue;
        differences_.Add(absl::StrCat(
            "shard ", shard.shard, " of ", variable.spec.name, " on ps:", s, " has ", shard.version,
            " updates, but contributions of ", twelfths_[s], "/12 steps count there"));
      }
    }
  }
}

absl::StatusOr<ContributionCounts> Check::Finish() {
  // A server's totals do not contain the contributions that it lost.
  if (!any_lost_) RETURN_IF_ERROR(totals_.Compare(client_, &differences_));
  RETURN_IF_ERROR(differences_.Status());
  return counts_;
}

}  // namespace

std::vector<VariableSpec> ContributionVariables() {
  std::vector<VariableSpec> specs = KnownSpecs();
  for (int32_t s = 0; s < kKnownServers; ++s) {
    VariableSpec once = KnownSpec(OnceName(s), VariableKind::kEmbedding, DType::kFloat32, {1});
    once.optimizer.type = "adagrad";
    once.optimizer.arguments["initial_accumulator_value"] = 0;
    once.bucket_ps = {s, s};
    specs.push_back(once);
  }
  return specs;
}

std::vector<PushSource> KnownContribution::Make(int32_t worker, int64_t number) {
  std::vector<PushSource> sources = gradients_.Make(worker, number, kFactor);
  key_ = {SeenKey(worker, number)};
  value_ = {-kFactor};
  names_.clear();
  for (int32_t s = 0; s < kKnownServers; ++s) names_.push_back(OnceName(s));
  for (const std::string& name : names_) {
    sources.push_back({.variable = name,
                       .part = Part::kKeys,
                       .ids = key_,
                       .values = AsBytes(absl::MakeConstSpan(value_))});
  }
  return sources;
}

bool StaysWhereItIs(absl::string_view variable) { return absl::StartsWith(variable, kOncePrefix); }

bool IsOnce(double moved) { return Near(moved, 1); }

absl::Status TimesCounted(PsClient& client, int32_t server, int32_t worker,
                          const std::vector<int64_t>& numbers, Deadline deadline,
                          std::vector<float>* times) {
  std::vector<int64_t> keys;
  for (const int64_t number : numbers) keys.push_back(SeenKey(worker, number));
  times->resize(keys.size());
  return PullInto(client, OnceName(server), keys, times, deadline);
}

absl::StatusOr<ContributionCounts> CheckKnownContributions(const std::vector<std::string>& servers,
                                                           const std::string& job,
                                                           const std::vector<int64_t>& counts,
                                                           LostContributions lost,
                                                           bool updates_too) {
  ASSIGN_OR_RETURN(const auto client,
                   PsClient::Connect({.job = job, .servers = servers}, ContributionDeadline()));
  RETURN_IF_ERROR(client->Describe(ContributionDeadline()).status());
  Check check(*client, std::move(lost));
  for (size_t w = 0; w < counts.size(); ++w) {
    RETURN_IF_ERROR(check.Worker(static_cast<int32_t>(w), counts[w]));
  }
  ASSIGN_OR_RETURN(const auto described, DescribeServers(servers, job, ContributionDeadline()));
  check.Steps(described, updates_too);
  return check.Finish();
}

}  // namespace cairn::test
