// local_caller ADDRESS: pushes and pulls 4 MiB over the local transport, alternately, until it is
// killed. Exit status 1: the server is gone, or does not offer this transport.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "thrift/client/wire_client.h"

namespace cairn {
namespace {

absl::Status CallForEver(const std::string& address) {
  const Deadline deadline = Deadline::In(absl::Seconds(60));
  absl::StatusOr<std::unique_ptr<WireClient>> client =
      WireClient::Connect(address, {.local = LocalTransport::kSameUser}, deadline);
  if (!client.ok()) return client.status();
  if (!(*client)->is_local()) return (*client)->local_failure();
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
        (*client)->Call("push", deadline, [&](auto& stub) { stub.push(pushed, push); });
    if (!status.ok()) return status;
    wire::PullReply pulled;
    status = (*client)->Call("pull", deadline, [&](auto& stub) { stub.pull(pulled, pull); });
    if (!status.ok()) return status;
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::fprintf(stderr, "%s\n", cairn::CallForEver(argv[1]).ToString().c_str());
  return 1;
}
