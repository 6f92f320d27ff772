// TBinaryProtocol with the same bytes, over BulkTransport: payloads are read into and written from
// their own memory, and every size is checked before memory is allocated for it.
#pragma once

#include <thrift/protocol/TBinaryProtocol.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "thrift/bulk_transport.h"
#include "thrift/payload.h"

namespace cairn {

// The generated templates call these members statically. Calls that reach the base class through
// TProtocol's virtual functions (from Thrift's own exception struct) obey the same limits.
//
// Refusals are thrown as RefusedMessage; the text has the method and the field.
// Thread safety: none.
class BulkProtocol : public apache::thrift::protocol::TBinaryProtocolT<BulkTransport> {
  using Base = apache::thrift::protocol::TBinaryProtocolT<BulkTransport>;
  using TType = apache::thrift::protocol::TType;
  using TMessageType = apache::thrift::protocol::TMessageType;

 public:
  explicit BulkProtocol(std::shared_ptr<BulkTransport> transport);

  // Method of the last message read, for the reply to a refused message. Empty before the first
  // message.
  const std::string& method() const { return method_; }
  int32_t sequence_id() const { return sequence_id_; }

  // See WireClient::ReadPayloadsInto. Valid until the next message has been read.
  void SetTargets(absl::Span<const absl::Span<std::byte>> targets) {
    targets_ = targets;
    next_target_ = 0;
  }

  uint32_t readMessageBegin(std::string& name, TMessageType& type, int32_t& sequence_id);
  uint32_t readMessageEnd() {
    targets_ = {};
    return 0;
  }
  uint32_t readStructBegin(std::string& name) {
    if (numbers_follow_) RefuseElementType();
    return Base::readStructBegin(name);
  }
  uint32_t readFieldBegin(std::string& name, TType& type, int16_t& id);
  uint32_t readMapBegin(TType& key_type, TType& value_type, uint32_t& size);
  uint32_t readListBegin(TType& type, uint32_t& size);
  uint32_t readSetBegin(TType& type, uint32_t& size) { return readListBegin(type, size); }
  uint32_t readString(std::string& text);
  uint32_t readBinary(std::string& text) { return readString(text); }
  uint32_t readBinary(Payload& payload);
  // Skips a value without keeping any of it.
  uint32_t skip(TType type);
  uint32_t skip_virt(TType type) override { return skip(type); }

  uint32_t writeMessageBegin(const std::string& name, TMessageType type, int32_t sequence_id) {
    trans_->BeginWrite();
    return Base::writeMessageBegin(name, type, sequence_id);
  }
  uint32_t writeBinary(const std::string& text) { return Base::writeBinary(text); }
  uint32_t writeBinary(const Payload& payload);

 protected:
  void checkReadBytesAvailable(apache::thrift::protocol::TSet& set) override;
  void checkReadBytesAvailable(apache::thrift::protocol::TList& list) override;
  void checkReadBytesAvailable(apache::thrift::protocol::TMap& map) override;

 private:
  [[noreturn]] void Refuse(absl::StatusCode code, const std::string& what) const;
  [[noreturn]] void RefuseElementType() const;
  // Length of the string or payload that follows.
  int32_t ReadLength(int64_t limit, const char* kind, const char* limit_name);
  void ReadOwned(Payload& payload, int64_t bytes);
  void CheckContainer(int64_t size, int64_t entry_wire_bytes) const;
  uint32_t SkipStruct();
  uint32_t SkipList();
  uint32_t SkipMap();

  std::string method_;
  int32_t sequence_id_ = 0;
  int16_t field_ = 0;
  // True if the last list begun contains no structs. A struct that starts now was not announced,
  // and its memory was not charged.
  bool numbers_follow_ = false;
  absl::Span<const absl::Span<std::byte>> targets_;
  size_t next_target_ = 0;
};

}  // namespace cairn
