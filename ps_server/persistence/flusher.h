// Writes changes to the store, in snapshots (here called epochs).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/metrics/slotted.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/jobs/registry.h"
#include "storage/stripe_store.h"

namespace cairn {

// The parts of a server that one update changed.
struct TouchedParts {
  std::vector<Stripe*> stripes;
  // The update may have raised a shard's update count in a way that no replay repeats.
  bool counted = false;
};

// An epoch is one snapshot: it notes how far every worker's sequences are applied, writes every
// stripe that is dirty by then, and publishes those sequences as durable. One runs at a time, in
// the thread of a caller that waits for it; callers that arrive in the meantime share the next one
// (group commit).
//
// Invariant: an epoch notes a worker's sequence only after all its parts are in their stripes and
// these are queued, and takes the queues after the notes. So an epoch contains every sequence that
// it publishes.
//
// Thread safety: every method may be called from several threads at once.
class Flusher {
 public:
  enum class Reach {
    kWritten,  // survives the process
    kSynced,   // survives the machine
  };

  // All arguments must outlive the flusher. `board` lists calls that wait for an epoch; may be
  // null.
  Flusher(StripeStore& store, Registry& registry, const EngineOptions& options,
          WaitBoard* board = nullptr);
  ~Flusher() { Stop(); }

  // Called when everything is loaded: starts the store's compaction, and the thread that runs
  // periodic epochs (under snapshot durability) and ends expired leases. kResourceExhausted: the
  // system refuses a thread.
  absl::Status Start();
  void Stop();
  // `upkeep` runs in each Tick, and must not throw. Called before Start.
  void SetUpkeep(std::function<void()> upkeep) { upkeep_ = std::move(upkeep); }
  // One pass of that thread, which calls it every TickInterval(); also for callers that have their
  // own clock. Ends leases that have run out, and runs the epoch that is due.
  absl::Duration TickInterval() const;
  void Tick();

  // Waits until everything applied before the call has reached `reach`. kDeadlineExceeded: the disk
  // did not finish within options.disk_wait. Otherwise errors as in failure(). If no epoch is
  // running, the call runs one in its own thread, where calls to the disk have no deadline.
  absl::Status Flush(Reach reach);
  // Writes these stripes ahead of all others, and waits until they survive the machine. If an epoch
  // is running, writes between two of its stripes or while it settles. Leaves out stripes that were
  // handed over or dropped. Errors as in BetweenStripes.
  absl::Status WriteNow(absl::Span<Stripe* const> stripes);
  // Waits until applied updates are as durable as the server promises for an acknowledgement.
  // STOPPING: the disk failed.
  absl::Status AwaitPromised();
  // Waits until the changes of `touched` are durable, also where the server promises less; returns
  // at once if durability is off. Stripes are written without waiting for the running epoch; a
  // changed update count waits for the next one.
  absl::Status AwaitDurable(const TouchedParts& touched);
  // Runs `write` while no epoch is running.
  absl::Status Exclusively(absl::FunctionRef<absl::Status()> write);
  // While no epoch is running, runs `apply` and then an epoch that stores the stripes that `apply`
  // returns, which are dense, together with the records: a crash leaves all of the changes or none.
  // Other stripes are written before. Durable when OK is returned, unless durability is off.
  // Returns the error of `apply`, after which it writes nothing; otherwise errors as Exclusively.
  absl::Status WriteTogether(absl::FunctionRef<absl::StatusOr<std::vector<Stripe*>>()> apply);
  // Runs `write` while no epoch is running, or while one pauses between two stripes or settles.
  // That epoch still writes all stripes that it has noted, except those handed over in the
  // meantime. Errors as in Exclusively.
  absl::Status BetweenStripes(absl::FunctionRef<absl::Status()> write);

  // OK, or the first failure to write (reason STOPPING, naming the directory and the next step). A
  // failure is permanent: memory is ahead of the disk from then on, so no more updates may be
  // acknowledged.
  absl::Status failure() const;
  // Makes `status`, the error of a write outside an epoch, the failure. Returns failure().
  absl::Status Refuse(const absl::Status& status);
  int64_t epochs() const;
  // Durations of the successful epochs.
  Histogram::Reading epoch_seconds() const { return epoch_seconds_.Read(); }
  // Time since the last successful epoch ended; nullopt: none has ended yet.
  std::optional<absl::Duration> SinceEpoch() const;

 private:
  struct OfJob {
    std::vector<Watermark> away;  // of workers that are away (Session::durable_sequence_if_away)
    std::shared_ptr<const VariableMap> variables;  // keeps the stripes alive
    std::vector<Stripe*> stripes;
  };
  struct Notes {
    std::vector<std::pair<std::shared_ptr<Session>, WorkerRecord>> workers;
    std::vector<ShardRecord> shards;
    std::vector<OfJob> jobs;
  };

  void RunOne();  // mutex_ held; releases it while it writes
  // `together`: null, or the stripes to store with the records, sorted; then no other writer may
  // write in between.
  absl::Status RunEpoch(bool sync, const std::vector<Stripe*>* together = nullptr);
  // Completes the stripe's batch with `drain`, which is called with the stripe's lock held.
  std::unique_ptr<StripeBatch> FillBatch(Stripe& stripe,
                                         absl::FunctionRef<void(StripeBatch&)> drain);
  Notes TakeNotes();
  // Writes the stripe by `write`, a method of StripeStore.
  absl::Status WriteStripe(Stripe& stripe, absl::FunctionRef<void(StripeBatch&)> drain,
                           absl::Status (StripeStore::*write)(StripeBatch&));
  absl::Status WriteInTurn(absl::FunctionRef<absl::Status()> write, bool between);
  // While it exists, the running epoch writes no stripe and no record, and lets other writers
  // write. The destructor waits for those that have begun or wait for the pause.
  class Pause {
   public:
    explicit Pause(Flusher& flusher);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Flusher& flusher_;
  };
  // Called by the running epoch between two stripes: lets other writers write. Also pauses while
  // the store is behind, so that those writers need not wait for the store inside their writes.
  void LetOthersWrite(Deadline patience);
  // Settles the store's snapshot, which takes as long as writing a table. Others write meanwhile,
  // unless the epoch runs `alone`.
  absl::Status Settle(bool alone);
  // Flush without an entry on the board.
  absl::Status AwaitEpoch(Reach reach);
  void Fail(const absl::Status& status);  // mutex_ held
  void Loop();
  bool AnyLeaseRanOut();
  void RenewLeases();

  StripeStore& store_;
  Registry& registry_;
  const EngineOptions options_;
  WaitBoard* const board_;
  const absl::Status no_memory_failure_;  // made while there is memory

  mutable absl::Mutex mutex_;  // guards the members below
  MonotonicCondVar changed_;
  bool running_ = false;
  bool paused_ = false;               // there is a Pause
  bool writing_ = false;              // a write runs in that pause, or while no epoch runs
  std::atomic<int> waiting_between_;  // writers waiting for such a pause; changes under mutex_
  int64_t begun_ = 0;                 // number of the last epoch that began
  int64_t written_ = 0;               // … that was written
  int64_t synced_ = 0;                // … that was synced
  int64_t sync_wanted_ = 0;           // epochs up to this one must be synced
  absl::Status failure_;
  std::optional<absl::Duration> epoch_ended_;  // on the monotonic clock

  std::function<void()> upkeep_ = [] {};
  StopFlag stop_;
  std::thread thread_;

  bool unsynced_ = false;      // belongs to the running epoch
  absl::Duration next_epoch_;  // on the monotonic clock; used only by the thread that calls Tick
  Histogram epoch_seconds_{kEpochSecondsBounds};
};

}  // namespace cairn
