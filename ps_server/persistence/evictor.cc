#include "ps_server/persistence/evictor.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/log.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/rows/slices.h"

namespace cairn {
namespace {

// As in a snapshot: the pause after each slice that is copied under a stripe's lock.
constexpr absl::Duration kEvictSlicePause = absl::Microseconds(50);
// Each eviction writes all changes of the stripe, so it should evict at least kMinRows;
// kMaxRows keeps the batch small.
constexpr int64_t kMinRows = 2048;
constexpr int64_t kMaxRows = 8192;
// Pause between rounds while memory is not short, or nothing can be evicted.
constexpr absl::Duration kPause = absl::Milliseconds(100);
// The lookup of cold rows is charged at most half of the budget, so that rows have room too.
constexpr int64_t kMaxLookupShare = 2;

// Pause between two measurements of the resident memory during a round.
constexpr absl::Duration kChargePause = absl::Milliseconds(20);
// Pause between two calls of malloc_trim, which returns what RocksDB's compactions and large
// batches have freed.
constexpr absl::Duration kTrimPause = absl::Seconds(1);

int64_t ResidentBytes() {
  int64_t pages = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGE_SIZE);
}

}  // namespace

absl::StatusOr<uint32_t> EvictRows(StripeStore& store, EmbeddingStripe& stripe,
                                   EmbeddingStripe::Leave which, uint32_t max_rows) {
  const absl::MutexLock writing(&stripe.writing());
  RETURN_IF_ERROR(stripe.BeginBatch());
  const std::unique_ptr<StripeBatch> batch = store.NewBatch(stripe.id());
  EmbeddingStripe::Leaving leaving;
  InSlices(stripe, *batch, kEvictSlicePause,
           [&] { return stripe.Choose(*batch, kSliceBytes, which, max_rows, leaving); });
  if (leaving.writes) {
    InSlices(stripe, *batch, kEvictSlicePause,
             [&] { return stripe.DrainAhead(*batch, kSliceBytes); });
    {
      absl::MutexLock lock(&stripe.mutex());
      stripe.DrainEarly(*batch);
    }
    CAIRN_CRASH_POINT("evict: before a stripe is written");
    RETURN_IF_ERROR(store.Write(*batch));
    CAIRN_CRASH_POINT("evict: before rows are dropped");
  }
  stripe.EndBatch();
  absl::MutexLock lock(&stripe.mutex());
  return stripe.DropChosen(which, leaving);
}

Evictor::Evictor(StripeStore& store, Registry& registry, MemoryBudget& budget, Flusher& flusher,
                 const EngineOptions& options)
    : store_(store),
      registry_(registry),
      budget_(budget),
      flusher_(flusher),
      options_(options),
      untracked_(budget.limit_bytes()) {}

absl::Status Evictor::Start() {
  budget_.BeginReclaiming(options_.disk_wait);
  ASSIGN_OR_RETURN(thread_, StartThread([this] { Loop(); }));
  return absl::OkStatus();
}

void Evictor::Stop() {
  stopping_.store(true);
  budget_.EndReclaiming();
  if (thread_.joinable()) thread_.join();
}

absl::Status Evictor::Exclusively(absl::FunctionRef<absl::Status()> work) {
  waiting_.fetch_add(1);
  absl::MutexLock turn(&turn_);
  waiting_.fetch_sub(1);
  return work();
}

absl::Status Evictor::BetweenRounds(absl::FunctionRef<absl::Status()> work) {
  absl::MutexLock turn(&turn_);
  return work();
}

void Evictor::Loop() {
  while (const std::optional<int64_t> goal = budget_.AwaitShortage(kPause)) {
    bool freed = false;
    // Unwritten rows must not be dropped, and a failing disk is not tried again.
    if (flusher_.failure().ok()) {
      absl::StatusOr<bool> round = false;
      const absl::Status caught = CatchBadAlloc([&] {
        round = Round(*goal);
        return absl::OkStatus();
      });
      if (!round.ok()) flusher_.Refuse(round.status()).IgnoreError();  // logged and stored
      freed = round.value_or(false);
      if (!caught.ok()) {
        LOG_EVERY_T(WARNING, 10) << "no row was evicted: " << caught.message();
      }
    }
    budget_.EndRound(freed);
  }
}

std::vector<std::shared_ptr<Variable>> Evictor::Tables() const {
  std::vector<std::shared_ptr<Variable>> tables;
  for (const auto& job : registry_.jobs()) {
    const auto variables = job->variables();
    for (const auto& [name, variable] : *variables) {
      if (variable->table() != nullptr) tables.push_back(variable);
    }
  }
  std::ranges::sort(tables, [](const auto& a, const auto& b) { return a->id() < b->id(); });
  return tables;
}

absl::Status Evictor::Prepare() {
  if (prepared_) return absl::OkStatus();
  if (options_.durability == Durability::kOff) RETURN_IF_ERROR(store_.SetUnfinished(true));
  LOG(INFO) << "ps:" << options_.server_index << " has " << budget_.used_bytes() << " of "
            << budget_.limit_bytes()
            << " bytes of memory in use: it evicts unused rows of tables to the disk";
  prepared_ = true;
  return absl::OkStatus();
}

void Evictor::Charge(int64_t& charged_bytes, int64_t bytes) {
  if (bytes > charged_bytes) budget_.Force(bytes - charged_bytes);
  if (bytes < charged_bytes) budget_.Release(charged_bytes - bytes);
  charged_bytes = bytes;
}

int64_t Evictor::LookupBytes() const {
  return std::min(store_.ColdLookupBytes(), budget_.limit_bytes() / kMaxLookupShare);
}

void Evictor::ExpectLoad() {
  if (options_.own_process) budget_.Expect(LookupBytes() + untracked_.expected_bytes());
}

void Evictor::ChargeServer(const std::vector<std::shared_ptr<Variable>>& tables) {
  Charge(lookup_bytes_, LookupBytes());
  if (!options_.own_process) return;
  UntrackedMemory::Seen seen{.resident_bytes = ResidentBytes(), .at = MonotonicNow()};
  for (const auto& variable : tables) {
    const HostedTable& table = *variable->table();
    seen.idle_bytes += table.idle_bytes();
    seen.rows_bytes += table.rows_in_memory() * table.layout().row_charge();
  }
  seen.charged_bytes = budget_.used_bytes() - untracked_bytes_;
  Charge(untracked_bytes_, tables.empty() ? 0 : untracked_.Note(seen));
  budget_.Expect(untracked_.expected_bytes());
}

void Evictor::ReturnMemory(const std::vector<std::shared_ptr<Variable>>& tables) {
  if (!options_.own_process) return;
  int64_t excess = ResidentBytes() - budget_.limit_bytes();
  for (const auto& variable : tables) {
    if (excess > 0) excess -= variable->table()->ReturnIdle(excess);
  }
  if (excess > 0 && MonotonicNow() - trimmed_ > kTrimPause) {
    malloc_trim(0);
    trimmed_ = MonotonicNow();
  }
}

absl::StatusOr<bool> Evictor::Round(int64_t goal_bytes) {
  // absl::Mutex does not hand over to waiters, so a new round gives way to them.
  constexpr auto none_waits = [](std::atomic<int32_t>* waiting) { return waiting->load() == 0; };
  absl::MutexLock turn(&turn_, absl::Condition(+none_waits, &waiting_));
  const std::vector<std::shared_ptr<Variable>> tables = Tables();
  ChargeServer(tables);
  absl::Duration charged = MonotonicNow();
  int64_t stripes = 0;
  for (const auto& variable : tables) stripes += variable->table()->bucket_count();
  int64_t freed = 0;
  size_t at = 0;
  while (at < tables.size() && tables[at]->id() < hand_variable_) ++at;
  if (at < tables.size() && tables[at]->id() != hand_variable_) hand_bucket_ = 0;
  // Enough rounds to evict even a row that was used in each of the last rounds.
  constexpr int64_t kRounds = EvictionClock::kMaxRounds + 2;
  for (int64_t looks = 0; looks <= kRounds * stripes && budget_.used_bytes() > goal_bytes;
       ++looks) {
    if (at == tables.size() || hand_bucket_ >= tables[at]->table()->bucket_count()) {
      at = at >= tables.size() - 1 ? 0 : at + 1;
      hand_bucket_ = 0;
    }
    if (tables.empty() || stopping_.load()) break;
    EmbeddingStripe* const stripe = tables[at]->table()->stripe(hand_bucket_);
    hand_variable_ = tables[at]->id();
    int64_t bytes = 0;
    if (stripe != nullptr) {
      ASSIGN_OR_RETURN(bytes, Visit(*tables[at], *stripe, goal_bytes));
    }
    freed += bytes;
    if (options_.own_process && MonotonicNow() - charged > kChargePause) {
      ChargeServer(tables);
      ReturnMemory(tables);
      charged = MonotonicNow();
    }
    // Stay at a stripe until it has no more rows to give.
    if (bytes < kMaxRows * tables[at]->table()->layout().row_charge()) ++hand_bucket_;
    if (waiting() > 0) return true;  // the next round continues
  }
  ReturnMemory(tables);
  return freed > 0;
}

absl::StatusOr<int64_t> Evictor::Visit(Variable& variable, EmbeddingStripe& stripe,
                                       int64_t goal_bytes) {
  HostedTable& table = *variable.table();
  const int64_t charge = table.layout().row_charge();
  {
    absl::ReaderMutexLock lock(&stripe.mutex());
    if (stripe.row_count() == 0) return 0;
  }
  RETURN_IF_ERROR(Prepare());
  const int64_t wanted = (budget_.used_bytes() - goal_bytes) / charge + 1;
  uint32_t evicted = 0;
  // An error, also for lack of memory: what was drained may be missing on the disk.
  RETURN_IF_ERROR(CatchBadAlloc([&]() -> absl::Status {
    ASSIGN_OR_RETURN(evicted,
                     EvictRows(store_, stripe, EmbeddingStripe::Leave::kUntouched,
                               static_cast<uint32_t>(std::clamp(wanted, kMinRows, kMaxRows))));
    return absl::OkStatus();
  }));
  table.CountRows(-int64_t{evicted}, evicted);
  variable.GiveBack(evicted * charge);
  table.counts().Add("evicted", evicted);
  return evicted * charge;
}

}  // namespace cairn
