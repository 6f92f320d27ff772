// What the client stores beside the user's resume position, and where a new start resumes.
//
// A server that holds no part of a push does not count its number as durable, so the numbers that
// servers answer to hello do not tell by themselves which position is everybody's. Each stored
// position therefore says to which sequence it belongs and, for every server, the last
// sequence up to it that had a part there. A start resumes after the highest sequence q for which
// every server has applied its last part up to q: what is above q on some servers is computed again
// under the same numbers, and dropped by the servers that have it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

// kInvalidArgument: longer than a push may store, beside the client's own record.
absl::Status CheckUserPosition(absl::string_view position);

// `last_part[s]`: last sequence <= `sequence` with a part on server s; 0: none.
void EncodePosition(int64_t sequence, absl::Span<const int64_t> last_part,
                    absl::string_view user_position, std::string* out);

// One server's answer to hello.
struct ResumeAnswer {
  int64_t applied = 0;   // and durable: the last that had a part there
  std::string position;  // as stored; one that EncodePosition did not write is taken for a user's
};

// Of sequences: above `after`, up to `through`.
struct SequenceRange {
  int64_t after = 0, through = 0;
  bool operator==(const SequenceRange&) const = default;
};

struct ResumePoint {
  int64_t sequence = 0;            // the next push is this one plus 1
  std::vector<int64_t> last_part;  // per server; <= sequence
  std::string position;            // the user's; empty: none
  // Per server: sequences above `sequence` that are everybody's by some server's position without a
  // part on this one. Where rows have come to it since, it is to have its part of them durably
  // before the position can come true (ps_server/MOVES.md).
  std::vector<std::vector<SequenceRange>> unasked;
};

ResumePoint ChooseResumePoint(absl::Span<const ResumeAnswer> answers);

}  // namespace cairn
