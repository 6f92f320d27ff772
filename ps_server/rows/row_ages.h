// How long ago rows were pushed, derived from the update number that each row carries
// (ROW_RULES.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps_server/rows/row_table.h"

namespace cairn {

// The numbers of a stripe's updates, which rows carry in 31 bits. The number after the last one is
// kFirstRepeated. Lower numbers belong to the stripe's first updates, and to parked rows
// (RowAges::Park): they are older than all others.
struct UpdateNumber {
  static constexpr uint32_t kLast = RowTable::kLastUpdate;
  static constexpr uint32_t kFirstRepeated = uint32_t{1} << 20;

  static uint32_t Next(uint32_t number) { return number == kLast ? kFirstRepeated : number + 1; }
  // Whether the number is lower than all that will be used again.
  static bool IsParked(uint32_t number, uint32_t updates) {
    return number < kFirstRepeated && updates >= kFirstRepeated;
  }
  // How long before update `updates` the update `number` was. Exact for numbers that are not
  // parked; in any case greater for older numbers.
  static uint32_t Age(uint32_t number, uint32_t updates) {
    if (IsParked(number, updates)) return kLast - number;
    if (number > updates && updates >= kFirstRepeated) {
      return updates + (kLast + 1 - kFirstRepeated) - number;
    }
    return (updates - number) & kLast;
  }
};

// Records from time to time how many updates a stripe has had, so that rows need no time stamp.
// Times are seconds since 1970. Thread safety: none.
class RowAges {
 public:
  // An unparked record older than this many updates is parked.
  static constexpr uint32_t kParkedAge = uint32_t{1} << 29;
  // A record is made after at most this many updates, so that rows are parked long before their
  // numbers are used again.
  static constexpr uint32_t kUpdatesPerMark = kParkedAge / 2;

  // `lifetime_seconds`: the age at which rows expire; 0: never.
  explicit RowAges(int64_t lifetime_seconds) : lifetime_(lifetime_seconds) {}

  // The stripe has had `updates` updates at time `now`. Records this sixteen times per lifetime,
  // or after kUpdatesPerMark; returns whether it was recorded.
  bool Note(uint32_t updates, int64_t now);
  // Rows whose last update is the returned one or an earlier one have expired at `now`; nullopt:
  // none.
  std::optional<uint32_t> ExpiredUpTo(int64_t now) const;
  // The rows that had expired at `now` have been deleted: ExpiredUpTo no longer reports them.
  void ForgetUpTo(int64_t now);

  // New numbers of old rows.
  struct Parked {
    struct Mark {
      uint32_t up_to = 0;   // rows up to this number, and after the mark before,
      uint32_t number = 0;  // carry this number from now on
    };
    uint32_t updates = 0;
    std::optional<uint32_t> before;  // rows up to this number keep theirs
    std::vector<Mark> marks;         // the oldest first

    // The number that a row of `number` carries from now on.
    uint32_t NumberOf(uint32_t number) const;
  };
  // Gives records that are kParkedAge or more updates old numbers that are not used again, because
  // a number that is used again makes a new row look old and an old row new. The caller must give
  // the rows their numbers afterwards: a row that keeps its own counts as younger than all parked
  // ones. Joins parked records, so that they stay few in any lifetime.
  Parked Park(uint32_t updates);

  // Time of the last record; nullopt: there is none.
  std::optional<int64_t> LastTime() const;
  // Moves all records by `seconds`: rows are that much younger.
  void Shift(int64_t seconds);

  // The stored form, which includes the stripe's update count.
  std::string Encode(uint32_t updates) const;
  // Replaces the recorded times and returns the update count. kDataLoss: `bytes` is malformed.
  absl::StatusOr<uint32_t> Decode(absl::string_view bytes);

 private:
  struct Mark {
    uint32_t updates = 0;
    int64_t time = 0;
  };
  int64_t spacing() const { return lifetime_ > kPerLifetime ? lifetime_ / kPerLifetime : 1; }

  static constexpr int64_t kPerLifetime = 16;
  const int64_t lifetime_;
  std::vector<Mark> marks_;  // ordered by updates and by time
};

}  // namespace cairn
