// Encodes the client's record beside the user's resume position, and chooses where a new start
// resumes.
//
// A server that has no part of a push does not count its number as durable. So the numbers in the
// servers' hello replies do not say which position is common to all of them. Each stored position
// therefore names its sequence and, for every server, the last sequence up to it that had a part
// there. A start resumes after the highest sequence q for which every server has applied its last
// part up to q. Pushes above q that some servers have are recomputed under the same numbers, and
// those servers skip them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

// kInvalidArgument: longer than a push may store together with the client's record.
absl::Status CheckUserPosition(absl::string_view position);

// `last_part[s]`: last sequence <= `sequence` with a part on server s; 0: none.
void EncodePosition(int64_t sequence, absl::Span<const int64_t> last_part,
                    absl::string_view user_position, std::string* out);

// One server's answer to hello.
struct ResumeAnswer {
  int64_t applied = 0;  // last sequence with a part there; durable
  // as stored; taken for a plain user position unless EncodePosition wrote it
  std::string position;
};

// The sequences in (after, through].
struct SequenceRange {
  int64_t after = 0, through = 0;
  bool operator==(const SequenceRange&) const = default;
};

struct ResumePoint {
  int64_t sequence = 0;            // the next push has this number plus 1
  std::vector<int64_t> last_part;  // per server; <= sequence
  std::string position;            // the user's; empty: none
  // Per server: sequences above `sequence` that a stored position takes for complete without a part
  // on this server. Where rows have moved to this server since, it must have its part durably
  // before that position may become valid (ps_server/MOVES.md).
  std::vector<std::vector<SequenceRange>> assumed_complete;
};

ResumePoint ChooseResumePoint(absl::Span<const ResumeAnswer> answers);

}  // namespace cairn
