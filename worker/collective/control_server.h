// The rendezvous of ranks before they are connected, and the server of their status afterwards.
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

// Listens in its own thread, so that it answers while a collective waits. Ranks that join under one
// name wait until all have joined; then each gets every rank's blob, and the name is free for the
// next rendezvous. A rank whose connection ends earlier counts as missing. Thread safety: every
// method may be called from several threads at once.
class ControlServer {
 public:
  // Receives the payload of a kStatus request and returns the reply.
  using Status = std::function<std::string(const std::string& told)>;

  struct Limits {
    // Highest number of connections. A rank holds one while it joins, and briefly one while it
    // sends a request.
    size_t connections = 4 * kMaxGlooRanks;
    // A connection that has not joined and sends nothing for this long is closed.
    absl::Duration idle = absl::Seconds(60);
  };

  // Listens at "host:port"; port 0 takes any free port. kUnavailable: cannot listen there.
  // kResourceExhausted: the process may open no further file.
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

// Joins the rendezvous `name` of the ranks of `peers` at `address`, and returns every rank's blob
// in rank order. Retries until a server listens there. kDeadlineExceeded: the message names the
// missing ranks, with their addresses in `peers`, and ranks that joined and gave up.
// kInvalidArgument: another process has joined as this rank, or with another size.
absl::StatusOr<std::vector<std::string>> Join(const std::string& address, const std::string& name,
                                              int rank, absl::Span<const std::string> peers,
                                              const std::string& blob, Deadline deadline);

}  // namespace cairn
