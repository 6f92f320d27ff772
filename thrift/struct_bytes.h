// Serializes a struct of the IDL for storage: Thrift's binary encoding, so that fields may be added
// later.
#pragma once

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/errors.h"

namespace cairn {

template <typename Struct>
std::string StructToBytes(const Struct& value) {
  using apache::thrift::transport::TMemoryBuffer;
  const auto buffer = std::make_shared<TMemoryBuffer>();
  apache::thrift::protocol::TBinaryProtocolT<TMemoryBuffer> protocol(buffer);
  value.write(&protocol);
  return buffer->getBufferAsString();
}

// kDataLoss: not a serialized Struct. `what` names it in the message: "variable spec".
template <typename Struct>
absl::StatusOr<Struct> StructFromBytes(absl::string_view bytes, absl::string_view what) {
  using apache::thrift::transport::TMemoryBuffer;
  // TMemoryBuffer takes a mutable pointer, but with OBSERVE it only reads.
  const auto buffer =
      std::make_shared<TMemoryBuffer>(reinterpret_cast<uint8_t*>(const_cast<char*>(bytes.data())),
                                      static_cast<uint32_t>(bytes.size()), TMemoryBuffer::OBSERVE);
  apache::thrift::protocol::TBinaryProtocolT<TMemoryBuffer> protocol(buffer);
  Struct value;
  try {
    value.read(&protocol);
  } catch (const apache::thrift::TException& error) {
    return DataLoss("a stored ", what, " of ", bytes.size(),
                    " bytes cannot be read: ", error.what());
  }
  if (buffer->available_read() != 0) {
    return DataLoss("a stored ", what, " of ", bytes.size(), " bytes ends ",
                    buffer->available_read(), " bytes early");
  }
  return value;
}

}  // namespace cairn
