// How long ago rows were pushed, derived from the update number that each row carries
// (ROW_RULES.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Records from time to time how many updates a stripe has had, so that rows need no time stamp.
// Times are seconds since 1970. Thread safety: none.
class RowAges {
 public:
  // `lifetime_seconds`: the age at which rows expire; 0: never.
  explicit RowAges(int64_t lifetime_seconds) : lifetime_(lifetime_seconds) {}

  // The stripe has had `updates` updates at time `now`. Records this at most sixteen times per
  // lifetime; returns whether it was recorded.
  bool Note(uint32_t updates, int64_t now);
  // Rows whose last update is the returned one or an earlier one have expired at `now`; nullopt:
  // none.
  std::optional<uint32_t> ExpiredUpTo(int64_t now) const;
  // The rows that had expired at `now` have been deleted: ExpiredUpTo no longer reports them.
  void ForgetUpTo(int64_t now);

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
  const int64_t lifetime_;
  std::vector<Mark> marks_;  // ordered by updates and by time
};

}  // namespace cairn
