// Reads the cold rows of a stripe that is copied to another server while it is in use (MOVES.md).
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

// Each row is read as it is at that moment: rows are evicted, loaded and changed in the meantime.
// Thread safety: none. Other threads may use the stripe.
class OutgoingCold {
 public:
  // `stripe` must outlive this object. Asks it to record which rows leave its memory; a stripe does
  // so only for the most recent OutgoingCold.
  explicit OutgoingCold(EmbeddingStripe& stripe);

  // The caller copies rows in memory: all, or those that changed since the previous Begin. It holds
  // the stripe's lock throughout; a shared lock is enough. From now on, the rows to read are the
  // cold rows that have changed since the previous Begin; at the first Begin, all cold rows.
  void Begin();
  // Whether all of them have been read.
  bool done() const { return !scan_at_.has_value() && departed_.empty(); }
  // About how many bytes are left to read; 0: done. Takes the stripe's lock.
  int64_t bytes_left() const;
  // Appends about `bytes` of these rows in the form of StoredRows. While it runs, no row leaves the
  // stripe's memory. Errors as in StripeStore::ScanCold.
  absl::Status Read(const StripeStore& store, size_t bytes, std::string* rows);

 private:
  absl::Status Scan(const StripeStore& store, size_t bytes);
  absl::Status ReadDeparted(const StripeStore& store, size_t bytes);
  void Take(int64_t key, absl::string_view row);
  size_t stride() const { return StoredRows::kKeyBytes + stripe_.table().stored_bytes(); }

  EmbeddingStripe& stripe_;
  const std::shared_ptr<DepartedRows> noted_;  // guarded by the stripe's lock
  bool begun_ = false;
  std::optional<int64_t> scan_at_;      // scan from this key on; nullopt: no scan
  std::optional<uint32_t> scan_since_;  // only rows with later updates; nullopt: all rows
  std::vector<int64_t> departed_;       // further keys to read, in descending order
  int64_t scanned_bytes_ = 0;
  std::string found_;  // in the form of StoredRows
};

}  // namespace cairn
