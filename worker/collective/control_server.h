// Where ranks meet before they are connected, and where they answer for themselves afterwards.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/collective/control_wire.h"

namespace cairn {

// Listens in a thread of its own, so that it answers while a collective waits. Ranks that join
// under one name wait until all have come; then each gets every rank's blob, and the name is free
// for the next meeting. A rank whose connection ends before that has not come. Thread safety: every
// method may be called from several threads at once.
class ControlServer {
 public:
  // Takes what kStatus was sent with, and returns what it is answered with.
  using Status = std::function<std::string(const std::string& told)>;

  struct Limits {
    // Each rank holds one connection while it joins, and one for a moment when it asks.
    size_t connections = 4 * kMaxGlooRanks;
    // A connection that has not joined and sends nothing for this long is closed.
    absl::Duration idle = absl::Seconds(60);
  };

  // Listens at "host:port"; port 0 takes a free one. kUnavailable: cannot listen there.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const std::string& address,
                                                              Status status = nullptr);
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const std::string& address,
                                                              Status status, const Limits& limits);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  const std::string& address() const;

 private:
  class Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Joins the meeting `name` of the ranks of `peers` at `address`, and returns every rank's blob in
// rank order. Retries while nobody listens there. kDeadlineExceeded: names the ranks that have not
// come, with their addresses in `peers`, and those that have given up before. kInvalidArgument:
// another process has come as this rank, or with another size.
absl::StatusOr<std::vector<std::string>> Join(const std::string& address, const std::string& name,
                                              int rank, absl::Span<const std::string> peers,
                                              const std::string& blob, Deadline deadline);

}  // namespace cairn
