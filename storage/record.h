// Values of the store's records, little-endian. Each ends with a checksum of its key and its bytes,
// so that a record under another record's key is detected too. FORMAT.md specifies the bytes.
//
// Decoders accept any bytes. They return kDataLoss, naming the record, for values that Encode
// cannot have written, and never read beyond `value`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/stripe_store.h"

namespace cairn {

// Incremented when a reader of the previous format could misread the new one.
inline constexpr uint32_t kFormatVersion = 1;

struct MetaRecord {
  uint32_t format = kFormatVersion;
  int32_t server_index = 0;
  int64_t boot_count = 0;
  bool operator==(const MetaRecord&) const = default;
};

// Verifies the checksum and returns `value` without it; a view of `value`.
absl::StatusOr<absl::string_view> VerifyChecksum(absl::string_view key, absl::string_view value);

// `key` is the key under which the value is stored.
std::string EncodeMeta(absl::string_view key, const MetaRecord& record);
absl::StatusOr<MetaRecord> DecodeMeta(absl::string_view key, absl::string_view value);

std::string EncodeVariable(absl::string_view key, const VariableRecord& record);
absl::StatusOr<VariableRecord> DecodeVariable(absl::string_view key, absl::string_view value);

std::string EncodeShard(absl::string_view key, const ShardRecord& record);
absl::StatusOr<ShardRecord> DecodeShard(absl::string_view key, absl::string_view value);

std::string EncodeWorker(absl::string_view key, const WorkerRecord& record);
absl::StatusOr<WorkerRecord> DecodeWorker(absl::string_view key, absl::string_view value);

std::string EncodeDecision(absl::string_view key, const DecisionRecord& record);
absl::StatusOr<DecisionRecord> DecodeDecision(absl::string_view key, absl::string_view value);

std::string EncodeNote(absl::string_view key, const NoteRecord& record);
absl::StatusOr<NoteRecord> DecodeNote(absl::string_view key, absl::string_view value);

// A stripe's header. DecodeHeader replaces `watermarks`, which are unspecified unless it returns
// OK.
std::string EncodeHeader(absl::string_view key, absl::Span<const Watermark> watermarks);
absl::Status DecodeHeader(absl::string_view key, absl::string_view value,
                          std::vector<Watermark>& watermarks);

// The number of cold rows of a stripe.
std::string EncodeColdCount(absl::string_view key, int64_t rows);
absl::StatusOr<int64_t> DecodeColdCount(absl::string_view key, absl::string_view value);

}  // namespace cairn
