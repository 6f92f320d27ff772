#include "ps_server/moves/outgoing_cold.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "common/status.h"
#include "storage/bytes.h"

namespace cairn {

OutgoingCold::OutgoingCold(EmbeddingStripe& stripe)
    : stripe_(stripe), noted_(std::make_shared<DepartedRows>()) {
  absl::MutexLock lock(&stripe_.mutex());
  stripe_.NoteDepartures(noted_);
}

void OutgoingCold::Begin() {
  const uint32_t updates = stripe_.updates();
  // Once the update counter has restarted, it no longer identifies the rows that have changed.
  const bool all = !begun_ || noted_->since > updates;
  if (all ? stripe_.cold_rows() > 0 : noted_->too_many) {
    if (all || !scan_at_.has_value()) {
      scan_since_ = all ? std::nullopt : std::optional<uint32_t>(noted_->since);
    }
    scan_at_ = std::numeric_limits<int64_t>::min();
    scanned_bytes_ = 0;
  }
  departed_.insert(departed_.end(), noted_->keys.begin(), noted_->keys.end());
  std::ranges::sort(departed_, std::greater<>());
  departed_.erase(std::unique(departed_.begin(), departed_.end()), departed_.end());
  *noted_ = {.since = updates};
  begun_ = true;
}

int64_t OutgoingCold::bytes_left() const {
  if (done()) return 0;
  auto left = static_cast<int64_t>(departed_.size() * stride());
  if (scan_at_.has_value() && !scan_since_.has_value()) {
    absl::ReaderMutexLock lock(&stripe_.mutex());
    const int64_t all = stripe_.cold_rows() * static_cast<int64_t>(stride());
    left += std::max<int64_t>(0, all - scanned_bytes_);
  }
  return std::max<int64_t>(1, left);
}

void OutgoingCold::Take(int64_t key, absl::string_view row) {
  AppendLittleEndian(static_cast<uint64_t>(key), found_);
  found_.append(row.data(), row.size());
  // Without the mark of use.
  char* const stamp = found_.data() + found_.size() - row.size();
  StoreLittleEndian(LoadLittleEndian<uint32_t>(stamp) & RowTable::kLastUpdate, stamp);
}

absl::Status OutgoingCold::Scan(const StripeStore& store, size_t bytes) {
  const int64_t first = *std::exchange(scan_at_, std::nullopt);
  size_t seen = 0;
  const auto take = [&](int64_t key, absl::string_view row) {
    // The next call continues with this row.
    if (seen >= bytes) {
      scan_at_ = key;
      return false;
    }
    seen += stride();
    const uint32_t update = RowTable::LastUpdateOf(row);
    if (!scan_since_.has_value() || update > *scan_since_) Take(key, row);
    return true;
  };
  RETURN_IF_ERROR(store.ScanCold(stripe_.id(), first, stripe_.table().stored_bytes(), take));
  scanned_bytes_ += static_cast<int64_t>(seen);
  return absl::OkStatus();
}

absl::Status OutgoingCold::ReadDeparted(const StripeStore& store, size_t bytes) {
  const size_t count = std::min(departed_.size(), bytes / stride() + 1);
  std::vector<ColdKey> keys;
  for (size_t i = 0; i < count; ++i) {
    keys.push_back({.id = stripe_.id(), .key = departed_.back()});
    departed_.pop_back();
  }
  ColdRows rows;
  const size_t row_bytes = stripe_.table().stored_bytes();
  RETURN_IF_ERROR(store.ReadCold(keys, row_bytes, rows));
  for (size_t i = 0; i < count; ++i) {
    if (rows.row(i) != nullptr) Take(keys[i].key, {rows.row(i), row_bytes});
  }
  return absl::OkStatus();
}

absl::Status OutgoingCold::Read(const StripeStore& store, size_t bytes, std::string* rows) {
  // Meanwhile no row is evicted or deleted, so the disk keeps its records.
  const absl::MutexLock writing(&stripe_.writing());
  found_.clear();
  if (const absl::Status status =
          departed_.empty() ? Scan(store, bytes) : ReadDeparted(store, bytes);
      !status.ok()) {
    scan_at_ = std::numeric_limits<int64_t>::min();  // treat nothing as read
    scan_since_.reset();
    return status;
  }
  const StoredRows found(found_, stripe_.table().stored_bytes());
  absl::ReaderMutexLock lock(&stripe_.mutex());
  for (size_t i = 0; i < found.size(); ++i) {
    // A row that is newer in memory was copied from there, or will be.
    if (!stripe_.ColdIsCurrent(found.key(i))) continue;
    rows->append(found_, i * stride(), stride());
  }
  return absl::OkStatus();
}

}  // namespace cairn
