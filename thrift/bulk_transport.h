// The byte stream under BulkProtocol: a connection (TCP, TLS, or local to one host) whose large
// reads and writes bypass the buffers.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>
#include <thrift/Thrift.h>
#include <thrift/protocol/TProtocolException.h>
#include <thrift/transport/TSocket.h>
#include <thrift/transport/TVirtualTransport.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "thrift/limits.h"
#include "thrift/socket_stream.h"

namespace cairn {

// Thrown when a message is abandoned before its end has been read (or sent): a limit, a malformed
// length, or no memory. The connection cannot be used for another message.
class RefusedMessage : public apache::thrift::protocol::TProtocolException {
 public:
  // `status` is not OK; its message says what was found and what is allowed.
  explicit RefusedMessage(absl::Status status);
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

struct BulkTransportOptions {
  std::string peer;                                     // for messages: "127.0.0.1:7001"
  int64_t max_message_bytes = kDefaultMaxMessageBytes;  // read or written
  // Server side: how long a message may stall. Zero: client side, where every wait ends at the
  // deadline that was set last.
  absl::Duration stall = absl::ZeroDuration();
  // Server side: how long the connection may be idle between messages. Zero: no limit.
  absl::Duration idle = absl::ZeroDuration();
  // Server side: charges and releases the memory of messages that are being read. Empty: not
  // charged.
  std::function<absl::Status(int64_t bytes)> acquire;
  std::function<void(int64_t bytes)> release;
};

// Thread safety: none, one thread at a time. Another thread may end its waits by shutting the
// socket down. Errors: TTransportException (END_OF_FILE, NOT_OPEN: the peer is gone; TIMED_OUT:
// deadline, stall or idle time; CORRUPTED_DATA: one side does not trust the other, failure() has
// the code) and RefusedMessage. All texts have the peer's name.
class BulkTransport : public apache::thrift::transport::TVirtualTransport<BulkTransport> {
 public:
  // Reads and writes of at least half a buffer bypass the buffer.
  static constexpr size_t kBufferBytes = 32 << 10;
  static constexpr size_t kDirectBytes = kBufferBytes / 2;

  // `socket` must be open. Switches TCP_NODELAY on. `stream` sends and receives through the socket;
  // null: unencrypted TCP.
  BulkTransport(std::shared_ptr<apache::thrift::transport::TSocket> socket,
                BulkTransportOptions options, std::unique_ptr<SocketStream> stream = nullptr);
  ~BulkTransport() override;

  // Client side: the deadline for every later wait.
  void SetDeadline(Deadline deadline) { deadline_ = deadline; }
  // Server side, for a peer that has not authenticated yet. Until LiftAuthenticationLimits,
  // messages have at most `bytes`, and all waits end at `deadline`.
  void AwaitAuthentication(int64_t bytes, Deadline deadline);
  void LiftAuthenticationLimits();

  // Begin and end of a message that is read. BeginMessage resets the byte limit; EndMessage
  // releases the memory that was charged.
  void BeginMessage();
  void EndMessage();
  // Server side, between messages. Park returns when the peer will have rested for `idle`, which
  // counts from the first Park after a message: bytes that begin no message do not renew it.
  // ParkedTooLong returns an error if that time has passed.
  Deadline Park();
  absl::Status ParkedTooLong() const;
  // Frees buffers that hold no bytes, until EnsureBuffers.
  void ReleaseBuffers();
  void EnsureBuffers();
  // Waits briefly for the next message. False: no bytes have arrived. True: bytes, or the end.
  bool PollBriefly();
  // Whether bytes of a message have arrived already, in this object or in the stream. Does not
  // wait.
  bool HasBytes() { return begin_ < end_ || (stream_->HasBuffered() && stream_->PeerHasData()); }
  // Bytes that the message being read may still contain before it exceeds the limit.
  int64_t remaining_bytes() const { return remaining_bytes_; }
  // Charges memory that the message being read is about to allocate; may wait for it.
  void Charge(int64_t bytes) {
    charged_bytes_ += bytes;
    if (charged_bytes_ > acquired_bytes_ + kUnchargedMessageBytes) Acquire();
  }
  // Reads and discards `bytes` bytes of the message being read.
  void Discard(int64_t bytes);
  // After a refusal: reads and discards what the peer still sends, until it stops, or up to
  // kDrainBytes or kDrainSeconds, so that the peer can read the refusal. Never throws.
  void Drain();

  // Like write, but `data` must stay alive and unchanged until flush.
  void WriteView(const std::byte* data, size_t bytes);
  // Begins a message that is written.
  void BeginWrite();
  // Bytes written to the current message so far.
  int64_t written_bytes() const { return written_bytes_; }
  // Discards the message being written; false if part of it has been sent already.
  bool DropUnsent();

  const std::string& peer() const { return options_.peer; }
  int fd() const { return socket_->getSocketFD(); }
  // Like SocketStream::PeerHasData.
  bool PeerHasData() { return stream_->PeerHasData(); }
  // Why the last TTransportException had the type CORRUPTED_DATA.
  const absl::Status& failure() const { return failure_; }
  int64_t max_message_bytes() const { return options_.max_message_bytes; }
  // Describes the limit for the message being read, for errors: its name, its value, and what to
  // do.
  std::string LimitText() const;

  // Thrift's interface of a transport.
  bool isOpen() const override { return socket_->isOpen(); }
  bool peek() override { return begin_ < end_ || stream_->HasBuffered() || socket_->peek(); }
  void close() override;
  uint32_t read(uint8_t* to, uint32_t bytes);
  uint32_t readAll(uint8_t* to, uint32_t bytes) {
    Count(bytes);
    if (bytes <= end_ - begin_) {
      if (bytes > 0) std::memcpy(to, buffer_.get() + begin_, bytes);  // else `to` may be null
      begin_ += bytes;
    } else {
      ReadSlowly(to, bytes);
    }
    return bytes;
  }
  const uint8_t* borrow(uint8_t* /*buffer*/, uint32_t* bytes) {
    if (*bytes > end_ - begin_) return nullptr;
    *bytes = static_cast<uint32_t>(end_ - begin_);
    return buffer_.get() + begin_;
  }
  void consume(uint32_t bytes) {
    Count(bytes);
    begin_ += bytes;
  }
  void write(const uint8_t* data, uint32_t bytes) {
    if (bytes > kBufferBytes - out_end_) return WriteSlowly(data, bytes);
    std::memcpy(out_buffer_.get() + out_end_, data, bytes);
    out_end_ += bytes;
    written_bytes_ += bytes;
  }
  void flush() override { SendPending(); }
  const std::string getOrigin() const override { return options_.peer; }

 private:
  using Clock = std::chrono::steady_clock;
  enum Direction { kReceive = 0, kSend = 1 };
  // How many bytes of a message have moved in a direction, since when, and when the last ones
  // moved.
  struct Progress {
    int64_t bytes = 0;
    int64_t bytes_at_last = -1;
    Clock::time_point since{};
    Clock::time_point last{};
  };

  void Count(int64_t bytes) {
    remaining_bytes_ -= bytes;
    if (remaining_bytes_ < 0) RefuseSize();
  }
  [[noreturn]] void RefuseSize();
  [[noreturn]] void Throw(apache::thrift::transport::TTransportException::TTransportExceptionType,
                          const std::string& what) const;
  void Acquire();
  void ReadSlowly(uint8_t* to, size_t bytes);
  void WriteSlowly(const uint8_t* data, size_t bytes);
  void ClosePendingRun();
  size_t Receive(iovec* parts, size_t count);
  ssize_t MoveOnce(Direction direction, iovec* parts, size_t count);
  void SendPending();
  void BeforeWait(Direction direction);
  void CheckStall(Direction direction);
  void CheckRest();
  [[noreturn]] void ThrowFailure(Direction direction);
  void SetSocketTimeout(Direction direction, int64_t ms);
  std::string ProgressText(Direction direction) const;

  const std::shared_ptr<apache::thrift::transport::TSocket> socket_;
  const BulkTransportOptions options_;
  const std::unique_ptr<SocketStream> stream_;
  absl::Status failure_;
  Deadline deadline_;
  bool awaits_authentication_ = false;
  int64_t message_limit_bytes_;
  Clock::time_point parked_since_{};  // start of the wait between messages; zero: not waiting
  std::array<int64_t, 2> socket_timeout_ms_ = {0, 0};
  int64_t slice_ms_ = 0;  // longest kernel wait on the server's side
  std::array<Progress, 2> progress_;

  // Reading: buffer_[begin_, end_) has arrived and has not been consumed.
  std::unique_ptr<uint8_t[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t remaining_bytes_;
  int64_t charged_bytes_ = 0;
  int64_t acquired_bytes_ = 0;

  // Writing: pending_[0, pending_count_) is sent in order, then out_buffer_[run_begin_, out_end_).
  // Views are between runs of the buffer.
  static constexpr size_t kMaxPending = 64;
  std::unique_ptr<uint8_t[]> out_buffer_;
  std::array<iovec, kMaxPending> pending_;
  size_t pending_count_ = 0;
  size_t run_begin_ = 0;
  size_t out_end_ = 0;
  int64_t written_bytes_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace cairn
