#include "tests/fuzz/wire_copy.h"

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TVirtualTransport.h>

#include <cstdint>

namespace cairn::fuzz {
namespace {

using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TMemoryBuffer;
using apache::thrift::transport::TVirtualTransport;

// Connects a generated client to a service in this process: a request that is flushed is parsed and
// served at once, and its reply can be read.
class LoopTransport final : public TVirtualTransport<LoopTransport> {
 public:
  explicit LoopTransport(wire::ParameterServerIf& service)
      : processor_(std::shared_ptr<wire::ParameterServerIf>(std::shared_ptr<void>(), &service)) {}

  uint32_t read(uint8_t* bytes, uint32_t count) { return reply_->read(bytes, count); }
  void write(const uint8_t* bytes, uint32_t count) { request_->write(bytes, count); }
  void flush() override {
    reply_ = std::make_shared<TMemoryBuffer>();
    processor_.process(std::make_shared<TBinaryProtocol>(request_),
                       std::make_shared<TBinaryProtocol>(reply_), nullptr);
    request_ = std::make_shared<TMemoryBuffer>();
  }

 private:
  wire::ParameterServerProcessor processor_;
  std::shared_ptr<TMemoryBuffer> request_ = std::make_shared<TMemoryBuffer>();
  std::shared_ptr<TMemoryBuffer> reply_ = std::make_shared<TMemoryBuffer>();
};

}  // namespace

std::unique_ptr<wire::ParameterServerIf> CopyOnTheWire(wire::ParameterServerIf& service) {
  return std::make_unique<wire::ParameterServerClient>(
      std::make_shared<TBinaryProtocol>(std::make_shared<LoopTransport>(service)));
}

}  // namespace cairn::fuzz
