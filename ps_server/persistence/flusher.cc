#include "ps_server/persistence/flusher.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/scoped_unlock.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/rows/slices.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// How often to check whether the store is still behind.
constexpr absl::Duration kBehindPause = absl::Milliseconds(5);
// How long an epoch waits for the store altogether, where pushes do and do not wait for the epoch.
// Then it writes as fast as RocksDB lets it.
constexpr absl::Duration kBehindPatience = absl::Seconds(10);
constexpr absl::Duration kBehindPatienceOfPushes = absl::Milliseconds(200);
// Pause after each slice that is copied under a stripe's lock, for a fraction of a millisecond.
constexpr absl::Duration kFlushSlicePause = absl::Microseconds(100);

absl::Status FailureOf(const absl::Status& status, const EngineOptions& options) {
  return WithReason(
      absl::Status(status.code(),
                   absl::StrCat("ps:", options.server_index, " cannot write to ", options.directory,
                                ": ", status.message(),
                                "; pushes are rejected from now on, pulls continue: free space or "
                                "repair the disk, then restart this server")),
      wire::ErrorReason::STOPPING);
}

}  // namespace

Flusher::Flusher(StripeStore& store, Registry& registry, const EngineOptions& options,
                 WaitBoard* board)
    : store_(store),
      registry_(registry),
      options_(options),
      board_(board),
      no_memory_failure_(FailureOf(absl::ResourceExhaustedError(kNoMemoryText), options)),
      next_epoch_(MonotonicNow() + options.snapshot_interval) {}

absl::Status Flusher::Start() {
  ASSIGN_OR_RETURN(thread_, StartThread([this] { Loop(); }));
  return absl::OkStatus();
}

void Flusher::Stop() {
  stop_.Stop();
  if (thread_.joinable()) thread_.join();
}

absl::Status Flusher::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

int64_t Flusher::epochs() const {
  absl::MutexLock lock(&mutex_);
  return written_;
}

std::optional<absl::Duration> Flusher::SinceEpoch() const {
  absl::MutexLock lock(&mutex_);
  if (!epoch_ended_.has_value()) return std::nullopt;
  return MonotonicNow() - *epoch_ended_;
}

absl::Status Flusher::Flush(Reach reach) {
  const WaitBoard::Waiting waiting(
      board_, "epoch", absl::StrCat("applied updates to be written to ", options_.directory));
  return AwaitEpoch(reach);
}

absl::Status Flusher::AwaitEpoch(Reach reach) {
  const Deadline deadline = Deadline::In(options_.disk_wait);
  absl::MutexLock lock(&mutex_);
  const int64_t target = begun_ + 1;  // a running epoch may have taken its notes too early
  if (reach == Reach::kSynced) sync_wanted_ = std::max(sync_wanted_, target);
  while (failure_.ok()) {
    if ((reach == Reach::kSynced ? synced_ : written_) >= target) return absl::OkStatus();
    if (!running_) {
      RunOne();
    } else if (!deadline.Expired()) {
      changed_.WaitUntil(&mutex_, deadline);
    } else {
      return DeadlineExceeded("writing to ", options_.directory, " took longer than ",
                              absl::FormatDuration(options_.disk_wait),
                              ": check the disk, then retry");
    }
  }
  return failure_;
}

absl::Status Flusher::Exclusively(absl::FunctionRef<absl::Status()> write) {
  return WriteInTurn(write, /*between=*/false);
}

absl::Status Flusher::BetweenStripes(absl::FunctionRef<absl::Status()> write) {
  return WriteInTurn(write, /*between=*/true);
}

absl::Status Flusher::WriteTogether(
    absl::FunctionRef<absl::StatusOr<std::vector<Stripe*>>()> apply) {
  const bool sync =
      options_.durability != Durability::kOff && options_.durability != Durability::kLog;
  return Exclusively([&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<Stripe*> stripes, apply());
    std::ranges::sort(stripes);
    const absl::Status written = CatchBadAlloc([&] { return RunEpoch(sync, &stripes); });
    return written.ok() ? written : Refuse(written);
  });
}

absl::Status Flusher::WriteInTurn(absl::FunctionRef<absl::Status()> write, bool between) {
  const Deadline deadline = Deadline::In(options_.disk_wait);
  const WaitBoard::Waiting waiting(board_, "epoch",
                                   absl::StrCat("its turn to write to ", options_.directory));
  absl::MutexLock lock(&mutex_);
  const auto blocked = [&] {
    mutex_.AssertHeld();
    return writing_ || (running_ && !(between && paused_));
  };
  waiting_between_ += between;
  while (blocked() && !deadline.Expired()) changed_.WaitUntil(&mutex_, deadline);
  waiting_between_ -= between;
  if (blocked() || !failure_.ok()) {
    changed_.SignalAll();  // the epoch no longer waits for this call
    if (!failure_.ok()) return failure_;
    return DeadlineExceeded("a snapshot to ", options_.directory, " has taken longer than ",
                            absl::FormatDuration(options_.disk_wait),
                            ": check the disk, then retry");
  }
  const bool alone = !running_;
  running_ = writing_ = true;
  const absl::Cleanup ended = [&] {
    mutex_.AssertHeld();
    writing_ = false;
    if (alone) running_ = false;
    changed_.SignalAll();
  };
  const ScopedUnlock unlock(&mutex_);
  return write();
}

void Flusher::LetOthersWrite(Deadline patience) {
  const auto behind = [&] { return !stop_.stopped() && !patience.Expired() && store_.Behind(); };
  if (waiting_between_.load(std::memory_order_relaxed) == 0 && !behind()) return;
  const Pause pause(*this);
  absl::MutexLock lock(&mutex_);
  while (behind()) changed_.WaitUntil(&mutex_, Deadline::In(kBehindPause));
}

Flusher::Pause::Pause(Flusher& flusher) : flusher_(flusher) {
  absl::MutexLock lock(&flusher_.mutex_);
  flusher_.paused_ = true;
  flusher_.changed_.SignalAll();
}

Flusher::Pause::~Pause() {
  const Deadline deadline = Deadline::In(flusher_.options_.disk_wait);
  absl::MutexLock lock(&flusher_.mutex_);
  while (flusher_.writing_ || (flusher_.waiting_between_.load() > 0 && !deadline.Expired())) {
    flusher_.changed_.WaitUntil(&flusher_.mutex_, Deadline::In(flusher_.options_.disk_wait));
  }
  flusher_.paused_ = false;
}

void Flusher::RunOne() {
  running_ = true;
  const int64_t epoch = ++begun_;
  const bool sync = sync_wanted_ >= epoch;
  const absl::Duration begin = MonotonicNow();
  absl::Status status;
  {
    const ScopedUnlock unlock(&mutex_);
    // Stripes that an epoch drained and could not write are missing on disk. No later epoch may
    // publish more, so running out of memory is a failure like any other.
    status = CatchBadAlloc([&] { return RunEpoch(sync); });
  }
  const absl::Duration end = MonotonicNow();
  running_ = false;
  if (status.ok()) {
    epoch_seconds_.Observe(absl::ToDoubleSeconds(end - begin));
    epoch_ended_ = end;
    written_ = epoch;
    if (sync) synced_ = epoch;
  } else {
    Fail(status);
  }
  changed_.SignalAll();
}

absl::Status Flusher::Refuse(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  Fail(status);
  changed_.SignalAll();
  return failure_;
}

void Flusher::Fail(const absl::Status& status) {
  if (!failure_.ok()) {
    if (status != failure_) {
      LOG(ERROR) << "ps:" << options_.server_index << " also failed to write: " << status.message();
    }
    return;
  }
  failure_ = no_memory_failure_;  // stays if there is no memory for the text of `status`
  CatchBadAlloc([&] {
    failure_ = FailureOf(status, options_);
    return absl::OkStatus();
  }).IgnoreError();
  LOG(ERROR) << failure_.message();
}

Flusher::Notes Flusher::TakeNotes() {
  Notes notes;
  const auto jobs = registry_.jobs();
  for (const auto& job : jobs) {
    std::vector<std::shared_ptr<Session>> sessions = job->sessions();
    OfJob& of_job = notes.jobs.emplace_back();
    for (const auto& session : sessions) {
      const int64_t sequence = session->durable_sequence_if_away();
      if (sequence > 0) of_job.away.push_back({session->worker(), sequence});
    }
    // The sequences that a closing step applied are published together with the step.
    if (auto steps = job->steps().session(); steps != nullptr) sessions.push_back(std::move(steps));
    if (auto timeline = job->timeline_record(); timeline != nullptr) {
      sessions.push_back(std::move(timeline));
    }
    absl::MutexLock lock(&job->steps().notes_mutex());
    for (std::shared_ptr<Session>& session : sessions) {
      WorkerRecord record;
      if (session->Note(record)) notes.workers.emplace_back(std::move(session), std::move(record));
    }
  }
  for (size_t j = 0; j < jobs.size(); ++j) {
    OfJob& of_job = notes.jobs[j];
    of_job.variables = jobs[j]->variables();
    for (const auto& [name, variable] : *of_job.variables) {
      for (HostedShard* shard : variable->shards()) {
        ShardRecord record;
        if (shard->Note(variable->id(), of_job.away, record)) {
          notes.shards.push_back(std::move(record));
        }
        shard->dirty().TakeInto(of_job.stripes);
      }
    }
    // In the order of their keys, the tables of a snapshot do not overlap.
    std::ranges::sort(of_job.stripes, {}, [](const Stripe* stripe) {
      const StripeId& id = stripe->id();
      return std::tuple(id.variable, id.shard, id.stripe);
    });
  }
  return notes;
}

std::unique_ptr<StripeBatch> Flusher::FillBatch(Stripe& stripe,
                                                absl::FunctionRef<void(StripeBatch&)> drain) {
  std::unique_ptr<StripeBatch> batch = store_.NewBatch(stripe.id());
  InSlices(stripe, *batch, kFlushSlicePause,
           [&] { return stripe.DrainAhead(*batch, kSliceBytes); });
  absl::MutexLock lock(&stripe.mutex());
  drain(*batch);
  return batch;
}

absl::Status Flusher::WriteStripe(Stripe& stripe, absl::FunctionRef<void(StripeBatch&)> drain,
                                  absl::Status (StripeStore::*write)(StripeBatch&)) {
  const absl::MutexLock writing(&stripe.writing());
  RETURN_IF_ERROR(stripe.BeginBatch());
  const std::unique_ptr<StripeBatch> batch = FillBatch(stripe, drain);
  CAIRN_CRASH_POINT("epoch: before a stripe is written");
  RETURN_IF_ERROR((store_.*write)(*batch));
  stripe.EndBatch();
  return absl::OkStatus();
}

absl::Status Flusher::AwaitPromised() {
  switch (options_.durability) {
    case Durability::kLog: return Flush(Reach::kWritten);
    case Durability::kLogSync: return Flush(Reach::kSynced);
    case Durability::kOff:
    case Durability::kSnapshot: return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Flusher::AwaitDurable(const TouchedParts& touched) {
  if (options_.durability == Durability::kOff) return absl::OkStatus();
  return touched.counted ? Flush(Reach::kSynced) : WriteNow(touched.stripes);
}

absl::Status Flusher::WriteNow(absl::Span<Stripe* const> stripes) {
  const auto write = [&]() -> absl::Status {
    std::set<uint32_t> there;
    for (const auto& job : registry_.jobs()) {
      const std::shared_ptr<const VariableMap> variables = job->variables();
      for (const auto& [name, variable] : *variables) there.insert(variable->id());
    }
    for (Stripe* stripe : stripes) {
      // Durable on the server that has it now, or part of a dropped job.
      if (stripe->handed_over() || !there.contains(stripe->id().variable)) continue;
      RETURN_IF_ERROR(WriteStripe(
          *stripe, [&](StripeBatch& batch) { stripe->DrainEarly(batch); }, &StripeStore::Write));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(BetweenStripes([&] {
    const absl::Status written = CatchBadAlloc(write);
    return written.ok() ? written : Refuse(written);
  }));
  CAIRN_CRASH_POINT("stripes out of turn: written, not synced");
  const absl::Status synced = store_.Sync();
  return synced.ok() ? synced : Refuse(synced);
}

absl::Status Flusher::Settle(bool alone) {
  std::optional<Pause> pause;
  if (!alone) pause.emplace(*this);
  return store_.SettleSnapshot();
}

absl::Status Flusher::RunEpoch(bool sync, const std::vector<Stripe*>* together) {
  const Notes notes = TakeNotes();
  CAIRN_CRASH_POINT("epoch: noted");
  std::vector<std::unique_ptr<StripeBatch>> with_records;
  const bool pushes_wait =
      options_.durability == Durability::kLog || options_.durability == Durability::kLogSync;
  const Deadline patience = Deadline::In(pushes_wait ? kBehindPatienceOfPushes : kBehindPatience);
  for (const OfJob& job : notes.jobs) {
    for (Stripe* stripe : job.stripes) {
      if (together == nullptr) LetOthersWrite(patience);
      // A writer that failed meanwhile may have handed over stripes without storing that.
      RETURN_IF_ERROR(failure());
      if (stripe->handed_over()) continue;
      const auto drain = [&](StripeBatch& batch) {
        stripe->ForgetWatermarks(job.away);
        stripe->Drain(batch);
      };
      if (together != nullptr && std::binary_search(together->begin(), together->end(), stripe)) {
        with_records.push_back(FillBatch(*stripe, drain));
        continue;
      }
      // A snapshot that is not synced must survive the process, as only the log does at once.
      RETURN_IF_ERROR(
          WriteStripe(*stripe, drain, sync ? &StripeStore::WriteInSnapshot : &StripeStore::Write));
      unsynced_ = true;
      CAIRN_CRASH_POINT("epoch: between stripes");
    }
  }
  // Before the records, which must not survive without the stripes.
  if (sync) RETURN_IF_ERROR(Settle(/*alone=*/together != nullptr));
  if (!notes.shards.empty() || !notes.workers.empty() || !with_records.empty()) {
    std::vector<WorkerRecord> workers;
    for (const auto& [session, record] : notes.workers) workers.push_back(record);
    CAIRN_CRASH_POINT("epoch: before the records");
    RETURN_IF_ERROR(failure());
    RETURN_IF_ERROR(store_.WriteEpoch(notes.shards, workers, absl::MakeSpan(with_records)));
    unsynced_ = true;
    CAIRN_CRASH_POINT("epoch: before the sync");
  }
  if (sync && unsynced_) {
    RETURN_IF_ERROR(store_.Sync());
    unsynced_ = false;
    CAIRN_CRASH_POINT("epoch: synced");
  }
  // Under `log`, durable means that it survives the process; otherwise, the machine.
  if (sync || options_.durability == Durability::kLog) {
    for (const auto& [session, record] : notes.workers) session->Published(record);
    CAIRN_CRASH_POINT("epoch: published");
  }
  return absl::OkStatus();
}

bool Flusher::AnyLeaseRanOut() {
  bool any = false;
  for (const auto& job : registry_.jobs()) {
    for (const auto& session : job->sessions()) {
      if (!session->LeaseRanOut()) continue;
      LOG(WARNING) << "worker " << session->worker() << " of job " << job->name() << " ("
                   << session->origin() << ") was not heard of for "
                   << absl::FormatDuration(options_.lease) << ": its lease has ended";
      job->cohort().Lose(session->worker());
      any = true;
    }
  }
  return any;
}

void Flusher::RenewLeases() {
  LOG(WARNING) << "ps:" << options_.server_index
               << " was suspended for a while: the leases of its workers are renewed";
  for (const auto& job : registry_.jobs()) {
    for (const auto& session : job->sessions()) session->ExtendLease(options_.lease);
  }
}

absl::Duration Flusher::TickInterval() const {
  const absl::Duration of_leases = options_.lease / 4;
  const absl::Duration tick = options_.durability == Durability::kSnapshot
                                  ? std::min(options_.snapshot_interval, of_leases)
                                  : of_leases;
  return std::max(absl::Milliseconds(1), tick);
}

void Flusher::Tick() {
  upkeep_();
  const bool by_the_clock = options_.durability == Durability::kSnapshot;
  const bool early = AnyLeaseRanOut() && options_.durability != Durability::kOff;
  if (!failure().ok() || (!early && !(by_the_clock && MonotonicNow() >= next_epoch_))) return;
  // A failure is logged and stored at its source.
  AwaitEpoch(Reach::kSynced).IgnoreError();
  next_epoch_ = MonotonicNow() + options_.snapshot_interval;
}

void Flusher::Loop() {
  // Here, and not when the server opens: RocksDB syncs a file for this, and no caller should wait
  // for it.
  if (const absl::Status status = store_.StartCompaction(); !status.ok()) {
    Refuse(status).IgnoreError();  // logged and stored
  }
  const absl::Duration tick = TickInterval();
  for (;;) {
    const Deadline late = Deadline::In(tick + options_.lease / 2);
    if (stop_.WaitFor(tick)) return;
    // If this process was stopped itself (SIGSTOP, a suspended machine), it could not receive the
    // calls of its workers.
    const absl::Status ticked = CatchBadAlloc([&] {
      if (late.Expired()) RenewLeases();
      Tick();
      return absl::OkStatus();
    });
    if (!ticked.ok()) LOG(ERROR) << "ps:" << options_.server_index << ": " << ticked.message();
  }
}

}  // namespace cairn
