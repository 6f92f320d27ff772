#include "ps_server/pull.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/move_calls.h"
#include "ps_server/reply_holds.h"
#include "ps_server/request_items.h"
#include "ps_server/value_coding.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// As in push.cc: what a thread keeps between requests, and what a larger one costs.
constexpr int64_t kKeptIds = 64 << 10;
constexpr int64_t kScratchBytesPerId = 24;
// Replies below this are not charged, so small pulls touch nothing shared.
constexpr int64_t kUnchargedBytes = 64 << 10;
// A scan's reply stays below this, however wide the rows.
constexpr int64_t kScanBytes = 64 << 20;

struct PullTargetItem {
  ItemTarget target;
  wire::ValueFormat::type format = wire::ValueFormat::PLAIN;
};

struct PullScratch {
  std::vector<PullTargetItem> targets;
  std::vector<std::unique_ptr<KeyGroups>> groups;
  RowScratch rows;

  KeyGroups& group(size_t i) {
    while (groups.size() <= i) groups.push_back(std::make_unique<KeyGroups>());
    return *groups[i];
  }
};

// Memory of `size` bytes in `values`: what is there, if it fits.
std::byte* Prepare(Payload& values, size_t size) {
  if (size == 0 || values.size() != size || values.mutable_data() == nullptr) {
    values = Payload::Uninitialized(size);
  }
  return values.mutable_data();
}

// `pulled`: where rows found are noted; may be null.
void ReadRows(const ItemTarget& target, RowScratch& scratch, PulledRows* pulled, std::byte* out) {
  if (target.table != nullptr) {
    target.table->Pull(target.part, *target.groups, reinterpret_cast<float*>(out), pulled);
  } else if (target.whole) {
    target.dense->PullWhole(target.part, out);
  } else {
    target.dense->PullRows(target.part, target.ids, scratch, out);
  }
}

void PullItem(const PullTargetItem& pulls, RowScratch& scratch, PulledRows* pulled,
              wire::PulledItem& item) {
  const ItemTarget& target = pulls.target;
  item.dtype = ToWire(target.part_dtype());
  item.format = pulls.format;
  // Before the rows are read: the lowest version they may have.
  item.version = target.shard().version();
  const size_t bytes = static_cast<size_t>(target.rows) * target.row_bytes();
  if (pulls.format == wire::ValueFormat::PLAIN) {
    ReadRows(target, scratch, pulled, Prepare(item.values, bytes));
    return;
  }
  Payload plain = Payload::Uninitialized(bytes);
  ReadRows(target, scratch, pulled, plain.mutable_data());
  Encode(target, pulls.format, plain, Prepare(item.values, EncodedBytesOf(target, pulls.format)));
}

absl::Status PullWith(ServerCore& core, const Admitted& admitted, const wire::PullRequest& request,
                      PullScratch& scratch, PulledRows* pulled, wire::PullReply& reply) {
  scratch.targets.clear();
  int64_t bytes = 0;
  for (size_t i = 0; i < request.items.size(); ++i) {
    const wire::PullItem& item = request.items[i];
    const ItemName name{.call = "pull",
                        .variable = item.variable,
                        .shard = item.shard,
                        .selection = item.selection,
                        .slot = item.slot,
                        .map_version = item.map_version};
    ASSIGN_OR_RETURN(ItemTarget target,
                     ResolveItem(core, *admitted.variables, name, item.ids, scratch.group(i)));
    const int64_t item_bytes = target.rows * static_cast<int64_t>(target.row_bytes());
    if (item_bytes > kMaxPayloadBytes) {
      return WithReason(
          absl::InvalidArgumentError(absl::StrCat(
              ItemText(core, name), ": the reply would have ", item_bytes,
              " bytes; a payload has at most ", kMaxPayloadBytes,
              " (kMaxPayloadBytes): name fewer rows, or cut the variable into more shards")),
          wire::ErrorReason::LIMIT);
    }
    RETURN_IF_ERROR(CheckPullFormat(core, name, target, item.format));
    bytes += item_bytes;
    if (item.format != wire::ValueFormat::PLAIN) {
      bytes += static_cast<int64_t>(EncodedBytesOf(target, item.format));
    }
    scratch.targets.push_back({target, item.format});
  }
  MemoryHold hold;
  if (bytes > kUnchargedBytes) {
    RETURN_IF_ERROR(core.budget.Acquire(bytes, absl::StrCat("the reply to a pull on ", core.name)));
    hold = MemoryHold(core.budget, bytes);
  }
  reply.items.resize(scratch.targets.size());
  for (size_t i = 0; i < scratch.targets.size(); ++i) {
    PullItem(scratch.targets[i], scratch.rows, pulled, reply.items[i]);
  }
  if (hold.bytes() > 0) ReplyHolds::Keep(std::move(hold));
  return absl::OkStatus();
}

// Where a scan goes on: both numbers big-endian in 8 bytes.
struct Cursor {
  uint32_t bucket = 0;
  uint32_t row = 0;
};

std::string CursorBytes(Cursor cursor) {
  std::string bytes;
  for (const uint32_t number : {cursor.bucket, cursor.row}) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<char>(number >> shift));
  }
  return bytes;
}

absl::StatusOr<Cursor> CursorFrom(const std::string& bytes) {
  if (bytes.empty()) return Cursor{};
  if (bytes.size() != 2 * sizeof(uint32_t)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cursor has ", bytes.size(), " bytes; give the one of the last reply, or none"));
  }
  uint32_t numbers[2] = {};
  for (size_t i = 0; i < bytes.size(); ++i) {
    numbers[i / 4] = numbers[i / 4] << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return Cursor{.bucket = numbers[0], .row = numbers[1]};
}

void ScanRows(const HostedTable& table, size_t part, Cursor cursor, uint32_t max_rows,
              wire::ScanReply& reply) {
  const size_t dim = table.layout().dim;
  std::vector<int64_t> keys(max_rows);
  std::vector<float> values(max_rows * dim);
  uint32_t taken = 0;
  while (cursor.bucket < table.bucket_count()) {
    if (const EmbeddingStripe* stripe = table.stripe(cursor.bucket); stripe != nullptr) {
      absl::ReaderMutexLock lock(&stripe->mutex());
      const uint32_t left = stripe->row_count() - std::min(cursor.row, stripe->row_count());
      const uint32_t count = std::min(left, max_rows - taken);
      stripe->Copy(part, cursor.row, count, keys.data() + taken, values.data() + taken * dim);
      taken += count;
      cursor.row += count;
      if (count < left) break;
    }
    cursor = {.bucket = cursor.bucket + 1};
  }
  reply.keys = Payload::Copy(keys.data(), taken * sizeof(int64_t));
  reply.values = Payload::Copy(values.data(), taken * dim * sizeof(float));
  const bool more = cursor.bucket < table.bucket_count();
  reply.cursor = more ? CursorBytes(cursor) : std::string();
}

}  // namespace

PulledRows& PulledByThread() {
  thread_local auto pulled = std::make_unique<PulledRows>();
  return *pulled;
}

absl::Status Pull(ServerCore& core, const Admitted& admitted, const wire::PullRequest& request,
                  wire::PullReply& reply) {
  const int64_t ids = IdCount(request.items);
  RETURN_IF_ERROR(CheckCallSize(core, "pull", request.items.size(), ids));
  MemoryHold hold;
  if (ids > kKeptIds) {
    RETURN_IF_ERROR(core.budget.Acquire(ids * kScratchBytesPerId, "sorting the ids of a pull"));
    hold = MemoryHold(core.budget, ids * kScratchBytesPerId);
  }
  thread_local auto scratch = std::make_unique<PullScratch>();
  PulledRows* const pulled = ids > kKeptIds ? nullptr : &PulledByThread();
  PulledByThread().Clear();
  const absl::Status status = PullWith(core, admitted, request, *scratch, pulled, reply);
  if (ReasonOf(status) == wire::ErrorReason::BUSY) TakeArrivedFor(core, admitted, request.items);
  if (ids > kKeptIds) scratch = std::make_unique<PullScratch>();
  if (status.ok()) core.counters.Add(Counter::kPulls);
  return status;
}

absl::Status Scan(ServerCore& core, const Admitted& admitted, const wire::ScanRequest& request,
                  wire::ScanReply& reply) {
  const ItemName name{.call = "scan",
                      .variable = request.variable,
                      .selection = wire::Selection::KEYS,
                      .slot = request.slot};
  if (request.max_rows < 1 || request.max_rows > kMaxScanRows) {
    return absl::InvalidArgumentError(absl::StrCat(ItemText(core, name), ": max_rows is ",
                                                   request.max_rows, "; 1 to ", kMaxScanRows,
                                                   " are allowed"));
  }
  KeyGroups groups;
  ASSIGN_OR_RETURN(const ItemTarget target,
                   ResolveItem(core, *admitted.variables, name, Payload(), groups));
  absl::StatusOr<Cursor> cursor = CursorFrom(request.cursor);
  if (!cursor.ok()) return Annotate(cursor.status(), ItemText(core, name));
  // No larger than there can be rows, so that a small table costs little.
  const int64_t row_bytes = static_cast<int64_t>(target.row_bytes() + sizeof(int64_t));
  const int64_t rows = std::min({int64_t{request.max_rows}, target.table->row_count() + 1,
                                 std::max<int64_t>(1, kScanBytes / row_bytes)});
  const int64_t bytes = 2 * rows * row_bytes;  // gathered, then copied
  RETURN_IF_ERROR(core.budget.Acquire(bytes, ItemText(core, name)));
  MemoryHold hold(core.budget, bytes);
  ScanRows(*target.table, target.part, *cursor, static_cast<uint32_t>(rows), reply);
  hold.Shrink(bytes / 2);
  ReplyHolds::Keep(std::move(hold));
  return absl::OkStatus();
}

}  // namespace cairn
