#include "worker/client/delivery/position.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "common/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// First bytes of an encoded position. They are neither valid UTF-8 nor the start of JSON or
// protobuf text, so that no position of another client is mistaken for one. The second byte is the
// format version. In the current format follow varints: `sequence`, the number of servers, then
// runs of servers in order. A run is 2 x for one server, or 2 x + 1 and the number of servers - 2.
// x is 0 where the servers have no part, else how far their last parts are behind `sequence`, + 1.
constexpr char kMagic[] = {'\xC1', '\x03'};
// Formats of earlier releases, which start like the current one. Every server has a part: lists in
// order how far each last part is behind `sequence`.
constexpr char kDenseMagic[] = {'\xC1', '\x01'};
// Only servers with a part are counted and listed, each with the number of servers skipped before
// it and how far its last part is behind `sequence`.
constexpr char kSparseMagic[] = {'\xC1', '\x02'};
// Limit of the user's position.
constexpr size_t kMaxUserPositionBytes = 512;
// Five bytes a server suffice for parts up to 2^34 - 2 pushes behind: 198 days of 1,000 pushes a
// second without a part on the server.
static_assert(kMaxUserPositionBytes + sizeof kMagic + 10 + 2 + 5 * kMaxServers <=
              kMaxPositionBytes);

void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

std::optional<uint64_t> GetVarint(absl::string_view* in) {
  uint64_t value = 0;
  for (size_t shift = 0; shift < 64 && !in->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in->front());
    in->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Reads one server's last part, stored as its distance behind `sequence`.
bool GetLastPart(absl::string_view* in, int64_t sequence, int64_t* last_part) {
  const std::optional<uint64_t> behind = GetVarint(in);
  if (!behind || *behind > static_cast<uint64_t>(sequence)) return false;
  *last_part = sequence - static_cast<int64_t>(*behind);
  return true;
}

// Reads `count` servers in the format of an earlier release.
bool GetListed(absl::string_view* in, bool dense, uint64_t count, ResumePoint* point) {
  const uint64_t server_count = point->last_part.size();
  uint64_t server = 0;
  for (uint64_t i = 0; i < count; ++i, ++server) {
    const std::optional<uint64_t> skipped = dense ? 0 : GetVarint(in);
    if (!skipped || *skipped >= server_count) return false;
    server += *skipped;
    if (server >= server_count || !GetLastPart(in, point->sequence, &point->last_part[server])) {
      return false;
    }
  }
  return true;
}

// Reads the runs of the first `count` servers.
bool GetRuns(absl::string_view* in, uint64_t count, ResumePoint* point) {
  uint64_t server = 0;
  while (server < count) {
    const std::optional<uint64_t> first = GetVarint(in);
    const std::optional<uint64_t> more = first && *first % 2 == 1 ? GetVarint(in) : 0;
    if (!first || !more || *more > count) return false;
    const uint64_t run = *first % 2 == 1 ? *more + 2 : 1;
    const uint64_t behind = *first / 2;  // plus 1; 0: no part
    if (run > count - server || behind > static_cast<uint64_t>(point->sequence) + 1) return false;
    const int64_t last = behind == 0 ? 0 : point->sequence - static_cast<int64_t>(behind - 1);
    std::fill_n(point->last_part.begin() + static_cast<std::ptrdiff_t>(server), run, last);
    server += run;
  }
  return true;
}

std::optional<ResumePoint> Decode(absl::string_view in, size_t server_count) {
  const absl::string_view magic = in.substr(0, sizeof kMagic);
  const bool runs = magic == absl::string_view(kMagic, sizeof kMagic);
  const bool dense = magic == absl::string_view(kDenseMagic, sizeof kDenseMagic);
  const bool sparse = magic == absl::string_view(kSparseMagic, sizeof kSparseMagic);
  if (!runs && !dense && !sparse) return std::nullopt;
  in.remove_prefix(sizeof kMagic);
  const std::optional<uint64_t> sequence = GetVarint(&in);
  const std::optional<uint64_t> count = GetVarint(&in);
  if (!sequence || *sequence > std::numeric_limits<int64_t>::max() || !count ||
      *count > server_count) {
    return std::nullopt;
  }
  ResumePoint point;
  point.sequence = static_cast<int64_t>(*sequence);
  point.last_part.resize(server_count, 0);  // servers that joined later had no part
  const bool valid = runs ? GetRuns(&in, *count, &point) : GetListed(&in, dense, *count, &point);
  if (!valid) return std::nullopt;
  point.position = std::string(in);
  return point;
}

bool EveryServerHas(const ResumePoint& point, absl::Span<const ResumeAnswer> answers) {
  for (size_t s = 0; s < answers.size(); ++s) {
    if (answers[s].applied < point.last_part[s]) return false;
  }
  return true;
}

void NoteUnasked(const ResumePoint& of_server, ResumePoint* chosen) {
  if (of_server.sequence <= chosen->sequence) return;
  for (size_t s = 0; s < of_server.last_part.size(); ++s) {
    const SequenceRange range{.after = std::max(of_server.last_part[s], chosen->sequence),
                              .through = of_server.sequence};
    std::vector<SequenceRange>& ranges = chosen->assumed_complete[s];
    const bool known = std::ranges::find(ranges, range) != ranges.end();
    if (range.after < range.through && !known) ranges.push_back(range);
  }
}

}  // namespace

absl::Status CheckUserPosition(absl::string_view position) {
  if (position.size() <= kMaxUserPositionBytes) return absl::OkStatus();
  return InvalidArgument("push: the position has ", position.size(), " bytes; ",
                         kMaxUserPositionBytes, " allowed");
}

void EncodePosition(int64_t sequence, absl::Span<const int64_t> last_part,
                    absl::string_view user_position, std::string* out) {
  out->assign(kMagic, sizeof kMagic);
  PutVarint(static_cast<uint64_t>(sequence), out);
  PutVarint(last_part.size(), out);
  for (size_t server = 0, run = 0; server < last_part.size(); server += run) {
    const int64_t last = last_part[server];
    run = 1;
    while (server + run < last_part.size() && last_part[server + run] == last) ++run;
    const uint64_t behind = last == 0 ? 0 : static_cast<uint64_t>(sequence - last) + 1;
    PutVarint(2 * behind + (run > 1 ? 1 : 0), out);
    if (run > 1) PutVarint(run - 2, out);
  }
  out->append(user_position.data(), user_position.size());
}

ResumePoint ChooseResumePoint(absl::Span<const ResumeAnswer> answers) {
  ResumePoint best;
  best.last_part.assign(answers.size(), 0);
  std::vector<ResumePoint> points;
  for (const ResumeAnswer& answer : answers) {
    std::optional<ResumePoint> point = Decode(answer.position, answers.size());
    if (point) points.push_back(*std::move(point));
  }
  for (const ResumePoint& point : points) {
    if (point.sequence > best.sequence && EveryServerHas(point, answers)) best = point;
  }
  best.assumed_complete.resize(answers.size());
  for (const ResumePoint& point : points) NoteUnasked(point, &best);
  if (!points.empty() || answers.empty()) return best;
  const auto [lowest, highest] = std::minmax_element(
      answers.begin(), answers.end(),
      [](const ResumeAnswer& a, const ResumeAnswer& b) { return a.applied < b.applied; });
  // A server may have cleared a position that `through` had passed. If no position is left and the
  // servers differ, none is known to be common to all: the worker starts over, and servers skip the
  // pushes that they have.
  if (lowest->position.empty() && lowest->applied != highest->applied) return best;
  // The client stored plain positions: every server has the lowest.
  best.sequence = lowest->applied;
  best.last_part.assign(answers.size(), lowest->applied);
  best.position = lowest->position;
  return best;
}

}  // namespace cairn
