#include "tests/simulator/observer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::simulator {

Observer::Observer(const Options& options, const Workload& work)
    : options_(options),
      work_(work),
      granted_(options.workers),
      calls_(options.servers),
      busy_(options.servers) {
  for (int32_t w = 0; w < options.workers; ++w) {
    const size_t slots = work.Servers(w).size();
    known_.emplace_back(slots * static_cast<size_t>(options.stripes));
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
  Known& known = known_[worker][slot * static_cast<size_t>(options_.stripes) + stripe];
  if (known.through > sequence) known = {};
  const auto advance = [&](Known* state) {
    const int64_t next = ++state->through;
    if ((work_.Stripes(worker, next, slot) >> stripe & 1) == 0) return;
    state->value.pushes += 1;
    state->value.marks += static_cast<double>(Workload::Mark(worker, next));
  };
  while (known.through < sequence) advance(&known);
  if (found == known.value) return;
  // A stripe may have come from the disk ahead of the others, with later pushes that are sent
  // again; but then with all up to one of them.
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

// To a start that asks again, what it has.
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

size_t SlotOf(const Workload& work, int32_t worker, int32_t server) {
  const std::vector<int32_t>& servers = work.Servers(worker);
  return std::find(servers.begin(), servers.end(), server) - servers.begin();
}

}  // namespace

void Observer::Promised(int32_t server, int32_t worker, int64_t incarnation) {
  int64_t& promised = promised_[worker][SlotOf(work_, worker, server)];
  if (incarnation < promised) {
    Violation(absl::StrCat("ps:", server, " takes incarnation ", incarnation, " of worker ", worker,
                           " after incarnation ", promised));
  }
  promised = incarnation;
}

int64_t Observer::promised(int32_t server, int32_t worker) const {
  return promised_[worker][SlotOf(work_, worker, server)];
}

void Observer::Pushed(int32_t server, int32_t worker, int64_t incarnation, int64_t sequence) {
  ++pushes;
  const int64_t known = promised(server, worker);
  if (incarnation >= known) return;
  Violation(absl::StrCat("fence: ps:", server, " takes push ", sequence, " of incarnation ",
                         incarnation, " of worker ", worker, " after it has answered incarnation ",
                         known));
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
