// The bulk protocol writes and reads exactly TBinaryProtocol's bytes, and refuses sizes that exceed
// the limits or the message, before memory is allocated for them.
#include "thrift/bulk_protocol.h"

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::protocol::TProtocolException;
using apache::thrift::transport::TMemoryBuffer;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Struct>
std::string BulkBytes(const Struct& value) {
  TransportPair pair = MakePair();
  BulkProtocol protocol(pair.transport);
  value.write(&protocol);
  pair.transport->flush();
  pair.transport->close();
  return pair.raw.ReceiveUntilClosed();
}

template <typename Struct>
std::string StockBytes(const Struct& value) {
  const auto memory = std::make_shared<TMemoryBuffer>();
  TBinaryProtocol protocol(memory);
  value.write(&protocol);
  return memory->getBufferAsString();
}

template <typename Struct>
void ExpectRoundTrip(const Struct& value) {
  const std::string bytes = BulkBytes(value);
  EXPECT_EQ(bytes, StockBytes(value));

  TransportPair pair = MakePair();
  BulkProtocol protocol(pair.transport);
  ASSERT_TRUE(pair.raw.Send(bytes));
  Struct read;
  EXPECT_EQ(read.read(&protocol), bytes.size());
  EXPECT_TRUE(read == value);

  const auto memory = std::make_shared<TMemoryBuffer>();
  memory->write(reinterpret_cast<const uint8_t*>(bytes.data()),
                static_cast<uint32_t>(bytes.size()));
  TBinaryProtocol stock(memory);
  Struct read_by_stock;
  read_by_stock.read(&stock);
  EXPECT_TRUE(read_by_stock == value);
}

TEST(BulkProtocol, EveryStructSurvivesTheRoundTripInStockBytes) {
  ExpectRoundTrip(ExampleCaller());
  ExpectRoundTrip(ExampleDenseSpec());
  ExpectRoundTrip(ExampleEmbeddingSpec());
  ExpectRoundTrip(ExamplePush());
  ExpectRoundTrip(ExampleAssign());
  wire::AssignRequest together = ExampleAssign();
  together.__set_together(true);
  ExpectRoundTrip(together);
  ExpectRoundTrip(ExamplePull());
  ExpectRoundTrip(ExampleStep());
  ExpectRoundTrip(ExampleHello());
  ExpectRoundTrip(ExampleHelloReply());
  ExpectRoundTrip(ExamplePushReply());
  ExpectRoundTrip(ExamplePullReply());
  ExpectRoundTrip(ExampleDescribe());
  ExpectRoundTrip(ExampleDescribeReply());
  ExpectRoundTrip(ExampleScan());
  ExpectRoundTrip(ExampleScanReply());
  ExpectRoundTrip(ExampleError());
  wire::StepReply step;
  step.__set_push(ExamplePushReply());
  step.__set_pull(ExamplePullReply());
  ExpectRoundTrip(step);
}

TEST(BulkProtocol, PayloadsOfEverySizeArriveComplete) {
  const size_t direct = BulkTransport::kDirectBytes;
  const size_t buffer = BulkTransport::kBufferBytes;
  std::vector<size_t> sizes = {0,          1,      direct - 1, direct,         direct + 1,
                               buffer - 5, buffer, buffer + 1, 3 * buffer + 7, (2 << 20) + 3};
  wire::PullReply reply;
  for (const size_t size : sizes) {
    wire::PulledItem item;
    item.values = Payload::Uninitialized(size);
    for (size_t i = 0; i < size; ++i) {
      item.values.mutable_data()[i] = static_cast<std::byte>(i * 31 + size);
    }
    item.__isset.values = true;
    reply.items.push_back(item);
  }
  reply.__isset.items = true;
  TransportPair pair = MakePair();
  std::thread writer([&] {
    int fd = ::dup(pair.raw.fd());
    BulkTransport transport(std::make_shared<apache::thrift::transport::TSocket>(fd),
                            {.peer = "reader"});
    transport.SetDeadline(Deadline::In(absl::Seconds(20)));
    BulkProtocol protocol(std::shared_ptr<BulkTransport>(std::shared_ptr<void>(), &transport));
    reply.write(&protocol);
    transport.flush();
  });
  BulkProtocol protocol(pair.transport);
  wire::PullReply read;
  read.read(&protocol);
  writer.join();
  EXPECT_TRUE(read == reply);
}

TEST(BulkProtocol, APayloadOfTheTargetsSizeIsReadIntoTheTarget) {
  TransportPair pair = MakePair();
  BulkProtocol protocol(pair.transport);
  const wire::PullReply reply = ExamplePullReply();  // 96 bytes, then 0
  ASSERT_TRUE(pair.raw.Send(BulkBytes(reply) + BulkBytes(reply)));
  std::vector<std::byte> right(96);
  std::vector<std::byte> wrong(1);
  std::vector<absl::Span<std::byte>> targets = {absl::MakeSpan(right), absl::MakeSpan(wrong)};
  protocol.SetTargets(targets);
  wire::PullReply read;
  read.read(&protocol);
  EXPECT_EQ(read.items[0].values.data(), right.data());
  EXPECT_NE(read.items[1].values.data(), wrong.data());
  EXPECT_TRUE(read == reply);
  protocol.SetTargets({});
  wire::PullReply owned;
  owned.read(&protocol);
  EXPECT_NE(owned.items[0].values.data(), right.data());
  EXPECT_TRUE(owned == reply);
}

// The refusal when `Struct` is read from `bytes`, after which the connection ends.
template <typename Struct>
absl::Status RefusalOf(const std::string& bytes, BulkTransportOptions options = {}) {
  TransportPair pair = MakePair(std::move(options));
  BulkProtocol protocol(pair.transport);
  EXPECT_TRUE(pair.raw.Send(bytes));
  pair.raw.EndSending();
  Struct read;
  try {
    read.read(&protocol);
  } catch (const RefusedMessage& refused) {
    return refused.status();
  } catch (const TProtocolException& error) {
    return absl::InternalError(error.what());
  } catch (const apache::thrift::TException& error) {
    return absl::DataLossError(error.what());
  }
  return absl::OkStatus();
}

std::string Field(char type, int16_t id) { return std::string(1, type) + BigEndian16(id); }
constexpr char kStruct = apache::thrift::protocol::T_STRUCT;
constexpr char kList = apache::thrift::protocol::T_LIST;
constexpr char kMap = apache::thrift::protocol::T_MAP;
constexpr char kString = apache::thrift::protocol::T_STRING;
constexpr char kByte = apache::thrift::protocol::T_BYTE;
constexpr char kI64 = apache::thrift::protocol::T_I64;

void ExpectLimit(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::LIMIT);
}

void ExpectMalformed(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(BulkProtocol, SizesBeyondALimitAreRefusedByName) {
  const auto items = [](int32_t count) {
    return Field(kList, 3) + std::string(1, kStruct) + BigEndian32(count);
  };
  ExpectLimit(RefusalOf<wire::PushRequest>(items(INT32_MAX)),
              "field 3: a list or map of 2147483647");
  ExpectLimit(RefusalOf<wire::PushRequest>(items(65537)), "kMaxContainerItems");
  ExpectLimit(RefusalOf<wire::PushItem>(Field(kString, 1) + BigEndian32(65537)), "kMaxStringBytes");
  ExpectLimit(RefusalOf<wire::PushItem>(Field(kString, 6) + BigEndian32(INT32_MAX)),
              "max_message_bytes, 1073741824");
  ExpectLimit(RefusalOf<wire::PushItem>(Field(kString, 99) + BigEndian32(INT32_MAX)),
              "--max_message_bytes");  // a skipped field
  ExpectLimit(
      RefusalOf<wire::Schedule>(Field(kMap, 2) + std::string({kString, 4}) + BigEndian32(1 << 30)),
      "kMaxContainerItems");
  BulkTransportOptions small;
  small.max_message_bytes = 1000;
  ExpectLimit(RefusalOf<wire::PushRequest>(items(2000), small), "max_message_bytes, 1000");
  ExpectLimit(RefusalOf<wire::VariableSpec>(
                  Field(kList, 4) + std::string(1, kI64) + BigEndian32(200), small),
              "max_message_bytes, 1000");  // 200 entries of 8 bytes
}

TEST(BulkProtocol, NegativeSizesAreRefused) {
  ExpectMalformed(RefusalOf<wire::PushItem>(Field(kString, 1) + BigEndian32(-1)), "-1 bytes");
  ExpectMalformed(RefusalOf<wire::PushItem>(Field(kString, 6) + BigEndian32(INT32_MIN)),
                  "a payload of -2147483648 bytes");
  ExpectMalformed(
      RefusalOf<wire::PushRequest>(Field(kList, 3) + std::string(1, kStruct) + BigEndian32(-7)),
      "-7 entries");
  ExpectMalformed(
      RefusalOf<wire::Schedule>(Field(kMap, 2) + std::string({kString, 4}) + BigEndian32(-7)),
      "-7 entries");
}

TEST(BulkProtocol, WrongTypesAreSkippedOrRefused) {
  // A field of another type is skipped, as in every Thrift reader.
  EXPECT_TRUE(
      RefusalOf<wire::PushItem>(Field(kI64, 1) + std::string(8, 'x') + std::string(1, '\0')).ok());
  // An unknown type cannot be skipped.
  ExpectMalformed(RefusalOf<wire::PushItem>(Field(77, 1) + "xxxx"), "wire type 77");
  ExpectMalformed(
      RefusalOf<wire::PushRequest>(Field(kList, 3) + std::string(1, 77) + BigEndian32(5)),
      "unknown type");
  // Structs announced as bytes would not be charged.
  ExpectMalformed(RefusalOf<wire::PushRequest>(Field(kList, 3) + std::string(1, kByte) +
                                               BigEndian32(65536) + std::string(8, '\0')),
                  "another element type");
}

TEST(BulkProtocol, DeepNestingIsRefused) {
  std::string deep;
  for (int level = 0; level < 100; ++level) deep += Field(kStruct, 99);
  const absl::Status status = RefusalOf<wire::PushItem>(deep);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;  // Thrift's own depth error
}

TEST(BulkProtocol, TruncatedStructsEndAsClosedConnections) {
  const std::string whole = StockBytes(ExamplePush());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(RefusalOf<wire::PushRequest>(whole.substr(0, size)).code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
}

TEST(BulkProtocol, OtherProtocolsAreRecognized) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n"),
        BigEndian32(40) + BigEndian32(static_cast<int>(0x80010001)), std::string(8, '\xff')}) {
    TransportPair pair = MakePair();
    BulkProtocol protocol(pair.transport);
    ASSERT_TRUE(pair.raw.Send(bytes));
    std::string name;
    apache::thrift::protocol::TMessageType type{};
    int32_t sequence_id = 0;
    try {
      protocol.readMessageBegin(name, type, sequence_id);
      ADD_FAILURE() << "accepted " << bytes;
    } catch (const TProtocolException& error) {
      EXPECT_EQ(error.getType(), TProtocolException::BAD_VERSION);
    }
    EXPECT_EQ(protocol.method(), "");
  }
}

// Records the charged memory, and refuses more than a budget.
struct Account {
  int64_t budget;
  int64_t held = 0;
  BulkTransportOptions Options() {
    BulkTransportOptions options;
    options.acquire = [this](int64_t bytes) {
      if (held + bytes > budget) return absl::ResourceExhaustedError("over budget");
      held += bytes;
      return absl::OkStatus();
    };
    options.release = [this](int64_t bytes) { held -= bytes; };
    return options;
  }
};

TEST(BulkProtocol, AnAnnouncedPayloadPinsOneStepUntilItArrives) {
  Account account{int64_t{4} << 30};
  TransportPair pair = MakePair(account.Options());
  BulkProtocol protocol(pair.transport);
  ASSERT_TRUE(pair.raw.Send(Field(kString, 6) + BigEndian32(1 << 29) + "not much"));
  pair.raw.EndSending();
  wire::PushItem item;
  EXPECT_THROW(item.read(&protocol), apache::thrift::transport::TTransportException);
  EXPECT_EQ(account.held, kFirstPayloadStepBytes);
  pair.transport->EndMessage();
  EXPECT_EQ(account.held, 0);
}

TEST(BulkProtocol, ContainersAreChargedBeforeTheyAreAllocated) {
  Account account{1 << 20};
  const absl::Status status = RefusalOf<wire::PushRequest>(
      Field(kList, 3) + std::string(1, kStruct) + BigEndian32(65536), account.Options());
  EXPECT_EQ(status.message(), "over budget");
}

TEST(BulkProtocol, SmallMessagesAreNotCharged) {
  Account account{0};
  EXPECT_TRUE(RefusalOf<wire::PushRequest>(StockBytes(ExamplePush()), account.Options()).ok());
}

TEST(BulkProtocol, PayloadsTooLargeToSendAreRefusedBeforeTheyAreSent) {
  BulkTransportOptions options;
  options.max_message_bytes = 1 << 20;
  TransportPair pair = MakePair(options);
  BulkProtocol protocol(pair.transport);
  protocol.writeMessageBegin("push", apache::thrift::protocol::T_CALL, 0);
  try {
    protocol.writeBinary(Payload::Uninitialized((1 << 20) + 1));
    ADD_FAILURE() << "sent";
  } catch (const RefusedMessage& refused) {
    ExpectLimit(refused.status(), "max_message_bytes, 1048576");
  }
  EXPECT_TRUE(pair.transport->DropUnsent());
  const char byte = 0;
  try {
    protocol.writeBinary(Payload::View(&byte, size_t{1} << 31));
    ADD_FAILURE() << "sent";
  } catch (const RefusedMessage& refused) {
    ExpectLimit(refused.status(), "kMaxPayloadBytes");
  }
}

}  // namespace
}  // namespace cairn
