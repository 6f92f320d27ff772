// A stripe's changes as one rocksdb::WriteBatch. Its rows become segments, one record for many
// rows, because one record a row cost 2 to 4 us in RocksDB's memtable, 40 times the copy. Internal
// to storage/, because it includes RocksDB.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/write_batch.h"
#include "storage/key.h"
#include "storage/row_segment.h"
#include "storage/stripe_store.h"

namespace cairn {

// The row segments that a stripe has on disk: numbers [first, next). The first `base_bytes` of
// their bytes come from a write of every row, the others from writes of changed rows.
struct SegmentRange {
  uint32_t first = 0;
  uint32_t next = 0;
  uint64_t base_bytes = 0;
  uint64_t change_bytes = 0;

  // Adds a segment of `bytes` that is on disk.
  void Add(uint32_t segment, uint64_t bytes, bool every_row) {
    if (next == 0) first = segment;
    next = segment + 1;
    (every_row ? base_bytes : change_bytes) += bytes;
  }
  // Changed rows may take at most as many bytes as the last write of all rows; small stripes are
  // never overgrown. So the disk holds at most twice the live rows, and each byte is written at
  // most twice on average.
  bool Overgrown() const {
    constexpr uint64_t kSmallBytes = 64 << 10;
    return change_bytes > (base_bytes > kSmallBytes ? base_bytes : kSmallBytes);
  }
  // Whether the next write begins at number 0 again. Numbers must not wrap around, because a load
  // takes the highest number for the newest. No single write needs all the numbers that are left.
  bool StartsOver() const { return next == 0 || next > uint32_t{1} << 31; }
  // Whether the next write must contain every row.
  bool Wanting() const { return StartsOver() || Overgrown(); }
};

// The memory of large batches that are written, for the next ones: fresh pages cost more time than
// the copy of a stripe's rows. Thread safety: every method may be called from several threads at
// once.
class SpareBatches {
 public:
  SpareBatches() { spare_.reserve(kMaxBatches); }  // Return must not need memory
  // An empty batch.
  rocksdb::WriteBatch Take();
  // Keeps the memory if there is room for it and the size is that of a large stripe's rows.
  void Return(rocksdb::WriteBatch batch);
  // Returns all of it to the system.
  void Drop();

 private:
  static constexpr size_t kMaxBatches = 2;  // a snapshot's and a move's

  absl::Mutex mutex_;
  std::vector<rocksdb::WriteBatch> spare_ ABSL_GUARDED_BY(mutex_);
};

class RocksStripeBatch : public StripeBatch {
 public:
  // `on_disk`: the stripe's segments before this batch. `cold`: the column family of cold rows. The
  // last two must outlive this object.
  RocksStripeBatch(const StripeId& id, const SegmentRange& on_disk,
                   rocksdb::ColumnFamilyHandle* cold, SpareBatches& spare)
      : id_(id),
        keys_(id),
        cold_(cold),
        segments_(on_disk),
        wants_every_row_(on_disk.Wanting()),
        spare_batches_(spare),
        batch_(spare.Take()) {}
  ~RocksStripeBatch() override { spare_batches_.Return(std::move(batch_)); }

  void SetWatermarks(absl::Span<const Watermark> watermarks) override;
  void PutImage(absl::Span<const absl::string_view> pieces) override;
  void PutRow(int64_t key, absl::string_view bytes) override;
  void PutCold(int64_t key, absl::string_view bytes) override;
  void PutGone(int64_t key) override { PutRow(key, {}); }
  void SetColdCount(int64_t rows) override;
  void PutWaiting(uint32_t page, absl::string_view bytes) override;
  void PutAges(absl::string_view bytes) override;
  void DropCold(int64_t key) override;
  bool wants_every_row() const override { return wants_every_row_; }
  void Settle() override;
  size_t bytes() const override {
    return batch_.GetDataSize() + full_bytes_ + segment_.bytes() + cold_bytes_.size();
  }

  // Adds the last segment and the cold rows. Nothing may be put afterwards.
  void Finish();
  // Appends the header and the image to `batch`. InvalidArgument: there are rows.
  rocksdb::Status AppendTo(rocksdb::WriteBatch& batch);
  // The stripe's segments after the finished batch has been written.
  const SegmentRange& segments() const { return segments_; }

  const StripeId& id() const { return id_; }
  rocksdb::WriteBatch& batch() { return batch_; }
  // Makes the batch fail with `status`, which is not OK, regardless of its contents.
  void Refuse(absl::Status status) { refusal_ = std::move(status); }
  const absl::Status& refusal() const { return refusal_; }
  // The first Put that RocksDB refused (a value of 4 GiB or more); otherwise OK.
  const rocksdb::Status& status() const { return status_; }
  bool empty() const { return batch_.Count() == 0; }
  // Whether the finished batch changes the column family of cold rows.
  bool changes_cold() const { return changes_cold_; }

 private:
  void Reserve(size_t image_bytes);
  void Note(rocksdb::Status status);
  // Puts `bytes`, followed by the checksum of key and bytes, under `key`.
  void PutBytes(rocksdb::ColumnFamilyHandle* family, absl::string_view key,
                absl::string_view bytes);
  void Put(RowSegment& segment);
  // Puts the gathered cold rows, ordered by key.
  void PutColdRows();

  const StripeId id_;
  StripeKeys keys_;
  rocksdb::ColumnFamilyHandle* const cold_;
  SegmentRange segments_;
  const bool wants_every_row_;
  bool has_rows_ = false;
  bool has_room_ = false;
  bool changes_cold_ = false;
  std::vector<RowSegment> full_;  // not put yet
  size_t full_bytes_ = 0;
  std::vector<RowSegment> spare_segments_;  // empty ones, with memory
  RowSegment segment_;
  // Cold rows that are not put yet. They are sorted first, because RocksDB inserts a key that
  // follows the previous one in a fraction of the time.
  struct ColdRow {
    int64_t key;
    size_t begin;  // in cold_bytes_
    size_t bytes;
  };
  std::vector<ColdRow> cold_rows_;
  std::string cold_bytes_;
  SpareBatches& spare_batches_;
  rocksdb::WriteBatch batch_;
  rocksdb::Status status_;
  absl::Status refusal_;
};

}  // namespace cairn
