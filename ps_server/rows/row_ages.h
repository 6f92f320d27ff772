// How long ago rows were pushed, by the number of the update that each carries (ROW_RULES.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Notes now and then how many updates a stripe has had, so that rows need no time of their own.
// Times are seconds since 1970. Thread safety: none.
class RowAges {
 public:
  // `lifetime_seconds`: after which rows expire; 0: never.
  explicit RowAges(int64_t lifetime_seconds) : lifetime_(lifetime_seconds) {}

  // The stripe has had `updates` updates at `now`. Kept at most every sixteenth of the lifetime.
  void Note(uint32_t updates, int64_t now);
  // Rows whose last update is this one, or came before it, have expired at `now`; nullopt: none.
  std::optional<uint32_t> ExpiredUpTo(int64_t now) const;
  // Those rows are gone: they are not told again.
  void ForgetUpTo(int64_t now);

  // As it is kept, with the number of the stripe's updates.
  std::string Encode(uint32_t updates) const;
  // Replaces what is noted; returns the number of updates. kDataLoss: not such bytes.
  absl::StatusOr<uint32_t> Decode(absl::string_view bytes);

 private:
  struct Mark {
    uint32_t updates = 0;
    int64_t time = 0;
  };
  const int64_t lifetime_;
  std::vector<Mark> marks_;  // in the order of updates, and of times
};

}  // namespace cairn
