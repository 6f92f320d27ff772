#include "ps_server/core/cold_rows.h"

#include <algorithm>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/blocking.h"
#include "common/status.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// Returns the group that contains position `at`.
const KeyGroup& GroupOf(const KeyGroups& groups, uint32_t at) {
  return *std::upper_bound(groups.groups().begin(), groups.groups().end(), at,
                           [](uint32_t a, const KeyGroup& group) { return a < group.end; });
}

// Returns how many of the first positions in `missing` belong to `group`.
size_t CountOf(const KeyGroup& group, absl::Span<const uint32_t> missing) {
  size_t count = 0;
  while (count < missing.size() && missing[count] < group.end) ++count;
  return count;
}

}  // namespace

void ColdReader::Begin(const StripeStore& store, const HostedTable& table,
                       const KeyGroups& groups) {
  Abandon();
  store_ = &store;
  table_ = &table;
  groups_ = &groups;
}

void ColdReader::Abandon() {
  job_.reset();
  // Frees the memory of the pieces' keys and rows: a thread keeps readers, and a call with many
  // missing keys needs about 700 KiB in one.
  for (size_t i = 0; i < used_; ++i) pieces_[i] = Piece();
  used_ = 0;
  key_count_ = 0;
  missing_.clear();
  later_.clear();
}

void ColdReader::Add(absl::Span<const uint32_t> missing) {
  while (!missing.empty()) {
    const KeyGroup& group = GroupOf(*groups_, missing.front());
    const size_t count = CountOf(group, missing);
    AddGroup(group, missing.first(count));
    missing.remove_prefix(count);
  }
}

void ColdReader::AddGroup(const KeyGroup& group, absl::Span<const uint32_t> missing) {
  const EmbeddingStripe& stripe = *table_->stripe(group.bucket);
  const uint64_t departures = stripe.departures();  // before the disk is read
  const size_t first = missing_.size();
  missing_.insert(missing_.end(), missing.begin(), missing.end());
  std::sort(missing_.begin() + static_cast<std::ptrdiff_t>(first), missing_.end(),
            [&](uint32_t a, uint32_t b) { return groups_->key(a) < groups_->key(b); });
  for (size_t i = first; i < missing_.size(); ++i) {
    const int64_t key = groups_->key(missing_[i]);
    if (i > first && key == groups_->key(missing_[i - 1])) continue;
    if (key_count_ == kBlockKeys) {
      later_.insert(later_.end(), missing_.begin() + static_cast<std::ptrdiff_t>(i),
                    missing_.end());
      missing_.resize(i);
      return;
    }
    AddKey({.id = stripe.id(), .key = key}, departures);
  }
}

void ColdReader::AddKey(const ColdKey& key, uint64_t departures) {
  if (pieces_ == nullptr) pieces_ = std::make_unique<Piece[]>(kBlockKeys / kPieceKeys);
  Piece& piece = pieces_[key_count_ / kPieceKeys];
  if (key_count_ % kPieceKeys == 0) {
    piece.keys.clear();
    piece.departures.clear();
    used_ = std::max(used_, key_count_ / kPieceKeys + 1);
  }
  piece.keys.push_back(key);
  piece.departures.push_back(departures);
  if (++key_count_ % kPieceKeys != 0) return;
  if (!job_.has_value()) job_.emplace(store_->readers(), [this](size_t i) { ReadPiece(i); });
  job_->Add(1);
}

void ColdReader::ReadPiece(size_t piece) {
  Piece& read = pieces_[piece];
  read.status = store_->ReadCold(read.keys, table_->row_bytes(), read.rows);
}

absl::Status ColdReader::Finish(Block block, Take take) {
  while (any()) {
    RETURN_IF_ERROR(ReadBlock());
    TakeBlock(block, take);
    std::vector<uint32_t> next;
    next.swap(later_);
    std::ranges::sort(next);
    Add(next);
  }
  return absl::OkStatus();
}

absl::Status ColdReader::ReadBlock() {
  const size_t full = key_count_ / kPieceKeys;
  const size_t pieces = (key_count_ + kPieceKeys - 1) / kPieceKeys;
  const Blocking blocking;
  if (pieces > full) ReadPiece(full);
  if (full > 0) job_->Finish();
  job_.reset();
  for (size_t i = 0; i < pieces; ++i) RETURN_IF_ERROR(pieces_[i].status);
  return absl::OkStatus();
}

void ColdReader::TakeBlock(Block block, Take take) {
  size_t found = 0;
  for (size_t i = 0; i * kPieceKeys < key_count_; ++i) found += pieces_[i].rows.found();
  block(found);
  size_t key = 0;
  for (absl::Span<const uint32_t> rest = missing_; !rest.empty();) {
    const KeyGroup& group = GroupOf(*groups_, rest.front());
    const size_t count = CountOf(group, rest);
    key += TakeStripe(*table_->stripe(group.bucket), rest.first(count), key, take);
    rest.remove_prefix(count);
  }
  missing_.clear();
  key_count_ = 0;
}

size_t ColdReader::TakeStripe(EmbeddingStripe& stripe, absl::Span<const uint32_t> missing,
                              size_t first_key, Take take) {
  absl::MutexLock lock(&stripe.mutex());
  const uint64_t departures = stripe.departures();
  size_t key = first_key;
  for (size_t first = 0; first < missing.size(); ++key) {
    const int64_t wanted = groups_->key(missing[first]);
    size_t last = first;
    while (last < missing.size() && groups_->key(missing[last]) == wanted) ++last;
    const absl::Span<const uint32_t> at = missing.subspan(first, last - first);
    first = last;
    const Piece& piece = pieces_[key / kPieceKeys];
    const uint32_t row = stripe.table().FindOne(wanted);
    if (row == RowTable::kNone && piece.departures[key % kPieceKeys] != departures) {
      later_.insert(later_.end(), at.begin(), at.end());
    } else {
      const char* const cold = stripe.Deleting(wanted) ? nullptr : piece.rows.row(key % kPieceKeys);
      take({.stripe = stripe, .key = wanted, .row = row, .cold = cold}, at);
    }
  }
  return key - first_key;
}

void ColdFetch::Begin(const RowAccess& access, Variable& variable, const KeyGroups& groups) {
  Clear();
  access_ = &access;
  variable_ = &variable;
  groups_ = &groups;
  hold_ = nullptr;
  status_ = absl::OkStatus();
}

ColdFetch::Located ColdFetch::LocateSome(absl::Span<const KeyGroup> groups) {
  const HostedTable& table = *variable_->table();
  Located located;
  reader_.Begin(access_->store, table, *groups_);
  located.absent = table.Locate(*groups_, groups, *this, [&](absl::Span<const uint32_t> missing) {
    located.missing += static_cast<int64_t>(missing.size());
    reader_.Add(missing);
  });
  return located;
}

int64_t ColdFetch::Locate() {
  const HostedTable& table = *variable_->table();
  const Located located = LocateSome(groups_->groups());
  table.counts().Add("found", static_cast<int64_t>(groups_->key_count()) - located.absent);
  // Absent keys that are not `missing` have no row on disk either. FetchMissing counts the others.
  table.counts().Add("absent", located.absent - located.missing);
  return located.absent * table.layout().row_charge();
}

absl::Status ColdFetch::Failure() const {
  return status_.ok() ? absl::OkStatus() : access_->flusher.Refuse(status_);
}

absl::Status FetchRows(const RowAccess& access, absl::Span<ColdFetch* const> fetches,
                       absl::string_view what, MemoryHold& hold) {
  // Ends the reads on an early return. Rows that were read change nothing until FetchLocated.
  const absl::Cleanup end = [&] {
    for (ColdFetch* const fetch : fetches) fetch->Abandon();
  };
  int64_t bytes = 0;
  for (ColdFetch* const fetch : fetches) bytes += fetch->Locate();
  RETURN_IF_ERROR(access.budget.Acquire(bytes, absl::StrCat(what, ": embedding rows")));
  hold = MemoryHold(access.budget, bytes);
  for (ColdFetch* const fetch : fetches) {
    fetch->UseHold(hold);
    // A request that fails becomes void, and this one would be lost. So the server rejects all
    // others.
    if (const absl::Status read = fetch->FetchLocated(); !read.ok()) {
      return access.flusher.Refuse(read);
    }
  }
  return absl::OkStatus();
}

bool ColdFetch::Fetch(absl::Span<const KeyGroup> groups) {
  const int64_t needed = LocateSome(groups).absent * variable_->table()->layout().row_charge();
  // The request is half applied, so it must not wait for memory.
  if (needed > hold_->bytes()) {
    const int64_t more = needed - hold_->bytes();
    access_->budget.Force(more);
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
  const auto take = [&](const ColdReader::Row& found, absl::Span<const uint32_t> at) {
    uint32_t row = found.row;
    if (row == RowTable::kNone && found.cold != nullptr) {
      row = found.stripe.Promote(found.key, found.cold);
      ++promoted;
    } else if (row == RowTable::kNone) {
      ++nowhere;
      // If the table admits keys only after several pushes, the caller decides whether this key
      // gets a row.
      if (!table.some_wait()) row = found.stripe.Make(found.key, made);
    }
    for (const uint32_t position : at) rows[position] = row;
  };
  const absl::Cleanup counted = [&] {  // also after an exception
    table.CountRows(promoted + made, -promoted);
    table.counts().Add("loaded", promoted);
    table.counts().Add("absent", nowhere);
    access_->counters.Add("rows_made", made);
    variable_->Charge(hold_->Transfer((promoted + made) * table.layout().row_charge()));
  };
  return reader_.Finish([](size_t) {}, take);
}

namespace {

// Completes a pull: copies the rows of the keys that were added to `reader` to `out`.
absl::Status TakeCold(const RowAccess& access, Variable& variable, size_t part,
                      const KeyGroups& groups, ColdReader& reader, float* out) {
  HostedTable& table = *variable.table();
  const size_t dim = table.layout().dim;
  const int64_t charge = table.layout().row_charge();
  int64_t promoted = 0;
  int64_t loaded = 0;
  int64_t absent = 0;
  bool handed_over = false;
  MemoryHold hold(access.budget, 0);
  const absl::Cleanup counted = [&] {  // also after an exception
    table.CountRows(promoted, -promoted);
    table.counts().Add("loaded", loaded);
    table.counts().Add("absent", absent);
  };
  const absl::Status status = reader.Finish(
      [&](size_t found) {
        // If the budget has no room, the rows stay cold: the reclaimer is already freeing memory.
        const int64_t bytes = static_cast<int64_t>(found) * charge - hold.bytes();
        if (bytes > 0 && access.budget.TryAcquire(bytes)) hold.Grow(bytes);
        loaded += static_cast<int64_t>(found);
      },
      [&](const ColdReader::Row& found, absl::Span<const uint32_t> at) {
        uint32_t row = found.row;
        if (row == RowTable::kNone && found.stripe.handed_over()) {
          handed_over = true;
          return;
        }
        if (row == RowTable::kNone && found.cold != nullptr && hold.bytes() >= charge) {
          row = found.stripe.Promote(found.key, found.cold);
          variable.Charge(hold.Transfer(charge));
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
  RETURN_IF_ERROR(status);
  return handed_over ? HandedOverError(variable) : absl::OkStatus();
}

}  // namespace

absl::Status PullTable(const RowAccess& access, Variable& variable, size_t part,
                       const KeyGroups& groups, float* out, uint32_t* found) {
  thread_local auto reader = std::make_unique<ColdReader>();
  HostedTable& table = *variable.table();
  const absl::Cleanup end = [] { reader->Abandon(); };
  reader->Begin(access.store, table, groups);
  table.Pull(part, groups, out, found,
             [&](absl::Span<const uint32_t> missing) { reader->Add(missing); });
  return reader->any() ? TakeCold(access, variable, part, groups, *reader, out) : absl::OkStatus();
}

absl::Status HandedOverError(const Variable& variable) {
  return BusyError(absl::StrCat("rows of \"", variable.spec().name,
                                "\" went to another server while they were read: send it again"),
                   absl::Milliseconds(1));
}

}  // namespace cairn
