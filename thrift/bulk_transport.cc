#include "thrift/bulk_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/blocking.h"
#include "common/errors.h"
#include "common/interruption.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using apache::thrift::TConfiguration;
using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransportException;

// The socket's own timeout. Waits block in the kernel for at most this long and then check the time
// again, so that deadlines cost no system call unless one is nearer than this.
constexpr int64_t kSliceMs = 1000;
// A call that arrives within this time is served without the detour through epoll and another
// thread, which takes as long as a call of 64 bytes (tests/bench/wire_bench).
constexpr int64_t kLingerMs = 4;

// Thrift counts message bytes over the life of a connection. This transport counts per message
// itself, so Thrift's limit is set out of reach.
std::shared_ptr<TConfiguration> Configuration() {
  // A copy: the library declares the constant and does not define it.
  constexpr int kMaxFrameBytes = TConfiguration::DEFAULT_MAX_FRAME_SIZE;
  return std::make_shared<TConfiguration>(std::numeric_limits<int>::max(), kMaxFrameBytes,
                                          kMaxNestingDepth);
}

int64_t CeilToMs(absl::Duration duration) {
  return absl::ToInt64Milliseconds(absl::Ceil(duration, absl::Milliseconds(1)));
}

}  // namespace

RefusedMessage::RefusedMessage(absl::Status status)
    : TProtocolException(SIZE_LIMIT, std::string(status.message())), status_(std::move(status)) {}

BulkTransport::BulkTransport(std::shared_ptr<TSocket> socket, BulkTransportOptions options,
                             std::unique_ptr<SocketStream> stream)
    : TVirtualTransport(Configuration()),
      socket_(std::move(socket)),
      options_(std::move(options)),
      stream_(stream != nullptr ? std::move(stream)
                                : std::make_unique<PlainStream>(socket_->getSocketFD())),
      deadline_(Deadline::In(absl::ZeroDuration())),
      message_limit_bytes_(options_.max_message_bytes),
      buffer_(new uint8_t[kBufferBytes]),
      remaining_bytes_(options_.max_message_bytes),
      out_buffer_(new uint8_t[kBufferBytes]) {
  const int one = 1;  // a call is one small message: it must not wait for the previous ack
  ::setsockopt(socket_->getSocketFD(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  slice_ms_ = options_.stall == absl::ZeroDuration()
                  ? kSliceMs
                  : std::clamp<int64_t>(CeilToMs(options_.stall), 1, kSliceMs);
  SetSocketTimeout(kReceive, slice_ms_);
  SetSocketTimeout(kSend, slice_ms_);
}

BulkTransport::~BulkTransport() {
  if (socket_->isOpen()) stream_->Farewell();
  EndMessage();
}

void BulkTransport::AwaitAuthentication(int64_t bytes, Deadline deadline) {
  awaits_authentication_ = true;
  message_limit_bytes_ = bytes;
  deadline_ = deadline;
}

void BulkTransport::LiftAuthenticationLimits() {
  awaits_authentication_ = false;
  remaining_bytes_ += options_.max_message_bytes - message_limit_bytes_;
  message_limit_bytes_ = options_.max_message_bytes;
}

void BulkTransport::ReleaseBuffers() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    buffer_.reset();
  }
  if (pending_count_ == 0 && out_end_ == 0) out_buffer_.reset();
  stream_->Park();
}

void BulkTransport::EnsureBuffers() {
  if (buffer_ == nullptr) buffer_.reset(new uint8_t[kBufferBytes]);
  if (out_buffer_ == nullptr) out_buffer_.reset(new uint8_t[kBufferBytes]);
}

bool BulkTransport::PollBriefly() {
  SetSocketTimeout(kReceive, std::min(kLingerMs, slice_ms_));
  iovec part = {buffer_.get(), kBufferBytes};
  begin_ = 0;
  end_ = 0;
  const ssize_t got = stream_->Receive(&part, 1);
  end_ = static_cast<size_t>(std::max<ssize_t>(got, 0));
  return got != SocketStream::kNotYet;
}

void BulkTransport::BeginMessage() {
  EndMessage();
  remaining_bytes_ = message_limit_bytes_;
  parked_since_ = {};
  sent_bytes_ = 0;  // nothing of its reply has been sent
  progress_[kReceive] = {.bytes = static_cast<int64_t>(end_ - begin_)};
}

void BulkTransport::EndMessage() {
  if (acquired_bytes_ > 0) options_.release(acquired_bytes_);
  acquired_bytes_ = 0;
  charged_bytes_ = 0;
}

void BulkTransport::Acquire() {
  if (options_.acquire == nullptr) return;
  const int64_t bytes = charged_bytes_ - acquired_bytes_;
  const absl::Status status = options_.acquire(bytes);
  if (!status.ok()) throw RefusedMessage(status);
  acquired_bytes_ += bytes;
}

std::string BulkTransport::LimitText() const {
  if (awaits_authentication_) {
    return absl::StrCat("kMaxUnauthenticatedMessageBytes, ", message_limit_bytes_,
                        ", the limit until the caller had authenticated itself");
  }
  return absl::StrCat("max_message_bytes, ", options_.max_message_bytes,
                      "; send less at once or raise --max_message_bytes");
}

void BulkTransport::RefuseSize() {
  const auto code = awaits_authentication_ ? absl::StatusCode::kUnauthenticated
                                           : absl::StatusCode::kResourceExhausted;
  throw RefusedMessage(
      WithReason(absl::Status(code, absl::StrCat("a message has more than ", LimitText())),
                 wire::ErrorReason::LIMIT));
}

void BulkTransport::Throw(TTransportException::TTransportExceptionType type,
                          const std::string& what) const {
  throw TTransportException(type, what);
}

void BulkTransport::ThrowFailure(Direction direction) {
  failure_ = stream_->failure();
  const bool is_trust = !absl::IsUnavailable(failure_);
  const auto type = is_trust             ? TTransportException::CORRUPTED_DATA
                    : direction == kSend ? TTransportException::NOT_OPEN
                                         : TTransportException::END_OF_FILE;
  if (is_trust) Throw(type, std::string(failure_.message()));
  Throw(type, absl::StrCat(direction == kSend ? "sending to " : "receiving from ", options_.peer,
                           " ", ProgressText(direction), ": ", failure_.message()));
}

void BulkTransport::close() {
  pending_count_ = run_begin_ = out_end_ = 0;
  EndMessage();
  if (socket_->isOpen()) stream_->Farewell();
  socket_->close();
}

uint32_t BulkTransport::read(uint8_t* to, uint32_t bytes) {
  if (begin_ == end_) {
    iovec part = {buffer_.get(), kBufferBytes};
    begin_ = 0;
    end_ = 0;
    end_ = Receive(&part, 1);
  }
  const auto got = static_cast<uint32_t>(std::min<size_t>(bytes, end_ - begin_));
  Count(got);
  std::memcpy(to, buffer_.get() + begin_, got);
  begin_ += got;
  return got;
}

void BulkTransport::ReadSlowly(uint8_t* to, size_t bytes) {
  const size_t buffered = end_ - begin_;
  std::memcpy(to, buffer_.get() + begin_, buffered);
  to += buffered;
  bytes -= buffered;
  begin_ = 0;
  end_ = 0;
  // The same system call reads ahead the bytes that follow the destination.
  while (bytes >= kDirectBytes) {
    iovec parts[2] = {{to, bytes}, {buffer_.get(), kBufferBytes}};
    const size_t got = Receive(parts, 2);
    const size_t direct = std::min(got, bytes);
    to += direct;
    bytes -= direct;
    end_ = got - direct;
  }
  while (bytes > end_ - begin_) {
    const size_t part_bytes = end_ - begin_;
    std::memcpy(to, buffer_.get() + begin_, part_bytes);
    to += part_bytes;
    bytes -= part_bytes;
    iovec part = {buffer_.get(), kBufferBytes};
    begin_ = 0;
    end_ = 0;
    end_ = Receive(&part, 1);
  }
  std::memcpy(to, buffer_.get() + begin_, bytes);
  begin_ += bytes;
}

void BulkTransport::Discard(int64_t bytes) {
  Count(bytes);
  while (bytes > static_cast<int64_t>(end_ - begin_)) {
    bytes -= static_cast<int64_t>(end_ - begin_);
    iovec part = {buffer_.get(), kBufferBytes};
    begin_ = 0;
    end_ = 0;
    end_ = Receive(&part, 1);
  }
  begin_ += static_cast<size_t>(bytes);
}

void BulkTransport::Drain() {
  const Blocking blocking(WaitFor::kPeer);
  const int fd = socket_->getSocketFD();
  stream_->EndSending();
  const Deadline deadline = Deadline::In(absl::Seconds(kDrainSeconds));
  SetSocketTimeout(kReceive, 100);
  for (int64_t drained = 0; drained < kDrainBytes && !deadline.Expired();) {
    const ssize_t got = ::recv(fd, buffer_.get(), kBufferBytes, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
    drained += std::max<ssize_t>(got, 0);
  }
}

void BulkTransport::BeginWrite() {
  written_bytes_ = 0;
  sent_bytes_ = 0;
  progress_[kSend] = {};
}

bool BulkTransport::DropUnsent() {
  if (sent_bytes_ > 0) return false;
  pending_count_ = run_begin_ = out_end_ = 0;
  return true;
}

// Adds the bytes written to the buffer since the last view to the pending parts.
void BulkTransport::ClosePendingRun() {
  if (out_end_ == run_begin_) return;
  pending_[pending_count_++] = {out_buffer_.get() + run_begin_, out_end_ - run_begin_};
  run_begin_ = out_end_;
}

void BulkTransport::WriteView(const std::byte* data, size_t bytes) {
  written_bytes_ += static_cast<int64_t>(bytes);
  // Needs up to three entries: a run, the view, and the run that flush will close.
  if (pending_count_ + 3 > kMaxPending) SendPending();
  ClosePendingRun();
  pending_[pending_count_++] = {const_cast<std::byte*>(data), bytes};
}

void BulkTransport::WriteSlowly(const uint8_t* data, size_t bytes) {
  if (bytes >= kDirectBytes) {  // `data` need not outlive this call
    WriteView(reinterpret_cast<const std::byte*>(data), bytes);
    SendPending();
    return;
  }
  SendPending();
  write(data, static_cast<uint32_t>(bytes));
}

// Tries without blocking first if the thread has an observer, so that only real waits are reported.
ssize_t BulkTransport::MoveOnce(Direction direction, iovec* parts, size_t count) {
  const auto move = [&] {
    return direction == kSend ? stream_->Send(parts, count) : stream_->Receive(parts, count);
  };
  if (!Blocking::IsObserved()) return move();
  stream_->SetWaits(false);
  const ssize_t moved = move();
  stream_->SetWaits(true);
  if (moved != SocketStream::kNotYet) return moved;
  const Blocking blocking(WaitFor::kPeer);
  SetSocketTimeout(direction, slice_ms_);
  return move();
}

size_t BulkTransport::Receive(iovec* parts, size_t count) {
  for (;;) {
    BeforeWait(kReceive);
    const ssize_t got = MoveOnce(kReceive, parts, count);
    if (got > 0) {
      progress_[kReceive].bytes += got;
      return static_cast<size_t>(got);
    }
    if (got == SocketStream::kNotYet) continue;
    if (got == SocketStream::kFailed) ThrowFailure(kReceive);
    Throw(TTransportException::END_OF_FILE,
          absl::StrCat(options_.peer, " closed the connection ", ProgressText(kReceive)));
  }
}

void BulkTransport::SendPending() {
  ClosePendingRun();
  iovec* at = pending_.data();
  size_t count = pending_count_;
  pending_count_ = run_begin_ = out_end_ = 0;
  while (count > 0) {
    BeforeWait(kSend);
    ssize_t sent = MoveOnce(kSend, at, count);
    if (sent == SocketStream::kNotYet) continue;
    if (sent == SocketStream::kFailed) ThrowFailure(kSend);
    progress_[kSend].bytes += sent;
    sent_bytes_ += sent;
    while (count > 0 && static_cast<size_t>(sent) >= at->iov_len) {
      sent -= static_cast<ssize_t>(at->iov_len);
      ++at;
      --count;
    }
    if (count > 0) {
      at->iov_base = static_cast<char*>(at->iov_base) + sent;
      at->iov_len -= static_cast<size_t>(sent);
    }
  }
}

// Throws if the time is up; otherwise limits the next system call to the time that is left.
void BulkTransport::BeforeWait(Direction direction) {
  if (options_.stall > absl::ZeroDuration()) return CheckStall(direction);
  const absl::Duration left = deadline_.RemainingInWait();
  if (left <= absl::ZeroDuration()) {
    Throw(TTransportException::TIMED_OUT,
          absl::StrCat("the deadline passed ",
                       direction == kSend ? "while sending, " : "while waiting for the answer, ",
                       ProgressText(direction)));
  }
  const absl::Duration slice = std::min(left, Interruption::LongestWait());
  SetSocketTimeout(direction, std::clamp<int64_t>(CeilToMs(slice), 1, kSliceMs));
}

void BulkTransport::CheckRest() {
  if (options_.idle <= absl::ZeroDuration()) return;
  if (parked_since_ == Clock::time_point{}) parked_since_ = Clock::now();
  const absl::Status rested = ParkedTooLong();
  if (!rested.ok()) Throw(TTransportException::TIMED_OUT, std::string(rested.message()));
}

Deadline BulkTransport::Park() {
  const Clock::time_point now = Clock::now();
  if (parked_since_ == Clock::time_point{}) parked_since_ = now;
  return Deadline::In(options_.idle - absl::FromChrono(now - parked_since_));
}

absl::Status BulkTransport::ParkedTooLong() const {
  const std::chrono::duration<double> idle = absl::ToChronoNanoseconds(options_.idle);
  if (Clock::now() - parked_since_ <= idle) return absl::OkStatus();
  return DeadlineExceeded(options_.peer, " sent nothing for longer than --idle_seconds, ",
                          absl::ToDoubleSeconds(options_.idle));
}

// A message that has begun must progress within `stall`, and at kMinBytesPerSecond on average.
void BulkTransport::CheckStall(Direction direction) {
  if (awaits_authentication_ && deadline_.Expired()) {
    Throw(TTransportException::TIMED_OUT,
          absl::StrCat(options_.peer, " did not authenticate itself within --handshake_seconds"));
  }
  Progress& progress = progress_[direction];
  if (direction == kReceive && progress.bytes == 0) return CheckRest();
  const Clock::time_point now = Clock::now();
  if (progress.bytes_at_last < 0) progress.since = now;
  if (progress.bytes_at_last != progress.bytes) {
    progress.bytes_at_last = progress.bytes;
    progress.last = now;
  }
  const std::chrono::duration<double> stall = absl::ToChronoNanoseconds(options_.stall);
  const std::chrono::duration<double> earned(static_cast<double>(progress.bytes) /
                                             static_cast<double>(kMinBytesPerSecond));
  if (now - progress.last > stall || now - progress.since > stall + earned) {
    Throw(TTransportException::TIMED_OUT,
          absl::StrCat(options_.peer, " stalled ", ProgressText(direction)));
  }
}

void BulkTransport::SetSocketTimeout(Direction direction, int64_t ms) {
  if (socket_timeout_ms_[direction] == ms) return;
  socket_timeout_ms_[direction] = ms;
  const timeval timeout = {ms / 1000, ms % 1000 * 1000};
  ::setsockopt(socket_->getSocketFD(), SOL_SOCKET,
               direction == kReceive ? SO_RCVTIMEO : SO_SNDTIMEO, &timeout, sizeof(timeout));
}

std::string BulkTransport::ProgressText(Direction direction) const {
  const int64_t bytes = progress_[direction].bytes;
  if (direction == kSend) return absl::StrCat("after ", bytes, " bytes of a message");
  return bytes == 0 ? "before any byte of a message"
                    : absl::StrCat("in the middle of a message, after ", bytes, " bytes");
}

}  // namespace cairn
