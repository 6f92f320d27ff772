#include "ps_server/rows/row_ages.h"

#include <algorithm>

#include "common/errors.h"
#include "storage/bytes.h"

namespace cairn {
namespace {

constexpr size_t kMaxMarks = 64;  // reached for example when the server's clock was set back
constexpr size_t kAgeMarkBytes = sizeof(uint32_t) + sizeof(uint64_t);

}  // namespace

bool RowAges::Note(uint32_t updates, int64_t now) {
  if (lifetime_ == 0 || marks_.size() >= kMaxMarks) return false;
  if (!marks_.empty()) {
    // Nothing was pushed since the last mark, so its earlier time still holds.
    if (marks_.back().updates == updates) return false;
    const bool many = UpdateNumber::Age(marks_.back().updates, updates) >= kUpdatesPerMark;
    if (now < marks_.back().time + spacing() && !many) return false;
    now = std::max(now, marks_.back().time);
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

uint32_t RowAges::Parked::NumberOf(uint32_t number) const {
  const auto old = [&](uint32_t up_to) {
    return UpdateNumber::Age(number, updates) >= UpdateNumber::Age(up_to, updates);
  };
  if (before.has_value() && old(*before)) return number;
  for (const Mark& mark : marks) {
    if (old(mark.up_to)) return mark.number;
  }
  return number;
}

RowAges::Parked RowAges::Park(uint32_t updates) {
  Parked parked{.updates = updates};
  size_t at = 0;
  for (; at < marks_.size() && UpdateNumber::IsParked(marks_[at].updates, updates); ++at) {
    parked.before = marks_[at].updates;
  }
  while (at < marks_.size() && UpdateNumber::Age(marks_[at].updates, updates) >= kParkedAge) {
    Mark& mark = marks_[at];
    const uint32_t number = at == 0 ? 0 : marks_[at - 1].updates + 1;
    // Rows of a joined record expire with the record's last ones.
    const bool joins = number == UpdateNumber::kFirstRepeated ||
                       (at > 1 && mark.time < marks_[at - 2].time + spacing());
    if (joins) {
      parked.marks.push_back({.up_to = mark.updates, .number = marks_[at - 1].updates});
      marks_[at - 1].time = mark.time;
      marks_.erase(marks_.begin() + static_cast<ptrdiff_t>(at));
    } else {
      parked.marks.push_back({.up_to = mark.updates, .number = number});
      mark.updates = number;
      ++at;
    }
  }
  return parked;
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
