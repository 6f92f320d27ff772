// Calls that carry much data, for tests in which one end dies.
#pragma once

#include <vector>

#include "thrift/client/wire_client.h"

namespace cairn {

// Pushes and pulls 4 MiB alternately, until a call fails; returns its status.
inline absl::Status CallUntilItFails(WireClient& client, Deadline deadline) {
  const std::vector<float> values(1 << 20, 1.0F);
  wire::PushRequest push;
  push.caller.job = "job";
  push.items.resize(1);
  push.items[0].variable = "w";
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PullRequest pull;
  pull.caller.job = "job";
  pull.items.resize(1);
  pull.items[0].variable = "w";
  for (;;) {
    wire::PushReply pushed;
    absl::Status status =
        client.Call("push", deadline, [&](auto& stub) { stub.push(pushed, push); });
    if (!status.ok()) return status;
    wire::PullReply pulled;
    status = client.Call("pull", deadline, [&](auto& stub) { stub.pull(pulled, pull); });
    if (!status.ok()) return status;
  }
}

}  // namespace cairn
