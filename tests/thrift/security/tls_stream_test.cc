// Bytes pass over TLS complete and in order. If one side does not trust the other, both report what
// they found and what to do.
#include "thrift/security/tls_stream.h"

#include <dlfcn.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/bulk_transport.h"

namespace {

// While `sending_slowly`, the kernel takes one byte a call, as from a peer that reads slowly.
std::atomic<bool> sending_slowly = false;
std::atomic<int> slow_sends = 0;

}  // namespace

// Found before the C library's function.
extern "C" __attribute__((visibility("default"))) ssize_t send(int fd, const void* data,
                                                               size_t bytes, int flags) {
  static const auto next = reinterpret_cast<decltype(&send)>(dlsym(RTLD_NEXT, "send"));
  if (!sending_slowly) return next(fd, data, bytes, flags);
  ++slow_sends;
  return next(fd, data, std::min<size_t>(bytes, 1), flags);
}

namespace cairn {
namespace {

using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransportException;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kUntrusted = absl::StatusCode::kUnauthenticated;
using StreamOr = absl::StatusOr<std::unique_ptr<TlsStream>>;

Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

std::shared_ptr<TlsContext> Load(const SecurityOptions& options, TlsContext::Side side) {
  absl::StatusOr<std::shared_ptr<TlsContext>> context = TlsContext::Load(options, side);
  EXPECT_OK(context);
  return *std::move(context);
}

// Both sides of a handshake over a pair of sockets.
struct Meeting {
  std::shared_ptr<TSocket> client_socket;
  std::shared_ptr<TSocket> server_socket;
  StreamOr client = absl::UnknownError("not tried");
  StreamOr server = absl::UnknownError("not tried");

  // The client's result of waiting for bytes after its handshake succeeded: in TLS 1.3 the client
  // finishes before the server has checked the client's certificate.
  absl::Status client_verdict;
};

Meeting Meet(TlsContext& client, TlsContext& server, const std::string& host = OwnHost()) {
  Meeting meeting;
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  meeting.client_socket = std::make_shared<TSocket>(fds[0]);
  meeting.server_socket = std::make_shared<TSocket>(fds[1]);
  std::thread serving([&] {
    meeting.server = TlsStream::Accept(server, fds[1], "client", Soon());
    if (!meeting.server.ok()) ::shutdown(fds[1], SHUT_WR);
  });
  meeting.client = TlsStream::Connect(client, fds[0], host, "server", Soon());
  if (!meeting.client.ok()) ::shutdown(fds[0], SHUT_WR);
  serving.join();
  meeting.client_verdict = meeting.client.status();
  if (meeting.client.ok() && !meeting.server.ok()) {
    uint8_t byte = 0;
    const iovec part = {&byte, 1};
    const ssize_t got = (*meeting.client)->Receive(&part, 1);
    meeting.client_verdict = got == SocketStream::kFailed ? (*meeting.client)->failure()
                                                          : absl::UnknownError("no failure");
  }
  return meeting;
}

class TlsStreamTest : public ::testing::Test {
 protected:
  std::shared_ptr<TlsContext> Server(const CertificateRequest& request) {
    return Load(certificates_.Issue(request), TlsContext::Side::kServer);
  }
  std::shared_ptr<TlsContext> Client(const CertificateRequest& request) {
    return Load(certificates_.Issue(request), TlsContext::Side::kClient);
  }
  static CertificateRequest WorkerRequest() {
    return TestCertificates::ClientRequest("worker-0", kWorker);
  }

  TestCertificates certificates_;
  const std::shared_ptr<TlsContext> server_ = Server(TestCertificates::ServerRequest());
  const std::shared_ptr<TlsContext> client_ = Client(WorkerRequest());
};

TEST_F(TlsStreamTest, EachSideKnowsTheOthersCertificate) {
  const Meeting meeting = Meet(*client_, *server_);
  ASSERT_OK(meeting.client);
  ASSERT_OK(meeting.server);
  EXPECT_EQ((*meeting.server)->peer_certificate().name, "worker-0");
  EXPECT_EQ((*meeting.server)->peer_certificate().roles, kWorker);
  EXPECT_EQ((*meeting.client)->peer_certificate().name, "ps-0");
  EXPECT_THAT((*meeting.client)->peer_certificate().hosts, ElementsAre(OwnHost(), "localhost"));
  EXPECT_THAT((*meeting.client)->Terms(), "TLSv1.3 TLS_AES_128_GCM_SHA256");
  EXPECT_OK(Meet(*client_, *server_, "localhost").client);
}

TEST_F(TlsStreamTest, ACertificateOfAnotherCaIsReportedByBothSides) {
  TestCertificates others("other CA");
  const auto foreign_client = Load(others.Issue(WorkerRequest()), TlsContext::Side::kClient);
  const Meeting meeting = Meet(*foreign_client, *server_);
  EXPECT_THAT(meeting.client, StatusIs(kUntrusted, AllOf(StartsWith("server: its certificate "
                                                                    "\"ps-0\" of \"test CA\""),
                                                         HasSubstr("is not signed by a CA in"),
                                                         HasSubstr(others.path("ca.crt")))));
  EXPECT_THAT(meeting.server, StatusIs(kUntrusted, HasSubstr("client does not trust the CA that "
                                                             "signed this server's certificate")));
  // The client trusts the server, but the server does not trust the client.
  SecurityOptions trusting = others.Issue(WorkerRequest());
  trusting.tls_ca = certificates_.path("ca.crt");
  const Meeting second = Meet(*Load(trusting, TlsContext::Side::kClient), *server_);
  EXPECT_THAT(second.server,
              StatusIs(kUntrusted, AllOf(StartsWith("client: its certificate \"worker-0\" of "
                                                    "\"other CA\""),
                                         HasSubstr("is not signed by a CA in --tls_ca"))));
  EXPECT_THAT(second.client_verdict,
              StatusIs(kUntrusted, AllOf(HasSubstr("server does not trust the CA"),
                                         HasSubstr("its --tls_ca must hold"))));
}

// Between two calls the caller looks at its deadline, its limits and its interruption.
TEST_F(TlsStreamTest, APeerThatReadsSlowlyDoesNotKeepTheSender) {
  const Meeting meeting = Meet(*client_, *server_);
  ASSERT_OK(meeting.client);
  ASSERT_OK(meeting.server);
  std::string bytes(1000, 'x');
  const iovec part = {bytes.data(), bytes.size()};
  slow_sends = 0;
  sending_slowly = true;
  EXPECT_EQ((*meeting.client)->Send(&part, 1), SocketStream::kNotYet);
  EXPECT_EQ((*meeting.client)->Send(&part, 1), SocketStream::kNotYet);
  EXPECT_EQ(slow_sends, 2);
  sending_slowly = false;
  ASSERT_EQ((*meeting.client)->Send(&part, 1), 1000);
  std::string received(2000, ' ');
  const iovec into = {received.data(), received.size()};
  ssize_t got = SocketStream::kNotYet;
  while (got == SocketStream::kNotYet) got = (*meeting.server)->Receive(&into, 1);
  ASSERT_EQ(got, 1000);
  EXPECT_EQ(received.substr(0, 1000), bytes);
}

// Anybody can make a certificate, and the text goes to a terminal.
TEST_F(TlsStreamTest, ControlCharactersOfAnUntrustedCertificateAreShownAsText) {
  TestCertificates others("other\x1b[2J CA");
  CertificateRequest request = TestCertificates::ServerRequest();
  request.name = "ps\x1b]0;title\x07";
  const auto foreign = Load(others.Issue(request), TlsContext::Side::kServer);
  EXPECT_THAT(Meet(*client_, *foreign).client,
              StatusIs(kUntrusted, AllOf(HasSubstr("\"ps\\x1b]0;title\\x07\" of "
                                                   "\"other\\x1b[2J CA\""),
                                         Not(HasSubstr("\x1b")))));
}

TEST_F(TlsStreamTest, ExpiredCertificatesAreRefusedByBothSides) {
  CertificateRequest expired = WorkerRequest();
  expired.not_after = absl::Now() - absl::Minutes(1);
  const Meeting meeting = Meet(*Client(expired), *server_);
  EXPECT_THAT(meeting.server,
              StatusIs(kUntrusted, AllOf(HasSubstr("\"worker-0\""), HasSubstr("expired at 20"),
                                         HasSubstr("no restart is needed"))));
  EXPECT_THAT(meeting.client_verdict, StatusIs(kUntrusted, HasSubstr("has expired")));
  CertificateRequest early = WorkerRequest();
  early.not_before = absl::Now() + absl::Hours(1);
  EXPECT_THAT(Meet(*Client(early), *server_).server,
              StatusIs(kUntrusted, HasSubstr("check the clocks")));
  CertificateRequest expired_server = TestCertificates::ServerRequest();
  expired_server.not_after = absl::Now() - absl::Minutes(1);
  const Meeting second = Meet(*client_, *Server(expired_server));
  EXPECT_THAT(second.client, StatusIs(kUntrusted, HasSubstr("expired at 20")));
  EXPECT_THAT(second.server, StatusIs(kUntrusted, HasSubstr("says that this server's certificate "
                                                            "has expired")));
}

TEST_F(TlsStreamTest, AServerWithAnotherNameIsRefused) {
  for (const std::string host : {"10.1.2.3", "ps-0.example", "ps-0"}) {  // the last one is the CN
    const Meeting meeting = Meet(*client_, *server_, host);
    EXPECT_THAT(meeting.client,
                StatusIs(kUntrusted,
                         AllOf(HasSubstr("is for " + OwnHost() + ", localhost, not for " + host),
                               HasSubstr("cluster file"))));
    EXPECT_THAT(meeting.server,
                StatusIs(kUntrusted, HasSubstr("refuses this server's certificate")));
  }
}

TEST_F(TlsStreamTest, AClientsCertificateIsNotAcceptedFromAServer) {
  CertificateRequest request = WorkerRequest();
  request.hosts = {OwnHost()};
  EXPECT_THAT(Meet(*client_, *Server(request)).client,
              StatusIs(kUntrusted, HasSubstr("may not be used by a server")));
  EXPECT_THAT(Meet(*Client(TestCertificates::ServerRequest()), *server_).server,
              StatusIs(kUntrusted, HasSubstr("may not be used by a client")));
}

// Cairn's client always has a certificate, so plain OpenSSL stands for an unknown client.
TEST_F(TlsStreamTest, AClientWithoutACertificateIsRefusedByBothSides) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  StreamOr served = absl::UnknownError("not tried");
  std::thread serving([&] {
    served = TlsStream::Accept(*server_, fds[1], "client", Soon());
    ::shutdown(fds[1], SHUT_WR);
  });
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL* const ssl = SSL_new(context);
  SSL_set_fd(ssl, fds[0]);
  char byte = 0;
  EXPECT_EQ(SSL_connect(ssl), 1);
  EXPECT_LE(SSL_read(ssl, &byte, 1), 0);
  serving.join();
  EXPECT_THAT(served, StatusIs(kUntrusted, AllOf(HasSubstr("client sent no certificate"),
                                                 HasSubstr("--tls_certificate"))));
  SSL_free(ssl);
  SSL_CTX_free(context);
  ::close(fds[0]);
  ::close(fds[1]);
}

// Only TLS 1.2 and 1.3 are allowed.
TEST_F(TlsStreamTest, OlderVersionsAreRefused) {
  for (const auto& [version, is_good] :
       std::vector<std::pair<int, bool>>{{TLS1_1_VERSION, false}, {TLS1_2_VERSION, true}}) {
    const auto old = Client(WorkerRequest());
    SSL_CTX* const raw = old->Current().get();
    SSL_CTX_set_security_level(raw, 0);
    SSL_CTX_set_min_proto_version(raw, 0);
    SSL_CTX_set_max_proto_version(raw, version);
    SSL_CTX_set_cipher_list(raw, "ALL");
    const Meeting meeting = Meet(*old, *server_);
    EXPECT_EQ(meeting.server.ok(), is_good) << meeting.server.status();
    EXPECT_EQ(meeting.client.ok(), is_good) << meeting.client.status();
    if (is_good) {
      EXPECT_THAT((*meeting.client)->Terms(), HasSubstr("TLSv1.2 ECDHE-"));
    } else {
      EXPECT_THAT(meeting.client, StatusIs(absl::StatusCode::kFailedPrecondition,
                                           HasSubstr("does not speak TLS (1.2 or 1.3)")));
    }
  }
}

// A peer that sends single bytes does not extend the deadline.
TEST_F(TlsStreamTest, ATrickleDoesNotExtendTheHandshakesDeadline) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  RawSocket raw(fds[0]);
  const TSocket server(fds[1]);
  std::thread trickle([&] {
    std::string bytes("\x16\x03\x01\x40\x00", 5);  // a record of 16 KiB follows
    bytes.resize(16000, 'x');
    for (const char byte : bytes) {
      if (!raw.Send(std::string(1, byte))) return;
    }
  });
  const absl::Time start = absl::Now();
  const StreamOr served =
      TlsStream::Accept(*server_, fds[1], "client", Deadline::In(absl::Milliseconds(300)));
  EXPECT_THAT(served.status().code(),
              AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable,
                    absl::StatusCode::kFailedPrecondition));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  ::shutdown(fds[1], SHUT_RDWR);
  trickle.join();
}

TEST_F(TlsStreamTest, ASilentPeerIsAbandoned) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const RawSocket raw(fds[0]);
  const TSocket server(fds[1]);
  EXPECT_THAT(TlsStream::Accept(*server_, fds[1], "client", Deadline::In(absl::Milliseconds(50))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("client did not finish")));
}

std::shared_ptr<BulkTransport> TransportOf(std::shared_ptr<TSocket> socket, StreamOr stream) {
  BulkTransportOptions options;
  options.peer = "peer";
  auto transport = std::make_shared<BulkTransport>(std::move(socket), options, *std::move(stream));
  transport->SetDeadline(Soon());
  return transport;
}

TEST_F(TlsStreamTest, SmallAndLargeWritesArriveCompleteAndInOrder) {
  Meeting meeting = Meet(*client_, *server_);
  const auto out = TransportOf(meeting.client_socket, std::move(meeting.client));
  const auto in = TransportOf(meeting.server_socket, std::move(meeting.server));
  std::vector<std::string> views;
  for (size_t i = 0; i < 120; ++i) views.emplace_back(1 + i * i * 37 % 70001, static_cast<char>(i));
  std::thread writer([&] {
    out->BeginWrite();
    for (const std::string& view : views) {
      out->write(reinterpret_cast<const uint8_t*>("header"), 6);
      out->WriteView(reinterpret_cast<const std::byte*>(view.data()), view.size());
    }
    out->flush();
  });
  for (const std::string& view : views) {
    std::string got(6 + view.size(), '\0');
    in->readAll(reinterpret_cast<uint8_t*>(got.data()), static_cast<uint32_t>(got.size()));
    EXPECT_TRUE(got == "header" + view) << view.size();
  }
  writer.join();
  EXPECT_FALSE(in->PeerHasData());
  out->close();  // sends the closing alert
  EXPECT_TRUE(in->PeerHasData());
  uint8_t byte = 0;
  EXPECT_THROW(in->readAll(&byte, 1), TTransportException);
}

TEST_F(TlsStreamTest, BytesChangedInTransitAreRefused) {
  Meeting meeting = Meet(*client_, *server_);
  const auto in = TransportOf(meeting.server_socket, std::move(meeting.server));
  const std::string forged(
      "\x17\x03\x03\x00\x20"
      "0123456789abcdef0123456789abcdef",
      37);
  ASSERT_EQ(::send(meeting.client_socket->getSocketFD(), forged.data(), forged.size(), 0), 37);
  uint8_t byte = 0;
  try {
    in->readAll(&byte, 1);
    ADD_FAILURE() << "took forged bytes";
  } catch (const TTransportException& error) {
    EXPECT_THAT(error.what(), HasSubstr("mac"));
  }
}

TEST_F(TlsStreamTest, ChangedFilesApplyFromTheNextHandshake) {
  EXPECT_OK(Meet(*client_, *server_).client);
  CertificateRequest renewed = TestCertificates::ServerRequest();
  renewed.hosts = {OwnHost(), "renewed.example"};
  Meeting before = Meet(*client_, *server_);
  certificates_.Issue(renewed);
  const Meeting after = Meet(*client_, *server_);
  ASSERT_OK(after.client);
  EXPECT_THAT((*after.client)->peer_certificate().hosts, ElementsAre(OwnHost(), "renewed.example"));
  // The earlier connection continues.
  const auto out = TransportOf(before.client_socket, std::move(before.client));
  const auto in = TransportOf(before.server_socket, std::move(before.server));
  out->write(reinterpret_cast<const uint8_t*>("x"), 1);
  out->flush();
  uint8_t byte = 0;
  in->readAll(&byte, 1);
  EXPECT_EQ(byte, 'x');
  // An unfinished rotation: the certificate does not match the key.
  WriteFile(certificates_.path("ps-0.crt"), "no certificate");
  const Meeting last = Meet(*client_, *server_);
  ASSERT_OK(last.client);
  EXPECT_THAT((*last.client)->peer_certificate().hosts, ElementsAre(OwnHost(), "renewed.example"));
}

TEST(TlsContext, FilesThatDoNotMatchAreNamed) {
  TestCertificates certificates;
  const auto side = TlsContext::Side::kServer;
  const SecurityOptions good = certificates.Issue(TestCertificates::ServerRequest());
  const SecurityOptions other = certificates.Issue(TestCertificates::ClientRequest("w", kWorker));
  EXPECT_OK(TlsContext::Load(good, side));
  SecurityOptions bad = good;
  bad.tls_key = other.tls_key;
  EXPECT_THAT(TlsContext::Load(bad, side),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not the key of")));
  bad = good;
  bad.tls_ca = "/nowhere/ca.crt";
  EXPECT_THAT(TlsContext::Load(bad, side),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/ca.crt")));
  bad.tls_ca = "";
  EXPECT_THAT(TlsContext::Load(bad, side),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tls_ca is missing")));
  bad = good;
  bad.tls_certificate = good.tls_key;
  EXPECT_THAT(TlsContext::Load(bad, side),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no certificate in PEM")));
  ASSERT_EQ(::chmod(good.tls_key.c_str(), 0644), 0);
  EXPECT_THAT(TlsContext::Load(good, side),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("has mode 0644"), HasSubstr("chmod 0600"))));
}

}  // namespace
}  // namespace cairn
