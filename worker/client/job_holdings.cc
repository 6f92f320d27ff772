#include "worker/client/job_holdings.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/timeline.h"
#include "common/variables/spec_difference.h"
#include "common/variables/variable_map.h"
#include "thrift/cairn_types.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

bool Holds(const ServerHolding& server, const std::string& variable) {
  return std::binary_search(server.variables.begin(), server.variables.end(), variable);
}

bool SameTimeline(const ServerHolding& a, const ServerHolding& b) {
  return a.timeline != 0 && std::abs(a.timeline) == std::abs(b.timeline);
}

// The server to compare the others with: preferably one with a timeline that workers have trained,
// else a restored one, else one whose job has no timeline.
const ServerHolding* Reference(const std::vector<ServerHolding>& servers) {
  const ServerHolding* best = nullptr;
  const auto rank = [](const ServerHolding& server) {
    return server.timeline > 0 ? 2 : server.timeline < 0 ? 1 : 0;
  };
  for (const ServerHolding& server : servers) {
    if (server.variables.empty()) continue;
    if (best == nullptr || rank(server) > rank(*best)) best = &server;
  }
  return best;
}

// Names of the variables that the newest maps place on `server` but that it lacks.
std::vector<std::string> Lacking(const JobHoldings& holdings, const ServerHolding& server) {
  std::vector<std::string> lacking;
  for (const VariableSpec& spec : holdings.specs) {
    const std::vector<int32_t> places = PlacesOf(spec);
    const bool placed = std::ranges::find(places, server.server) != places.end();
    if (placed && !Holds(server, spec.name)) lacking.push_back(spec.name);
  }
  return lacking;
}

// Why `server` does not hold the timeline of `reference`; empty: it does.
std::string Difference(const JobHoldings& holdings, const ServerHolding& reference,
                       const ServerHolding& server) {
  // A server of the same timeline may lack variables: a start was interrupted while it created
  // them, and the next one creates the rest.
  if (&server == &reference || SameTimeline(server, reference)) return "";
  if (!server.variables.empty() && server.timeline != 0 && reference.timeline != 0) {
    return absl::StrCat(server.name, " holds it as it began at ",
                        TimelineText(std::abs(server.timeline)), ", ", reference.name,
                        " as it began at ", TimelineText(std::abs(reference.timeline)));
  }
  const bool took_part = server.server < ServersOfTimeline(std::abs(reference.timeline));
  const std::vector<std::string> lacking = Lacking(holdings, server);
  if (server.variables.empty() && (took_part || !lacking.empty())) {
    return absl::StrCat(server.name, " holds nothing of it, and ", reference.name, " does");
  }
  if (lacking.empty() || reference.timeline == 0) return "";
  return absl::StrCat(server.name, " lacks \"", lacking.front(), "\"",
                      lacking.size() > 1 ? absl::StrCat(" and ", lacking.size() - 1, " more") : "",
                      ", of which the map of ", reference.name, " gives it rows");
}

void FindDisagreement(const std::string& job, JobHoldings* holdings) {
  const ServerHolding* const reference = Reference(holdings->servers);
  if (reference == nullptr) return;
  std::vector<std::string> differences;
  for (const ServerHolding& server : holdings->servers) {
    std::string difference = Difference(*holdings, *reference, server);
    if (!difference.empty()) differences.push_back(std::move(difference));
  }
  if (differences.empty()) return;
  holdings->from_unfinished_restore = std::ranges::all_of(
      holdings->servers,
      [](const ServerHolding& one) { return one.variables.empty() || one.timeline < 0; });
  holdings->disagreement = absl::StrCat("job '", job, "': ", absl::StrJoin(differences, "; "));
}

}  // namespace

absl::StatusOr<JobHoldings> CombineHoldings(const std::string& job,
                                            absl::Span<const DescribedServer> servers,
                                            int32_t most_servers) {
  JobHoldings holdings;
  std::map<std::string, VariableSpec> by_name;
  std::string conflict;
  for (const DescribedServer& server : servers) {
    ServerHolding& holding = holdings.servers.emplace_back();
    holding.server = server.server;
    holding.name = server.name;
    holding.timeline = server.described->timeline;
    holding.closed_step = server.described->state.closed_step;
    for (const wire::VariableInfo& info : server.described->variables) {
      absl::StatusOr<VariableSpec> spec = FromWire(info.spec, server.server, most_servers);
      if (!spec.ok()) return Annotate(spec.status(), absl::StrCat("describe to ", server.name));
      holding.variables.push_back(spec->name);
      const auto [at, inserted] = by_name.try_emplace(spec->name, *spec);
      VariableSpec& known = at->second;
      if (inserted || known == *spec) continue;
      // Other optimizer arguments are accepted: a start was interrupted while it changed them, and
      // the next one completes the change.
      if (MayFollow(known.optimizer, spec->optimizer)) spec->optimizer = known.optimizer;
      if (known == *spec) continue;
      // A server whose rows did not move may not know the newest map.
      if (SameButPlaces(known, *spec) && known.map_version != spec->map_version) {
        if (spec->map_version > known.map_version) known = *std::move(spec);
      } else if (conflict.empty()) {
        conflict = absl::StrCat(
            "job '", job, "': ", server.name, " holds \"", spec->name,
            "\" with another spec than an earlier server: ", SpecDifferenceText(known, *spec));
      }
    }
    std::ranges::sort(holding.variables);
  }
  for (auto& [name, spec] : by_name) holdings.specs.push_back(std::move(spec));
  FindDisagreement(job, &holdings);
  if (holdings.disagreement.empty()) holdings.disagreement = std::move(conflict);
  return holdings;
}

absl::Status CheckAgreement(const JobHoldings& holdings) {
  if (holdings.disagreement.empty()) return absl::OkStatus();
  return DataLoss(
      holdings.disagreement,
      ": start each server on its own --data_dir, restore a checkpoint (checkpoint.directory), or "
      "start over with --fresh");
}

}  // namespace cairn
