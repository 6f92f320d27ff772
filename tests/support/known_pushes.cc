#include "tests/support/known_pushes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace cairn::test {
namespace {

Deadline PushDeadline() { return Deadline::In(absl::Seconds(60)); }

absl::Status CompareSeen(PsClient& client, const std::vector<int64_t>& counts,
                         Differences* differences) {
  constexpr int64_t kBeyond = 20, kAtATime = 100000;
  for (size_t worker = 0; worker < counts.size(); ++worker) {
    for (int64_t first = 1; first <= counts[worker] + kBeyond; first += kAtATime) {
      const int64_t end = std::min(first + kAtATime, counts[worker] + kBeyond + 1);
      std::vector<int64_t> keys;
      for (int64_t number = first; number < end; ++number) {
        keys.push_back(SeenKey(static_cast<int32_t>(worker), number));
      }
      std::vector<float> seen(keys.size());
      RETURN_IF_ERROR(PullInto(client, "seen", keys, &seen, PushDeadline()));
      for (size_t i = 0; i < seen.size(); ++i) {
        const int64_t number = first + static_cast<int64_t>(i);
        const float want = number <= counts[worker] && KnownPush::HasKey(number) ? 1 : 0;
        if (seen[i] == want) continue;
        differences->Add(
            absl::StrCat("push ", number, " of worker ", worker, " counted ", seen[i], " times"));
      }
    }
  }
  return absl::OkStatus();
}

void CompareUpdates(const std::vector<wire::DescribeReply>& described, int64_t solo_updates,
                    int64_t other_updates, Differences* differences) {
  for (const wire::DescribeReply& reply : described) {
    for (const wire::VariableInfo& variable : reply.variables) {
      const int64_t want = variable.spec.name == "solo" ? solo_updates : other_updates;
      for (const wire::ShardInfo& shard : variable.shards) {
        if (shard.version == want) continue;
        differences->Add(absl::StrCat("shard ", shard.shard, " of ", variable.spec.name, " has ",
                                      shard.version, " updates, not ", want));
      }
    }
  }
}

}  // namespace

std::vector<VariableSpec> KnownVariables() {
  std::vector<VariableSpec> specs = KnownSpecs();
  VariableSpec solo = KnownSpec("solo", VariableKind::kDense, DType::kFloat64, {kSoloRows});
  solo.shards = {{0, kSoloRows, 1}};
  specs.push_back(solo);
  specs.push_back(KnownSpec("seen", VariableKind::kEmbedding, DType::kFloat32, {1}));
  return specs;
}

std::vector<PushSource> KnownPush::Make(int32_t worker, int64_t number) {
  if (!HasKey(number)) {
    solo_.resize(kSoloRows);
    for (size_t i = 0; i < solo_.size(); ++i) {
      solo_[i] = -KnownRaise(worker, number, static_cast<int64_t>(i));
    }
    return {{.variable = "solo", .values = AsBytes(absl::MakeConstSpan(solo_))}};
  }
  std::vector<PushSource> sources = gradients_.Make(worker, number, 1);
  seen_key_ = {SeenKey(worker, number)};
  seen_value_ = {-1};
  sources.push_back({.variable = "seen",
                     .part = Part::kKeys,
                     .ids = seen_key_,
                     .values = AsBytes(absl::MakeConstSpan(seen_value_))});
  return sources;
}

absl::Status CheckKnownPushes(const std::vector<std::string>& servers, const std::string& job,
                              const std::vector<int64_t>& counts, bool updates_too) {
  KnownTotals totals;
  std::vector<double> solo_total(kSoloRows);
  int64_t solo_updates = 0, other_updates = 0;
  for (size_t w = 0; w < counts.size(); ++w) {
    const auto worker = static_cast<int32_t>(w);
    for (int64_t number = 1; number <= counts[w]; ++number) {
      if (KnownPush::HasKey(number)) {
        totals.Add(worker, number, 1);
        ++other_updates;
        continue;
      }
      ++solo_updates;
      for (int64_t i = 0; i < kSoloRows; ++i) solo_total[i] += KnownRaise(worker, number, i);
    }
  }
  ASSIGN_OR_RETURN(const auto client,
                   PsClient::Connect({.job = job, .servers = servers}, PushDeadline()));
  RETURN_IF_ERROR(client->Describe(PushDeadline()).status());
  Differences differences;
  RETURN_IF_ERROR(CompareSeen(*client, counts, &differences));
  RETURN_IF_ERROR(totals.Compare(*client, &differences));
  std::vector<double> solo(kSoloRows);
  RETURN_IF_ERROR(PullInto(*client, "solo", {}, &solo, PushDeadline()));
  differences.Compare("solo", solo, solo_total, 1);
  ASSIGN_OR_RETURN(const auto described, DescribeServers(servers, job, PushDeadline()));
  if (updates_too) CompareUpdates(described, solo_updates, other_updates, &differences);
  return differences.Status();
}

}  // namespace cairn::test
