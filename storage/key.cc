#include "storage/key.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "storage/bytes.h"

namespace cairn {
namespace {

constexpr size_t kStripePartAt = 13;  // kind, variable, shard, stripe
constexpr size_t kSegmentAt = 14;
constexpr size_t kNumberedKeyBytes = 18;
constexpr size_t kColdKeyBytes = 22;

// Maps signed numbers so that they sort as bytes: the smallest becomes 0.
constexpr uint32_t FlipSign(int32_t value) {
  return static_cast<uint32_t>(value) ^ (uint32_t{1} << 31);
}

constexpr uint64_t FlipSign(int64_t value) {
  return static_cast<uint64_t>(value) ^ (uint64_t{1} << 63);
}

bool IsKind(absl::string_view key, RecordKind kind) {
  return !key.empty() && static_cast<uint8_t>(key[0]) == static_cast<uint8_t>(kind);
}

absl::Status NotAKey(absl::string_view what, absl::string_view key) {
  return DataLoss("not the key of a ", what, " record: ", absl::BytesToHexString(key.substr(0, 64)),
                  key.size() > 64 ? "…" : "", " (", key.size(), " bytes)");
}

// The length comes first, so that keys of jobs with a common name prefix do not mix.
std::string JobPrefix(RecordKind kind, absl::string_view job) {
  std::string key = KindPrefix(kind);
  AppendBigEndian(static_cast<uint16_t>(job.size()), key);
  key.append(job.data(), job.size());
  return key;
}

std::string VariablePrefix(RecordKind kind, uint32_t variable) {
  std::string key = KindPrefix(kind);
  AppendBigEndian(variable, key);
  return key;
}

}  // namespace

std::string KindPrefix(RecordKind kind) { return {static_cast<char>(kind)}; }

std::string MetaKey() { return KindPrefix(RecordKind::kMeta); }

std::string VariableKey(uint32_t variable) {
  return VariablePrefix(RecordKind::kVariable, variable);
}

std::string ShardsPrefix(uint32_t variable) { return VariablePrefix(RecordKind::kShard, variable); }

std::string ShardKey(uint32_t variable, uint32_t shard) {
  std::string key = ShardsPrefix(variable);
  AppendBigEndian(shard, key);
  return key;
}

std::string WorkersPrefix(absl::string_view job) { return JobPrefix(RecordKind::kWorker, job); }

std::string DecisionsPrefix(absl::string_view job) { return JobPrefix(RecordKind::kDecision, job); }

std::string DecisionKey(absl::string_view job, int64_t step) {
  std::string key = DecisionsPrefix(job);
  AppendBigEndian(static_cast<uint64_t>(step), key);
  return key;
}

std::string NoteKey(absl::string_view name) {
  return absl::StrCat(KindPrefix(RecordKind::kNote), name);
}

std::string WorkerKey(absl::string_view job, int32_t worker) {
  std::string key = WorkersPrefix(job);
  AppendBigEndian(FlipSign(worker), key);
  return key;
}

std::string StripesPrefix(uint32_t variable) {
  return VariablePrefix(RecordKind::kStripe, variable);
}

std::string PrefixEnd(absl::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<uint8_t>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(end.back() + 1);
  return end;
}

StripeKeys::StripeKeys(const StripeId& id) {
  bytes_[0] = static_cast<char>(RecordKind::kStripe);
  StoreBigEndian(id.variable, &bytes_[1]);
  StoreBigEndian(id.shard, &bytes_[5]);
  StoreBigEndian(id.stripe, &bytes_[9]);
}

absl::string_view StripeKeys::Part(StripePart part) {
  bytes_[kStripePartAt] = static_cast<char>(part);
  return {bytes_.data(), kSegmentAt};
}

absl::string_view StripeKeys::Numbered(StripePart part, uint32_t number) {
  bytes_[kStripePartAt] = static_cast<char>(part);
  StoreBigEndian(number, &bytes_[kSegmentAt]);
  return {bytes_.data(), kNumberedKeyBytes};
}

absl::string_view StripeKeys::Cold(int64_t key) {
  bytes_[kStripePartAt] = static_cast<char>(StripePart::kCold);
  StoreBigEndian(FlipSign(key), &bytes_[kSegmentAt]);
  return {bytes_.data(), kColdKeyBytes};
}

absl::StatusOr<StripeKey> ParseStripeKey(absl::string_view key) {
  if (!IsKind(key, RecordKind::kStripe) || key.size() < kSegmentAt) return NotAKey("stripe", key);
  StripeKey parsed;
  parsed.id.variable = LoadBigEndian<uint32_t>(&key[1]);
  parsed.id.shard = LoadBigEndian<uint32_t>(&key[5]);
  parsed.id.stripe = LoadBigEndian<uint32_t>(&key[9]);
  parsed.part = static_cast<StripePart>(key[kStripePartAt]);
  switch (parsed.part) {
    case StripePart::kHeader:
    case StripePart::kImage:
    case StripePart::kColdCount:
    case StripePart::kAges:
      if (key.size() != kSegmentAt) return NotAKey("stripe", key);
      return parsed;
    case StripePart::kRows:
    case StripePart::kWaiting:
      if (key.size() != kNumberedKeyBytes) {
        return NotAKey(parsed.part == StripePart::kRows ? "row segment" : "page of waiting keys",
                       key);
      }
      parsed.segment = LoadBigEndian<uint32_t>(&key[kSegmentAt]);
      return parsed;
    case StripePart::kCold:
      if (key.size() != kColdKeyBytes) return NotAKey("cold row", key);
      parsed.key =
          static_cast<int64_t>(LoadBigEndian<uint64_t>(&key[kSegmentAt]) ^ (uint64_t{1} << 63));
      return parsed;
  }
  return NotAKey("stripe", key);
}

absl::StatusOr<uint32_t> ParseVariableKey(absl::string_view key) {
  if (!IsKind(key, RecordKind::kVariable) || key.size() != 5) return NotAKey("variable", key);
  return LoadBigEndian<uint32_t>(&key[1]);
}

absl::Status ParseShardKey(absl::string_view key, ShardRecord& record) {
  if (!IsKind(key, RecordKind::kShard) || key.size() != 9) return NotAKey("shard", key);
  record.variable = LoadBigEndian<uint32_t>(&key[1]);
  record.shard = LoadBigEndian<uint32_t>(&key[5]);
  return absl::OkStatus();
}

absl::Status ParseWorkerKey(absl::string_view key, WorkerRecord& record) {
  if (!IsKind(key, RecordKind::kWorker) || key.size() < 3) return NotAKey("worker", key);
  const size_t job_bytes = LoadBigEndian<uint16_t>(&key[1]);
  if (key.size() != 3 + job_bytes + 4) return NotAKey("worker", key);
  record.job.assign(key.data() + 3, job_bytes);
  record.worker =
      static_cast<int32_t>(LoadBigEndian<uint32_t>(&key[3 + job_bytes]) ^ (uint32_t{1} << 31));
  return absl::OkStatus();
}

absl::Status ParseDecisionKey(absl::string_view key, DecisionRecord& record) {
  if (!IsKind(key, RecordKind::kDecision) || key.size() < 3) return NotAKey("decision", key);
  const size_t job_bytes = LoadBigEndian<uint16_t>(&key[1]);
  if (key.size() != 3 + job_bytes + 8) return NotAKey("decision", key);
  record.job.assign(key.data() + 3, job_bytes);
  record.step = static_cast<int64_t>(LoadBigEndian<uint64_t>(&key[3 + job_bytes]));
  return absl::OkStatus();
}

absl::Status ParseNoteKey(absl::string_view key, NoteRecord& record) {
  if (!IsKind(key, RecordKind::kNote) || key.size() < 2) return NotAKey("note", key);
  record.name = std::string(key.substr(1));
  return absl::OkStatus();
}

std::string KeyText(absl::string_view key) {
  if (IsKind(key, RecordKind::kMeta) && key.size() == 1) return "meta record";
  if (const auto variable = ParseVariableKey(key); variable.ok()) {
    return absl::StrCat("record of variable ", *variable);
  }
  ShardRecord shard;
  if (ParseShardKey(key, shard).ok()) {
    return absl::StrCat("record of shard ", shard.variable, "/", shard.shard);
  }
  WorkerRecord worker;
  if (ParseWorkerKey(key, worker).ok()) {
    return absl::StrCat("record of worker ", worker.worker, " of job \"",
                        absl::CHexEscape(worker.job), "\"");
  }
  DecisionRecord decision;
  if (ParseDecisionKey(key, decision).ok()) {
    return absl::StrCat("decision of step ", decision.step, " of job \"",
                        absl::CHexEscape(decision.job), "\"");
  }
  NoteRecord note;
  if (ParseNoteKey(key, note).ok()) {
    return absl::StrCat("note \"", absl::CHexEscape(note.name), "\"");
  }
  if (const auto stripe = ParseStripeKey(key); stripe.ok()) {
    constexpr absl::string_view kParts[] = {
        " header", " image", " rows ", " cold count", " cold row ", " waiting keys ", " row ages"};
    std::string text = absl::StrCat("stripe ", stripe->id.variable, "/", stripe->id.shard, "/",
                                    stripe->id.stripe, kParts[static_cast<int>(stripe->part)]);
    const bool waiting = stripe->part == StripePart::kWaiting;
    if (waiting || stripe->part == StripePart::kRows) absl::StrAppend(&text, stripe->segment);
    if (stripe->part == StripePart::kCold) absl::StrAppend(&text, stripe->key);
    return text;
  }
  return absl::StrCat("record ", absl::BytesToHexString(key.substr(0, 64)));
}

}  // namespace cairn
