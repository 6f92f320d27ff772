// local_caller ADDRESS: pushes and pulls 4 MiB over the local transport, alternately, until it is
// killed. Exit status 1: the server is gone, or does not offer this transport.
#include <cstdio>
#include <memory>
#include <string>

#include "tests/support/call_until_it_fails.h"
#include "thrift/client/wire_client.h"

namespace cairn {
namespace {

absl::Status ConnectAndCall(const std::string& address) {
  const Deadline deadline = Deadline::In(absl::Seconds(60));
  absl::StatusOr<std::unique_ptr<WireClient>> client =
      WireClient::Connect(address, {.local = LocalTransport::kSameUser}, deadline);
  if (!client.ok()) return client.status();
  if (!(*client)->is_local()) return (*client)->local_failure();
  return CallUntilItFails(**client, deadline);
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::fprintf(stderr, "%s\n", cairn::ConnectAndCall(argv[1]).ToString().c_str());
  return 1;
}
