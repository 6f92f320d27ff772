// The bytes of one connection below its buffers: the plain socket, TLS over it
// (thrift/security/tls_stream.h), or shared memory beside it (thrift/local/local_stream.h).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

#include "absl/status/status.h"

namespace cairn {

// Works on a blocking socket, with waits that SO_RCVTIMEO and SO_SNDTIMEO limit, or without waits.
// Thread safety: none, one thread at a time.
class SocketStream {
 public:
  static constexpr ssize_t kNotYet =
      -1;  // the socket's time limit passed, or the stream's own bytes moved
  static constexpr ssize_t kFailed = -2;  // failure() has the reason

  virtual ~SocketStream() = default;

  // Whether Receive and Send wait from now on (the default) or return kNotYet instead.
  void SetWaits(bool waits) { waits_ = waits; }

  // Waits for bytes and fills `parts` in order. > 0: number of bytes received; 0: the peer has
  // closed its end.
  virtual ssize_t Receive(const iovec* parts, size_t count) = 0;
  // Sends bytes of `parts` in order. > 0: number of bytes sent; never 0. After kNotYet the next
  // Send must be given the same bytes again.
  virtual ssize_t Send(const iovec* parts, size_t count) = 0;
  // Tells the peer that no more bytes will be sent.
  virtual void EndSending() = 0;
  // Sends the stream's closing message before the socket is closed; does not wait.
  virtual void Farewell() = 0;
  // Whether the peer has closed its end, or has sent bytes; does not wait.
  virtual bool PeerHasData() = 0;
  // Whether received bytes are held inside the stream, where PeerHasData and peek of the socket
  // miss them.
  virtual bool HasBuffered() const = 0;
  // Between messages: frees as much memory as possible until the next bytes.
  virtual void Park() = 0;
  // The reason for the last kFailed. kUnavailable: the connection broke. kUnauthenticated,
  // kFailedPrecondition: retrying does not help; the text says what was found and what to do.
  virtual absl::Status failure() const = 0;

 protected:
  bool waits() const { return waits_; }

 private:
  bool waits_ = true;
};

// The bytes of the plain socket. The caller keeps ownership of `fd`.
class PlainStream : public SocketStream {
 public:
  explicit PlainStream(int fd) : fd_(fd) {}

  ssize_t Receive(const iovec* parts, size_t count) override;
  ssize_t Send(const iovec* parts, size_t count) override;
  void EndSending() override;
  void Farewell() override {}
  bool PeerHasData() override;
  bool HasBuffered() const override { return false; }
  void Park() override {}
  absl::Status failure() const override;

 private:
  const int fd_;
  int error_ = 0;
};

}  // namespace cairn
