#include "thrift/spec_bytes.h"

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using apache::thrift::transport::TMemoryBuffer;
using Protocol = apache::thrift::protocol::TBinaryProtocolT<TMemoryBuffer>;

}  // namespace

std::string SpecToBytes(const wire::VariableSpec& spec) {
  const auto buffer = std::make_shared<TMemoryBuffer>();
  Protocol protocol(buffer);
  spec.write(&protocol);
  return buffer->getBufferAsString();
}

absl::StatusOr<wire::VariableSpec> SpecFromBytes(absl::string_view bytes) {
  // TMemoryBuffer takes a mutable pointer, and only reads what it is told to observe.
  const auto buffer =
      std::make_shared<TMemoryBuffer>(reinterpret_cast<uint8_t*>(const_cast<char*>(bytes.data())),
                                      static_cast<uint32_t>(bytes.size()), TMemoryBuffer::OBSERVE);
  Protocol protocol(buffer);
  wire::VariableSpec spec;
  try {
    spec.read(&protocol);
  } catch (const apache::thrift::TException& error) {
    return absl::DataLossError(absl::StrCat("a stored variable spec of ", bytes.size(),
                                            " bytes cannot be read: ", error.what()));
  }
  if (buffer->available_read() != 0) {
    return absl::DataLossError(absl::StrCat("a stored variable spec of ", bytes.size(),
                                            " bytes ends ", buffer->available_read(),
                                            " bytes early"));
  }
  return spec;
}

}  // namespace cairn
