#include "ps_server/persistence/row_expirer.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/crash_point.h"
#include "common/log.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/rows/slices.h"
#include "storage/bytes.h"

namespace cairn {
namespace {

// As in a snapshot.
constexpr absl::Duration kExpireSlicePause = absl::Microseconds(100);
// Rows read, and rows deleted, at a time under a stripe's lock: about a millisecond.
constexpr uint32_t kLooks = 8192;
constexpr size_t kDeletions = 2048;
// Rows on disk that get another number in one batch.
constexpr size_t kParkedBytes = 1 << 20;
// A table above its limit shrinks to this share below the limit, so that its rows are not searched
// again for every few new ones.
constexpr int64_t kSlackShare = 16;

// Visits the rows of a stripe in portions; the caller holds the stripe's writing().
class RowWalk {
 public:
  RowWalk(const StripeStore& store, EmbeddingStripe& stripe)
      : store_(store), stripe_(stripe), end_(std::numeric_limits<uint32_t>::max()) {}

  using See = absl::FunctionRef<void(int64_t key, uint32_t last_update)>;
  // Calls `see` for some rows that were not visited yet; these rows may be deleted before the next
  // call. False: all rows have been visited.
  absl::StatusOr<bool> Next(See see) {
    if (end_ > 0) {
      NextInMemory(see);
      return true;
    }
    return NextCold(see);
  }

 private:
  // From the last row down: a deleted row is replaced by a row that was visited already.
  void NextInMemory(See see) {
    absl::ReaderMutexLock lock(&stripe_.mutex());
    const RowTable& table = stripe_.table();
    end_ = std::min(end_, table.size());
    const uint32_t begin = end_ > kLooks ? end_ - kLooks : 0;
    for (uint32_t row = end_; row-- > begin;) see(table.key(row), table.last_update(row));
    end_ = begin;
  }
  absl::StatusOr<bool> NextCold(See see) {
    {
      absl::ReaderMutexLock lock(&stripe_.mutex());
      if (stripe_.cold_rows() == 0) return false;
    }
    cold_.clear();
    const auto take = [&](int64_t key, absl::string_view row) {
      cold_.emplace_back(key, RowTable::LastUpdateOf(row));
      return cold_.size() < kLooks;
    };
    RETURN_IF_ERROR(store_.ScanCold(stripe_.id(), next_key_, stripe_.table().stored_bytes(), take));
    absl::ReaderMutexLock lock(&stripe_.mutex());
    for (const auto& [key, update] : cold_) {
      // Rows in memory were visited there, and their records on disk may be older.
      if (stripe_.table().FindOne(key) == RowTable::kNone) see(key, update);
    }
    if (cold_.size() < kLooks || cold_.back().first == std::numeric_limits<int64_t>::max()) {
      return false;
    }
    next_key_ = cold_.back().first + 1;
    return true;
  }

  const StripeStore& store_;
  EmbeddingStripe& stripe_;
  uint32_t end_;  // rows in memory from this one on were visited
  int64_t next_key_ = std::numeric_limits<int64_t>::min();
  std::vector<std::pair<int64_t, uint32_t>> cold_;
};

// Deletes rows of one stripe.
class Deletion {
 public:
  Deletion(StripeStore& store, Variable& variable, EmbeddingStripe& stripe)
      : store_(store), variable_(variable), stripe_(stripe) {}

  // Deletes rows whose last update is `up_to` or an earlier one, at most `most`. Returns how many.
  absl::StatusOr<int64_t> Run(uint32_t up_to, int64_t most) {
    RowWalk walk(store_, stripe_);
    int64_t deleted = 0;
    for (bool more = true; more && deleted < most;) {
      keys_.clear();
      const auto see = [&](int64_t key, uint32_t update) {
        if (stripe_.Old(update, up_to)) keys_.push_back(key);
      };
      ASSIGN_OR_RETURN(more, walk.Next(see));
      for (size_t first = 0; first < keys_.size() && deleted < most; first += kDeletions) {
        auto keys = absl::MakeConstSpan(keys_).subspan(first, kDeletions);
        keys = keys.subspan(0, static_cast<size_t>(most - deleted));
        ASSIGN_OR_RETURN(const int64_t some, Delete(keys, up_to));
        deleted += some;
      }
    }
    return deleted;
  }

 private:
  // An error, also for lack of memory: what was drained or deleted may be missing on the disk.
  absl::StatusOr<int64_t> Delete(absl::Span<const int64_t> keys, uint32_t up_to) {
    EmbeddingStripe::Deleted deleted;
    RETURN_IF_ERROR(CatchBadAlloc([&] { return TryDelete(keys, up_to, deleted); }));
    HostedTable& table = *variable_.table();
    table.CountRows(-deleted.in_memory, -deleted.cold);
    variable_.GiveBack(deleted.in_memory * table.layout().row_charge());
    return deleted.in_memory + deleted.cold;
  }

  absl::Status TryDelete(absl::Span<const int64_t> keys, uint32_t up_to,
                         EmbeddingStripe::Deleted& deleted) {
    RETURN_IF_ERROR(stripe_.BeginBatch());
    const std::unique_ptr<StripeBatch> batch = store_.NewBatch(stripe_.id());
    InSlices(stripe_, *batch, kExpireSlicePause,
             [&] { return stripe_.DrainAhead(*batch, kSliceBytes); });
    {
      absl::MutexLock lock(&stripe_.mutex());
      for (const int64_t key : keys) stripe_.Delete(*batch, key, up_to, deleted);
      stripe_.DrainEarly(*batch);
    }
    CAIRN_CRASH_POINT("rules: before rows are deleted");
    RETURN_IF_ERROR(store_.Write(*batch));
    stripe_.EndBatch();
    CAIRN_CRASH_POINT("rules: rows are deleted");
    {
      absl::MutexLock lock(&stripe_.mutex());
      stripe_.EndDeletion();
    }
    return absl::OkStatus();
  }

  StripeStore& store_;
  Variable& variable_;
  EmbeddingStripe& stripe_;
  std::vector<int64_t> keys_;
};

// Gives the old rows of one stripe their new numbers (RowAges::Park).
class Parking {
 public:
  Parking(StripeStore& store, EmbeddingStripe& stripe, const RowAges::Parked& parked)
      : store_(store), stripe_(stripe), parked_(parked) {}

  void ParkRows() {
    for (uint32_t end = std::numeric_limits<uint32_t>::max(); end > 0;) {
      absl::MutexLock lock(&stripe_.mutex());
      end = stripe_.ParkRows(parked_, end, kLooks);
    }
  }

  absl::Status ParkCold() {
    for (std::optional<int64_t> next = std::numeric_limits<int64_t>::min(); next.has_value();) {
      ASSIGN_OR_RETURN(next, ReadCold(*next));
      if (!rows_.empty()) RETURN_IF_ERROR(CatchBadAlloc([&] { return WriteCold(); }));
    }
    return absl::OkStatus();
  }

 private:
  // Reads cold rows from key `first` on into rows_, those that get another number. Returns the key
  // to go on with; nullopt: all were read.
  absl::StatusOr<std::optional<int64_t>> ReadCold(int64_t first) {
    rows_.clear();
    std::optional<int64_t> next;
    uint32_t seen = 0;
    const auto take = [&](int64_t key, absl::string_view row) {
      if (seen++ == kLooks || rows_.size() * row.size() >= kParkedBytes) {
        next = key;
        return false;
      }
      const uint32_t update = RowTable::LastUpdateOf(row);
      const uint32_t number = parked_.NumberOf(update);
      if (number == update) return true;
      rows_.emplace_back(key, row);
      StoreLittleEndian(number, rows_.back().second.data());
      return true;
    };
    RETURN_IF_ERROR(store_.ScanCold(stripe_.id(), first, stripe_.table().stored_bytes(), take));
    return next;
  }

  // An error, also for lack of memory: as in Deletion.
  absl::Status WriteCold() {
    RETURN_IF_ERROR(stripe_.BeginBatch());
    const std::unique_ptr<StripeBatch> batch = store_.NewBatch(stripe_.id());
    InSlices(stripe_, *batch, kExpireSlicePause,
             [&] { return stripe_.DrainAhead(*batch, kSliceBytes); });
    {
      absl::MutexLock lock(&stripe_.mutex());
      for (const auto& [key, row] : rows_) stripe_.ParkCold(*batch, key, row);
      stripe_.DrainEarly(*batch);
    }
    RETURN_IF_ERROR(store_.Write(*batch));
    stripe_.EndBatch();
    absl::MutexLock lock(&stripe_.mutex());
    stripe_.EndParking();
    return absl::OkStatus();
  }

  StripeStore& store_;
  EmbeddingStripe& stripe_;
  const RowAges::Parked& parked_;
  std::vector<std::pair<int64_t, std::string>> rows_;
};

bool HasDeletions(const VariableSpec& spec) {
  return spec.row_rules.expire_after_seconds > 0 || spec.row_rules.max_rows > 0;
}

int64_t RowsOf(const EmbeddingStripe& stripe) {
  absl::ReaderMutexLock lock(&stripe.mutex());
  return stripe.row_count() + stripe.cold_rows();
}

}  // namespace

absl::Status RowExpirer::Start() {
  ASSIGN_OR_RETURN(thread_, StartThread([this] { Loop(); }));
  return absl::OkStatus();
}

void RowExpirer::Stop() {
  stop_.Stop();
  if (thread_.joinable()) thread_.join();
}

void RowExpirer::Loop() {
  while (!stop_.WaitFor(options_.row_rules_interval)) {
    const absl::Status status = RunOnce();
    // Other errors are logged and stored where they arise.
    if (!status.ok() && flusher_.failure().ok()) {
      LOG(WARNING) << "ps:" << options_.server_index
                   << " will look for rows to delete again later: " << status.message();
    }
  }
}

std::vector<std::shared_ptr<Variable>> RowExpirer::Tables() const {
  std::vector<std::shared_ptr<Variable>> tables;
  for (const auto& job : registry_.jobs()) {
    const auto variables = job->variables();
    for (const auto& [name, variable] : *variables) {
      if (HasDeletions(variable->spec())) tables.push_back(variable);
    }
  }
  return tables;
}

// False if the variable was dropped, or replaced by a version with another map.
bool RowExpirer::IsCurrent(const Variable& variable) const {
  const std::shared_ptr<Job> job = registry_.Find(variable.job());
  if (job == nullptr) return false;
  const auto variables = job->variables();
  const auto found = variables->find(variable.spec().name);
  return found != variables->end() && found->second.get() == &variable;
}

absl::Status RowExpirer::RunOnce() {
  std::vector<std::shared_ptr<Variable>> tables;
  RETURN_IF_ERROR(CatchBadAlloc([&] {
    tables = Tables();
    return absl::OkStatus();
  }));
  for (const std::shared_ptr<Variable>& variable : tables) {
    for (uint32_t bucket = 0; bucket < variable->table()->bucket_count(); ++bucket) {
      EmbeddingStripe* const stripe = variable->table()->stripe(bucket);
      if (stripe == nullptr) continue;
      RETURN_IF_ERROR(flusher_.failure());
      absl::Status visited;
      // Holding the evictor also prevents stripes from moving to another server.
      RETURN_IF_ERROR(CatchBadAlloc([&] {
        visited = evictor_.BetweenRounds([&]() -> absl::Status {
          return IsCurrent(*variable) ? Visit(*variable, *stripe) : absl::OkStatus();
        });
        return absl::OkStatus();
      }));
      if (!visited.ok()) return flusher_.Refuse(visited);
    }
  }
  return absl::OkStatus();
}

// Stripes written outside a snapshot do not belong to the same moment as the others, so under
// durability off the directory must be marked as unfinished.
absl::Status RowExpirer::Prepare() {
  if (prepared_ || options_.durability != Durability::kOff) return absl::OkStatus();
  RETURN_IF_ERROR(store_.SetUnfinished(true));
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status RowExpirer::Visit(Variable& variable, EmbeddingStripe& stripe) {
  const absl::MutexLock writing(&stripe.writing());
  if (variable.spec().row_rules.expire_after_seconds > 0) {
    RETURN_IF_ERROR(Expire(variable, stripe));
  }
  return variable.spec().row_rules.max_rows > 0 ? CrowdOut(variable, stripe) : absl::OkStatus();
}

absl::Status RowExpirer::Park(Variable& variable, EmbeddingStripe& stripe) {
  RowAges::Parked parked;
  {
    absl::MutexLock lock(&stripe.mutex());
    parked = stripe.ParkAges(variable.table()->dirty());
  }
  if (parked.marks.empty()) return absl::OkStatus();
  Parking parking(store_, stripe, parked);
  parking.ParkRows();
  {
    absl::ReaderMutexLock lock(&stripe.mutex());
    if (stripe.cold_rows() == 0) return absl::OkStatus();
  }
  RETURN_IF_ERROR(Prepare());
  return parking.ParkCold();
}

absl::Status RowExpirer::Expire(Variable& variable, EmbeddingStripe& stripe) {
  RETURN_IF_ERROR(Park(variable, stripe));  // also while the clock is not set
  const std::optional<absl::Time> time = options_.row_clock();
  if (!time.has_value()) return absl::OkStatus();
  const int64_t now = absl::ToUnixSeconds(*time);
  std::optional<uint32_t> up_to;
  {
    absl::MutexLock lock(&stripe.mutex());
    up_to = stripe.NoteAges(now, variable.table()->dirty());
  }
  if (!up_to.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(Prepare());
  ASSIGN_OR_RETURN(
      const int64_t deleted,
      Deletion(store_, variable, stripe).Run(*up_to, std::numeric_limits<int64_t>::max()));
  variable.table()->counts().Add("expired", deleted);
  absl::MutexLock lock(&stripe.mutex());
  stripe.ForgetAges(now);
  return absl::OkStatus();
}

absl::Status RowExpirer::CrowdOut(Variable& variable, EmbeddingStripe& stripe) {
  const auto buckets = static_cast<int64_t>(variable.table()->bucket_count());
  const int64_t limit = variable.spec().row_rules.max_rows / buckets;
  const int64_t rows = RowsOf(stripe);
  if (rows <= limit) return absl::OkStatus();
  RETURN_IF_ERROR(Prepare());
  const int64_t most = rows - (limit - limit / kSlackShare);
  const auto bytes = static_cast<int64_t>(sizeof(uint32_t)) * rows;
  budget_.Force(bytes);
  const MemoryHold hold(budget_, bytes);
  std::vector<uint32_t> last_updates;
  last_updates.reserve(static_cast<size_t>(rows));
  RowWalk walk(store_, stripe);
  for (bool more = true; more;) {
    const auto see = [&](int64_t, uint32_t update) { last_updates.push_back(update); };
    ASSIGN_OR_RETURN(more, walk.Next(see));
  }
  // Pulls may have loaded cold rows after the walk passed memory; these rows were not visited.
  if (last_updates.empty()) return absl::OkStatus();
  uint32_t updates = 0;  // after all of them
  {
    absl::ReaderMutexLock lock(&stripe.mutex());
    updates = stripe.updates();
  }
  const auto oldest =
      last_updates.begin() + std::min(most, static_cast<int64_t>(last_updates.size())) - 1;
  std::nth_element(last_updates.begin(), oldest, last_updates.end(), [&](uint32_t a, uint32_t b) {
    return UpdateNumber::Age(a, updates) > UpdateNumber::Age(b, updates);
  });
  const uint32_t up_to = *oldest;
  Deletion deletion(store_, variable, stripe);
  int64_t deleted = 0;
  // Many rows may have the same last update: delete the older rows first.
  if (up_to > 0) {
    ASSIGN_OR_RETURN(deleted, deletion.Run(up_to - 1, most));
  }
  ASSIGN_OR_RETURN(const int64_t rest, deletion.Run(up_to, most - deleted));
  deleted += rest;
  variable.table()->counts().Add("crowded_out", deleted);
  return absl::OkStatus();
}

}  // namespace cairn
