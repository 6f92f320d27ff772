#include "storage/row_segment.h"

#include "common/errors.h"
#include "common/status.h"
#include "storage/bytes.h"
#include "storage/checksum.h"
#include "storage/key.h"
#include "storage/record.h"

namespace cairn {
namespace {

constexpr size_t kKindAt = sizeof(uint32_t);
constexpr size_t kHeadBytes = kKindAt + 1;

}  // namespace

void RowSegment::Add(int64_t key, absl::string_view row) {
  if (bytes_.empty()) {
    row_bytes_ = row.size();
    AppendLittleEndian(static_cast<uint32_t>(row_bytes_), bytes_);
    bytes_.push_back(0);
  }
  const size_t end = bytes_.size() + StoredRows::kKeyBytes + row.size();
  // The last doubling would exceed the size up to which malloc reuses memory by default.
  if (end > bytes_.capacity() && end > kFullBytes / 2) {
    bytes_.reserve(kFullBytes + StoredRows::kKeyBytes + row.size() + kChecksumBytes);
  }
  AppendLittleEndian(static_cast<uint64_t>(key), bytes_);
  bytes_.append(row.data(), row.size());
}

absl::string_view RowSegment::Seal(absl::string_view key, bool every_row) {
  bytes_[kKindAt] = every_row ? 1 : 0;
  AppendLittleEndian(ChecksumOf({key, bytes_}), bytes_);
  return bytes_;
}

bool IsOfEveryRow(absl::string_view value) { return value.size() > kKindAt && value[kKindAt] == 1; }

absl::StatusOr<StoredRows> ReadRowSegment(absl::string_view key, absl::string_view value) {
  ASSIGN_OR_RETURN(absl::string_view rest, VerifyChecksum(key, value));
  if (rest.size() < kHeadBytes) {
    return DataLoss(KeyText(key), ": ", rest.size(), " bytes are too few for a row segment");
  }
  const size_t row_bytes = LoadLittleEndian<uint32_t>(rest.data());
  if (const auto kind = static_cast<uint8_t>(rest[kKindAt]); kind > 1) {
    return DataLoss(KeyText(key), ": ", kind, " is not a kind of row segment");
  }
  rest.remove_prefix(kHeadBytes);
  if (rest.size() % (StoredRows::kKeyBytes + row_bytes) != 0) {
    return DataLoss(KeyText(key), ": ", rest.size(), " bytes are not a whole number of rows of ",
                    row_bytes, " bytes and a key");
  }
  return StoredRows(rest, row_bytes);
}

}  // namespace cairn
