// A connection within one host: a SocketStream over a Unix-domain socket and shared memory. Small
// messages travel through the socket. For large ones, records on the socket announce how many bytes
// are in the ring. thrift/LOCAL.md describes the records, and why a peer that lies or overwrites
// memory harms only itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "thrift/local/brief_spin.h"
#include "thrift/local/limits.h"
#include "thrift/local/shared_rings.h"
#include "thrift/socket_stream.h"

namespace cairn {

// Precedes bytes on the socket, or stands for bytes in the ring. Both sides are on one host, so it
// has native byte order.
struct LocalRecord {
  enum Kind : uint32_t {
    kInline = 1,       // `bytes` follow on the socket
    kRing = 2,         // `bytes` more are in the sender's ring
    kRingAndAsks = 3,  // as kRing, or without bytes; asks to be notified once all is read
    kRoom = 4,         // only `room`
  };
  uint32_t kind = 0;
  uint32_t bytes = 0;
  uint32_t room = 0;  // bytes of the receiver's ring that the sender has read since its last record
};

// Thread safety: none. Another thread may end its waits by shutting the socket down.
class LocalStream : public SocketStream {
 public:
  enum class Side { kClient = 0, kServer = 1 };

  // The caller keeps ownership of `fd`, a connected blocking Unix-domain stream socket, which must
  // outlive this object. `peer` is the other side's name in messages.
  LocalStream(int fd, SharedRings rings, Side side, std::string peer);

  ssize_t Receive(const iovec* parts, size_t count) override;
  ssize_t Send(const iovec* parts, size_t count) override;
  void EndSending() override;
  void Farewell() override {}
  bool PeerHasData() override;
  bool HasBuffered() const override { return ring_left_ > 0 || at_ < end_; }
  void Park() override;
  // kInternal: the peer violated the protocol of the records.
  absl::Status failure() const override { return failure_; }

 private:
  // Reading.
  bool AtData();
  ssize_t Fill(bool waits);
  void Scan();
  size_t Take(std::byte* to, size_t bytes);
  void TellRoom();
  void Violated(absl::string_view what);
  // Writing.
  ssize_t SendInline(const iovec* parts, size_t count, size_t total);
  ssize_t SendRing(const iovec* parts, size_t count, size_t total);
  void PutInRing(const iovec* parts, size_t bytes);
  ssize_t AwaitRoom();
  void Stage(LocalRecord record);
  ssize_t Flush();
  ssize_t FailedBy(int error);
  uint32_t TakeRoom();
  size_t free_bytes() const { return ring_bytes_ - static_cast<size_t>(written_ - known_read_); }

  const int fd_;
  const SharedRings rings_;
  const size_t ring_bytes_;
  const size_t piece_bytes_;
  const std::byte* const in_ring_;
  std::byte* const out_ring_;
  const std::string peer_;
  absl::Status failure_;
  bool broken_ = false;  // permanently: failure_ has the reason
  bool ended_ = false;
  BriefSpin spin_;
  bool is_bulk_ = false;  // the last data was in the ring: the next takes longer than a poll

  // Reading. held_[at_, end_) has arrived by the socket. Records up to scan_, which may be beyond
  // end_, have been scanned for room and for bytes in the ring.
  std::unique_ptr<uint8_t[]> held_;
  size_t at_ = 0;
  size_t end_ = 0;
  size_t scan_ = 0;
  size_t inline_left_ = 0;  // of the record at at_
  size_t ring_left_ = 0;
  bool asks_ = false;
  // Bytes since the beginning of the connection: announced in the peer's ring, read, reported as
  // read.
  uint64_t announced_ = 0;
  uint64_t asked_at_ = 0;  // announced_ when the peer last asked for room
  uint64_t read_ = 0;
  uint64_t told_read_ = 0;

  // Writing. Bytes since the beginning of the connection: written to the ring, known to be read,
  // and up to which the peer was asked to report.
  uint64_t written_ = 0;
  uint64_t known_read_ = 0;
  uint64_t asked_ = 0;
  // out_[out_at_, out_end_) must be sent by the socket; then `unreported_bytes_` of Send's bytes
  // are sent.
  std::array<uint8_t, sizeof(LocalRecord) + kLocalInlineBytes> out_;
  size_t out_at_ = 0;
  size_t out_end_ = 0;
  ssize_t unreported_bytes_ = 0;
  bool room_is_due_ = false;
};

}  // namespace cairn
