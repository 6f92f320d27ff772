#include "tests/simulator/observer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::simulator {

Observer::Observer(const Options& options, const Workload& work)
    : options_(options),
      work_(work),
      granted_(options.workers),
      items_(options.workers),
      counted_(options.workers),
      calls_(options.most_servers()),
      busy_(options.most_servers()) {
  for (int32_t w = 0; w < options.workers; ++w) {
    const size_t slots =
        options.rows_move() ? size_t(options.most_servers()) : work.Servers(w).size();
    known_.emplace_back(slots * static_cast<size_t>(work.stripes()));
    promised_.emplace_back(slots);
  }
}

void Observer::Violation(const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = absl::StrCat("at ", Scheduler::Current().now() / kMicrosecond, " us: ", what);
}

void Observer::Trace(int64_t a, int64_t b, int64_t c) {
  const auto now = static_cast<uint64_t>(Scheduler::Current().now());
  for (const uint64_t word : {now, uint64_t(a), uint64_t(b), uint64_t(c)}) {
    trace_ = MixBits(trace_ ^ word);
  }
}

void Observer::CheckRow(int32_t worker, size_t slot, uint32_t stripe, int64_t sequence,
                        const RowValue& found) {
  ++rows_checked;
  Known& known = known_[worker][slot * static_cast<size_t>(work_.stripes()) + stripe];
  if (known.through > sequence) known = {};
  const auto advance = [&](Known* state) {
    const int64_t next = ++state->through;
    if ((work_.Stripes(worker, next, slot) >> stripe & 1) == 0) return;
    state->value.pushes += 1;
    state->value.marks += static_cast<double>(Workload::Mark(worker, next));
  };
  while (known.through < sequence) advance(&known);
  if (found == known.value) return;
  // A stripe loaded from the disk may be ahead of the others, with later pushes that will be
  // replayed; then it must have all pushes up to one of them.
  for (Known ahead = known; ahead.through < options_.steps;) {
    advance(&ahead);
    if (found == ahead.value) return;
  }
  const double more = found.pushes - known.value.pushes;
  Violation(absl::StrCat(more < 0   ? "lost"
                         : more > 0 ? "doubled"
                                    : "exchanged",
                         ": with push ", sequence, " of worker ", worker, " stripe ", stripe,
                         " of ps:", work_.Servers(worker)[slot], " has ", found.pushes,
                         " pushes (marks ", found.marks, "), not ", known.value.pushes, " (",
                         known.value.marks, ")"));
}

void Observer::Contributes(int32_t worker, int64_t sequence, int64_t item) {
  const auto [known, is_new] = items_[worker].insert({sequence, item});
  if (is_new || known->second == item) return;
  Violation(absl::StrCat("numbers: push ", sequence, " of worker ", worker, " is its ", item,
                         "th; to a start before it was the ", known->second, "th"));
}

void Observer::Decided(const std::vector<wire::StepDecision>& decisions) {
  for (const wire::StepDecision& decision : decisions) {
    const auto [known, is_new] = decided_.insert({decision.step, decision});
    if (!is_new) {
      if (known->second == decision) continue;
      return Violation(absl::StrCat("decision: step ", decision.step, " is decided twice"));
    }
    for (const wire::Contribution& name : decision.contributions) {
      const auto item = items_[name.worker].find(name.sequence);
      if (item != items_[name.worker].end() && counted_[name.worker].insert(item->second).second) {
        continue;
      }
      return Violation(absl::StrCat("decision: step ", decision.step, " names push ", name.sequence,
                                    " of worker ", name.worker, ", which counted before"));
    }
  }
}

void Observer::CheckCounted(int32_t worker, size_t slot, uint32_t stripe, const RowValue& found) {
  ++rows_checked;
  RowValue counted;
  for (const int64_t item : counted_[worker]) {
    if ((work_.Stripes(worker, item, slot) >> stripe & 1) == 0) continue;
    counted.pushes += 1;
    counted.marks += static_cast<double>(Workload::Mark(worker, item));
  }
  if (found == counted) return;
  Violation(absl::StrCat(found.pushes < counted.pushes   ? "lost"
                         : found.pushes > counted.pushes ? "doubled"
                                                         : "exchanged",
                         ": of worker ", worker, " stripe ", stripe,
                         " of ps:", work_.Servers(worker)[slot], " has ", found.pushes,
                         " pushes (marks ", found.marks, "), and steps counted ", counted.pushes,
                         " (", counted.marks, ")"));
}

void Observer::CheckAllCount() {
  if (options_.consistency.replicas_to_aggregate > 0) return;
  for (int32_t w = 0; w < options_.workers; ++w) {
    if (counted_[w].size() == static_cast<size_t>(options_.steps)) continue;
    Violation(absl::StrCat("lost: ", counted_[w].size(), " of ", options_.steps,
                           " pushes of worker ", w, " count"));
  }
}

// A start that asks again must get the incarnation that it has.
void Observer::Granted(int32_t worker, int64_t start, int64_t incarnation) {
  Grant& last = granted_[worker];
  const bool is_again = incarnation == last.incarnation && start == last.start;
  if (incarnation <= last.incarnation && !is_again) {
    Violation(absl::StrCat("ps:0 grants incarnation ", incarnation, " of worker ", worker,
                           " to start ", start, "; it had granted ", last.incarnation, " to start ",
                           last.start));
  }
  last = {.incarnation = incarnation, .start = start};
}

namespace {

size_t SlotOf(const Options& options, const Workload& work, int32_t worker, int32_t server) {
  if (options.rows_move()) return static_cast<size_t>(server);
  const std::vector<int32_t>& servers = work.Servers(worker);
  return std::find(servers.begin(), servers.end(), server) - servers.begin();
}

}  // namespace

void Observer::Promised(int32_t server, int32_t worker, int64_t incarnation) {
  int64_t& promised = promised_[worker][SlotOf(options_, work_, worker, server)];
  if (incarnation < promised) {
    Violation(absl::StrCat("ps:", server, " takes incarnation ", incarnation, " of worker ", worker,
                           " after incarnation ", promised));
  }
  promised = incarnation;
}

int64_t Observer::promised(int32_t server, int32_t worker) const {
  return promised_[worker][SlotOf(options_, work_, worker, server)];
}

void Observer::Pushed(int32_t server, int64_t incarnation, int64_t sequence, int32_t worker,
                      int64_t promised) {
  ++pushes;
  if (incarnation >= promised) return;
  Violation(absl::StrCat("fence: ps:", server, " takes push ", sequence, " of incarnation ",
                         incarnation, " of worker ", worker, " after it has answered incarnation ",
                         promised));
}

void Observer::Served(int32_t server, Nanos cost) {
  ++calls_[server];
  busy_[server] += cost;
}

int64_t& Observer::Bucket(std::vector<int64_t>* of) {
  const auto second = static_cast<size_t>(Scheduler::Current().now() / kSecond);
  if (of->size() <= second) of->resize(second + 1);
  return (*of)[second];
}

}  // namespace cairn::simulator
