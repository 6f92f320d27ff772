#include "ps_server/rows/row_ages.h"

#include <algorithm>

#include "common/errors.h"
#include "storage/bytes.h"

namespace cairn {
namespace {

constexpr int64_t kMarksPerLifetime = 16;
constexpr size_t kMaxMarks = 64;  // reached for example when the server's clock was set back
constexpr size_t kAgeMarkBytes = sizeof(uint32_t) + sizeof(uint64_t);

}  // namespace

bool RowAges::Note(uint32_t updates, int64_t now) {
  if (lifetime_ == 0 || marks_.size() >= kMaxMarks) return false;
  if (!marks_.empty()) {
    // Nothing was pushed since the last mark, so its earlier time still holds.
    if (marks_.back().updates == updates) return false;
    if (now < marks_.back().time + std::max<int64_t>(1, lifetime_ / kMarksPerLifetime)) {
      return false;
    }
  }
  marks_.push_back({.updates = updates, .time = now});
  return true;
}

std::optional<uint32_t> RowAges::ExpiredUpTo(int64_t now) const {
  std::optional<uint32_t> expired;
  for (const Mark& mark : marks_) {
    if (mark.time > now - lifetime_) break;
    expired = mark.updates;
  }
  return expired;
}

void RowAges::ForgetUpTo(int64_t now) {
  const auto kept =
      std::ranges::find_if(marks_, [&](const Mark& mark) { return mark.time > now - lifetime_; });
  marks_.erase(marks_.begin(), kept);
}

std::optional<int64_t> RowAges::LastTime() const {
  if (marks_.empty()) return std::nullopt;
  return marks_.back().time;
}

void RowAges::Shift(int64_t seconds) {
  for (Mark& mark : marks_) mark.time += seconds;
}

std::string RowAges::Encode(uint32_t updates) const {
  std::string bytes;
  AppendLittleEndian(updates, bytes);
  for (const Mark& mark : marks_) {
    AppendLittleEndian(mark.updates, bytes);
    AppendLittleEndian(static_cast<uint64_t>(mark.time), bytes);
  }
  return bytes;
}

absl::StatusOr<uint32_t> RowAges::Decode(absl::string_view bytes) {
  const size_t found = bytes.size();
  if (found < sizeof(uint32_t) || (found - sizeof(uint32_t)) % kAgeMarkBytes != 0 ||
      found > sizeof(uint32_t) + kMaxMarks * kAgeMarkBytes) {
    return DataLoss("row ages have ", found, " bytes; they have 4, and 12 for each of at most ",
                    kMaxMarks, " marks");
  }
  const auto updates = LoadLittleEndian<uint32_t>(bytes.data());
  marks_.clear();
  for (size_t at = sizeof(uint32_t); at < found; at += kAgeMarkBytes) {
    marks_.push_back({.updates = LoadLittleEndian<uint32_t>(bytes.data() + at),
                      .time = static_cast<int64_t>(
                          LoadLittleEndian<uint64_t>(bytes.data() + at + sizeof(uint32_t)))});
  }
  return updates;
}

}  // namespace cairn
