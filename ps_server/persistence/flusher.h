// Writes what changed to the store, in epochs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
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

// An epoch notes how far every worker is applied, writes every stripe that is dirty by then, and
// publishes those sequences as durable. One runs at a time, in the thread of whoever waits for it:
// callers that arrive meanwhile share the next one (group commit).
//
// Invariant: a worker is noted at a sequence only after all its parts are in their stripes and
// those are queued, and the queues are taken after the note. So what an epoch publishes is in it.
//
// Thread safety: every method may be called from several threads at once.
class Flusher {
 public:
  enum class Reach {
    kWritten,  // survives the process
    kSynced,   // survives the machine
  };

  // All outlive the flusher. `board`: where calls that wait for an epoch are noted; may be null.
  Flusher(StripeStore& store, Registry& registry, const EngineOptions& options,
          WaitBoard* board = nullptr);
  ~Flusher() { Stop(); }

  // Everything is loaded: starts the store's compaction, and the thread that runs epochs by the
  // clock (snapshot) and watches leases.
  void Start();
  void Stop();
  // What that thread does every TickInterval(), for whoever has a clock of their own instead: ends
  // leases that ran out, and runs the epoch that is due.
  absl::Duration TickInterval() const;
  void Tick();

  // Waits until everything applied before the call has got as far as `reach`.
  // kDeadlineExceeded: the disk did not answer for options.disk_wait. Else as failure(). Whoever
  // finds no epoch running runs it in its own thread, and there no call to the disk is cut short.
  absl::Status Flush(Reach reach);
  // Writes what these stripes have, whatever else there is to write, and waits until it survives
  // the machine: between two stripes of an epoch, where one runs. Those that were given away, or
  // dropped, are left out. Errors as BetweenStripes.
  absl::Status WriteNow(absl::Span<Stripe* const> stripes);
  // Runs `write` while no epoch runs.
  absl::Status Exclusively(absl::FunctionRef<absl::Status()> write);
  // Runs `write` while none runs or one stands between two stripes: it writes those that it has
  // noted all the same, but for those that were given away meanwhile. Errors as Exclusively.
  absl::Status BetweenStripes(absl::FunctionRef<absl::Status()> write);

  // OK, or the first failure to write (reason STOPPING, naming the directory and the next step).
  // It stays: memory is ahead of the disk from then on, so nothing more may be acknowledged.
  absl::Status failure() const;
  // Makes `status`, with which a write outside any epoch failed, the failure. Returns failure().
  absl::Status Refuse(const absl::Status& status);
  int64_t epochs() const;
  // How long epochs took that ended well.
  Histogram::Reading epoch_seconds() const { return epoch_seconds_.Read(); }
  // Since the last of them ended; nullopt: there was none yet.
  std::optional<absl::Duration> SinceEpoch() const;

 private:
  struct OfJob {
    std::vector<Watermark> away;  // of workers that are away (Session::known_by_number)
    std::shared_ptr<const VariableMap> variables;  // keeps the stripes alive
    std::vector<Stripe*> stripes;
  };
  struct Notes {
    std::vector<std::pair<std::shared_ptr<Session>, WorkerRecord>> workers;
    std::vector<ShardRecord> shards;
    std::vector<OfJob> jobs;
  };

  void RunOne();  // mutex_ held; releases it while it writes
  absl::Status RunEpoch(bool sync);
  Notes TakeNotes();
  // `drain`: what completes the batch, with the stripe's lock held.
  absl::Status WriteStripe(Stripe& stripe, absl::FunctionRef<void(StripeBatch&)> drain);
  absl::Status WriteInTurn(absl::FunctionRef<absl::Status()> write, bool between);
  // The running epoch, between two stripes: also while the store is behind, so that they do not
  // have to wait for it in their writes.
  void LetOthersWrite();
  // Flush without a note on the board.
  absl::Status AwaitEpoch(Reach reach);
  void Fail(const absl::Status& status);  // mutex_ held
  void Loop();
  bool AnyLeaseRanOut();
  void RenewLeases();

  StripeStore& store_;
  Registry& registry_;
  const EngineOptions options_;
  WaitBoard* const board_;

  mutable absl::Mutex mutex_;  // guards what follows
  MonotonicCondVar changed_;
  bool running_ = false;
  bool paused_ = false;               // the running epoch stands between two stripes
  bool writing_ = false;              // somebody writes in that pause, or while no epoch runs
  std::atomic<int> waiting_between_;  // for one; changes under mutex_
  int64_t begun_ = 0;                 // number of the last epoch that began
  int64_t written_ = 0;               // … that was written
  int64_t synced_ = 0;                // … that was synced
  int64_t sync_wanted_ = 0;           // epochs up to this one must be synced
  absl::Status failure_;
  std::optional<absl::Duration> epoch_ended_;  // on the monotonic clock
  bool stopping_ = false;
  MonotonicCondVar stop_;  // wakes Loop only, which epochs need not do
  std::thread thread_;

  bool unsynced_ = false;      // belongs to the running epoch
  absl::Duration next_epoch_;  // on the monotonic clock; belongs to whoever calls Tick
  Histogram epoch_seconds_{EpochSecondsBounds()};
};

}  // namespace cairn
