#include "thrift/local/local_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"

namespace cairn {
namespace {

constexpr size_t kRecord = sizeof(LocalRecord);
static_assert(kRecord == 12);

// How long a wait for room may last: as long as a wait for space in the socket.
int SendTimeoutMs(int fd) {
  timeval timeout = {};
  socklen_t size = sizeof(timeout);
  ::getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, &size);
  const int64_t ms = int64_t{timeout.tv_sec} * 1000 + timeout.tv_usec / 1000;
  return ms > 0 ? static_cast<int>(std::min<int64_t>(ms, 1 << 30)) : -1;
}

bool IsRing(const LocalRecord& record) {
  return record.kind == LocalRecord::kRing || record.kind == LocalRecord::kRingAndAsks;
}

bool IsWellFormed(const LocalRecord& record) {
  switch (record.kind) {
    case LocalRecord::kInline:
    case LocalRecord::kRing: return record.bytes > 0;
    case LocalRecord::kRingAndAsks: return true;
    case LocalRecord::kRoom: return record.bytes == 0 && record.room > 0;
    default: return false;
  }
}

}  // namespace

LocalStream::LocalStream(int fd, SharedRings rings, Side side, std::string peer)
    : fd_(fd),
      rings_(std::move(rings)),
      ring_bytes_(rings_.ring_bytes()),
      piece_bytes_(std::min<size_t>(kLocalPieceBytes, ring_bytes_ / 4)),
      in_ring_(rings_.ring(side == Side::kClient ? 1 : 0)),
      out_ring_(rings_.ring(side == Side::kClient ? 0 : 1)),
      peer_(std::move(peer)) {}

void LocalStream::Violated(absl::string_view what) {
  broken_ = true;
  failure_ = Internal(peer_, " broke the rules of the local transport: it ", what,
                      "; run the same release on both sides, or --local_transport=off");
}

ssize_t LocalStream::FailedBy(int error) {
  if (error == EAGAIN || error == EINTR) return kNotYet;
  failure_ = absl::UnavailableError(std::strerror(error));
  return kFailed;
}

// Checks the peer's counts against this side's own. No other function looks at unchecked counts.
void LocalStream::Scan() {
  while (!broken_ && scan_ + kRecord <= end_) {
    LocalRecord record;
    std::memcpy(&record, held_.get() + scan_, kRecord);
    scan_ += kRecord;
    if (record.room > written_ - known_read_) {
      return Violated(absl::StrCat("says that it read ", record.room, " bytes, and there were ",
                                   written_ - known_read_));
    }
    known_read_ += record.room;
    if (!IsWellFormed(record)) {
      return Violated(absl::StrCat("sent a record of kind ", record.kind, " with ", record.bytes,
                                   " bytes and room for ", record.room));
    }
    if (IsRing(record)) {
      const uint64_t free = ring_bytes_ - (announced_ - told_read_);
      if (record.bytes > free) {
        return Violated(absl::StrCat("says that its ring holds ", record.bytes, " bytes more, and ",
                                     free, " were free"));
      }
      announced_ += record.bytes;
      // A writer asks again only after its ring has been read, and then fills the ring first.
      if (record.bytes == 0 && announced_ == asked_at_) {
        return Violated("asks for room again and has written nothing since it last asked");
      }
      if (record.kind == LocalRecord::kRingAndAsks) asked_at_ = announced_;
    }
    if (record.kind == LocalRecord::kInline) scan_ += record.bytes;
  }
}

ssize_t LocalStream::Fill(bool waits) {
  if (broken_) return kFailed;
  if (ended_) return 0;
  if (held_ == nullptr) held_.reset(new uint8_t[kLocalHeldBytes]);
  if (at_ == end_ || end_ == kLocalHeldBytes) {
    std::memmove(held_.get(), held_.get() + at_, end_ - at_);
    scan_ -= at_;
    end_ -= at_;
    at_ = 0;
  }
  if (end_ == kLocalHeldBytes) return kNotYet;  // its reader must consume bytes first
  ssize_t got = -1;
  const auto receive = [&](int flags) {
    got = ::recv(fd_, held_.get() + end_, kLocalHeldBytes - end_, flags);
    return got >= 0 || errno != EAGAIN;
  };
  if (!waits) {
    receive(MSG_DONTWAIT);
  } else if (is_bulk_ || !spin_.Try([&] { return receive(MSG_DONTWAIT); })) {
    receive(0);
  }
  if (got < 0) return FailedBy(errno);
  ended_ = got == 0;
  end_ += static_cast<size_t>(got);
  Scan();
  return broken_ ? kFailed : got;
}

// Moves to the record that contains the next bytes. Returns whether bytes are available.
bool LocalStream::AtData() {
  while (!broken_) {
    if (ring_left_ > 0) return true;
    if (inline_left_ > 0) return at_ < end_;
    if (std::exchange(asks_, false)) {
      TellRoom();
      continue;
    }
    if (at_ + kRecord > end_) return false;
    LocalRecord record;
    std::memcpy(&record, held_.get() + at_, kRecord);
    at_ += kRecord;
    asks_ = record.kind == LocalRecord::kRingAndAsks;
    is_bulk_ = IsRing(record);
    (record.kind == LocalRecord::kInline ? inline_left_ : ring_left_) = record.bytes;
  }
  return false;
}

// Reports the bytes that were read since the last report. A peer that has asked for this reads the
// reply; if the reply does not fit into the socket, the peer is not reading: a violation.
void LocalStream::TellRoom() {
  if (read_ == told_read_) return;
  if (out_at_ < out_end_) {  // in the middle of a record
    room_is_due_ = true;
    return;
  }
  const LocalRecord record = {.kind = LocalRecord::kRoom, .bytes = 0, .room = TakeRoom()};
  const ssize_t sent = ::send(fd_, &record, kRecord, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(kRecord)) return;
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return;  // its bytes are still read
  if (sent >= 0 || errno == EAGAIN) {
    return Violated("asks for room, and does not read what it is told");
  }
  broken_ = true;
  failure_ = absl::UnavailableError(std::strerror(errno));
}

uint32_t LocalStream::TakeRoom() {
  const auto room = static_cast<uint32_t>(read_ - told_read_);
  told_read_ = read_;
  return room;
}

size_t LocalStream::Take(std::byte* to, size_t bytes) {
  if (inline_left_ > 0) {
    bytes = std::min({bytes, inline_left_, end_ - at_});
    std::memcpy(to, held_.get() + at_, bytes);
    at_ += bytes;
    inline_left_ -= bytes;
    return bytes;
  }
  const size_t from = static_cast<size_t>(read_) & (ring_bytes_ - 1);
  bytes = std::min({bytes, ring_left_, ring_bytes_ - from});
  std::memcpy(to, in_ring_ + from, bytes);
  read_ += bytes;
  ring_left_ -= bytes;
  return bytes;
}

ssize_t LocalStream::Receive(const iovec* parts, size_t count) {
  if (!AtData()) {
    const ssize_t filled = Fill(waits());
    if (filled <= 0) return filled;
    if (!AtData()) return broken_ ? kFailed : kNotYet;
  }
  ssize_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    auto* to = static_cast<std::byte*>(parts[i].iov_base);
    for (size_t left = parts[i].iov_len; left > 0;) {
      if (!AtData()) return broken_ ? kFailed : total;
      const size_t took = Take(to, left);
      total += static_cast<ssize_t>(took);
      to += took;
      left -= took;
    }
  }
  (void)AtData();  // notify a peer that waits for room now, not at the next read
  return broken_ ? kFailed : total;
}

bool LocalStream::PeerHasData() {
  if (AtData() || broken_) return true;
  const ssize_t filled = Fill(/*waits=*/false);
  if (filled == kNotYet) return false;
  return filled <= 0 || AtData() || broken_;
}

void LocalStream::Park() {
  if (at_ < end_) return;
  scan_ -= end_;
  at_ = end_ = 0;
  held_.reset();
}

void LocalStream::EndSending() { ::shutdown(fd_, SHUT_WR); }

void LocalStream::Stage(LocalRecord record) {
  record.room = TakeRoom();
  std::memcpy(out_.data(), &record, kRecord);
  out_at_ = 0;
  out_end_ = kRecord;
}

ssize_t LocalStream::Flush() {
  while (out_at_ < out_end_) {
    const ssize_t sent = ::send(fd_, out_.data() + out_at_, out_end_ - out_at_,
                                MSG_NOSIGNAL | (waits() ? 0 : MSG_DONTWAIT));
    if (sent < 0) return FailedBy(errno);
    out_at_ += static_cast<size_t>(sent);
  }
  if (std::exchange(room_is_due_, false)) TellRoom();
  return std::exchange(unreported_bytes_, 0);
}

ssize_t LocalStream::Send(const iovec* parts, size_t count) {
  if (broken_) return kFailed;
  if (out_at_ < out_end_) {
    const ssize_t flushed = Flush();
    if (flushed != 0) return flushed;
  }
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += parts[i].iov_len;
  if (total == 0) return 0;
  return total < kLocalInlineBytes ? SendInline(parts, count, total)
                                   : SendRing(parts, count, total);
}

ssize_t LocalStream::SendInline(const iovec* parts, size_t count, size_t total) {
  Stage({.kind = LocalRecord::kInline, .bytes = static_cast<uint32_t>(total)});
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > 0) {
      std::memcpy(out_.data() + out_end_, parts[i].iov_base, parts[i].iov_len);
    }
    out_end_ += parts[i].iov_len;
  }
  unreported_bytes_ = static_cast<ssize_t>(total);
  return Flush();
}

ssize_t LocalStream::SendRing(const iovec* parts, size_t count, size_t total) {
  // Avoids a small remainder, which would need one more descriptor.
  const size_t piece = total <= piece_bytes_ + piece_bytes_ / 2 ? total : piece_bytes_;
  while (free_bytes() < piece) {
    if (known_read_ >= asked_) {
      asked_ = written_;
      Stage({.kind = LocalRecord::kRingAndAsks, .bytes = 0});
      const ssize_t flushed = Flush();
      if (flushed < 0) return flushed;
    }
    const ssize_t room = AwaitRoom();
    if (room < 0) return room;
  }
  PutInRing(parts, piece);
  // Asks for room if the free bytes and those already asked for do not suffice for the rest.
  const uint64_t coming = std::max(asked_, known_read_) - known_read_;
  const bool asks = total - piece > free_bytes() + coming;
  if (asks) asked_ = written_;
  Stage({.kind = asks ? LocalRecord::kRingAndAsks : LocalRecord::kRing,
         .bytes = static_cast<uint32_t>(piece)});
  unreported_bytes_ = static_cast<ssize_t>(piece);
  return Flush();
}

void LocalStream::PutInRing(const iovec* parts, size_t bytes) {
  for (; bytes > 0; ++parts) {
    const auto* from = static_cast<const std::byte*>(parts->iov_base);
    for (size_t left = std::min(parts->iov_len, bytes); left > 0;) {
      const size_t to = static_cast<size_t>(written_) & (ring_bytes_ - 1);
      const size_t run = std::min(left, ring_bytes_ - to);
      std::memcpy(out_ring_ + to, from, run);
      written_ += run;
      from += run;
      left -= run;
      bytes -= run;
    }
  }
}

// Waits for the peer to report free space in the ring. Returns a positive number if the peer has
// sent something, else kNotYet or kFailed. Holds up to kLocalHeldBytes for the reader; beyond that,
// sending waits for the reader, as on TCP.
ssize_t LocalStream::AwaitRoom() {
  ssize_t filled = Fill(/*waits=*/false);
  if (filled == kNotYet && waits()) {
    const bool is_full = end_ - at_ == kLocalHeldBytes;
    pollfd waiting = {fd_, static_cast<int16_t>(is_full ? 0 : POLLIN), 0};
    ::poll(&waiting, 1, SendTimeoutMs(fd_));
    // A full buffer hides the end of the connection from Fill, and poll would return at once.
    const bool is_closed = is_full && (waiting.revents & (POLLHUP | POLLERR)) != 0;
    filled = is_closed ? 0 : Fill(/*waits=*/false);
  }
  if (filled != 0) return filled;
  failure_ = absl::UnavailableError("it closed the connection");
  return kFailed;
}

}  // namespace cairn
