#include "storage/record.h"

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/version.h"
#include "storage/bytes.h"
#include "storage/checksum.h"
#include "storage/key.h"

namespace cairn {

static_assert(kFormatVersion == kStoreFormat);  // printed by --version
namespace {

constexpr size_t kWatermarkBytes = 12;

void AppendText(absl::string_view text, std::string& to) {
  AppendLittleEndian(static_cast<uint32_t>(text.size()), to);
  to.append(text.data(), text.size());
}

void AppendWatermarks(absl::Span<const Watermark> watermarks, std::string& to) {
  to.reserve(to.size() + 4 + watermarks.size() * kWatermarkBytes + kChecksumBytes);
  AppendLittleEndian(static_cast<uint32_t>(watermarks.size()), to);
  for (const Watermark& watermark : watermarks) {
    AppendLittleEndian(static_cast<uint32_t>(watermark.worker), to);
    AppendLittleEndian(static_cast<uint64_t>(watermark.sequence), to);
  }
}

std::string Sealed(absl::string_view key, std::string value) {
  AppendLittleEndian(ChecksumOf({key, value}), value);
  return value;
}

absl::Status Damaged(absl::string_view key, absl::string_view what) {
  return DataLoss(KeyText(key), ": ", what);
}

// Takes fields from the front of a value. After a missing field, ok() is false and all later fields
// are zero or empty.
class FieldReader {
 public:
  explicit FieldReader(absl::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Number() {
    const absl::string_view bytes = Bytes(sizeof(T));
    return bytes.size() == sizeof(T) ? LoadLittleEndian<T>(bytes.data()) : T{0};
  }
  absl::string_view Text() { return Bytes(Number<uint32_t>()); }
  void Watermarks(std::vector<Watermark>& watermarks) {
    const uint32_t count = Number<uint32_t>();
    watermarks.clear();
    if (count > rest_.size() / kWatermarkBytes) ok_ = false;  // before memory is allocated for it
    if (!ok_) return;
    watermarks.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      const auto worker = static_cast<int32_t>(Number<uint32_t>());
      watermarks.push_back({worker, static_cast<int64_t>(Number<uint64_t>())});
    }
  }
  bool ok() const { return ok_; }
  // Whether every field was present and nothing follows.
  bool Complete() const { return ok_ && rest_.empty(); }

 private:
  absl::string_view Bytes(size_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const absl::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }

  absl::string_view rest_;
  bool ok_ = true;
};

constexpr absl::string_view kWrongLength = "its fields do not fill its length";

}  // namespace

absl::StatusOr<absl::string_view> VerifyChecksum(absl::string_view key, absl::string_view value) {
  if (value.size() < kChecksumBytes) {
    return Damaged(key, absl::StrCat("is ", value.size(), " bytes long, shorter than a checksum"));
  }
  const absl::string_view bytes = value.substr(0, value.size() - kChecksumBytes);
  const auto stored = LoadLittleEndian<uint64_t>(value.data() + bytes.size());
  const uint64_t computed = ChecksumOf({key, bytes});
  if (stored != computed) {
    return Damaged(key, absl::StrCat("checksum is ", absl::Hex(computed, absl::kZeroPad16),
                                     ", stored is ", absl::Hex(stored, absl::kZeroPad16)));
  }
  return bytes;
}

std::string EncodeMeta(absl::string_view key, const MetaRecord& record) {
  std::string value;
  AppendLittleEndian(record.format, value);
  AppendLittleEndian(static_cast<uint32_t>(record.server_index), value);
  AppendLittleEndian(static_cast<uint64_t>(record.boot_count), value);
  return Sealed(key, std::move(value));
}

absl::StatusOr<MetaRecord> DecodeMeta(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  MetaRecord record;
  record.format = fields.Number<uint32_t>();
  // The bytes that follow belong to another format.
  if (fields.ok() && record.format != kFormatVersion) return record;
  record.server_index = static_cast<int32_t>(fields.Number<uint32_t>());
  record.boot_count = static_cast<int64_t>(fields.Number<uint64_t>());
  if (!fields.Complete()) return Damaged(key, kWrongLength);
  return record;
}

std::string EncodeVariable(absl::string_view key, const VariableRecord& record) {
  std::string value;
  AppendText(record.job, value);
  AppendText(record.name, value);
  AppendText(record.spec, value);
  return Sealed(key, std::move(value));
}

absl::StatusOr<VariableRecord> DecodeVariable(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  VariableRecord record;
  ASSIGN_OR_RETURN(record.id, ParseVariableKey(key));
  record.job = std::string(fields.Text());
  record.name = std::string(fields.Text());
  record.spec = std::string(fields.Text());
  if (!fields.Complete()) return Damaged(key, kWrongLength);
  return record;
}

std::string EncodeShard(absl::string_view key, const ShardRecord& record) {
  std::string value;
  AppendLittleEndian(static_cast<uint64_t>(record.update_count), value);
  AppendWatermarks(record.watermarks, value);
  return Sealed(key, std::move(value));
}

absl::StatusOr<ShardRecord> DecodeShard(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  ShardRecord record;
  RETURN_IF_ERROR(ParseShardKey(key, record));
  record.update_count = static_cast<int64_t>(fields.Number<uint64_t>());
  fields.Watermarks(record.watermarks);
  if (!fields.Complete()) return Damaged(key, kWrongLength);
  return record;
}

std::string EncodeWorker(absl::string_view key, const WorkerRecord& record) {
  std::string value;
  AppendLittleEndian(static_cast<uint64_t>(record.incarnation), value);
  AppendLittleEndian(static_cast<uint64_t>(record.sequence), value);
  AppendText(record.position, value);
  if (record.left) AppendLittleEndian(uint8_t{1}, value);
  return Sealed(key, std::move(value));
}

absl::StatusOr<WorkerRecord> DecodeWorker(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  WorkerRecord record;
  RETURN_IF_ERROR(ParseWorkerKey(key, record));
  record.incarnation = static_cast<int64_t>(fields.Number<uint64_t>());
  record.sequence = static_cast<int64_t>(fields.Number<uint64_t>());
  record.position = std::string(fields.Text());
  if (fields.ok() && !fields.Complete()) {
    record.left = fields.Number<uint8_t>() == 1;
    if (!record.left) return Damaged(key, "its last byte is not 1");
  }
  if (!fields.Complete()) return Damaged(key, kWrongLength);
  return record;
}

std::string EncodeDecision(absl::string_view key, const DecisionRecord& record) {
  std::string value;
  AppendLittleEndian(static_cast<uint32_t>(record.contributions.size()), value);
  for (const NamedContribution& named : record.contributions) {
    AppendLittleEndian(static_cast<uint32_t>(named.worker), value);
    AppendLittleEndian(static_cast<uint64_t>(named.incarnation), value);
    AppendLittleEndian(static_cast<uint64_t>(named.sequence), value);
    AppendLittleEndian(static_cast<uint64_t>(named.rows), value);
    AppendText(named.position, value);
  }
  return Sealed(key, std::move(value));
}

absl::StatusOr<DecisionRecord> DecodeDecision(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  DecisionRecord record;
  RETURN_IF_ERROR(ParseDecisionKey(key, record));
  const auto count = fields.Number<uint32_t>();
  // Every contribution takes bytes, so a wrong count ends with them.
  for (uint32_t i = 0; i < count && fields.ok(); ++i) {
    NamedContribution& named = record.contributions.emplace_back();
    named.worker = static_cast<int32_t>(fields.Number<uint32_t>());
    named.incarnation = static_cast<int64_t>(fields.Number<uint64_t>());
    named.sequence = static_cast<int64_t>(fields.Number<uint64_t>());
    named.rows = static_cast<int64_t>(fields.Number<uint64_t>());
    named.position = std::string(fields.Text());
  }
  if (!fields.Complete()) return Damaged(key, kWrongLength);
  return record;
}

std::string EncodeNote(absl::string_view key, const NoteRecord& record) {
  std::string value;
  AppendText(record.text, value);
  return Sealed(key, std::move(value));
}

absl::StatusOr<NoteRecord> DecodeNote(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  NoteRecord record;
  RETURN_IF_ERROR(ParseNoteKey(key, record));
  record.text = std::string(fields.Text());
  if (!fields.Complete()) return Damaged(key, kWrongLength);
  return record;
}

std::string EncodeHeader(absl::string_view key, absl::Span<const Watermark> watermarks) {
  std::string value;
  AppendWatermarks(watermarks, value);
  return Sealed(key, std::move(value));
}

absl::Status DecodeHeader(absl::string_view key, absl::string_view value,
                          std::vector<Watermark>& watermarks) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  fields.Watermarks(watermarks);
  return fields.Complete() ? absl::OkStatus() : Damaged(key, kWrongLength);
}

std::string EncodeColdCount(absl::string_view key, int64_t rows) {
  std::string value;
  AppendLittleEndian(static_cast<uint64_t>(rows), value);
  return Sealed(key, std::move(value));
}

absl::StatusOr<int64_t> DecodeColdCount(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
  FieldReader fields(bytes);
  const auto rows = static_cast<int64_t>(fields.Number<uint64_t>());
  if (!fields.Complete()) return Damaged(key, kWrongLength);
  if (rows < 0) return Damaged(key, absl::StrCat("it counts ", rows, " rows"));
  return rows;
}

}  // namespace cairn
