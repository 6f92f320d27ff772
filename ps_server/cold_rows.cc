#include "ps_server/cold_rows.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// Read together: bounds the memory for them, and how long the first of them waits.
constexpr size_t kBlockKeys = 4096;

}  // namespace

void ColdReader::Order(const KeyGroups& groups, std::vector<uint32_t>& missing) {
  bucket_of_.resize(groups.key_count());
  for (const KeyGroup& group : groups.groups()) {
    std::fill(bucket_of_.begin() + group.begin, bucket_of_.begin() + group.end, group.bucket);
  }
  std::sort(missing.begin(), missing.end(), [&](uint32_t a, uint32_t b) {
    if (bucket_of_[a] != bucket_of_[b]) return bucket_of_[a] < bucket_of_[b];
    return groups.key(a) < groups.key(b);
  });
}

absl::Status ColdReader::Read(const StripeStore& store, const Variable& variable,
                              const KeyGroups& groups, std::vector<uint32_t>& missing, Block block,
                              Take take) {
  const HostedTable& table = *variable.table();
  while (!missing.empty()) {
    Order(groups, missing);
    again_.clear();
    for (size_t first = 0; first < missing.size();) {
      size_t last = std::min(first + kBlockKeys, missing.size());
      // A key's positions stay together.
      while (last < missing.size() && groups.key(missing[last]) == groups.key(missing[last - 1])) {
        ++last;
      }
      RETURN_IF_ERROR(ReadBlock(store, table, groups,
                                absl::MakeConstSpan(missing).subspan(first, last - first), block,
                                take));
      first = last;
    }
    missing.swap(again_);
  }
  return absl::OkStatus();
}

absl::Status ColdReader::ReadBlock(const StripeStore& store, const HostedTable& table,
                                   const KeyGroups& groups, absl::Span<const uint32_t> missing,
                                   Block block, Take take) {
  keys_.clear();
  departures_.clear();
  for (const uint32_t at : missing) {
    const EmbeddingStripe& stripe = *table.stripe(bucket_of_[at]);
    const ColdKey key{.id = stripe.id(), .key = groups.key(at)};
    if (!keys_.empty() && keys_.back() == key) continue;
    // Before the disk is read.
    const bool same = !keys_.empty() && keys_.back().id == key.id;
    departures_.push_back(same ? departures_.back() : stripe.departures());
    keys_.push_back(key);
  }
  RETURN_IF_ERROR(store.ReadCold(keys_, table.row_bytes(), rows_));
  block(rows_.found());
  size_t key = 0;
  for (size_t first = 0; first < missing.size();) {
    const uint32_t bucket = bucket_of_[missing[first]];
    size_t last = first;
    while (last < missing.size() && bucket_of_[missing[last]] == bucket) ++last;
    TakeStripe(*table.stripe(bucket), groups, missing.subspan(first, last - first),
               departures_[key], key, take);
    while (key < keys_.size() && keys_[key].id.stripe == bucket) ++key;
    first = last;
  }
  return absl::OkStatus();
}

void ColdReader::TakeStripe(EmbeddingStripe& stripe, const KeyGroups& groups,
                            absl::Span<const uint32_t> missing, uint64_t departures,
                            size_t first_key, Take take) {
  absl::MutexLock lock(&stripe.mutex());
  const bool unchanged = stripe.departures() == departures;
  size_t key = first_key;
  for (size_t first = 0; first < missing.size(); ++key) {
    const int64_t wanted = groups.key(missing[first]);
    size_t last = first;
    while (last < missing.size() && groups.key(missing[last]) == wanted) ++last;
    const absl::Span<const uint32_t> at = missing.subspan(first, last - first);
    first = last;
    const uint32_t row = stripe.table().FindOne(wanted);
    if (row == RowTable::kNone && !unchanged) {
      again_.insert(again_.end(), at.begin(), at.end());
    } else {
      const char* const cold = stripe.Deleting(wanted) ? nullptr : rows_.row(key);
      take({.stripe = stripe, .key = wanted, .row = row, .cold = cold}, at);
    }
  }
}

void ColdFetch::Begin(ServerCore& core, Variable& variable, const KeyGroups& groups) {
  Clear();
  core_ = &core;
  variable_ = &variable;
  groups_ = &groups;
  hold_ = nullptr;
  missing_.clear();
  status_ = absl::OkStatus();
}

int64_t ColdFetch::Locate() {
  const HostedTable& table = *variable_->table();
  const int64_t absent = table.Locate(*groups_, groups_->groups(), *this, missing_);
  RowCounts::Add(table.counts().found, static_cast<int64_t>(groups_->key_count()) - absent);
  // Of those in stripes without cold rows it is known.
  RowCounts::Add(table.counts().absent, absent - static_cast<int64_t>(missing_.size()));
  return absent * table.layout().row_charge();
}

absl::Status ColdFetch::Failure() const {
  return status_.ok() ? absl::OkStatus() : core_->flusher.Refuse(status_);
}

absl::Status FetchRows(ServerCore& core, absl::Span<ColdFetch* const> fetches,
                       absl::string_view what, MemoryHold& hold) {
  int64_t bytes = 0;
  for (ColdFetch* const fetch : fetches) bytes += fetch->Locate();
  RETURN_IF_ERROR(core.budget.Acquire(bytes, absl::StrCat(what, ": embedding rows")));
  hold = MemoryHold(core.budget, bytes);
  for (ColdFetch* const fetch : fetches) {
    fetch->UseHold(hold);
    // As void the request would be lost, so nothing more is acknowledged.
    if (const absl::Status read = fetch->FetchLocated(); !read.ok()) {
      return core.flusher.Refuse(read);
    }
  }
  return absl::OkStatus();
}

bool ColdFetch::Fetch(absl::Span<const KeyGroup> groups) {
  const HostedTable& table = *variable_->table();
  missing_.clear();
  const int64_t needed =
      table.Locate(*groups_, groups, *this, missing_) * table.layout().row_charge();
  // The request is half done: it does not wait for memory now.
  if (needed > hold_->bytes()) {
    const int64_t more = needed - hold_->bytes();
    core_->budget.Force(more);
    hold_->Grow(more);
  }
  status_ = FetchMissing();
  return status_.ok();
}

absl::Status ColdFetch::FetchMissing() {
  HostedTable& table = *variable_->table();
  int64_t promoted = 0;
  int64_t nowhere = 0;
  int64_t made = 0;
  const absl::Status status = reader_.Read(
      *core_->store, *variable_, *groups_, missing_, [](size_t) {},
      [&](const ColdReader::Row& found, absl::Span<const uint32_t> at) {
        uint32_t row = found.row;
        if (row == RowTable::kNone && found.cold != nullptr) {
          row = found.stripe.Promote(found.key, found.cold);
          ++promoted;
        } else if (row == RowTable::kNone) {
          ++nowhere;
          // Where keys wait for their row it is the request's to say whether this one gets it.
          if (!table.some_wait()) row = found.stripe.Make(found.key, made);
        }
        for (const uint32_t position : at) rows[position] = row;
      });
  table.CountRows(promoted + made, -promoted);
  RowCounts::Add(table.counts().loaded, promoted);
  RowCounts::Add(table.counts().absent, nowhere);
  core_->counters.Add(Counter::kRowsMade, made);
  variable_->Charge(hold_->Keep((promoted + made) * table.layout().row_charge()));
  return status;
}

absl::Status PullCold(ServerCore& core, Variable& variable, size_t part, const KeyGroups& groups,
                      std::vector<uint32_t>& missing, float* out) {
  thread_local auto reader = std::make_unique<ColdReader>();
  HostedTable& table = *variable.table();
  const size_t dim = table.layout().dim;
  const int64_t charge = table.layout().row_charge();
  int64_t promoted = 0;
  int64_t loaded = 0;
  int64_t absent = 0;
  bool given_away = false;
  MemoryHold hold(core.budget, 0);
  const absl::Status status = reader->Read(
      *core.store, variable, groups, missing,
      [&](size_t found) {
        // Where there is no room the rows stay cold: the reclaimer is at work.
        const int64_t bytes = static_cast<int64_t>(found) * charge - hold.bytes();
        if (bytes > 0 && core.budget.TryAcquire(bytes)) hold.Grow(bytes);
        loaded += static_cast<int64_t>(found);
      },
      [&](const ColdReader::Row& found, absl::Span<const uint32_t> at) {
        uint32_t row = found.row;
        if (row == RowTable::kNone && found.stripe.given_away()) {
          given_away = true;
          return;
        }
        if (row == RowTable::kNone && found.cold != nullptr && hold.bytes() >= charge) {
          row = found.stripe.Promote(found.key, found.cold);
          variable.Charge(hold.Keep(charge));
          ++promoted;
        }
        absent += row == RowTable::kNone && found.cold == nullptr;
        for (const uint32_t position : at) {
          float* const to = out + groups.position(position) * dim;
          if (row == RowTable::kNone && found.cold != nullptr) {
            table.CopyStored(found.cold, part, to);
          } else {
            found.stripe.CopyRow(part, found.key, row, to);
          }
        }
      });
  table.CountRows(promoted, -promoted);
  RowCounts::Add(table.counts().loaded, loaded);
  RowCounts::Add(table.counts().absent, absent);
  RETURN_IF_ERROR(status);
  return given_away ? GivenAwayError(variable) : absl::OkStatus();
}

absl::Status GivenAwayError(const Variable& variable) {
  return BusyError(absl::StrCat("rows of \"", variable.spec().name,
                                "\" went to another server while they were read: send it again"),
                   absl::Milliseconds(1));
}

}  // namespace cairn
