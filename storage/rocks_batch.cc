#include "storage/rocks_batch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "rocksdb/slice.h"
#include "storage/bytes.h"
#include "storage/checksum.h"
#include "storage/record.h"
#include "storage/rocks_status.h"

namespace cairn {
namespace {

// Memory is reserved in advance for more than this.
constexpr size_t kLargeBytes = 128 << 10;
// Approximate size of cold rows that are sorted together.
constexpr size_t kSortedBytes = 2 << 20;
// Reserved for the rows of a large stripe.
constexpr size_t kRoomBytes = 8 << 20;
// A batch keeps the memory of this many segments for its next ones: more than are full when a
// snapshot settles its batch.
constexpr size_t kSpareSegments = 8;

// Repeats the writes of one batch, all in the default column family, in another.
class Appender final : public rocksdb::WriteBatch::Handler {
 public:
  explicit Appender(rocksdb::WriteBatch& to) : to_(to) {}
  rocksdb::Status PutCF(uint32_t family, const rocksdb::Slice& key,
                        const rocksdb::Slice& value) override {
    return family == 0 ? to_.Put(key, value)
                       : rocksdb::Status::InvalidArgument("a stripe's batch has cold rows");
  }

 private:
  rocksdb::WriteBatch& to_;
};

}  // namespace

rocksdb::WriteBatch SpareBatches::Take() {
  absl::MutexLock lock(&mutex_);
  if (spare_.empty()) return rocksdb::WriteBatch();
  rocksdb::WriteBatch batch = std::move(spare_.back());
  spare_.pop_back();
  return batch;
}

void SpareBatches::Return(rocksdb::WriteBatch batch) {
  const size_t bytes = batch.Data().capacity();
  if (bytes <= kLargeBytes || bytes > 2 * kRoomBytes) return;
  batch.Clear();
  absl::MutexLock lock(&mutex_);
  if (spare_.size() < kMaxBatches) spare_.push_back(std::move(batch));
}

void SpareBatches::Drop() {
  absl::MutexLock lock(&mutex_);
  spare_.clear();
}

rocksdb::Status RocksStripeBatch::AppendTo(rocksdb::WriteBatch& batch) {
  if (has_rows_ || !cold_rows_.empty()) {
    return rocksdb::Status::InvalidArgument("a stripe's batch has rows");
  }
  if (!status_.ok()) return status_;
  Appender appender(batch);
  return batch_.Iterate(&appender);
}

void RocksStripeBatch::Note(rocksdb::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

// Allocates once for an image, because doubling would copy it several times. The batch is nearly
// empty at that point.
void RocksStripeBatch::Reserve(size_t image_bytes) {
  constexpr size_t kFramingBytes = 1024;  // keys, lengths, and a header put afterwards
  if (batch_.Data().capacity() >= batch_.GetDataSize() + image_bytes + kFramingBytes) return;
  std::string bytes;
  bytes.reserve(batch_.GetDataSize() + image_bytes + kFramingBytes);
  bytes.append(batch_.Data());
  batch_ = rocksdb::WriteBatch(std::move(bytes));
}

void RocksStripeBatch::SetWatermarks(absl::Span<const Watermark> watermarks) {
  const absl::string_view key = keys_.Header();
  Note(batch_.Put(ToSlice(key), EncodeHeader(key, watermarks)));
}

void RocksStripeBatch::PutImage(absl::Span<const absl::string_view> pieces) {
  const absl::string_view key = keys_.Image();
  absl::InlinedVector<absl::string_view, 8> sealed = {key};
  sealed.insert(sealed.end(), pieces.begin(), pieces.end());
  char checksum[kChecksumBytes];
  StoreLittleEndian(ChecksumOf(sealed), checksum);

  absl::InlinedVector<rocksdb::Slice, 8> slices;
  size_t image_bytes = sizeof(checksum);
  for (const absl::string_view piece : pieces) {
    slices.push_back(ToSlice(piece));
    image_bytes += piece.size();
  }
  slices.emplace_back(checksum, sizeof(checksum));
  Reserve(image_bytes);
  const rocksdb::Slice key_slice = ToSlice(key);
  Note(batch_.Put(rocksdb::SliceParts(&key_slice, 1),
                  rocksdb::SliceParts(slices.data(), static_cast<int>(slices.size()))));
}

void RocksStripeBatch::PutRow(int64_t key, absl::string_view bytes) {
  if (!has_rows_ && wants_every_row_) {
    for (uint32_t segment = segments_.first; segment != segments_.next; ++segment) {
      Note(batch_.Delete(ToSlice(keys_.Rows(segment))));
    }
    const uint32_t begin = segments_.StartsOver() ? 0 : segments_.next;
    segments_ = {.first = begin, .next = begin};
  }
  has_rows_ = true;
  if (!segment_.Takes(bytes.size())) {
    full_bytes_ += segment_.bytes();
    full_.push_back(std::exchange(segment_, {}));
    if (!spare_segments_.empty()) {
      segment_ = std::move(spare_segments_.back());
      spare_segments_.pop_back();
    }
  }
  segment_.Add(key, bytes);
}

void RocksStripeBatch::PutCold(int64_t key, absl::string_view bytes) {
  cold_rows_.push_back({.key = key, .begin = cold_bytes_.size(), .bytes = bytes.size()});
  cold_bytes_.append(bytes.data(), bytes.size());
}

void RocksStripeBatch::PutColdRows() {
  if (cold_rows_.empty()) return;
  changes_cold_ = true;
  constexpr size_t kFramingBytes = 64;  // key, lengths, checksum
  if (cold_bytes_.size() > kLargeBytes) {
    Reserve(cold_bytes_.size() + cold_rows_.size() * kFramingBytes);
  }
  // If two rows have one key, the last one counts.
  std::ranges::stable_sort(cold_rows_,
                           [](const ColdRow& a, const ColdRow& b) { return a.key < b.key; });
  const absl::string_view bytes = cold_bytes_;
  for (const ColdRow& row : cold_rows_) {
    PutBytes(cold_, keys_.Cold(row.key), bytes.substr(row.begin, row.bytes));
  }
  cold_rows_.clear();
  cold_bytes_.clear();
}

void RocksStripeBatch::PutWaiting(uint32_t page, absl::string_view bytes) {
  PutBytes(nullptr, keys_.Waiting(page), bytes);
}

void RocksStripeBatch::PutAges(absl::string_view bytes) { PutBytes(nullptr, keys_.Ages(), bytes); }

void RocksStripeBatch::DropCold(int64_t key) {
  PutColdRows();
  changes_cold_ = true;
  Note(batch_.Delete(cold_, ToSlice(keys_.Cold(key))));
}

void RocksStripeBatch::PutBytes(rocksdb::ColumnFamilyHandle* family, absl::string_view key,
                                absl::string_view bytes) {
  char checksum[kChecksumBytes];
  StoreLittleEndian(ChecksumOf({key, bytes}), checksum);
  const rocksdb::Slice key_slice = ToSlice(key);
  const rocksdb::Slice value[] = {ToSlice(bytes), {checksum, sizeof(checksum)}};
  const rocksdb::SliceParts keys(&key_slice, 1);
  const rocksdb::SliceParts values(value, 2);
  Note(family == nullptr ? batch_.Put(keys, values) : batch_.Put(family, keys, values));
}

void RocksStripeBatch::SetColdCount(int64_t rows) {
  const absl::string_view key = keys_.ColdCount();
  Note(batch_.Put(ToSlice(key), EncodeColdCount(key, rows)));
}

void RocksStripeBatch::Put(RowSegment& segment) {
  const absl::string_view key = keys_.Rows(segments_.next++);
  (wants_every_row_ ? segments_.base_bytes : segments_.change_bytes) += segment.bytes();
  Note(batch_.Put(ToSlice(key), ToSlice(segment.Seal(key, wants_every_row_))));
  segment.Clear();
}

void RocksStripeBatch::Settle() {
  // Reserves memory, because doubling takes new pages from the system each time. Unused pages are
  // never touched.
  if (!has_room_ && batch_.GetDataSize() + full_bytes_ > kLargeBytes) {
    has_room_ = true;
    Reserve(kRoomBytes);
  }
  for (RowSegment& segment : full_) {
    RowSegment put = std::move(segment);  // unless it is kept, its memory is freed before the next
    Put(put);
    if (spare_segments_.size() < kSpareSegments) spare_segments_.push_back(std::move(put));
  }
  full_.clear();
  full_bytes_ = 0;
  // Avoids holding long rows in memory twice.
  if (cold_bytes_.size() > kSortedBytes) PutColdRows();
}

void RocksStripeBatch::Finish() {
  Settle();
  if (!segment_.empty()) Put(segment_);
  PutColdRows();
}

}  // namespace cairn
