// Tokens are read from a file that is not readable by others, found by their digest, and refused
// after they are removed from the file.
#include "thrift/security/token_table.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_certificates.h"
#include "thrift/security/client_security.h"
#include "thrift/security/peer_guard.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFirst[] = "0123456789abcdef-first";
constexpr char kSecond[] = "0123456789abcdef-second";

class TokenTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<TokenTable> Load(const std::string& text) {
    WriteFile(path_, text);
    absl::StatusOr<std::shared_ptr<TokenTable>> table = TokenTable::Load(path_);
    EXPECT_OK(table);
    return *std::move(table);
  }
  absl::Status LoadError(const std::string& text) {
    WriteFile(path_, text);
    return TokenTable::Load(path_).status();
  }

  const TempDir folder_;
  const std::string path_ = folder_.Join("tokens");
};

TEST_F(TokenTableTest, LinesAreTokenRolesAndName) {
  const auto table = Load(std::string("# the job's\n\n") + kFirst + " worker,admin\tchief\r\n" +
                          kSecond + "  reader\n");
  const auto first = table->Find(DigestOf(kFirst));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->roles, kWorker | kAdmin);
  EXPECT_EQ(first->name, "chief");
  EXPECT_EQ(table->Find(DigestOf(kSecond))->roles, kReader);
  EXPECT_FALSE(table->Find(DigestOf(std::string(kFirst) + "x")).has_value());
  EXPECT_FALSE(table->Find(DigestOf("")).has_value());
}

TEST_F(TokenTableTest, ErrorsGiveTheLineButNotTheToken) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  const std::string first = kFirst;
  EXPECT_THAT(LoadError("\n" + first + "\n"),
              StatusIs(bad, AllOf(HasSubstr("tokens:2: 1 words"), Not(HasSubstr(first)))));
  EXPECT_THAT(LoadError(first + " worker my name\n"), StatusIs(bad, HasSubstr("4 words")));
  EXPECT_THAT(LoadError(first + " wroker\n"),
              StatusIs(bad, AllOf(HasSubstr("'wroker'"), HasSubstr("worker"))));
  EXPECT_THAT(LoadError("short worker\n"), StatusIs(bad, HasSubstr("a token of 5 bytes")));
  EXPECT_THAT(LoadError(std::string(600, 'x') + " worker\n"),
              StatusIs(bad, HasSubstr("600 bytes")));
  EXPECT_NE(Load(first + " worker\n" + first + " worker again\n"), nullptr);
  EXPECT_THAT(
      LoadError(first + " worker\n" + kSecond + " reader\n" + first + " admin\n"),
      StatusIs(bad, AllOf(HasSubstr("tokens:3: an earlier line gives the token other roles"),
                          Not(HasSubstr(first)))));
  WriteFile(path_, first + " worker\n", 0644);
  EXPECT_THAT(TokenTable::Load(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has mode 0644")));
  EXPECT_THAT(TokenTable::Load(folder_.Join("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(LoadError(""), StatusIs(bad, HasSubstr("tokens is empty")));
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_THAT(TokenTable::Load(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is a directory")));
}

TEST_F(TokenTableTest, AnUnusableFileLeavesTheLastValidTokens) {
  const auto table = Load(std::string(kFirst) + " worker\n");
  const int64_t version = table->Version();
  WriteFile(path_, "half a li");
  EXPECT_TRUE(table->Find(DigestOf(kFirst)).has_value());
  EXPECT_EQ(table->Version(), version);
  WriteFile(path_, "");  // a program has truncated it and is about to write it
  EXPECT_TRUE(table->Find(DigestOf(kFirst)).has_value());
  EXPECT_EQ(table->Version(), version);
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);  // an error of reads, for root too
  EXPECT_TRUE(table->Find(DigestOf(kFirst)).has_value());
  EXPECT_EQ(table->Version(), version);
  std::filesystem::remove(path_);
  WriteFile(path_, std::string(kSecond) + " worker\n");
  EXPECT_FALSE(table->Find(DigestOf(kFirst)).has_value());
  EXPECT_GT(table->Version(), version);
  WriteFile(path_, "# every token is revoked\n");
  EXPECT_FALSE(table->Find(DigestOf(kSecond)).has_value());
}

TEST_F(TokenTableTest, ARevokedTokenIsRefusedAtItsNextCall) {
  const auto table = Load(std::string(kFirst) + " worker one\n");
  PeerGuard guard({}, table);
  EXPECT_FALSE(guard.authenticated());
  EXPECT_THAT(guard.Check("push"),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("--token_file")));
  EXPECT_OK(guard.Authenticate(kFirst));
  EXPECT_OK(guard.Check("push"));
  EXPECT_THAT(guard.Check("drop_job"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("\"one\" has the role worker"), HasSubstr("is for admin"))));
  WriteFile(path_, std::string(kFirst) + " reader one\n" + kSecond + " worker\n");
  EXPECT_EQ(guard.Check("push").code(), absl::StatusCode::kPermissionDenied);  // fewer roles now
  WriteFile(path_, std::string(kSecond) + " worker\n");
  EXPECT_THAT(guard.Check("describe"),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("revoked")));
  EXPECT_FALSE(guard.authenticated());
}

TEST_F(TokenTableTest, ATokenReplacesTheCertificatesRoles) {
  const auto table = Load(std::string(kFirst) + " reader\n");
  PeerGuard guard({.roles = kWorker, .name = "worker-0"}, table);
  EXPECT_OK(guard.Check("push"));
  EXPECT_OK(guard.Authenticate(kFirst));
  EXPECT_EQ(guard.Check("push").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(guard.Authenticate(kSecond).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_FALSE(guard.authenticated());
}

TEST_F(TokenTableTest, AClientSendsItsTokenOnlyOverTrustedConnections) {
  SecurityOptions options;
  options.token_file = path_;
  WriteFile(path_, std::string("  ") + kFirst + " \nnot this\n");
  const auto security = ClientSecurity::Load(options);
  ASSERT_OK(security);
  EXPECT_EQ((*security)->Token().value(), kFirst);
  EXPECT_OK((*security)->CheckTokenMayTravel("127.0.0.1"));
  EXPECT_THAT((*security)->CheckTokenMayTravel("10.0.0.1"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("unencrypted")));
  WriteFile(path_, kFirst, 0604);
  EXPECT_EQ((*security)->Token().status().code(), absl::StatusCode::kFailedPrecondition);
  WriteFile(path_, "");
  EXPECT_THAT(ClientSecurity::Load(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 0 bytes")));
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_THAT(ClientSecurity::Load(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("--token_file: " + path_ + " is a directory")));
}

}  // namespace
}  // namespace cairn
