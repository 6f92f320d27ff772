// The socket below OpenSSL, with ciphertext gathered before it is sent. OpenSSL's own socket BIO
// raises SIGPIPE in programs that do not expect it, and makes one system call for each record sent
// and two for each received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "thrift/security/openssl_ptr.h"

namespace cairn {

// The state of one BIO, which it must outlive. Thread safety: none.
class SocketBio {
 public:
  // Ciphertext of several records is sent with one system call.
  static constexpr size_t kGatherBytes = 72 << 10;
  // Each receive reads up to this many bytes beyond OpenSSL's request, so that several records take
  // one system call. OpenSSL's own read-ahead moves its buffered data to the front at every record:
  // a tenth slower at 4 MiB (tests/bench/wire_bench).
  static constexpr size_t kAheadBytes = 128 << 10;

  explicit SocketBio(int fd) : fd_(fd) {}
  SocketBio(const SocketBio&) = delete;
  SocketBio& operator=(const SocketBio&) = delete;

  // Null: no memory.
  BIO* NewBio();

  // How many receive calls OpenSSL may make from now on; after them Read asks it to retry. So a
  // trickle of bytes cannot keep OpenSSL from returning to the caller, which checks the time.
  void AllowReads(int count, bool wait = true) {
    reads_left_ = count;
    waits_ = wait;
  }
  // Sends the gathered bytes by one system call, so that a peer that reads slowly cannot keep the
  // caller from checking the time. False: some are unsent; retry if error() is 0.
  bool Flush();

  // Frees buffers that hold no bytes.
  void Park() {
    if (!holds_bytes()) ahead_.reset();
    if (begin_ == end_) gathered_.reset();
  }

  int64_t received_bytes() const { return received_bytes_; }
  bool holds_bytes() const { return ahead_begin_ < ahead_end_; }  // received, but not read yet
  bool ended() const { return ended_; }                           // the peer has closed its end
  int error() const { return error_; }  // errno of the failed call; 0: none

 private:
  static const BIO_METHOD* Method();
  static int Read(BIO* bio, char* to, size_t bytes, size_t* got);
  static int Write(BIO* bio, const char* from, size_t bytes, size_t* taken);
  static long Control(BIO* bio, int command, long number, void* pointer);
  // Allocates `buffer` if it is null. False: no memory; sets error().
  bool HasMemory(std::unique_ptr<uint8_t[]>* buffer, size_t bytes);

  const int fd_;
  int reads_left_ = 1;
  bool waits_ = true;
  bool ended_ = false;
  int error_ = 0;
  int64_t received_bytes_ = 0;
  // [ahead_begin_, ahead_end_) has been received. Allocated at the first read; untouched pages cost
  // nothing.
  std::unique_ptr<uint8_t[]> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  std::unique_ptr<uint8_t[]> gathered_;  // [begin_, end_) is unsent; allocated at the first write
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace cairn
