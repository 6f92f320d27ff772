// A server's disk: what a synced write leaves there for good, and what is on its way.
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
  Nanos write = 50 * kMicrosecond;  // of a stripe or a record, into the log
  Nanos sync = 2 * kMillisecond;
};

// Outlives the starts of its server. Thread safety: none, but for reading.
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
  // One write, whole or not at all: a stripe, the records at the end of an epoch, a decision, a
  // variable's map, or notes.
  struct Write {
    bool is_stripe = false;
    StripeId id;
    StripeContent stripe;
    std::vector<ShardRecord> shards;
    std::vector<WorkerRecord> workers;
    std::vector<DecisionRecord> decisions;
    int64_t forgotten = 0;  // decisions up to this step go
    std::vector<VariableRecord> variables;
    std::vector<StripeId> gone;
    std::vector<NoteRecord> notes;
  };

  void Put(Write write) { pending_.push_back(std::move(write)); }
  void Sync();
  // The process ends: what is written stays. The machine ends: of what is not synced some stays, in
  // the order in which it was written.
  void EndProcess() { Sync(); }
  void EndMachine(Random& random);
  // The same where the disk is not what it says: a mutation.
  void LoseEverySync() { lies_ = true; }
  void TearWrites() { tears_ = true; }

  int64_t Open() { return ++boots_; }
  const Content& content() const { return synced_; }  // with nothing pending
  // Whether the stripe is there, or on its way there.
  bool Has(const StripeId& id) const;

 private:
  void Apply(Write write);

  Content synced_;
  std::vector<Write> pending_;
  int64_t boots_ = 0;
  bool lies_ = false, tears_ = false;
};

// The store of one start of a server. Calls take simulated time and are of fibers; loading is not.
// `alive`: once false, the server has ended, and every later write fails.
std::unique_ptr<StripeStore> OpenOn(Disk* disk, const DiskCosts& costs, const bool* alive);

}  // namespace cairn::simulator
