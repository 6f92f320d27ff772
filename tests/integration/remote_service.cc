#include "tests/integration/remote_service.h"

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TSocket.h>

#include "common/config/cluster_config.h"
#include "common/status.h"

namespace cairn {

using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TBufferedTransport;
using apache::thrift::transport::TSocket;

absl::StatusOr<std::unique_ptr<wire::ParameterServerIf>> ConnectToServer(
    const std::string& address) {
  constexpr int kTimeoutMs = 30'000;
  ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(address));
  const auto socket = std::make_shared<TSocket>(target.host, target.port);
  socket->setConnTimeout(kTimeoutMs);
  socket->setSendTimeout(kTimeoutMs);
  socket->setRecvTimeout(kTimeoutMs);
  try {
    socket->open();
  } catch (const apache::thrift::TException& error) {
    return absl::UnavailableError(error.what());
  }
  return std::make_unique<wire::ParameterServerClient>(
      std::make_shared<TBinaryProtocol>(std::make_shared<TBufferedTransport>(socket)));
}

}  // namespace cairn
