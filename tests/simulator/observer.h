// Observes a run from outside: counts events and checks invariants.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/hash.h"
#include "tests/simulator/fibers.h"
#include "tests/simulator/options.h"
#include "tests/simulator/workload.h"
#include "thrift/cairn_types.h"

namespace cairn::simulator {

// Thread safety: none.
class Observer {
 public:
  Observer(const Options& options, const Workload& work);

  // Records a violation. The first one is kept and ends the run.
  void Violation(const std::string& what);
  const std::string& violation() const { return violation_; }

  // Adds an event to the trace, which is equal for equal seeds.
  void Trace(int64_t a, int64_t b, int64_t c);
  uint64_t trace_hash() const { return trace_; }

  // Checks a worker's row on a server that has the worker's pushes up to `sequence`.
  void CheckRow(int32_t worker, size_t slot, uint32_t stripe, int64_t sequence,
                const RowValue& found);
  // Under sync. Contributes: a worker, in whichever start, pushes `item` under `sequence`. Decided:
  // ps:0 announces step decisions. CheckCounted: checks a row at the end against the counted
  // pushes.
  void Contributes(int32_t worker, int64_t sequence, int64_t item);
  void Decided(const std::vector<wire::StepDecision>& decisions);
  void CheckCounted(int32_t worker, size_t slot, uint32_t stripe, const RowValue& found);
  // Checks that every push of every worker counted.
  void CheckAllCount();

  // ps:0 has granted `incarnation` to `start`.
  void Granted(int32_t worker, int64_t start, int64_t incarnation);
  // Promised: a server has answered hello of `incarnation`. Pushed: a server takes a push;
  // `promised` is the incarnation (0: none) whose hello it had answered.
  void Promised(int32_t server, int32_t worker, int64_t incarnation);
  int64_t promised(int32_t server, int32_t worker) const;
  void Pushed(int32_t server, int64_t incarnation, int64_t sequence, int32_t worker,
              int64_t promised);

  // Counts attempted calls and connections of workers, and their finished steps.
  void Attempt() { ++Bucket(&attempts_); }
  void Stepped() { ++Bucket(&steps_); }
  const std::vector<int64_t>& attempts() const { return attempts_; }  // by second
  const std::vector<int64_t>& steps() const { return steps_; }
  void Served(int32_t server, Nanos cost);
  const std::vector<int64_t>& calls() const { return calls_; }  // by server
  const std::vector<Nanos>& busy() const { return busy_; }

  int64_t rows_checked = 0, pushes = 0, server_crashes = 0, worker_starts = 0, fenced = 0,
          fenced_by_late_hello = 0, gave_up = 0, resets = 0, replies_lost = 0, late = 0,
          partitions = 0, epochs = 0, movers = 0, moves = 0, joins = 0, leaves = 0;
  Nanos mass_restart_at = -1;

 private:
  int64_t& Bucket(std::vector<int64_t>* of);

  const Options& options_;
  const Workload& work_;
  std::string violation_;
  uint64_t trace_ = 0;
  // Cached value of a worker's row in a stripe after push `through`, so that it is not summed up
  // from the first push each time.
  struct Known {
    int64_t through = 0;
    RowValue value;
  };
  std::vector<std::vector<Known>> known_;  // by worker, slot and stripe
  struct Grant {
    int64_t incarnation = 0;
    int64_t start = 0;
  };
  std::vector<Grant> granted_;                     // by worker; the last grant
  std::vector<std::vector<int64_t>> promised_;     // by worker, slot
  std::vector<std::map<int64_t, int64_t>> items_;  // by worker, sequence
  std::vector<std::set<int64_t>> counted_;         // by worker: items
  std::map<int64_t, wire::StepDecision> decided_;  // by step
  std::vector<int64_t> attempts_, steps_, calls_;
  std::vector<Nanos> busy_;
};

}  // namespace cairn::simulator
