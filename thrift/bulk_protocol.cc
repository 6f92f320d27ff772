#include "thrift/bulk_protocol.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "thrift/cairn_types.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

using apache::thrift::protocol::TInputRecursionTracker;
using apache::thrift::protocol::TProtocolException;
using apache::thrift::protocol::TType;

static_assert(sizeof(wire::VariableSpec) <= kStructChargeBytes, "the largest struct in a list");
static_assert(sizeof(wire::VariableInfo) <= kStructChargeBytes, "the largest struct in a list");
static_assert(sizeof(wire::PushItem) <= kStructChargeBytes);
static_assert(sizeof(std::string) <= kStringChargeBytes);

// Fewest bytes of a value on the wire. A struct has at least its stop byte, so that a list cannot
// announce structs that take no bytes. 0: unknown type.
int64_t LeastWireBytes(TType type) {
  switch (type) {
    case apache::thrift::protocol::T_BOOL:
    case apache::thrift::protocol::T_BYTE:
    case apache::thrift::protocol::T_STRUCT: return 1;
    case apache::thrift::protocol::T_I16: return 2;
    case apache::thrift::protocol::T_I32:
    case apache::thrift::protocol::T_STRING: return 4;
    case apache::thrift::protocol::T_I64:
    case apache::thrift::protocol::T_DOUBLE: return 8;
    case apache::thrift::protocol::T_LIST:
    case apache::thrift::protocol::T_SET: return 5;
    case apache::thrift::protocol::T_MAP: return 6;
    default: return 0;
  }
}

// The type for a byte of the wire; T_VOID, which takes no bytes, if the byte is not a type. The
// enumeration itself must not hold any other number.
TType TypeOf(int8_t byte) {
  const bool known = byte > apache::thrift::protocol::T_VOID &&
                     byte <= apache::thrift::protocol::T_LIST &&
                     LeastWireBytes(static_cast<TType>(byte)) > 0;
  return known ? static_cast<TType>(byte) : apache::thrift::protocol::T_VOID;
}

int64_t EntryChargeBytes(TType type) {
  if (type == apache::thrift::protocol::T_STRUCT) return kStructChargeBytes;
  return type == apache::thrift::protocol::T_STRING ? kStringChargeBytes : kNumberChargeBytes;
}

}  // namespace

BulkProtocol::BulkProtocol(std::shared_ptr<BulkTransport> transport)
    : Base(std::move(transport), static_cast<int32_t>(kMaxStringBytes),
           static_cast<int32_t>(kMaxContainerItems), /*strict_read=*/true, /*strict_write=*/true) {}

void BulkProtocol::Refuse(absl::StatusCode code, const std::string& what) const {
  absl::Status status(
      code, absl::StrCat(method_.empty() ? "a message" : method_, ", field ", field_, ": ", what));
  const bool is_limit = code == absl::StatusCode::kResourceExhausted;
  throw RefusedMessage(is_limit ? WithReason(std::move(status), wire::ErrorReason::LIMIT)
                                : std::move(status));
}

void BulkProtocol::RefuseElementType() const {
  Refuse(absl::StatusCode::kInvalidArgument, "a list of structs came with another element type");
}

uint32_t BulkProtocol::readMessageBegin(std::string& name, TMessageType& type,
                                        int32_t& sequence_id) {
  trans_->BeginMessage();
  method_.clear();
  field_ = 0;
  numbers_follow_ = false;
  next_target_ = 0;
  int32_t head = 0;
  uint32_t bytes = readI32(head);
  if ((static_cast<uint32_t>(head) & 0xffff0000U) != 0x80010000U) {
    throw TProtocolException(
        TProtocolException::BAD_VERSION,
        absl::StrCat(trans_->peer(), " does not speak strict, unframed TBinaryProtocol"));
  }
  const int32_t message_type = head & 0xff;
  if (message_type < apache::thrift::protocol::T_CALL ||
      message_type > apache::thrift::protocol::T_ONEWAY) {
    throw TProtocolException(
        TProtocolException::INVALID_DATA,
        absl::StrCat(trans_->peer(), " sent a message of the unknown type ", message_type));
  }
  type = static_cast<TMessageType>(message_type);
  bytes += readString(name);
  bytes += readI32(sequence_id);
  method_ = name.substr(0, 64);  // for messages
  sequence_id_ = sequence_id;
  return bytes;
}

uint32_t BulkProtocol::readFieldBegin(std::string&, TType& type, int16_t& id) {
  numbers_follow_ = false;
  int8_t byte = 0;
  readByte(byte);
  type = apache::thrift::protocol::T_STOP;
  field_ = id = 0;
  if (byte == apache::thrift::protocol::T_STOP) return 1;
  readI16(id);
  field_ = id;
  type = TypeOf(byte);
  if (type == apache::thrift::protocol::T_VOID) {
    Refuse(absl::StatusCode::kInvalidArgument, absl::StrCat("wire type ", byte));
  }
  return 3;
}

int32_t BulkProtocol::ReadLength(int64_t limit, const char* kind, const char* limit_name) {
  int32_t length = 0;
  readI32(length);
  if (length < 0) {
    Refuse(absl::StatusCode::kInvalidArgument, absl::StrCat(kind, " of ", length, " bytes"));
  }
  if (length > limit) {
    Refuse(absl::StatusCode::kResourceExhausted,
           absl::StrCat(kind, " of ", length, " bytes; at most ", limit, " are allowed (",
                        limit_name, ")"));
  }
  if (length > trans_->remaining_bytes()) {
    Refuse(absl::StatusCode::kResourceExhausted,
           absl::StrCat(kind, " of ", length, " bytes makes the message larger than ",
                        trans_->LimitText()));
  }
  return length;
}

void BulkProtocol::CheckContainer(int64_t size, int64_t entry_wire_bytes) const {
  if (size < 0) {
    Refuse(absl::StatusCode::kInvalidArgument, absl::StrCat("a list or map of ", size, " entries"));
  }
  if (size > 0 && entry_wire_bytes == 0) {
    Refuse(absl::StatusCode::kInvalidArgument, "a list or map of an unknown type");
  }
  if (size > kMaxContainerItems) {
    Refuse(absl::StatusCode::kResourceExhausted,
           absl::StrCat("a list or map of ", size, " entries; at most ", kMaxContainerItems,
                        " are allowed (kMaxContainerItems)"));
  }
  if (size * entry_wire_bytes > trans_->remaining_bytes()) {
    Refuse(absl::StatusCode::kResourceExhausted,
           absl::StrCat("a list or map of ", size, " entries makes the message larger than ",
                        trans_->LimitText()));
  }
}

uint32_t BulkProtocol::readMapBegin(TType& key_type, TType& value_type, uint32_t& size) {
  int8_t key = 0;
  int8_t value = 0;
  int32_t count = 0;
  const uint32_t bytes = readByte(key) + readByte(value) + readI32(count);
  key_type = TypeOf(key);
  value_type = TypeOf(value);
  const int64_t key_bytes = LeastWireBytes(key_type);
  const int64_t value_bytes = LeastWireBytes(value_type);
  CheckContainer(count, key_bytes == 0 || value_bytes == 0 ? 0 : key_bytes + value_bytes);
  trans_->Charge(count * kMapEntryChargeBytes);
  size = static_cast<uint32_t>(count);
  return bytes;
}

uint32_t BulkProtocol::readListBegin(TType& type, uint32_t& size) {
  int8_t element = 0;
  int32_t count = 0;
  const uint32_t bytes = readByte(element) + readI32(count);
  type = TypeOf(element);
  CheckContainer(count, LeastWireBytes(type));
  trans_->Charge(count * EntryChargeBytes(type));
  numbers_follow_ = count > 0 && type != apache::thrift::protocol::T_STRUCT;
  size = static_cast<uint32_t>(count);
  return bytes;
}

uint32_t BulkProtocol::readString(std::string& text) {
  const int32_t length = ReadLength(kMaxStringBytes, "a string", "kMaxStringBytes");
  trans_->Charge(length);
  text.resize(static_cast<size_t>(length));
  trans_->readAll(reinterpret_cast<uint8_t*>(text.data()), static_cast<uint32_t>(length));
  return 4 + static_cast<uint32_t>(length);
}

uint32_t BulkProtocol::readBinary(Payload& payload) {
  const int32_t length = ReadLength(kMaxPayloadBytes, "a payload", "kMaxPayloadBytes");
  const auto size = static_cast<size_t>(length);
  if (next_target_ < targets_.size()) {
    const absl::Span<std::byte> target = targets_[next_target_++];
    if (target.size() == size) {
      trans_->readAll(reinterpret_cast<uint8_t*>(target.data()), static_cast<uint32_t>(size));
      payload = Payload::View(target.data(), size);
      return 4 + static_cast<uint32_t>(size);
    }
  }
  ReadOwned(payload, length);
  return 4 + static_cast<uint32_t>(size);
}

// Memory is charged as bytes arrive (kFirstPayloadStepBytes); until then the kernel has not backed
// the allocation with pages.
void BulkProtocol::ReadOwned(Payload& payload, int64_t bytes) {
  trans_->Charge(std::min(bytes, kFirstPayloadStepBytes));
  try {
    payload = Payload::Uninitialized(static_cast<size_t>(bytes));
  } catch (const std::bad_alloc&) {
    Refuse(absl::StatusCode::kResourceExhausted,
           absl::StrCat("no memory for a payload of ", bytes, " bytes"));
  }
  auto* const memory = reinterpret_cast<uint8_t*>(payload.mutable_data());
  int64_t done = std::min(bytes, kFirstPayloadStepBytes);
  trans_->readAll(memory, static_cast<uint32_t>(done));
  while (done < bytes) {
    const int64_t step = std::min(bytes - done, std::max(done, kPayloadStepBytes));
    trans_->Charge(step);
    trans_->readAll(memory + done, static_cast<uint32_t>(step));
    done += step;
  }
}

uint32_t BulkProtocol::writeBinary(const Payload& payload) {
  const auto size = static_cast<int64_t>(payload.size());
  if (size > kMaxPayloadBytes) {
    Refuse(absl::StatusCode::kResourceExhausted,
           absl::StrCat("a payload of ", size, " bytes; at most ", kMaxPayloadBytes,
                        " are allowed (kMaxPayloadBytes): cut the variable into more shards"));
  }
  if (trans_->written_bytes() + size > trans_->max_message_bytes()) {
    Refuse(absl::StatusCode::kResourceExhausted,
           absl::StrCat("a payload of ", size,
                        " bytes makes the message larger than "
                        "max_message_bytes, ",
                        trans_->max_message_bytes(),
                        "; send less at once or raise --max_message_bytes"));
  }
  writeI32(static_cast<int32_t>(size));
  if (payload.size() >= BulkTransport::kDirectBytes) {
    trans_->WriteView(payload.data(), payload.size());
  } else if (size > 0) {
    trans_->write(reinterpret_cast<const uint8_t*>(payload.data()), static_cast<uint32_t>(size));
  }
  return 4 + static_cast<uint32_t>(size);
}

uint32_t BulkProtocol::skip(TType type) {
  const TInputRecursionTracker tracker(*this);
  switch (type) {
    case apache::thrift::protocol::T_STRUCT: return SkipStruct();
    case apache::thrift::protocol::T_MAP: return SkipMap();
    case apache::thrift::protocol::T_SET:
    case apache::thrift::protocol::T_LIST: return SkipList();
    case apache::thrift::protocol::T_STRING: {
      const int32_t length = ReadLength(kMaxPayloadBytes, "a skipped field", "kMaxPayloadBytes");
      trans_->Discard(length);
      return 4 + static_cast<uint32_t>(length);
    }
    default: break;
  }
  const int64_t bytes = LeastWireBytes(type);
  if (bytes == 0) Refuse(absl::StatusCode::kInvalidArgument, absl::StrCat("wire type ", type));
  trans_->Discard(bytes);
  return static_cast<uint32_t>(bytes);
}

uint32_t BulkProtocol::SkipStruct() {
  std::string name;
  TType type = apache::thrift::protocol::T_STOP;
  int16_t id = 0;
  uint32_t bytes = 0;
  for (;;) {
    bytes += readFieldBegin(name, type, id);
    if (type == apache::thrift::protocol::T_STOP) return bytes;
    bytes += skip(type);
  }
}

// A skipped list takes no memory, so only its minimum size on the wire is checked.
uint32_t BulkProtocol::SkipList() {
  int8_t element = 0;
  int32_t count = 0;
  uint32_t bytes = readByte(element) + readI32(count);
  const TType type = TypeOf(element);
  CheckContainer(count, LeastWireBytes(type));
  for (int32_t i = 0; i < count; ++i) bytes += skip(type);
  return bytes;
}

uint32_t BulkProtocol::SkipMap() {
  int8_t key = 0;
  int8_t value = 0;
  int32_t count = 0;
  uint32_t bytes = readByte(key) + readByte(value) + readI32(count);
  const TType key_type = TypeOf(key);
  const TType value_type = TypeOf(value);
  CheckContainer(count, std::min(LeastWireBytes(key_type), LeastWireBytes(value_type)));
  for (int32_t i = 0; i < count; ++i) {
    bytes += skip(key_type);
    bytes += skip(value_type);
  }
  return bytes;
}

void BulkProtocol::checkReadBytesAvailable(apache::thrift::protocol::TSet& set) {
  CheckContainer(set.size_, LeastWireBytes(set.elemType_));
}
void BulkProtocol::checkReadBytesAvailable(apache::thrift::protocol::TList& list) {
  CheckContainer(list.size_, LeastWireBytes(list.elemType_));
}
void BulkProtocol::checkReadBytesAvailable(apache::thrift::protocol::TMap& map) {
  CheckContainer(map.size_, std::min(LeastWireBytes(map.keyType_), LeastWireBytes(map.valueType_)));
}

}  // namespace cairn
