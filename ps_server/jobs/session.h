// One server's state of one worker of one job.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ps_server/rows/pulled_rows.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

// A worker's incarnation, how far its sequences are applied and durable on this server
// (worker/client/EXACTLY_ONCE.md), and its lease.
// Thread safety: every method may be called from several threads at once.
class Session {
 public:
  // `applied_is_durable`: durability is off, so an applied sequence is reported as durable.
  Session(absl::string_view job, int32_t worker, bool applied_is_durable);
  // From the stored record.
  Session(const WorkerRecord& record, bool applied_is_durable);

  // Held during a push, an assign and a hello, so that they run one after the other.
  absl::Mutex& order() { return order_; }

  const std::string& job() const { return job_; }
  int32_t worker() const { return worker_; }

  int64_t incarnation() const;
  int64_t applied() const;
  // Whether the worker is away: it said leave or its lease ended, and it has not returned. Stored
  // on disk, so that a restarted server does not wait for it.
  void SetLeft(bool left);
  bool left() const;
  // The highest incarnation of this session that is on disk.
  int64_t durable_incarnation() const;
  // Sets the incarnation, which never decreases. `origin` is for messages. `start`:
  // HelloRequest.start.
  void Admit(int64_t incarnation, absl::string_view origin, int64_t start = 0);
  // The admitted start has joined the job's cohort.
  void NoteJoined();
  // Raises the incarnation to at least this one without a hello: earlier starts of the worker are
  // fenced, and the next hello is the first one of its start here. Order held.
  void Fence(int64_t incarnation);
  // Whether the worker is known here only by its fence, which came with moved rows: it has not said
  // hello to this server. False after a restart of the server.
  bool only_fenced() const;
  // Whether no hello with the incarnation has succeeded since Fence or Admit raised it.
  bool awaits_hello() const;
  std::string origin() const;
  // For messages to fenced starts: the origin of the start that has the incarnation, if its hello
  // has succeeded here.
  std::string holder() const;
  // The start of the worker that has the incarnation; 0: unknown.
  int64_t start() const;
  // Whether a later start has taken the place of `start`. Knows the last kKnownStarts starts.
  bool WasReplaced(int64_t start) const;
  static constexpr size_t kKnownStarts = 8;

  // Every part of `sequence` is in its stripes, or the sequence is void. Order held.
  void Applied(int64_t sequence, absl::string_view position);
  // Like Applied, for a sequence that waited for its step, which has closed. An empty `position`
  // means that it is not known here: the position of an earlier sequence stays. Does not throw.
  void Closed(int64_t sequence, std::string position);
  // Every sequence up to `through` that has a part here is applied or waits for its step. Order
  // held. Not stored on disk: a durable sequence must have a part here, so that its position is
  // known.
  void Through(int64_t through);
  // `sequence` has arrived and waits for its step to close. Order held.
  void AddWaiting(int64_t sequence);
  // The highest sequence such that it and all sequences before it are applied or waiting. The next
  // push must follow it.
  int64_t reached() const;
  bool any_waiting() const;

  // The worker was seen now; its lease lasts `lease` from now, on the monotonic clock.
  void Renew(absl::Duration lease);
  void EndLease();
  // If the lease has not ended, it lasts `lease` from now, although the worker was not seen.
  void ExtendLease(absl::Duration lease);
  bool leased() const;
  // True once, after the lease has run out without EndLease. The worker was last seen before that.
  bool LeaseRanOut();
  // A heartbeat: as Renew, but a heartbeat that arrives after the worker's leave does not undo the
  // leave.
  void Beat(absl::Duration lease, const wire::WorkerVitals& vitals);
  // The last reported vitals and their age; an infinite age if this start of the worker has
  // reported none.
  std::pair<wire::WorkerVitals, absl::Duration> vitals() const;

  // Whether the worker has resent what this server lost in a restart: it has made a later call, or
  // it is a start that lost nothing here.
  bool caught_up() const { return caught_up_.load(std::memory_order_acquire); }
  void NoteCaughtUp() {
    if (!caught_up()) caught_up_.store(true, std::memory_order_release);
  }
  void NoteRestarted() { caught_up_.store(false, std::memory_order_release); }

  // Whether this start of the worker has asked for the job's current variables, and so relies on
  // their optimizers' arguments.
  bool counts_on_specs() const { return counts_on_specs_.load(std::memory_order_relaxed); }
  void NoteCountsOnSpecs() { counts_on_specs_.store(true, std::memory_order_relaxed); }

  // What the worker's last pull found.
  LastPull& last_pull() { return last_pull_; }

  // Time since the last Renew, or since construction.
  absl::Duration SinceSeen() const;

  // If true, every call must ask Cohort::Check first. Only the cohort sets it.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  void set_stopped(bool stopped) { stopped_.store(stopped, std::memory_order_release); }

  // Fills in applied and durable, as replies report them.
  void Fill(wire::ServerState& state) const;
  // The position that belongs to the durable sequence; empty: none.
  std::string position() const;

  // For a worker that is away: the sequence up to which its updates are durable on this server, so
  // that stripes need no watermark for them. 0: the worker is not away, or no sequence is durable.
  int64_t durable_sequence_if_away() const;

  // Fills `record` for a snapshot. False: the store has the current state already.
  bool Note(WorkerRecord& record) const;
  // The stored record with the new incarnation, for a write outside a snapshot.
  WorkerRecord NoteIncarnation() const;
  // `record` is on disk and synced.
  void Published(const WorkerRecord& record);

 private:
  void RaiseLocked(int64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RenewLocked(absl::Duration lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const std::string job_;
  const int32_t worker_;
  const bool applied_is_durable_;
  absl::Mutex order_;

  mutable absl::Mutex mutex_;  // guards the members below
  int64_t incarnation_ = 0;
  bool awaits_hello_ = false;
  bool only_fenced_ = false;
  std::string origin_;
  int64_t start_ = 0;
  std::array<int64_t, kKnownStarts> replaced_starts_{};  // the latest first; 0: none
  int64_t applied_ = 0;   // the last sequence with a part here, or void
  std::string position_;  // position of applied_; after Closed, possibly of an earlier sequence
  std::deque<int64_t> waiting_;  // sequences above applied_ that wait for their step, ascending
  int64_t through_ = 0;
  WorkerRecord durable_;
  bool left_ = false;
  absl::Duration seen_;         // on the monotonic clock
  absl::Duration lease_until_;  // on the monotonic clock
  bool leased_ = false;
  wire::WorkerVitals vitals_;
  absl::Duration vitals_at_ = -absl::InfiniteDuration();  // on the monotonic clock

  std::atomic<bool> stopped_{false};
  std::atomic<bool> caught_up_{true};
  std::atomic<bool> counts_on_specs_{false};
  LastPull last_pull_;
};

}  // namespace cairn
