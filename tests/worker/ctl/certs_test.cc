// cairnctl certs makes files that the programs accept, with modes that protect secrets, and
// overwrites none; cairnctl doctor reports problems with such files.
#include "worker/ctl/certs.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "thrift/security/certificate.h"
#include "thrift/security/tls_context.h"
#include "worker/ctl/doctor_tls.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using Level = Finding::Level;

class CertsTest : public ::testing::Test {
 protected:
  CertsTest() {
    std::ofstream file(folder_.Join("cluster.yaml"));
    file << "cluster: {ps: [\"127.0.0.1:7001\", \"10.0.0.2:7001\", \"ps-2.example:7001\"], "
            "chief: [\"a:1\"], worker: [\"b:1\", \"c:1\"]}\n";
  }
  CertsOptions ForCluster() const {
    return {.directory = directory_, .cluster_file = folder_.Join("cluster.yaml")};
  }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  CertificateFacts Facts(const std::string& name) const {
    absl::StatusOr<CertificateFacts> facts = ReadCertificate(path(name + ".crt"));
    EXPECT_OK(facts);
    return *std::move(facts);
  }
  mode_t ModeOf(const std::string& file) const {
    struct stat found = {};
    EXPECT_EQ(::stat(file.c_str(), &found), 0) << file;
    return found.st_mode & 07777;
  }
  SecurityOptions Of(const std::string& name) const {
    SecurityOptions options;
    options.tls_certificate = path(name + ".crt");
    options.tls_key = path(name + ".key");
    options.tls_ca = path("ca.crt");
    return options;
  }
  std::vector<Finding> Judge(const SecurityOptions& options, absl::Time now = absl::Now()) const {
    return JudgeTls(options, ReadClusterFile(folder_.Join("cluster.yaml")).value(), now);
  }

  const TempDir folder_;
  const std::string directory_ = folder_.Join("tls");
};

TEST_F(CertsTest, EveryTaskGetsWhatItNeeds) {
  const absl::StatusOr<Answer> made = MakeCerts(ForCluster());
  ASSERT_OK(made);
  EXPECT_EQ(made->json["certificates"].size(), 8U);
  EXPECT_EQ(made->json["new_ca"], true);
  EXPECT_THAT(Facts("ps-0").hosts, ElementsAre("127.0.0.1", "localhost", "::1"));
  EXPECT_THAT(Facts("ps-1").hosts, ElementsAre("10.0.0.2"));
  EXPECT_THAT(Facts("ps-2").hosts, ElementsAre("ps-2.example"));
  EXPECT_TRUE(Facts("ps-0").serves);
  // Servers ask each other for the state on their status pages, and nothing else.
  EXPECT_TRUE(Facts("ps-0").connects);
  EXPECT_EQ(Facts("ps-0").roles, kReader);
  EXPECT_EQ(Facts("chief-0").roles, kWorker | kAdmin);
  EXPECT_EQ(Facts("worker-0").roles, kWorker);
  EXPECT_EQ(Facts("worker-1").roles, kWorker);
  EXPECT_EQ(Facts("admin").roles, kAdmin);
  EXPECT_EQ(Facts("reader").roles, kReader);
  EXPECT_FALSE(Facts("reader").serves);
  EXPECT_GT(Facts("reader").not_after - absl::Now(), absl::Hours(24 * 29));
  for (const std::string name : {"ca", "ps-0", "worker-1", "admin"}) {
    EXPECT_EQ(ModeOf(path(name + ".key")), 0600U) << name;
  }
  EXPECT_EQ(ModeOf(directory_), 0700U);
  for (const std::string name : {"ps-0", "reader"}) {
    EXPECT_OK(TlsContext::Load(Of(name), TlsContext::Side::kClient));
    EXPECT_OK(CheckSignedBy(path(name + ".crt"), path("ca.crt")));
  }
}

TEST_F(CertsTest, NothingIsOverwrittenAndTheCaIsUsedAgain) {
  ASSERT_OK(MakeCerts(ForCluster()));
  EXPECT_THAT(MakeCerts(ForCluster()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("ps-0.crt exists")));
  const absl::StatusOr<Answer> more = MakeCerts(
      {.directory = directory_,
       .issue = {"grafana=reader", "ps-3=server:ps-3.example,10.0.0.4", "x=worker,admin"}});
  ASSERT_OK(more);
  EXPECT_EQ(more->json["new_ca"], false);
  EXPECT_OK(CheckSignedBy(path("grafana.crt"), path("ca.crt")));
  EXPECT_THAT(Facts("ps-3").hosts, ElementsAre("ps-3.example", "10.0.0.4"));
  EXPECT_EQ(Facts("x").roles, kWorker | kAdmin);
}

TEST_F(CertsTest, TheCaOutlivesWhatItSigns) {
  ASSERT_OK(MakeCerts({.directory = directory_, .issue = {"x=reader"}, .days = 1}));
  EXPECT_GT(Facts("ca").not_after - absl::Now(), absl::Hours(24 * 3649));
  EXPECT_OK(MakeCerts({.directory = directory_, .issue = {"y=reader"}, .days = 3649}));
  EXPECT_THAT(MakeCerts({.directory = directory_, .issue = {"z=reader"}, .days = 3650}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fewer --days")));
}

TEST_F(CertsTest, ACaThatCannotBeExaminedIsAnError) {
  ASSERT_EQ(::mkdir(directory_.c_str(), 0700), 0);
  ASSERT_EQ(::symlink("ca.crt", path("ca.crt").c_str()), 0);
  EXPECT_FALSE(MakeCerts({.directory = directory_, .issue = {"x=reader"}}).ok());
}

TEST_F(CertsTest, MistakesAreNamed) {
  const auto refused = [&](const CertsOptions& options, const std::string& text) {
    const absl::StatusOr<Answer> made = MakeCerts(options);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(text));
  };
  refused({.directory = directory_}, "no certificate is requested");
  refused({.directory = directory_, .issue = {"x=root"}}, "'root' is no role");
  refused({.directory = directory_, .issue = {"../x=reader"}}, "cannot be the name of a file");
  refused({.directory = directory_, .issue = {"ca=reader"}}, "cannot be the name of a file");
  refused({.directory = directory_, .issue = {"x=server:"}}, "no host");
  refused({.directory = directory_, .issue = {"x=server:a b"}}, "is no host");
  refused({.directory = directory_, .issue = {"x=reader"}, .days = 0}, "--days is 0");
}

TEST_F(CertsTest, DoctorFindsNothingWrongWithThem) {
  ASSERT_OK(MakeCerts(ForCluster()));
  for (const std::string name : {"ps-1", "worker-0", "admin"}) {
    for (const Finding& finding : Judge(Of(name))) {
      EXPECT_EQ(finding.level, Level::kFine)
          << name << ": " << finding.what << ": " << finding.found;
    }
  }
  EXPECT_TRUE(Judge({}).empty());
}

TEST_F(CertsTest, DoctorFindsWhatIsWrong) {
  ASSERT_OK(MakeCerts(ForCluster()));
  const auto bad = [](Level level, const std::string& what, const std::string& found) {
    return Contains(AllOf(Field(&Finding::level, level), Field(&Finding::what, what),
                          Field(&Finding::found, HasSubstr(found))));
  };
  const SecurityOptions good = Of("ps-0");
  EXPECT_THAT(Judge(good, absl::Now() + absl::Hours(24 * 31)),
              bad(Level::kBad, "TLS dates", "is good from"));
  EXPECT_THAT(Judge(good, absl::Now() + absl::Hours(24 * 25)),
              bad(Level::kWarning, "TLS dates", "is good from"));
  EXPECT_THAT(Judge(good, absl::Now() - absl::Hours(24)),
              bad(Level::kBad, "TLS dates", "is good from"));
  SecurityOptions options = good;
  options.tls_key = Of("ps-1").tls_key;
  EXPECT_THAT(Judge(options), bad(Level::kBad, "TLS key", "is not the key of"));
  options = good;
  options.tls_ca = Of("ps-1").tls_certificate;
  EXPECT_THAT(Judge(options), bad(Level::kBad, "TLS CA", "is not signed by a CA in"));
  ASSERT_EQ(::chmod(good.tls_key.c_str(), 0644), 0);
  EXPECT_THAT(Judge(good), bad(Level::kBad, "TLS key's mode", "has mode 0644"));
  options = good;
  options.tls_ca = "";
  EXPECT_THAT(Judge(options), bad(Level::kBad, "TLS", "--tls_ca is missing"));
  ASSERT_OK(MakeCerts({.directory = directory_, .issue = {"other=server:elsewhere.example"}}));
  EXPECT_THAT(Judge(Of("other")), bad(Level::kBad, "TLS names", "it is for elsewhere.example"));
  options = {};
  options.token_file = path("none");
  EXPECT_THAT(Judge(options), bad(Level::kBad, "token", "No such file"));
}

TEST_F(CertsTest, ARepeatedNameIsRefusedBeforeAnythingIsWritten) {
  CertsOptions options = ForCluster();
  options.issue = {"admin=admin"};
  EXPECT_THAT(MakeCerts(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the name 'admin'")));
  options = {.directory = directory_, .issue = {"a=reader", "b=reader", "a=worker"}};
  EXPECT_THAT(MakeCerts(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the name 'a'")));
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

}  // namespace
}  // namespace cairn
