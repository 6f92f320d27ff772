// The cold rows of a stripe that is copied to another server while it is in use (MOVES.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ps_server/rows/embedding_stripe.h"
#include "storage/stripe_store.h"

namespace cairn {

// What is read is each row as it is at that moment: rows leave memory, come back and change
// meanwhile. Thread safety: none; the stripe may be in use by others.
class OutgoingCold {
 public:
  // Asks `stripe`, which outlives this, to note what leaves its memory; it does so for one of them,
  // the last.
  explicit OutgoingCold(EmbeddingStripe& stripe);

  // The rows in memory are being copied: all, or those that changed since the Begin before. The
  // stripe's lock is held all the while, shared is enough. From then on there are those cold rows
  // to be read that are not the same as they were at the Begin before; at first, all.
  void Begin();
  // Whether they have been read.
  bool done() const { return !scan_at_.has_value() && departed_.empty(); }
  // About how many bytes are left to be read; 0: done. Takes the stripe's lock.
  int64_t bytes_left() const;
  // Appends about `bytes` of them, as StoredRows has them. Nothing leaves the stripe's memory for
  // so long. Errors as StripeStore::ScanCold.
  absl::Status Read(const StripeStore& store, size_t bytes, std::string* rows);

 private:
  absl::Status Scan(const StripeStore& store, size_t bytes);
  absl::Status ReadDeparted(const StripeStore& store, size_t bytes);
  void Take(int64_t key, absl::string_view row);
  size_t stride() const { return StoredRows::kKeyBytes + stripe_.table().stored_bytes(); }

  EmbeddingStripe& stripe_;
  const std::shared_ptr<DepartedRows> noted_;  // guarded by the stripe's lock, shared by the rest
  bool begun_ = false;
  std::optional<int64_t> scan_at_;      // all from this key on; nullopt: not those
  std::optional<uint32_t> scan_since_;  // but for those that later updates have not changed
  std::vector<int64_t> departed_;       // and these, in descending order
  int64_t scanned_bytes_ = 0;
  std::string found_;  // as StoredRows
};

}  // namespace cairn
