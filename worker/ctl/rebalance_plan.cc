#include "worker/ctl/rebalance_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "common/dtype.h"
#include "common/variables/variable_map.h"

namespace cairn {
namespace {

// A bucket or a shard.
struct Piece {
  size_t variable = 0;
  size_t index = 0;
  int64_t bytes = 0;
  int64_t cold_bytes = 0;
  int64_t load = 0;
  int64_t weight = 0;  // bytes or load, whichever the plan balances
};

class Planner {
 public:
  Planner(absl::Span<const VariablePlaces> variables, int32_t server_count,
          absl::Span<const int32_t> emptied, const PieceLoads& loads)
      : by_load_(!loads.empty()),
        pieces_(static_cast<size_t>(server_count)),
        keeps_(pieces_.size(), true) {
    for (const int32_t server : emptied) keeps_[static_cast<size_t>(server)] = false;
    plan_.before.bytes.resize(pieces_.size());
    plan_.before.load.resize(pieces_.size());
    for (size_t v = 0; v < variables.size(); ++v) {
      AddPieces(v, variables[v], by_load_ ? loads[v] : std::vector<int64_t>());
    }
    for (std::vector<Piece>& of_server : pieces_) {
      std::ranges::stable_sort(of_server,
                               [](const Piece& a, const Piece& b) { return a.weight > b.weight; });
    }
    plan_.after = plan_.before;
  }

  bool any_keeps() const { return std::ranges::find(keeps_, true) != keeps_.end(); }

  RebalancePlan Plan(double tolerance) && {
    for (size_t source = 0; source < pieces_.size(); ++source) {
      while (!keeps_[source] && !pieces_[source].empty()) Take(source, 0, Least());
    }
    const std::vector<int64_t>& weights = WeightsAfter();
    const auto total = static_cast<double>(
        std::accumulate(weights.begin(), weights.end(), static_cast<int64_t>(0)));
    const auto keeping = static_cast<double>(std::ranges::count(keeps_, true));
    while (MoveFromOneAbove(total / keeping * (1 + tolerance))) {
    }
    for (auto& [key, move] : moves_) plan_.moves.push_back(std::move(move));
    return std::move(plan_);
  }

 private:
  void AddPieces(size_t v, const VariablePlaces& variable, const std::vector<int64_t>& loads) {
    const VariableSpec& spec = variable.newest;
    for (size_t s = 0; s < pieces_.size(); ++s) {
      const int64_t count = PiecesOn(spec, static_cast<int32_t>(s));
      if (count == 0) continue;
      const int64_t bytes = s < variable.bytes.size() ? variable.bytes[s] : 0;
      const int64_t cold = s < variable.cold_bytes.size() ? variable.cold_bytes[s] : 0;
      plan_.before.bytes[s] += bytes;
      for (size_t i = 0; i < std::max(spec.bucket_ps.size(), spec.shards.size()); ++i) {
        const int32_t ps = spec.bucket_ps.empty() ? spec.shards[i].ps : spec.bucket_ps[i];
        if (ps != static_cast<int32_t>(s)) continue;
        Piece piece = {
            .variable = v, .index = i, .bytes = bytes / count, .cold_bytes = cold / count};
        piece.load = i < loads.size() ? loads[i] : 0;
        piece.weight = by_load_ ? piece.load : piece.bytes;
        plan_.before.load[s] += piece.load;
        pieces_[s].push_back(piece);
      }
    }
  }

  const std::vector<int64_t>& WeightsAfter() const {
    return by_load_ ? plan_.after.load : plan_.after.bytes;
  }
  // The server with the least weight; among equals, the one with the least memory.
  size_t Least() const {
    const auto rank = [&](size_t s) { return std::pair(WeightsAfter()[s], plan_.after.bytes[s]); };
    size_t least = pieces_.size();
    for (size_t s = 0; s < pieces_.size(); ++s) {
      if (keeps_[s] && (least == pieces_.size() || rank(s) < rank(least))) least = s;
    }
    return least;
  }

  // Moves one piece from the fullest server above `most` that has a piece that fits. False: none
  // has.
  bool MoveFromOneAbove(double most) {
    std::vector<size_t> above;
    for (size_t s = 0; s < pieces_.size(); ++s) {
      if (static_cast<double>(WeightsAfter()[s]) > most) above.push_back(s);
    }
    std::ranges::stable_sort(
        above, [&](size_t a, size_t b) { return WeightsAfter()[a] > WeightsAfter()[b]; });
    const size_t to = Least();
    return std::ranges::any_of(above, [&](size_t from) { return MoveOne(from, to); });
  }

  // Moves the largest piece that brings the two servers closer together.
  bool MoveOne(size_t from, size_t to) {
    const int64_t gap = WeightsAfter()[from] - WeightsAfter()[to];
    for (size_t i = 0; i < pieces_[from].size(); ++i) {
      const int64_t weight = pieces_[from][i].weight;
      if (weight == 0 || weight >= gap) continue;
      Take(from, i, to);
      return true;
    }
    return false;
  }

  void Take(size_t from, size_t i, size_t to) {
    const Piece piece = pieces_[from][i];
    pieces_[from].erase(pieces_[from].begin() + static_cast<std::ptrdiff_t>(i));
    // A moved piece is not moved again, so it is not added to pieces_[to].
    plan_.after.bytes[from] -= piece.bytes;
    plan_.after.bytes[to] += piece.bytes;
    plan_.after.load[from] -= piece.load;
    plan_.after.load[to] += piece.load;
    PlannedMove& move = moves_[{piece.variable, from, to}];
    move.variable = piece.variable;
    move.source = static_cast<int32_t>(from);
    move.target = static_cast<int32_t>(to);
    move.pieces.push_back(piece.index);
    move.bytes += piece.bytes;
    move.cold_bytes += piece.cold_bytes;
    move.load += piece.load;
  }

  const bool by_load_;
  std::vector<std::vector<Piece>> pieces_;  // by server, the heaviest first
  std::vector<bool> keeps_;
  std::map<std::tuple<size_t, size_t, size_t>, PlannedMove> moves_;
  RebalancePlan plan_;
};

// The bytes that one access of a row moves.
int64_t LoadOfUse(const VariableSpec& spec) {
  const bool is_table = spec.kind == VariableKind::kEmbedding;
  int64_t width = 1;
  for (size_t i = is_table ? 0 : 1; i < spec.shape.size(); ++i) width *= spec.shape[i];
  return width * static_cast<int64_t>(DTypeBytes(spec.dtype)) + (is_table ? kKeyBytes : 0);
}

}  // namespace

PieceLoads LoadsBetween(absl::Span<const VariablePlaces> before,
                        absl::Span<const VariablePlaces> after, double seconds) {
  PieceLoads loads(after.size());
  for (size_t v = 0; v < after.size(); ++v) {
    const auto same = std::ranges::find_if(before, [&](const VariablePlaces& places) {
      return places.newest.name == after[v].newest.name;
    });
    const double use = static_cast<double>(LoadOfUse(after[v].newest)) / seconds;
    for (size_t i = 0; i < after[v].uses.size(); ++i) {
      int64_t uses = after[v].uses[i];
      if (same != before.end() && i < same->uses.size() && same->uses[i] <= uses) {
        uses -= same->uses[i];
      }
      loads[v].push_back(static_cast<int64_t>(static_cast<double>(uses) * use));
    }
  }
  return loads;
}

absl::StatusOr<RebalancePlan> PlanRebalance(absl::Span<const VariablePlaces> variables,
                                            int32_t server_count, absl::Span<const int32_t> emptied,
                                            double tolerance, const PieceLoads& loads) {
  Planner planner(variables, server_count, emptied, loads);
  if (!planner.any_keeps()) {
    return absl::InvalidArgumentError("--empty names every server: one has to keep the rows");
  }
  return std::move(planner).Plan(tolerance);
}

VariableSpec MapAfter(const VariableSpec& now, const PlannedMove& move) {
  VariableSpec next = now;
  ++next.map_version;
  for (const size_t piece : move.pieces) {
    if (next.bucket_ps.empty()) {
      next.shards[piece].ps = move.target;
    } else {
      next.bucket_ps[piece] = move.target;
    }
  }
  return next;
}

}  // namespace cairn
