// Small messages beside the collectives: ranks rendezvous, and exchange their status when a
// collective fails. A message is its length (uint32, little endian) followed by that many bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/deadline.h"
#include "common/descriptor.h"

namespace cairn {

// A request carries one rank's transport addresses, about 150 bytes for each other rank; a reply
// carries those of all ranks. Both limits allow for kMaxGlooRanks.
constexpr size_t kMaxGlooRanks = 256;
constexpr size_t kMaxControlRequestBytes = 128 << 10;
constexpr size_t kMaxControlReplyBytes = 32 << 20;

// The first byte of a request.
enum class ControlOp : uint8_t {
  kJoin = 1,     // rank, size (int32), name, blob: waits for all ranks; returns all blobs
  kMissing = 2,  // name: the missing ranks, "1,2", and ranks that left: "1; 2 joined and left"
  kStatus = 3,   // bytes for the server's owner; returns the owner's reply
};

// Appends plain values and byte strings, which carry their length.
class ControlWriter {
 public:
  template <typename T>
  ControlWriter& Value(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  ControlWriter& Bytes(absl::string_view bytes) {
    Value(static_cast<uint32_t>(bytes.size()));
    bytes_.append(bytes.data(), bytes.size());
    return *this;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads the values back. If the message is too short, ok() is false and values are zero.
class ControlReader {
 public:
  explicit ControlReader(absl::string_view bytes) : left_(bytes) {}
  template <typename T>
  T Value() {
    T value = {};
    if (left_.size() < sizeof(T)) {
      Fail();
    } else {
      std::memcpy(&value, left_.data(), sizeof(T));
      left_.remove_prefix(sizeof(T));
    }
    return value;
  }
  std::string Bytes();
  bool ok() const { return ok_; }
  bool at_end() const { return left_.empty(); }

 private:
  void Fail() {
    ok_ = false;
    left_ = {};
  }
  absl::string_view left_;
  bool ok_ = true;
};

// A listening socket at "host:port"; port 0 takes any free port. kUnavailable: cannot listen there;
// the message says why.
absl::StatusOr<Descriptor> ListenAt(const std::string& address);
// The address "host:port" of the socket, with the host of `address`.
std::string ListenAddress(const Descriptor& listener, const std::string& address);

// Connects, sends the request and returns the reply. kUnavailable: no server listens there, or the
// connection ended early. kDeadlineExceeded: no reply by `deadline`; then `late`, if given, is
// called before the connection is closed.
absl::StatusOr<std::string> AskAt(const std::string& address, absl::string_view request,
                                  Deadline deadline, const std::function<void()>& late = nullptr);

}  // namespace cairn
