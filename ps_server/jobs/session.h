// One worker of one job, as this server knows it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Incarnation, how far the worker's sequences are applied and durable, and its lease. Sequences are
// those of DESIGN §4.
// Thread safety: every method may be called from several threads at once.
class Session {
 public:
  // `applied_is_durable`: durability off, where an acknowledgement is all a push gets.
  Session(absl::string_view job, int32_t worker, bool applied_is_durable);
  // From what the store kept.
  Session(const WorkerRecord& record, bool applied_is_durable);

  // Held over a push, an assign and a hello, so that they run one after the other.
  absl::Mutex& order() { return order_; }

  const std::string& job() const { return job_; }
  int32_t worker() const { return worker_; }

  int64_t incarnation() const;
  int64_t applied() const;
  // Whether it is away: it has taken its leave, or its lease has ended, and it has not come back.
  // Kept on disk, so that a restarted server does not wait for it.
  void SetLeft(bool left);
  bool left() const;
  // Highest incarnation of this session that is on disk.
  int64_t durable_incarnation() const;
  // The incarnation only rises; `origin` is for messages. `start`: HelloRequest.start.
  void Admit(int64_t incarnation, absl::string_view origin, int64_t start = 0);
  std::string origin() const;
  // The start that has the incarnation; 0: not known.
  int64_t start() const;

  // Everything of `sequence` is in its stripes (or it is void). Order held.
  void Applied(int64_t sequence, absl::string_view position);
  // The same of one that waited for its step, which has closed. An empty position is one that is
  // not known here: that of an earlier sequence stays. Throws nothing.
  void Closed(int64_t sequence, std::string position);
  // No sequence up to `through` has a part here that is neither applied nor waits for its step.
  // Order held. Not kept on disk: a durable sequence is one that had a part here, so that its
  // position is known.
  void Through(int64_t through);
  // `sequence` is here and waits for its step to close. Order held.
  void AddWaiting(int64_t sequence);
  // Highest sequence that is applied, or waits with everything before it: what may follow comes
  // after it.
  int64_t reached() const;
  bool any_waiting() const;

  // Seen now; the lease lasts `lease` from here. Measured on the monotonic clock.
  void Renew(absl::Duration lease);
  void EndLease();
  // A lease that has not ended lasts `lease` from here, though the worker was not seen.
  void ExtendLease(absl::Duration lease);
  bool leased() const;
  // True once, after the lease has run out by itself: the worker was last seen before that.
  bool LeaseRanOut();
  // A heartbeat: Renew, but one that the worker's leave has overtaken does not take it back.
  void Beat(absl::Duration lease, const wire::WorkerVitals& vitals);
  // The last, and how long ago; for ever where there were none since the worker's start.
  std::pair<wire::WorkerVitals, absl::Duration> vitals() const;

  // Whether the worker has sent again what this server lost when it was restarted: it made a call
  // that comes after that, or is a start that lost nothing here.
  bool caught_up() const { return caught_up_.load(std::memory_order_acquire); }
  void NoteCaughtUp() {
    if (!caught_up()) caught_up_.store(true, std::memory_order_release);
  }
  void NoteRestarted() { caught_up_.store(false, std::memory_order_release); }

  // Whether this start of the worker has asked for the job's variables as they are now, so that it
  // counts on their optimizers' arguments.
  bool counts_on_specs() const { return counts_on_specs_.load(std::memory_order_relaxed); }
  void NoteCountsOnSpecs() { counts_on_specs_.store(true, std::memory_order_relaxed); }

  // Since the last Renew; since this was made, where there was none.
  absl::Duration SinceSeen() const;

  // Every call is to ask Cohort::Check first. Set and cleared by the cohort alone.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  void set_stopped(bool stopped) { stopped_.store(stopped, std::memory_order_release); }

  // applied and durable, as replies report them.
  void Fill(wire::ServerState& state) const;
  // The position that belongs to the durable sequence; empty: none.
  std::string position() const;

  // Of a worker that is away: up to here its sequences are durable on this server, so that no
  // stripe needs a watermark to know them. 0: it is here, or none are.
  int64_t known_by_number() const;

  // False where the store has all of it. For an epoch.
  bool Note(WorkerRecord& record) const;
  // With what is on disk already, but the new incarnation: for durability off.
  WorkerRecord NoteIncarnation() const;
  // `record` is on disk and synced.
  void Published(const WorkerRecord& record);

 private:
  void RenewLocked(absl::Duration lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const std::string job_;
  const int32_t worker_;
  const bool applied_is_durable_;
  absl::Mutex order_;

  mutable absl::Mutex mutex_;  // guards what follows
  int64_t incarnation_ = 0;
  std::string origin_;
  int64_t start_ = 0;
  int64_t applied_ = 0;          // the last with a part here, or void
  std::string position_;         // of applied_; after Closed, of an earlier one
  std::deque<int64_t> waiting_;  // sequences above applied_ that wait for their step, in order
  int64_t through_ = 0;
  WorkerRecord durable_;
  bool left_ = false;
  absl::Duration seen_;         // on the monotonic clock
  absl::Duration lease_until_;  // likewise
  bool leased_ = false;
  wire::WorkerVitals vitals_;
  absl::Duration vitals_at_ = -absl::InfiniteDuration();  // likewise

  std::atomic<bool> stopped_{false};
  std::atomic<bool> caught_up_{true};
  std::atomic<bool> counts_on_specs_{false};
};

}  // namespace cairn
