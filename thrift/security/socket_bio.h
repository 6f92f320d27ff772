// What OpenSSL reads from and writes to: a socket, with ciphertext gathered on its way out. Its own
// socket BIO raises SIGPIPE in programs that did not ask for it, and makes a system call a record
// to send it, two to receive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "thrift/security/openssl_ptr.h"

namespace cairn {

// The state of one BIO; outlives it. Thread safety: none.
class SocketBio {
 public:
  // Ciphertext of several records leaves with one system call.
  static constexpr size_t kGatherBytes = 72 << 10;
  // With what OpenSSL asks for comes as much as this of what follows, so several records take one
  // system call. Its own reading ahead moves all that it holds to its buffer's front at every
  // record: a tenth slower at 4 MiB (tests/bench/wire_bench).
  static constexpr size_t kAheadBytes = 128 << 10;

  explicit SocketBio(int fd) : fd_(fd) {}
  SocketBio(const SocketBio&) = delete;
  SocketBio& operator=(const SocketBio&) = delete;

  // Null: no memory.
  BIO* NewBio();

  // How many receive calls OpenSSL may make from here on; then it is told to ask again. So that no
  // trickle keeps it from returning to whoever looks at the clock.
  void AllowReads(int count, bool wait = true) {
    reads_left_ = count;
    waits_ = wait;
  }
  // Sends what is gathered. False: not all of it has left, error() is 0 where it may be tried
  // again.
  bool Flush();

  // Gives the memory back that holds nothing.
  void Rest() {
    if (!holds_bytes()) ahead_.reset();
    if (begin_ == end_) gathered_.reset();
  }

  int64_t received_bytes() const { return received_bytes_; }
  bool holds_bytes() const { return ahead_begin_ < ahead_end_; }  // received, and not asked for yet
  bool ended() const { return ended_; }                           // the peer has
  int error() const { return error_; }  // errno of the call that failed; 0: none did

 private:
  static const BIO_METHOD* Method();
  static int Read(BIO* bio, char* to, size_t bytes, size_t* got);
  static int Write(BIO* bio, const char* from, size_t bytes, size_t* taken);
  static long Control(BIO* bio, int command, long number, void* pointer);
  // Makes `buffer` where it is not there. False: there is no memory, and error() says so.
  bool HasMemory(std::unique_ptr<uint8_t[]>* buffer, size_t bytes);

  const int fd_;
  int reads_left_ = 1;
  bool waits_ = true;
  bool ended_ = false;
  int error_ = 0;
  int64_t received_bytes_ = 0;
  // [ahead_begin_, ahead_end_) was received; made with the first read, a page is real once used.
  std::unique_ptr<uint8_t[]> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  std::unique_ptr<uint8_t[]> gathered_;  // [begin_, end_) has not left; made with the first write
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace cairn
