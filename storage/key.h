// Keys of the store's records. Their order as bytes is the order of their fields: every number is
// big-endian, and signed numbers have the sign bit flipped. FORMAT.md has the table.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/stripe_store.h"

namespace cairn {

// First byte of every key.
enum class RecordKind : uint8_t {
  kMeta = 1,
  kVariable = 2,
  kShard = 3,
  kWorker = 4,
  kStripe = 5,
  kDecision = 6,
  kNote = 7,
};

// The part of a stripe that a key names, in the order in which a stripe is read.
enum class StripePart : uint8_t {
  kHeader = 0,
  kImage = 1,
  kRows = 2,
  kColdCount = 3,
  kCold = 4,
  kWaiting = 5,
  kAges = 6
};

// Longest job name that the key of a worker or decision can hold.
inline constexpr size_t kMaxJobBytes = 65535;

std::string MetaKey();
std::string VariableKey(uint32_t variable);
std::string ShardKey(uint32_t variable, uint32_t shard);
// `job` must not be longer than kMaxJobBytes.
std::string WorkerKey(absl::string_view job, int32_t worker);
// `step` must not be negative.
std::string DecisionKey(absl::string_view job, int64_t step);
// `name` is not empty.
std::string NoteKey(absl::string_view name);
// Common prefixes of the keys of a kind, of a job's workers or decisions, and of a variable's
// shards or stripes.
std::string KindPrefix(RecordKind kind);
std::string WorkersPrefix(absl::string_view job);
std::string DecisionsPrefix(absl::string_view job);
std::string ShardsPrefix(uint32_t variable);
std::string StripesPrefix(uint32_t variable);
// The first key after all keys that begin with `prefix`, which must contain a byte below 0xff.
std::string PrefixEnd(absl::string_view prefix);

// A stripe's keys, built in place.
class StripeKeys {
 public:
  explicit StripeKeys(const StripeId& id);
  // Each view is valid until the next call.
  absl::string_view Header() { return Part(StripePart::kHeader); }
  absl::string_view Image() { return Part(StripePart::kImage); }
  // Segments of rows count up from 0; a later segment has a higher number.
  absl::string_view Rows(uint32_t segment) { return Numbered(StripePart::kRows, segment); }
  // The common prefix of all segments.
  absl::string_view RowsPrefix() { return Part(StripePart::kRows); }
  absl::string_view ColdCount() { return Part(StripePart::kColdCount); }
  // Cold rows, ordered by key.
  absl::string_view Cold(int64_t key);
  absl::string_view ColdPrefix() { return Part(StripePart::kCold); }
  absl::string_view Ages() { return Part(StripePart::kAges); }
  // Pages of waiting keys, numbered from 0.
  absl::string_view Waiting(uint32_t page) { return Numbered(StripePart::kWaiting, page); }

 private:
  absl::string_view Numbered(StripePart part, uint32_t number);
  absl::string_view Part(StripePart part);
  std::array<char, 22> bytes_;
};

// The fields of a parsed key. kDataLoss: not a key of that kind.
struct StripeKey {
  StripeId id;
  StripePart part = StripePart::kHeader;
  uint32_t segment = 0;  // kRows; kWaiting: the page
  int64_t key = 0;       // kCold
};
absl::StatusOr<StripeKey> ParseStripeKey(absl::string_view key);
absl::StatusOr<uint32_t> ParseVariableKey(absl::string_view key);
absl::Status ParseShardKey(absl::string_view key, ShardRecord& record);        // variable, shard
absl::Status ParseWorkerKey(absl::string_view key, WorkerRecord& record);      // job, worker
absl::Status ParseDecisionKey(absl::string_view key, DecisionRecord& record);  // job, step
absl::Status ParseNoteKey(absl::string_view key, NoteRecord& record);          // name

// Describes a key in messages: "stripe 3/0/17 rows 42", "worker record 0401…". Accepts any bytes.
std::string KeyText(absl::string_view key);

}  // namespace cairn
