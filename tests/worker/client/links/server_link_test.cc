// Both transports report equally how far a call got: answered, not sent, or unknown.
#include "worker/client/links/server_link.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "tests/support/addresses.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/client/fleet.h"
#include "thrift/errors.h"
#include "thrift/security/client_security.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void Flush(wire::ParameterServerIf& service) {
  wire::ServerState state;
  wire::Caller caller;
  caller.job = "job";
  service.flush(state, caller);
}

class LinkTest : public ::testing::TestWithParam<bool> {
 protected:
  LinkTest() {
    link_ =
        GetParam() ? RemoteLink("ps:0", proxy_.address(), 1 << 20) : InProcessLink("ps:0", &fake_);
  }
  Outcome Call() {
    Channel* channel = nullptr;
    Outcome outcome = link_->Take(Soon(), &channel);
    if (channel == nullptr) return outcome;
    outcome = channel->Call("flush", Flush, Soon());
    if (outcome.progress == Progress::kAnswered) {
      link_->Release(channel);
    } else {
      link_->Discard(channel);
    }
    return outcome;
  }

  FakeService fake_;
  std::unique_ptr<Listener> listener_ =
      Listener::Start(fake_.engine(), OnOwnAddress<ListenerOptions>()).value();
  TcpProxy proxy_{listener_->address()};
  std::unique_ptr<ServerLink> link_;
};
INSTANTIATE_TEST_SUITE_P(Both, LinkTest, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Remote" : "InProcess");
});

TEST_P(LinkTest, KeepsReasonAndTextOfARefusal) {
  fake_.before = [](absl::string_view) {
    Refuse(wire::ErrorCode::RESOURCE_EXHAUSTED, wire::ErrorReason::MEMORY_BUDGET, "no memory");
  };
  const Outcome outcome = Call();
  EXPECT_EQ(outcome.progress, Progress::kAnswered);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(outcome.status.message(), "flush to ps:0: no memory");
  EXPECT_EQ(ReasonOf(outcome.status), wire::ErrorReason::MEMORY_BUDGET);
  fake_.before = nullptr;
  EXPECT_OK(Call().status);
}

TEST_P(LinkTest, DoesNotKnowWhetherABrokenCallRan) {
  fake_.before = [](absl::string_view) { throw std::runtime_error("a bug"); };
  const Outcome outcome = Call();
  EXPECT_EQ(outcome.progress, Progress::kUnknown);
  EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kInternal, HasSubstr("flush to ps:0")));
}

class RemoteLinkTest : public LinkTest {};
INSTANTIATE_TEST_SUITE_P(Remote, RemoteLinkTest, ::testing::Values(true));

TEST_P(RemoteLinkTest, ReplacesAConnectionThatDiedWhileItRested) {
  link_ = RemoteLink("ps:0", listener_->address(), 1 << 20);
  ASSERT_OK(Call().status);
  listener_->Stop();
  ListenerOptions same;
  same.port = PortOf(listener_->address());
  listener_ = Listener::Start(fake_.engine(), OnOwnAddress(same)).value();
  EXPECT_OK(Call().status);
  EXPECT_EQ(fake_.calls("flush"), 2);
}

TEST_P(RemoteLinkTest, TellsNotSentFromNotKnown) {
  proxy_.DropReplies(1);
  EXPECT_EQ(Call().progress, Progress::kUnknown);
  EXPECT_EQ(fake_.calls("flush"), 1);
  const auto nobody = RemoteLink("ps:9", NobodysAddress(), 1 << 20);
  Channel* channel = nullptr;
  const Outcome outcome = nobody->Take(Soon(), &channel);
  EXPECT_EQ(channel, nullptr);
  EXPECT_EQ(outcome.progress, Progress::kNotSent);
  EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kUnavailable,
                                       AllOf(HasSubstr("ps:9"), HasSubstr("refused"))));
}

class TokenLinkTest : public ::testing::Test {
 protected:
  void Accept(const std::string& token) { Write(tokens_, token + " worker"); }
  void Send(const std::string& token) { Write(token_, token); }
  Outcome Call() {
    Channel* channel = nullptr;
    Outcome outcome = link_->Take(Soon(), &channel);
    if (channel == nullptr) return outcome;
    outcome = channel->Call("flush", Flush, Soon());
    link_->Release(channel);
    return outcome;
  }

  FakeService fake_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<ServerLink> link_;

 private:
  // Replaces the file by another one that only this user can read.
  static void Write(const std::string& path, const std::string& line) {
    const std::string part = path + ".part";
    std::ofstream(part) << line << "\n";
    ASSERT_EQ(::chmod(part.c_str(), 0600), 0);
    ASSERT_EQ(std::rename(part.c_str(), path.c_str()), 0);
  }
  void SetUp() override {
    Accept("the-first-token-of-all");
    Send("the-first-token-of-all");
    ListenerOptions options;
    options.security.accepted_tokens = tokens_;
    listener_ = Listener::Start(fake_.engine(), OnOwnAddress(options)).value();
    SecurityOptions security;
    security.token_file = token_;
    link_ =
        RemoteLink("ps:0", listener_->address(), 1 << 20, ClientSecurity::Load(security).value());
  }

  const TempDir folder_;
  const std::string tokens_ = folder_.Join("accepted");
  const std::string token_ = folder_.Join("token");
};

TEST_F(TokenLinkTest, ATokenThatWasExchangedIsSentByTheNextConnection) {
  ASSERT_OK(Call().status);
  Accept("a-second-token-instead");
  Send("a-second-token-instead");
  const Outcome refused = Call();
  EXPECT_EQ(refused.progress, Progress::kNotSent);
  EXPECT_THAT(refused.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("revoked")));
  EXPECT_EQ(fake_.calls("flush"), 1);
  EXPECT_OK(Call().status);
}

TEST_F(TokenLinkTest, ATokenThatIsNotAcceptedAnyMoreEndsTheTrying) {
  ASSERT_OK(Call().status);
  Accept("a-second-token-instead");
  EXPECT_THAT(Call().status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("revoked")));
  const Outcome refused = Call();
  EXPECT_EQ(refused.progress, Progress::kNotSent);
  EXPECT_THAT(refused.status,
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not accepted here")));
}

}  // namespace
}  // namespace cairn::test
