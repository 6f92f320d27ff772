// The byte stream under BulkProtocol: a TCP connection whose large reads and writes bypass the
// buffers (DESIGN §2).
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

namespace cairn {

// Thrown in the middle of a message that is not read (or sent) to its end: a limit, a malformed
// length, no memory. The connection cannot be used for another message.
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
  // Server side: how long a message may stall. Between messages the connection may rest for ever.
  // Zero: client side; every wait ends at the deadline set last.
  absl::Duration stall = absl::ZeroDuration();
  // Server side: the account of memory that messages being read hold. Empty: none.
  std::function<absl::Status(int64_t bytes)> acquire;
  std::function<void(int64_t bytes)> release;
};

// Thread safety: none, one thread at a time. Another thread ends its waits by shutting the socket
// down. Errors are TTransportException (END_OF_FILE: the peer is gone; TIMED_OUT: deadline or
// stall) and RefusedMessage, all with the peer's name in their text.
//
// Only Receive and SendPending touch the socket, by its descriptor: a TLS connection overrides
// those two with TSSLSocket's read and write.
class BulkTransport : public apache::thrift::transport::TVirtualTransport<BulkTransport> {
 public:
  // Reads and writes of half a buffer or more do not pass through it.
  static constexpr size_t kBufferBytes = 32 << 10;
  static constexpr size_t kDirectBytes = kBufferBytes / 2;

  // `socket` is open. TCP_NODELAY is switched on.
  BulkTransport(std::shared_ptr<apache::thrift::transport::TSocket> socket,
                BulkTransportOptions options);
  ~BulkTransport() override;

  // Client side: ends every later wait.
  void SetDeadline(Deadline deadline) { deadline_ = deadline; }

  // Brackets a message that is read: resets what it may still have, and gives its memory back.
  void BeginMessage();
  void EndMessage();
  // Bytes the message being read may still have.
  int64_t remaining_bytes() const { return remaining_bytes_; }
  // Charges memory that the message being read is about to allocate; may wait for it.
  void Charge(int64_t bytes) {
    charged_bytes_ += bytes;
    if (charged_bytes_ > acquired_bytes_ + kUnchargedMessageBytes) Acquire();
  }
  // Reads and throws away.
  void Discard(int64_t bytes);
  // Reads and throws away what the peer still sends, until it stops, or kDrainBytes, or
  // kDrainSeconds: after a refusal, so that the peer gets to read it. Never throws.
  void Drain();

  // As write, but `bytes` must stay alive and unchanged until flush.
  void WriteView(const std::byte* data, size_t bytes);
  // Brackets a message that is written.
  void BeginWrite();
  // Bytes of the message being written, so far.
  int64_t written_bytes() const { return written_bytes_; }
  // Forgets the message being written; false where part of it has left already.
  bool DropUnsent();

  const std::string& peer() const { return options_.peer; }
  int descriptor() const { return socket_->getSocketFD(); }
  int64_t max_message_bytes() const { return options_.max_message_bytes; }

  // What Thrift expects of a transport.
  bool isOpen() const override { return socket_->isOpen(); }
  bool peek() override { return begin_ < end_ || socket_->peek(); }
  void close() override;
  uint32_t read(uint8_t* to, uint32_t bytes);
  uint32_t readAll(uint8_t* to, uint32_t bytes) {
    Count(bytes);
    if (bytes <= end_ - begin_) {
      if (bytes > 0) std::memcpy(to, buffer_.get() + begin_, bytes);  // `to` may be null without
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
  // How much of a message has moved in a direction; since when, and when it last went on.
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
  void SendPending();
  void BeforeWait(Direction direction);
  void CheckStall(Direction direction);
  void SetSocketTimeout(Direction direction, int64_t ms);
  std::string ProgressText(Direction direction) const;

  const std::shared_ptr<apache::thrift::transport::TSocket> socket_;
  const BulkTransportOptions options_;
  Deadline deadline_;
  std::array<int64_t, 2> socket_timeout_ms_ = {0, 0};
  std::array<Progress, 2> progress_;

  // Reading: buffer_[begin_, end_) has arrived and is not consumed.
  const std::unique_ptr<uint8_t[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t remaining_bytes_;
  int64_t charged_bytes_ = 0;
  int64_t acquired_bytes_ = 0;

  // Writing: pending_[0, pending_count_) are to be sent in order, then out_buffer_[run_begin_,
  // out_end_). Views lie between runs of the buffer.
  static constexpr size_t kMaxPending = 64;
  const std::unique_ptr<uint8_t[]> out_buffer_;
  std::array<iovec, kMaxPending> pending_;
  size_t pending_count_ = 0;
  size_t run_begin_ = 0;
  size_t out_end_ = 0;
  int64_t written_bytes_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace cairn
