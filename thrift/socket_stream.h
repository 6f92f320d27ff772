// The bytes of one connection below its buffers: the socket's own, TLS over it
// (thrift/security/tls_stream.h), or shared memory beside it (thrift/local/local_stream.h).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

#include "absl/status/status.h"

namespace cairn {

// On a blocking socket whose waits end by SO_RCVTIMEO and SO_SNDTIMEO, or without waits.
// Thread safety: none, one thread at a time.
class SocketStream {
 public:
  static constexpr ssize_t kNotYet =
      -1;  // the socket's time limit passed, or the stream's own bytes moved
  static constexpr ssize_t kFailed = -2;  // failure() says why

  virtual ~SocketStream() = default;

  // From here on Receive and Send wait (as from the start), or return kNotYet where they would.
  void SetWaits(bool waits) { waits_ = waits; }

  // Waits for bytes and fills `parts` in order. > 0: how many came; 0: the peer has ended.
  virtual ssize_t Receive(const iovec* parts, size_t count) = 0;
  // Takes bytes of `parts` in order. > 0: how many have left, never 0. After kNotYet the next Send
  // must be given the same bytes again.
  virtual ssize_t Send(const iovec* parts, size_t count) = 0;
  // Tells the peer that nothing more is sent.
  virtual void EndSending() = 0;
  // What is said before the socket is closed; does not wait.
  virtual void Farewell() = 0;
  // Whether the peer has ended or sent what nobody waits for; does not wait itself.
  virtual bool HasNews() = 0;
  // Bytes that have arrived below and were not handed on: HasNews and peek of the socket miss them.
  virtual bool HoldsBytes() const = 0;
  // Gives back what memory it can until the next bytes: between messages.
  virtual void Rest() = 0;
  // Of the last kFailed. kUnavailable: the connection broke. kUnauthenticated, kFailedPrecondition:
  // trying again does not help; the text says what was found and what to do.
  virtual absl::Status failure() const = 0;

 protected:
  bool waits() const { return waits_; }

 private:
  bool waits_ = true;
};

// The socket's own bytes. `fd` stays the caller's.
class PlainStream : public SocketStream {
 public:
  explicit PlainStream(int fd) : fd_(fd) {}

  ssize_t Receive(const iovec* parts, size_t count) override;
  ssize_t Send(const iovec* parts, size_t count) override;
  void EndSending() override;
  void Farewell() override {}
  bool HasNews() override;
  bool HoldsBytes() const override { return false; }
  void Rest() override {}
  absl::Status failure() const override;

 private:
  const int fd_;
  int error_ = 0;
};

}  // namespace cairn
