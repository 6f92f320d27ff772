#include "worker/ctl/job_commands.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "worker/client/moves/remote_moves.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/rebalance_plan.h"

namespace cairn {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(60);

absl::StatusOr<std::vector<int32_t>> EmptiedServers(const RebalanceOptions& options,
                                                    size_t server_count) {
  std::vector<int32_t> servers;
  for (const std::string& task : options.emptied) {
    ASSIGN_OR_RETURN(servers.emplace_back(), ServerIndex(task, server_count));
  }
  return servers;
}

absl::Status CheckOptions(const RebalanceOptions& options) {
  if (!(options.tolerance >= 0)) return absl::InvalidArgumentError("--tolerance is 0 or more");
  if (!(options.busy_fraction > 0 && options.busy_fraction <= 1)) {
    return absl::InvalidArgumentError("--busy_fraction is above 0 and at most 1");
  }
  if (options.by != "memory" && options.by != "load") {
    return InvalidArgument("--by is memory or load, not '", options.by, "'");
  }
  if (!(options.watch_seconds >= 0.1 && options.watch_seconds <= 3600)) {
    return absl::InvalidArgumentError("--watch_seconds is from 0.1 to 3600");
  }
  if (!(options.wait_seconds > 0)) {
    return absl::InvalidArgumentError("--wait_seconds is a number above 0");
  }
  return absl::OkStatus();
}

std::string LoadText(int64_t load) { return absl::StrCat(BytesText(load), "/s"); }

std::string MoveText(const PlannedMove& move, const VariableSpec& spec) {
  return absl::StrCat(
      spec.name, ": ", move.pieces.size(),
      spec.kind == VariableKind::kEmbedding ? " buckets" : " shards", " of ps:", move.source,
      " to ps:", move.target, ", about ", BytesText(move.bytes),
      move.cold_bytes == 0
          ? ""
          : absl::StrCat(" of memory, and ", BytesText(move.cold_bytes), " on disk only"),
      move.load == 0 ? "" : absl::StrCat(", which carry ", LoadText(move.load)));
}

// Includes the load if it is known.
nlohmann::ordered_json JsonOf(const PlannedMove& move, const VariableSpec& spec, bool by_load) {
  nlohmann::ordered_json json = {{"variable", spec.name},
                                 {"source", absl::StrCat("ps:", move.source)},
                                 {"target", absl::StrCat("ps:", move.target)},
                                 {"pieces", move.pieces.size()},
                                 {"bytes", move.bytes},
                                 {"cold_bytes", move.cold_bytes}};
  if (by_load) json["load_bytes_per_second"] = move.load;
  return json;
}

// Adds the cost of all moves together, because that is what a user reads a plan for.
void ShowTotal(const RebalancePlan& plan, Answer* answer) {
  int64_t pieces = 0, bytes = 0, cold_bytes = 0;
  for (const PlannedMove& move : plan.moves) {
    pieces += static_cast<int64_t>(move.pieces.size());
    bytes += move.bytes;
    cold_bytes += move.cold_bytes;
  }
  answer->json["total"] = {{"moves", plan.moves.size()},
                           {"pieces", pieces},
                           {"bytes", bytes},
                           {"cold_bytes", cold_bytes}};
  if (plan.moves.empty()) {
    answer->text += "nothing needs to move\n";
    return;
  }
  absl::StrAppend(
      &answer->text, "in total ", plan.moves.size(), plan.moves.size() == 1 ? " move" : " moves",
      " of ", pieces, " buckets and shards, about ", BytesText(bytes), " of memory",
      cold_bytes == 0 ? "" : absl::StrCat(" and ", BytesText(cold_bytes), " on disk"), "\n");
}

void ShowPlan(const std::vector<VariablePlaces>& variables, const RebalancePlan& plan, bool by_load,
              Answer* answer) {
  answer->json["servers"] = nlohmann::ordered_json::array();
  for (size_t s = 0; s < plan.before.bytes.size(); ++s) {
    nlohmann::ordered_json server = {{"server", absl::StrCat("ps:", s)},
                                     {"bytes", plan.before.bytes[s]},
                                     {"planned_bytes", plan.after.bytes[s]}};
    absl::StrAppend(&answer->text, "ps:", s, " has ", BytesText(plan.before.bytes[s]),
                    ", will have ", BytesText(plan.after.bytes[s]));
    if (by_load) {
      absl::StrAppend(&answer->text, "; carries ", LoadText(plan.before.load[s]), ", will carry ",
                      LoadText(plan.after.load[s]));
      server["load_bytes_per_second"] = plan.before.load[s];
      server["planned_load_bytes_per_second"] = plan.after.load[s];
    }
    answer->text += "\n";
    answer->json["servers"].push_back(std::move(server));
  }
  answer->json["moves"] = nlohmann::ordered_json::array();
  for (const PlannedMove& move : plan.moves) {
    const VariableSpec& spec = variables[move.variable].newest;
    absl::StrAppend(&answer->text, MoveText(move, spec), "\n");
    answer->json["moves"].push_back(JsonOf(move, spec, by_load));
  }
  ShowTotal(plan, answer);
}

// Adds the total cost after the moves.
void ShowMoved(Answer* answer) {
  size_t moves = 0;
  int64_t bytes = 0;
  double seconds = 0, longest_hold = 0;
  for (const auto& move : answer->json["moves"]) {
    if (!move.value("moved", false)) continue;
    ++moves;
    bytes += move.at("copied_bytes").get<int64_t>();
    seconds += move.at("seconds").get<double>();
    longest_hold = std::max(longest_hold, move.at("longest_hold_seconds").get<double>());
  }
  if (moves == 0) return;
  absl::StrAppend(&answer->text, "in total ", moves, moves == 1 ? " move" : " moves", ", ",
                  BytesText(bytes), " copied in ", SecondsText(seconds), "; updates waited for ",
                  SecondsText(longest_hold), " at most\n");
}

class Rebalancing {
 public:
  Rebalancing(const Target& target, const RebalanceOptions& options)
      : target_(target),
        options_(options),
        servers_(target.members.Live(), kCallTimeout, [this](int32_t server) {
          return target_.Connect(static_cast<size_t>(server), Deadline::In(target_.timeout));
        }) {}

  absl::StatusOr<Answer> Run(const std::vector<int32_t>& emptied) {
    const auto count = static_cast<int32_t>(target_.members.addresses.size());
    ASSIGN_OR_RETURN(std::vector<VariablePlaces> variables, servers_.Describe(target_.job));
    if (variables.empty()) return NotFound("the servers have no variables of job ", target_.job);
    const bool by_load = options_.by == "load";
    PieceLoads loads;
    if (by_load) {
      ASSIGN_OR_RETURN(loads, WatchLoads(&variables));
    }
    ASSIGN_OR_RETURN(
        const RebalancePlan plan,
        AsBadInput(PlanRebalance(variables, count, emptied, options_.tolerance, loads)));
    Answer answer;
    ShowPlan(variables, plan, by_load, &answer);
    if (options_.plan_only) return answer;
    // Shows the cost before the moves begin.
    std::fprintf(stderr, "%s", answer.text.c_str());
    answer.text.clear();
    for (const VariablePlaces& places : variables) {
      if (places.all_know) continue;
      RETURN_IF_ERROR(FinishMove(target_.job, places.newest, servers_.servers(), servers_));
    }
    RETURN_IF_ERROR(GiveUpUnplanned(variables, plan));
    for (size_t i = 0; i < plan.moves.size(); ++i) {
      const PlannedMove& planned = plan.moves[i];
      answer.problem =
          MoveOne(planned, variables[planned.variable], count, &answer, &answer.json["moves"][i]);
      if (!answer.problem.ok()) break;
    }
    ShowMoved(&answer);
    return answer;
  }

 private:
  // Aborts unfinished moves of variables that the plan does not touch: rows still in transit could
  // otherwise arrive at an emptied server. A planned move does this itself before it begins.
  absl::Status GiveUpUnplanned(const std::vector<VariablePlaces>& variables,
                               const RebalancePlan& plan) {
    if (options_.emptied.empty()) return absl::OkStatus();
    for (size_t v = 0; v < variables.size(); ++v) {
      if (std::ranges::any_of(plan.moves,
                              [v](const PlannedMove& move) { return move.variable == v; })) {
        continue;
      }
      RETURN_IF_ERROR(GiveUpMoves(target_.job, variables[v].newest, servers_.servers(), servers_));
    }
    return absl::OkStatus();
  }

  // Measures the load of `*variables` for a while, and refreshes `*variables`.
  absl::StatusOr<PieceLoads> WatchLoads(std::vector<VariablePlaces>* variables) {
    const absl::Duration start = MonotonicNow();
    absl::SleepFor(absl::Seconds(options_.watch_seconds));
    ASSIGN_OR_RETURN(std::vector<VariablePlaces> now, servers_.Describe(target_.job));
    const double seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
    PieceLoads loads = LoadsBetween(*variables, now, seconds);
    const bool idle = std::ranges::all_of(loads, [](const auto& of_variable) {
      return std::ranges::all_of(of_variable, [](int64_t load) { return load == 0; });
    });
    if (idle) {
      return FailedPrecondition("no worker pulled or pushed rows of job ", target_.job, " for ",
                                SecondsText(seconds),
                                ": no load to balance. Rebalance while it trains, "
                                "watch longer (--watch_seconds), or use --by memory");
    }
    *variables = std::move(now);
    return loads;
  }

  absl::Status MoveOne(const PlannedMove& planned, VariablePlaces& variable, int32_t count,
                       Answer* answer, nlohmann::ordered_json* json) {
    const RowMove move{.job = target_.job,
                       .now = variable.newest,
                       .next = MapAfter(variable.newest, planned),
                       .source = planned.source,
                       .target = planned.target,
                       .servers = servers_.servers()};
    const absl::StatusOr<RowMoveOutcome> moved = MoveRowsInBatches(
        move, planned.bytes + planned.cold_bytes, {.busy_fraction = options_.busy_fraction},
        servers_, Deadline::In(absl::Seconds(options_.wait_seconds)));
    (*json)["moved"] = moved.ok();
    if (!moved.ok()) {
      (*json)["error"] = std::string(moved.status().message());
      return Annotate(moved.status(), MoveText(planned, variable.newest));
    }
    variable.newest = moved->map;
    const double seconds = absl::ToDoubleSeconds(moved->took);
    const double held = absl::ToDoubleSeconds(moved->longest_hold);
    (*json)["copied_bytes"] = moved->bytes;
    (*json)["seconds"] = seconds;
    (*json)["longest_hold_seconds"] = held;
    (*json)["map_version"] = moved->map.map_version;
    absl::StrAppend(&answer->text, move.next.name, ": ", moved->stripes, " stripes with ",
                    moved->rows, " rows went from ps:", move.source, " to ps:", move.target, " in ",
                    SecondsText(seconds), ", ", BytesText(moved->bytes),
                    " copied; updates of it waited for ", SecondsText(held), " at most\n");
    return absl::OkStatus();
  }

  const Target& target_;
  const RebalanceOptions& options_;
  RemoteMoves servers_;
};

}  // namespace

absl::StatusOr<Answer> RunRebalance(const RebalanceOptions& options) {
  ASSIGN_OR_RETURN(Target target, ResolveTarget(options.target));
  if (const absl::Status valid = CheckOptions(options); !valid.ok()) return AsBadInput(valid);
  RETURN_IF_ERROR(target.LearnMembers());
  ASSIGN_OR_RETURN(std::vector<int32_t> emptied,
                   AsBadInput(EmptiedServers(options, target.members.addresses.size())));
  for (size_t i = 0; i < target.members.addresses.size(); ++i) {
    if (target.members.HasLeft(i)) emptied.push_back(static_cast<int32_t>(i));
  }
  return Rebalancing(target, options).Run(emptied);
}

}  // namespace cairn
