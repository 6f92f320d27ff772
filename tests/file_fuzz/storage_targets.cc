// Keys and values of the store's records, with corrected checksums, so that the data behind the
// checksums is parsed.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "storage/bytes.h"
#include "storage/checksum.h"
#include "storage/key.h"
#include "storage/record.h"
#include "storage/row_segment.h"
#include "tests/file_fuzz/target.h"

namespace cairn::test {
namespace {

constexpr size_t kMaxRecordBytes = 16 << 10;

void AppendChecksum(absl::string_view key, std::string* value) {
  char bytes[sizeof(uint64_t)];
  StoreLittleEndian(ChecksumOf({key, *value}), bytes);
  value->append(bytes, sizeof bytes);
}

// Whether decoding fails with a proper error, or re-encoding gives exactly the same bytes.
template <class Record>
std::string Decodes(const absl::StatusOr<Record>& record, absl::string_view key,
                    const std::string& value,
                    std::string (*encode)(absl::string_view, const Record&)) {
  if (!record.ok()) {
    return absl::IsDataLoss(record.status()) ||
                   record.status().code() == absl::StatusCode::kFailedPrecondition
               ? WrongWithMessage(std::string(record.status().message()), "")
               : absl::StrCat("refused as ", record.status().ToString());
  }
  return encode(key, *record) == value ? "" : "decoded and encoded to other bytes";
}

// A record of another format version is read only up to its version number.
std::string DecodesMeta(const std::string& key, const std::string& value) {
  const absl::StatusOr<MetaRecord> record = DecodeMeta(key, value);
  if (record.ok() && record->format != kFormatVersion) return "";
  return Decodes<MetaRecord>(record, key, value, EncodeMeta);
}

struct Kind {
  const char* name;
  std::string key;
  std::vector<std::string> values;  // with checksums
  std::function<std::string(const std::string& key, const std::string& value)> check;
};

Kind MetaKind() {
  const std::string key = MetaKey();
  return {"record_meta", key, {EncodeMeta(key, {.server_index = 3, .boot_count = 9})}, DecodesMeta};
}

Kind VariableKind() {
  const std::string key = VariableKey(7);
  return {"record_variable",
          key,
          {EncodeVariable(key, {.id = 7, .job = "job", .name = "emb/user", .spec = "opaque"}),
           EncodeVariable(key, {.id = 7})},
          [](const std::string& of, const std::string& value) {
            return Decodes<VariableRecord>(DecodeVariable(of, value), of, value, EncodeVariable);
          }};
}

Kind ShardKind() {
  const std::string key = ShardKey(7, 2);
  ShardRecord record{.variable = 7, .shard = 2, .update_count = 41};
  record.watermarks = {{.worker = 0, .sequence = 3}, {.worker = 5, .sequence = int64_t{1} << 40}};
  return {"record_shard",
          key,
          {EncodeShard(key, record), EncodeShard(key, {.variable = 7, .shard = 2})},
          [](const std::string& of, const std::string& value) {
            return Decodes<ShardRecord>(DecodeShard(of, value), of, value, EncodeShard);
          }};
}

Kind WorkerKind() {
  const std::string key = WorkerKey("job", 4);
  WorkerRecord record{.job = "job", .worker = 4, .incarnation = 2, .sequence = 77};
  record.position = "opaque";
  std::string plain = EncodeWorker(key, record);
  record.left = true;
  return {"record_worker",
          key,
          {plain, EncodeWorker(key, record)},
          [](const std::string& of, const std::string& value) {
            return Decodes<WorkerRecord>(DecodeWorker(of, value), of, value, EncodeWorker);
          }};
}

Kind DecisionKind() {
  const std::string key = DecisionKey("job", 12);
  DecisionRecord record{.job = "job", .step = 12};
  record.contributions = {
      {.worker = 0, .incarnation = 1, .sequence = 5, .rows = 32, .position = "p"},
      {.worker = 1, .incarnation = 1, .sequence = 6, .rows = 1, .position = ""}};
  return {"record_decision",
          key,
          {EncodeDecision(key, record), EncodeDecision(key, {.job = "job", .step = 12})},
          [](const std::string& of, const std::string& value) {
            return Decodes<DecisionRecord>(DecodeDecision(of, value), of, value, EncodeDecision);
          }};
}

Kind NoteKind() {
  const std::string key = NoteKey("members");
  return {"record_note",
          key,
          {EncodeNote(key, {.name = "members", .text = "text"})},
          [](const std::string& of, const std::string& value) {
            return Decodes<NoteRecord>(DecodeNote(of, value), of, value, EncodeNote);
          }};
}

Kind HeaderKind() {
  StripeKeys keys({.variable = 7, .shard = 2, .stripe = 1});
  const std::string key(keys.Header());
  const std::vector<Watermark> marks = {{.worker = 1, .sequence = 9}};
  return {"record_header",
          key,
          {EncodeHeader(key, marks), EncodeHeader(key, {})},
          [](const std::string& of, const std::string& value) -> std::string {
            std::vector<Watermark> read;
            const absl::Status status = DecodeHeader(of, value, read);
            if (!status.ok()) return absl::IsDataLoss(status) ? "" : status.ToString();
            return EncodeHeader(of, read) == value ? "" : "decoded and encoded to other bytes";
          }};
}

Kind ColdCountKind() {
  StripeKeys keys({.variable = 7, .shard = 2, .stripe = 1});
  const std::string key(keys.ColdCount());
  return {"record_cold_count",
          key,
          {EncodeColdCount(key, 5)},
          [](const std::string& of, const std::string& value) -> std::string {
            const absl::StatusOr<int64_t> rows = DecodeColdCount(of, value);
            if (!rows.ok()) return absl::IsDataLoss(rows.status()) ? "" : rows.status().ToString();
            if (*rows < 0) return "fewer than no rows";
            return EncodeColdCount(of, *rows) == value ? "" : "decoded and encoded to other bytes";
          }};
}

std::string CheckSegment(const std::string& key, const std::string& value) {
  const absl::StatusOr<StoredRows> rows = ReadRowSegment(key, value);
  if (!rows.ok()) return absl::IsDataLoss(rows.status()) ? "" : rows.status().ToString();
  if (rows->size() == 0) return "";
  RowSegment again;
  for (size_t i = 0; i < rows->size(); ++i) again.Add(rows->key(i), rows->row(i));
  return again.Seal(key, IsOfEveryRow(value)) == value ? "" : "read and sealed to other bytes";
}

Kind SegmentKind() {
  StripeKeys keys({.variable = 7, .shard = 2, .stripe = 1});
  const std::string key(keys.Rows(3));
  RowSegment rows;
  rows.Add(5, "12345678");
  rows.Add(-9, "abcdefgh");
  const std::string changed(rows.Seal(key, false));
  rows.Clear();
  rows.Add(1, "");
  return {"row_segment", key, {changed, std::string(rows.Seal(key, true))}, CheckSegment};
}

class RecordTarget : public FuzzTarget {
 public:
  explicit RecordTarget(Kind kind) : kind_(std::move(kind)) {}
  std::string Make(Dice& dice) override {
    std::string value = dice.Of(kind_.values);
    const bool right = dice.OneIn(2);
    if (right) value.resize(value.size() - kChecksumBytes);
    Mutate(dice, kind_.values, {}, kMaxRecordBytes, &value);
    if (right) AppendChecksum(kind_.key, &value);
    return value;
  }
  std::string Try(const std::string& input) override { return kind_.check(kind_.key, input); }

 private:
  const Kind kind_;
};

// A parsed key must equal the key that is built from the parsed values.
class KeyTarget : public FuzzTarget {
 public:
  std::string Make(Dice& dice) override {
    std::string key = dice.Of(seeds_);
    Mutate(dice, seeds_, {}, 500, &key);
    return key;
  }
  std::string Try(const std::string& input) override {
    if (const std::string wrong = WrongWithMessage(KeyText(input), ""); !wrong.empty())
      return wrong;
    ShardRecord shard;
    WorkerRecord worker;
    DecisionRecord decision;
    NoteRecord note;
    const auto number = ParseVariableKey(input);
    if (number.ok() && VariableKey(*number) != input) return "another variable's key";
    if (ParseShardKey(input, shard).ok() && ShardKey(shard.variable, shard.shard) != input) {
      return "another shard's key";
    }
    if (ParseWorkerKey(input, worker).ok() && WorkerKey(worker.job, worker.worker) != input) {
      return "another worker's key";
    }
    if (ParseDecisionKey(input, decision).ok() &&
        DecisionKey(decision.job, decision.step) != input) {
      return "another decision's key";
    }
    if (ParseNoteKey(input, note).ok() && NoteKey(note.name) != input) return "another note's key";
    return TryStripe(input);
  }

 private:
  static std::string TryStripe(const std::string& input) {
    const absl::StatusOr<StripeKey> key = ParseStripeKey(input);
    if (!key.ok()) return "";
    StripeKeys keys(key->id);
    const auto made = [&]() -> absl::string_view {
      switch (key->part) {
        case StripePart::kHeader: return keys.Header();
        case StripePart::kImage: return keys.Image();
        case StripePart::kRows: return keys.Rows(key->segment);
        case StripePart::kColdCount: return keys.ColdCount();
        case StripePart::kCold: return keys.Cold(key->key);
        case StripePart::kWaiting: return keys.Waiting(key->segment);
        case StripePart::kAges: return keys.Ages();
      }
      return "";
    };
    return made() == input ? "" : "another stripe's key";
  }

  static std::vector<std::string> Seeds() {
    StripeKeys keys({.variable = 7, .shard = 2, .stripe = 1});
    std::vector<std::string> seeds = {MetaKey(),         VariableKey(1),        ShardKey(1, 2),
                                      WorkerKey("j", 3), DecisionKey("job", 5), NoteKey("n")};
    seeds.emplace_back(keys.Header());
    seeds.emplace_back(keys.Rows(9));
    seeds.emplace_back(keys.Cold(-4));
    seeds.emplace_back(keys.Waiting(1));
    seeds.emplace_back(keys.Ages());
    return seeds;
  }

  const std::vector<std::string> seeds_ = Seeds();
};

}  // namespace

std::vector<NamedTarget> StorageTargets() {
  static const auto& kinds = *new std::vector<Kind>{MetaKind(),   VariableKind(),  ShardKind(),
                                                    WorkerKind(), DecisionKind(),  NoteKind(),
                                                    HeaderKind(), ColdCountKind(), SegmentKind()};
  std::vector<NamedTarget> targets = {{"key", [] { return std::make_unique<KeyTarget>(); }}};
  for (const Kind& kind : kinds) {
    targets.push_back({kind.name, [&kind] { return std::make_unique<RecordTarget>(kind); }});
  }
  return targets;
}

}  // namespace cairn::test
