// Reads all rows of a table, stripe by stripe and in the order of keys, whether they are in memory
// or only on disk. Rows that are loaded or evicted between two calls do not change the order.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/errors.h"
#include "common/status.h"
#include "ps_server/calls/calls.h"
#include "ps_server/core/cold_rows.h"
#include "ps_server/core/reply_holds.h"
#include "ps_server/core/request_items.h"
#include "storage/bytes.h"

namespace cairn {
namespace {

// Limit on the bytes of a reply; a reply has at least one row.
constexpr int64_t kScanBytes = 64 << 20;

// Where a scan continues. On the wire: both numbers, big-endian, in 4 and 8 bytes.
struct Cursor {
  uint32_t bucket = 0;
  int64_t key = std::numeric_limits<int64_t>::min();
};
constexpr size_t kCursorBytes = 12;

std::string CursorBytes(Cursor cursor) {
  std::string bytes(kCursorBytes, '\0');
  StoreBigEndian(cursor.bucket, bytes.data());
  StoreBigEndian(static_cast<uint64_t>(cursor.key), bytes.data() + sizeof(cursor.bucket));
  return bytes;
}

absl::StatusOr<Cursor> CursorFrom(const std::string& bytes) {
  if (bytes.empty()) return Cursor{};
  if (bytes.size() != kCursorBytes) {
    return InvalidArgument("cursor has ", bytes.size(),
                           " bytes; use the cursor of the last reply, or none");
  }
  return Cursor{
      .bucket = LoadBigEndian<uint32_t>(bytes.data()),
      .key = static_cast<int64_t>(LoadBigEndian<uint64_t>(bytes.data() + sizeof(uint32_t)))};
}

// A row that a scan has found in a stripe.
struct Found {
  int64_t key;
  uint32_t row;  // RowTable::kNone: the values are in Scanner::cold_values_
  size_t cold;   // index into cold_values_
};
bool Before(const Found& a, const Found& b) {
  return a.key != b.key ? a.key < b.key : a.row < b.row;
}

// Collects the rows of one table for a reply.
class Scanner {
 public:
  Scanner(const StripeStore& store, WaitBoard& waits, const Variable& variable, size_t part,
          size_t max_rows)
      : store_(store),
        waits_(waits),
        variable_(variable),
        table_(*variable.table()),
        part_(part),
        max_rows_(max_rows) {
    found_.reserve(2 * max_rows);
  }

  absl::Status Run(Cursor cursor, wire::ScanReply& reply);

 private:
  size_t dim() const { return table_.layout().dim; }
  // Appends the stripe's rows with keys from `first` on, in the order of keys, up to max_rows_ in
  // total.
  absl::Status ScanStripe(const EmbeddingStripe& stripe, int64_t first);
  // Like ScanStripe. False: rows left memory or the disk meanwhile, and nothing was appended.
  absl::StatusOr<bool> TryScan(const EmbeddingStripe& stripe, int64_t first);
  absl::Status ReadCold(const EmbeddingStripe& stripe, int64_t first, size_t room);
  void FindInMemory(const EmbeddingStripe& stripe, int64_t first, size_t room);
  void Merge(const EmbeddingStripe& stripe, size_t room);

  const StripeStore& store_;
  WaitBoard& waits_;
  const Variable& variable_;
  const HostedTable& table_;
  const size_t part_;
  const size_t max_rows_;
  std::vector<int64_t> keys_;
  std::vector<float> values_;
  std::vector<Found> found_;  // at most 2 * max_rows_
  std::vector<float> cold_values_;
};

absl::Status Scanner::ReadCold(const EmbeddingStripe& stripe, int64_t first, size_t room) {
  const auto take = [&](int64_t key, absl::string_view row) {
    found_.push_back({.key = key, .row = RowTable::kNone, .cold = cold_values_.size()});
    cold_values_.resize(cold_values_.size() + dim());
    table_.CopyStored(row.data(), part_, &cold_values_[found_.back().cold]);
    return found_.size() < room;
  };
  return store_.ScanCold(stripe.id(), first, table_.row_bytes(), take);
}

// Adds the `room` rows in memory with the lowest keys from `first` on, so that a bucket of many
// rows takes no more memory than the reply.
void Scanner::FindInMemory(const EmbeddingStripe& stripe, int64_t first, size_t room) {
  const auto heap = found_.begin() + static_cast<ptrdiff_t>(found_.size());  // highest key first
  size_t size = 0;
  for (uint32_t row = 0; row < stripe.row_count(); ++row) {
    const int64_t key = stripe.table().key(row);
    if (key < first || (size == room && key > heap->key)) continue;
    if (size == room) {
      std::pop_heap(heap, found_.end(), Before);
      found_.back() = {.key = key, .row = row};
    } else {
      found_.push_back({.key = key, .row = row});  // within its capacity
      ++size;
    }
    std::push_heap(heap, found_.end(), Before);
  }
}

// Appends rows in the order of keys. If a key has a row in memory, its record on disk, which may be
// older, is ignored.
void Scanner::Merge(const EmbeddingStripe& stripe, size_t room) {
  std::ranges::sort(found_, Before);
  for (size_t i = 0; i < found_.size() && room > 0; ++i) {
    const Found& found = found_[i];
    if (i > 0 && found_[i - 1].key == found.key) continue;
    keys_.push_back(found.key);
    values_.resize(values_.size() + dim());
    float* const to = &values_[values_.size() - dim()];
    if (found.row != RowTable::kNone) {
      stripe.PeekRow(part_, found.row, to);
    } else {
      std::memcpy(to, &cold_values_[found.cold], dim() * sizeof(float));
    }
    --room;
  }
}

absl::StatusOr<bool> Scanner::TryScan(const EmbeddingStripe& stripe, int64_t first) {
  const size_t room = max_rows_ - keys_.size();
  found_.clear();
  cold_values_.clear();
  const uint64_t departures = stripe.departures();
  // Also finds records of rows that are in memory; Merge ignores these.
  RETURN_IF_ERROR(ReadCold(stripe, first, room));
  absl::ReaderMutexLock lock(&stripe.mutex());
  if (stripe.handed_over() && stripe.cold_rows() > 0) return HandedOverError(variable_);
  if (stripe.deleting() || stripe.departures() != departures) return false;
  FindInMemory(stripe, first, room);
  Merge(stripe, room);
  return true;
}

// Rows leave memory or are deleted only by a thread that holds writing(), so no row does during a
// second try that holds it.
absl::Status Scanner::ScanStripe(const EmbeddingStripe& stripe, int64_t first) {
  ASSIGN_OR_RETURN(bool scanned, TryScan(stripe, first));
  if (scanned) return absl::OkStatus();
  const TracedLock undisturbed(&stripe.writing(), &waits_, "epoch", "the bucket to be written");
  ASSIGN_OR_RETURN(scanned, TryScan(stripe, first));
  if (scanned) return absl::OkStatus();
  return Unavailable("rows of bucket ", stripe.id().stripe, " of \"", variable_.spec().name,
                     "\" are deleted in memory and still on disk: this server could not write, its "
                     "log says why; restart it");
}

absl::Status Scanner::Run(Cursor cursor, wire::ScanReply& reply) {
  while (cursor.bucket < table_.bucket_count() && keys_.size() < max_rows_) {
    if (const EmbeddingStripe* stripe = table_.stripe(cursor.bucket); stripe != nullptr) {
      RETURN_IF_ERROR(ScanStripe(*stripe, cursor.key));
      if (keys_.size() == max_rows_ && keys_.back() < std::numeric_limits<int64_t>::max()) {
        cursor.key = keys_.back() + 1;
        break;
      }
    }
    cursor = {.bucket = cursor.bucket + 1};
  }
  reply.keys = Payload::Copy(keys_.data(), keys_.size() * sizeof(int64_t));
  reply.values = Payload::Copy(values_.data(), values_.size() * sizeof(float));
  const bool more = cursor.bucket < table_.bucket_count();
  reply.cursor = more ? CursorBytes(cursor) : std::string();
  return absl::OkStatus();
}

}  // namespace

absl::Status Scan(const RowAccess& access, WaitBoard& waits, const Admitted& admitted,
                  const wire::ScanRequest& request, wire::ScanReply& reply) {
  const ItemName name{.call = "scan",
                      .variable = request.variable,
                      .selection = wire::Selection::KEYS,
                      .slot = request.slot,
                      .map_version = request.map_version};
  KeyGroups groups;
  ASSIGN_OR_RETURN(const ItemTarget target,
                   ResolveItem(access.server, *admitted.variables, name, Payload(), groups));
  RETURN_IF_ERROR(CheckSameMap(access.server, name, *target.variable));
  absl::StatusOr<Cursor> cursor = CursorFrom(request.cursor);
  if (!cursor.ok()) return Annotate(cursor.status(), ItemText(access.server, name));
  // No more than the table has, so that a small table takes little memory.
  const int64_t row_bytes = static_cast<int64_t>(target.row_bytes() + sizeof(int64_t));
  const int64_t rows = std::min({int64_t{request.max_rows}, target.table->row_count() + 1,
                                 std::max<int64_t>(1, kScanBytes / row_bytes)});
  // Read from the disk, gathered, and copied.
  const int64_t bytes = rows * (3 * row_bytes + 2 * static_cast<int64_t>(sizeof(Found)));
  RETURN_IF_ERROR(access.budget.Acquire(bytes, ItemText(access.server, name)));
  MemoryHold hold(access.budget, bytes);
  Scanner scanner(access.store, waits, *target.variable, target.part, static_cast<size_t>(rows));
  const absl::Status status = scanner.Run(*cursor, reply);
  if (!status.ok()) return Annotate(status, ItemText(access.server, name));
  hold.Shrink(bytes - rows * row_bytes);
  ReplyHolds::HoldUntilSent(std::move(hold));
  return absl::OkStatus();
}

}  // namespace cairn
