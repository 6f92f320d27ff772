// A stripe's changes as one rocksdb::WriteBatch. Internal to storage/: it names RocksDB.
#pragma once

#include <cstdint>
#include <optional>

#include "rocksdb/write_batch.h"
#include "storage/key.h"
#include "storage/stripe_store.h"

namespace cairn {

class RocksStripeBatch : public StripeBatch {
 public:
  explicit RocksStripeBatch(const StripeId& id) : id_(id), keys_(id) {}

  void SetWatermarks(absl::Span<const Watermark> watermarks) override;
  void PutImage(absl::Span<const absl::string_view> pieces) override;
  void PutRow(int64_t key, absl::string_view bytes) override;
  size_t bytes() const override { return batch_.GetDataSize(); }

  const StripeId& id() const { return id_; }
  rocksdb::WriteBatch& batch() { return batch_; }
  // The first Put that RocksDB refused (a value of 4 GiB or more), else OK.
  const rocksdb::Status& status() const { return status_; }
  bool empty() const { return batch_.Count() == 0; }

 private:
  void Reserve(size_t image_bytes);
  void Note(rocksdb::Status status);

  const StripeId id_;
  StripeKeys keys_;
  rocksdb::WriteBatch batch_;
  rocksdb::Status status_;
};

}  // namespace cairn
