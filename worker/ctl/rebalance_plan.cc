#include "worker/ctl/rebalance_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "common/variable_map.h"

namespace cairn {
namespace {

// A bucket or a shard.
struct Piece {
  size_t variable = 0;
  size_t index = 0;
  int64_t bytes = 0;
  int64_t cold_bytes = 0;
};

class Planner {
 public:
  Planner(absl::Span<const VariablePlaces> variables, int32_t server_count,
          absl::Span<const int32_t> emptied)
      : pieces_(static_cast<size_t>(server_count)), keeps_(pieces_.size(), true) {
    for (const int32_t server : emptied) keeps_[static_cast<size_t>(server)] = false;
    plan_.before.resize(pieces_.size());
    for (size_t v = 0; v < variables.size(); ++v) AddPieces(v, variables[v]);
    for (std::vector<Piece>& of_server : pieces_) {
      std::stable_sort(of_server.begin(), of_server.end(),
                       [](const Piece& a, const Piece& b) { return a.bytes > b.bytes; });
    }
    plan_.after = plan_.before;
  }

  bool any_keeps() const { return std::find(keeps_.begin(), keeps_.end(), true) != keeps_.end(); }

  RebalancePlan Plan(double tolerance) && {
    for (size_t source = 0; source < pieces_.size(); ++source) {
      while (!keeps_[source] && !pieces_[source].empty()) Take(source, 0, Least());
    }
    const int64_t total = Sum();
    const auto keeping = static_cast<double>(std::count(keeps_.begin(), keeps_.end(), true));
    const double most = static_cast<double>(total) / keeping * (1 + tolerance);
    while (true) {
      const size_t from = Most(), to = Least();
      if (static_cast<double>(plan_.after[from]) <= most || !MoveOne(from, to)) break;
    }
    for (auto& [key, move] : moves_) plan_.moves.push_back(std::move(move));
    return std::move(plan_);
  }

 private:
  void AddPieces(size_t v, const VariablePlaces& variable) {
    const VariableSpec& spec = variable.newest;
    for (size_t s = 0; s < pieces_.size(); ++s) {
      const int64_t count = PiecesOn(spec, static_cast<int32_t>(s));
      if (count == 0) continue;
      const int64_t bytes = s < variable.bytes.size() ? variable.bytes[s] : 0;
      const int64_t cold = s < variable.cold_bytes.size() ? variable.cold_bytes[s] : 0;
      plan_.before[s] += bytes;
      for (size_t i = 0; i < std::max(spec.bucket_ps.size(), spec.shards.size()); ++i) {
        const int32_t ps = spec.bucket_ps.empty() ? spec.shards[i].ps : spec.bucket_ps[i];
        if (ps != static_cast<int32_t>(s)) continue;
        pieces_[s].push_back({v, i, bytes / count, cold / count});
      }
    }
  }

  int64_t Sum() const {
    int64_t sum = 0;
    for (const int64_t bytes : plan_.after) sum += bytes;
    return sum;
  }
  size_t Least() const {
    size_t least = pieces_.size();
    for (size_t s = 0; s < pieces_.size(); ++s) {
      if (keeps_[s] && (least == pieces_.size() || plan_.after[s] < plan_.after[least])) least = s;
    }
    return least;
  }
  size_t Most() const {
    return static_cast<size_t>(std::max_element(plan_.after.begin(), plan_.after.end()) -
                               plan_.after.begin());
  }

  // The largest piece that leaves both nearer to each other.
  bool MoveOne(size_t from, size_t to) {
    const int64_t gap = plan_.after[from] - plan_.after[to];
    for (size_t i = 0; i < pieces_[from].size(); ++i) {
      const int64_t bytes = pieces_[from][i].bytes;
      if (bytes == 0 || bytes >= gap) continue;
      Take(from, i, to);
      return true;
    }
    return false;
  }

  void Take(size_t from, size_t i, size_t to) {
    const Piece piece = pieces_[from][i];
    pieces_[from].erase(pieces_[from].begin() + static_cast<std::ptrdiff_t>(i));
    // What has arrived stays: its place among those that were there does not matter.
    plan_.after[from] -= piece.bytes;
    plan_.after[to] += piece.bytes;
    PlannedMove& move = moves_[{piece.variable, from, to}];
    move.variable = piece.variable;
    move.source = static_cast<int32_t>(from);
    move.target = static_cast<int32_t>(to);
    move.pieces.push_back(piece.index);
    move.bytes += piece.bytes;
    move.cold_bytes += piece.cold_bytes;
  }

  std::vector<std::vector<Piece>> pieces_;  // by server, the largest first
  std::vector<bool> keeps_;
  std::map<std::tuple<size_t, size_t, size_t>, PlannedMove> moves_;
  RebalancePlan plan_;
};

}  // namespace

absl::StatusOr<RebalancePlan> PlanRebalance(absl::Span<const VariablePlaces> variables,
                                            int32_t server_count, absl::Span<const int32_t> emptied,
                                            double tolerance) {
  Planner planner(variables, server_count, emptied);
  if (!planner.any_keeps()) {
    return absl::InvalidArgumentError("every server is to be emptied: one has to keep the rows");
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
