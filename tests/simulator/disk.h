// A server's disk: synced contents and pending writes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/stripe_store.h"
#include "tests/simulator/fibers.h"
#include "tests/simulator/random.h"

namespace cairn::simulator {

struct DiskCosts {
  Nanos write = 50 * kMicrosecond;  // writing a stripe or record to the log
  Nanos sync = 2 * kMillisecond;
};

// Outlives the starts of its server. Thread safety: concurrent reads only.
class Disk {
 public:
  struct StripeContent {
    std::vector<Watermark> watermarks;
    std::map<int64_t, std::string> rows;
  };
  struct Content {
    std::map<uint32_t, VariableRecord> variables;                    // by id
    std::map<std::pair<uint32_t, uint32_t>, StripeContent> stripes;  // by variable and stripe
    std::map<uint32_t, ShardRecord> shards;                          // by variable
    std::map<int32_t, WorkerRecord> workers;
    std::map<int64_t, DecisionRecord> decisions;  // by step
    std::map<std::string, std::string> notes;     // by name
  };
  // One atomic write: a stripe, the records at the end of a snapshot, a decision, a variable's map,
  // or notes.
  struct Write {
    bool is_stripe = false;
    bool logged = true;  // survives the process
    StripeId id;
    StripeContent stripe;
    std::vector<ShardRecord> shards;
    std::vector<WorkerRecord> workers;
    std::vector<DecisionRecord> decisions;
    int64_t forgotten = 0;  // deletes decisions up to this step
    std::vector<VariableRecord> variables;
    std::vector<StripeId> removed;
    std::vector<NoteRecord> notes;
  };

  void Put(Write write) { pending_.push_back(std::move(write)); }
  // Makes the logged writes survive the machine.
  void Sync();
  // Makes all writes survive the machine, if some are not logged: a write buffer becomes a table.
  void FlushUnlogged();
  // FlushUnlogged, if a write to the stripe is not logged.
  void FlushUnlogged(const StripeId& id);
  // EndProcess keeps every logged write. EndMachine keeps the synced writes, and the logged ones of
  // a random prefix of the others.
  void EndProcess();
  void EndMachine(Random& random);
  // Mutations: a disk whose syncs do nothing, one that leaves writes unlogged, and one that tears
  // writes.
  void LoseEverySync() { lies_ = true; }
  void NeverFlush() { never_flushes_ = true; }
  void TearWrites() { tears_ = true; }

  int64_t Open() { return ++boots_; }
  const Content& content() const { return synced_; }  // valid while no write is pending
  // Whether the disk has the stripe, or a pending write of it.
  bool Has(const StripeId& id) const;

 private:
  void Apply(Write write);

  Content synced_;
  std::vector<Write> pending_;
  int64_t boots_ = 0;
  bool lies_ = false, never_flushes_ = false, tears_ = false;
};

// The store of one start of a server. Calls take simulated time and must be made in fibers, except
// loading. `alive`: once false the server has ended, and every later write fails.
std::unique_ptr<StripeStore> OpenOn(Disk* disk, const DiskCosts& costs, const bool* alive);

}  // namespace cairn::simulator
