#include "worker/client/delivery/position.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "common/errors.h"

namespace cairn {
namespace {

// First bytes of an encoded position. They are neither valid UTF-8 nor the start of JSON or
// protobuf text, so that no position of another client is mistaken for one. The second byte is the
// format version. In this format only servers with a part are listed, each with the number of
// servers skipped before it and how far its last part is behind `sequence`.
constexpr char kMagic[] = {'\xC1', '\x02'};
// Every server has a part: lists in order how far each last part is behind `sequence`.
constexpr char kDenseMagic[] = {'\xC1', '\x01'};
// Limit of the user's position; the client's record of the servers has the rest of
// kMaxPositionBytes: up to 13 bytes, and for each server usually 1 and rarely more than 5.
constexpr size_t kMaxUserPositionBytes = 512;

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

std::optional<ResumePoint> Decode(absl::string_view in, size_t server_count) {
  const absl::string_view magic = in.substr(0, sizeof kMagic);
  const bool dense = magic == absl::string_view(kDenseMagic, sizeof kDenseMagic);
  if (!dense && magic != absl::string_view(kMagic, sizeof kMagic)) return std::nullopt;
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
  uint64_t server = 0;
  for (uint64_t i = 0; i < *count; ++i, ++server) {
    const std::optional<uint64_t> skipped = dense ? 0 : GetVarint(&in);
    if (!skipped || *skipped >= server_count) return std::nullopt;
    server += *skipped;
    if (server >= server_count || !GetLastPart(&in, point.sequence, &point.last_part[server])) {
      return std::nullopt;
    }
  }
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
  const auto none = static_cast<uint64_t>(std::ranges::count(last_part, 0));
  out->assign(none == 0 ? kDenseMagic : kMagic, sizeof kMagic);
  PutVarint(static_cast<uint64_t>(sequence), out);
  PutVarint(last_part.size() - none, out);
  uint64_t skipped = 0;
  for (const int64_t last : last_part) {
    if (last == 0) {
      ++skipped;
      continue;
    }
    if (none > 0) PutVarint(skipped, out);
    PutVarint(static_cast<uint64_t>(sequence - last), out);
    skipped = 0;
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
