// The C interface against a real server: every misuse of a handle, pointer or buffer is an error
// with a text, and waits can be interrupted.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/file_text.h"
#include "tests/support/ps_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/capi/c.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kVariables[] =
    "[{name: w, shape: [3, 2], optimizer: {type: sgd, learning_rate: 0.5}},"
    " {name: t, dim: 2, optimizer: {type: sgd, learning_rate: 1}}]";
constexpr int64_t kShape[] = {3, 2};
constexpr int64_t kTwoRows[] = {2, 2};
constexpr int64_t kKeys[] = {7, -9};

class Capi : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<PsProcess>> server =
        PsProcess::Start({.data_dir = folder_.path() + "/ps"});
    ASSERT_OK(server.status());
    server_ = *std::move(server);
    client_ = Connect("");
    ASSERT_EQ(cairn_create(client_, kVariables, 0), CAIRN_OK) << cairn_last_error_message();
  }
  void TearDown() override { cairn_close(client_); }

  cairn_client* Connect(const std::string& more) {
    cairn_client* client = nullptr;
    const std::string text =
        absl::StrCat("{servers: [\"", server_->address(), "\"], job: capi", more, "}");
    EXPECT_EQ(cairn_connect(text.c_str(), 0, &client), CAIRN_OK) << cairn_last_error_message();
    return client;
  }
  static cairn_item Whole(float* data) {
    cairn_item item = {};
    item.variable = "w";
    item.data = data;
    item.shape = kShape;
    item.rank = 2;
    item.dtype = CAIRN_FLOAT32;
    return item;
  }
  static cairn_item Keys(float* data) {
    cairn_item item = Whole(data);
    item.variable = "t";
    item.shape = kTwoRows;
    item.ids = kKeys;
    item.id_count = 2;
    item.part = CAIRN_KEYS;
    return item;
  }
  void ExpectRefused(const cairn_item& item, int code, const std::string& text) {
    EXPECT_EQ(cairn_pull(client_, &item, 1, 0), code);
    EXPECT_THAT(cairn_last_error_message(), HasSubstr(text));
    EXPECT_EQ(cairn_last_error_code(), code);
    EXPECT_EQ(cairn_push(client_, &item, 1, nullptr, 0, 0), code);
    EXPECT_EQ(cairn_assign(client_, &item, 1, 0), code);
  }

  TempDir folder_;
  std::unique_ptr<PsProcess> server_;
  cairn_client* client_ = nullptr;
};

TEST_F(Capi, PullsWhatItPushed) {
  float values[6] = {1, 2, 3, 4, 5, 6};
  cairn_item item = Whole(values);
  ASSERT_EQ(cairn_assign(client_, &item, 1, 0), CAIRN_OK) << cairn_last_error_message();
  float ones[6] = {1, 1, 1, 1, 1, 1};
  item.data = ones;
  ASSERT_EQ(cairn_push(client_, &item, 1, nullptr, 0, 0), CAIRN_OK);
  float rows[4] = {1, 2, 3, 4};
  const cairn_item keys = Keys(rows);
  ASSERT_EQ(cairn_push(client_, &keys, 1, nullptr, 0, 0), CAIRN_OK);
  const cairn_item both[] = {Whole(values), Keys(rows)};
  ASSERT_EQ(cairn_pull(client_, both, 2, 0), CAIRN_OK);
  EXPECT_THAT(values, ElementsAre(0.5, 1.5, 2.5, 3.5, 4.5, 5.5));
  EXPECT_THAT(rows, ElementsAre(-1, -2, -3, -4));
  cairn_scan* scan = nullptr;
  ASSERT_EQ(cairn_scan_table(client_, "t", 0, &scan), CAIRN_OK);
  uint64_t count = 0;
  ASSERT_EQ(cairn_scan_rows(scan, &count, nullptr, nullptr, nullptr), CAIRN_OK);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(cairn_scan_free(scan), CAIRN_OK);
  EXPECT_EQ(cairn_scan_rows(scan, &count, nullptr, nullptr, nullptr), CAIRN_FAILED_PRECONDITION);
}

TEST_F(Capi, CombinesRepeatedKeys) {
  const int64_t keys[] = {5, 9, 5};
  const int64_t shape[] = {3, 2};
  float gradients[6] = {1, 2, 3, 4, 5, 6};
  cairn_item item = Keys(gradients);
  item.part = CAIRN_REPEATED_KEYS;
  item.ids = keys;
  item.id_count = 3;
  item.shape = shape;
  ASSERT_EQ(cairn_push(client_, &item, 1, nullptr, 0, 0), CAIRN_OK) << cairn_last_error_message();
  float rows[6] = {};
  item.data = rows;
  ASSERT_EQ(cairn_pull(client_, &item, 1, 0), CAIRN_OK) << cairn_last_error_message();
  EXPECT_THAT(rows, ElementsAre(-6, -8, -3, -4, -6, -8));
  cairn_counters_t counters;
  ASSERT_EQ(cairn_counters(client_, &counters), CAIRN_OK);
  EXPECT_EQ(counters.bytes_pulled, 2 * 2 * 4);  // two rows of two floats
}

TEST_F(Capi, RefusesItemsThatAreNotTheVariables) {
  float values[6] = {};
  cairn_item item = Whole(values);
  item.dtype = CAIRN_FLOAT64;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "dtype is float64; the variable has float32");
  item = Whole(values);
  item.dtype = 77;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "dtype is number 77");
  item = Whole(values);
  item.shape = kTwoRows;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "shape is [2, 2]; expected [3, 2]");
  item.shape = nullptr;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "shape is null");
  item = Whole(nullptr);
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "data is null");
  item = Whole(values);
  item.variable = nullptr;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "variable is null");
  item.variable = "absent";
  ExpectRefused(item, CAIRN_NOT_FOUND, "neither created nor described");
  item = Whole(values);
  item.part = CAIRN_KEYS;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "is a dense variable");
  item.part = CAIRN_REPEATED_KEYS;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "is a dense variable");
  item.part = 4;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "part is 4; expected 0 to 3");
  item = Keys(values);
  item.ids = nullptr;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "ids is null");
  item.part = CAIRN_WHOLE;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "is an embedding table");
  item = Whole(values);
  item.format = -3;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "format is -3");
  item = Whole(values);
  item.rank = -1;
  ExpectRefused(item, CAIRN_INVALID_ARGUMENT, "rank is -1");
}

TEST_F(Capi, RefusesNullsAndBadTexts) {
  cairn_client* other = nullptr;
  EXPECT_EQ(cairn_connect(nullptr, 0, &other), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_connect("{}", 0, nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_connect("{job: x, servers: [\"nowhere\"]}", 0, &other), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_connect("{job: x, sevrers: []}", 0, &other), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("did you mean 'servers'"));
  EXPECT_EQ(cairn_connect("{job: x, strategy: {devices: []}}", 0, &other), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("has no effect here"));
  EXPECT_EQ(cairn_create(client_, nullptr, 0), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_create(client_, "{name: v}", 0), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("neither shape"));
  EXPECT_EQ(cairn_create(client_, "{name: v, shape: [2], optimizer: adma}", 0),
            CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("did you mean 'adam'"));
  EXPECT_EQ(cairn_create(client_, "{name: t, dim: 3}", 0), CAIRN_ALREADY_EXISTS);
  EXPECT_EQ(cairn_pull(client_, nullptr, 1, 0), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_push(client_, nullptr, 0, nullptr, 5, 0), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_push(client_, nullptr, 0, "x", 513, 0), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_flush(client_, -1), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("timeout is -1"));
  EXPECT_EQ(cairn_describe(client_, 0, nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_counters(client_, nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_launch("{servers: 1}", nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_restore(client_, nullptr), CAIRN_INVALID_ARGUMENT);
  cairn_free_text(nullptr);
  cairn_reader* reader = nullptr;
  EXPECT_EQ(cairn_open_reader(nullptr, nullptr, 0, 0, 1, 0, 0, &reader), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_open_reader("{}", nullptr, 0, 0, 1, 0, 0, nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_open_reader("{}", nullptr, 0, 1, 1, 0, 0, &reader), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_read_batch(reader, nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_close_reader(reader), CAIRN_INVALID_ARGUMENT);
  cairn_record_reader* records = nullptr;
  const char* const file = "absent.tfrecord";
  EXPECT_EQ(cairn_open_records(&file, 1, 0, 1, /*epochs=*/0, 0, 0, &records),
            CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(cairn_last_error_message(),
              HasSubstr("epochs is 0; expected an integer of at least"));
}

TEST_F(Capi, RefusesClosedAndForeignHandles) {
  cairn_client* const other = Connect("");
  EXPECT_EQ(cairn_close(other), CAIRN_OK);
  EXPECT_EQ(cairn_close(other), CAIRN_FAILED_PRECONDITION);
  EXPECT_EQ(cairn_flush(other, 0), CAIRN_FAILED_PRECONDITION);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("is closed"));
  EXPECT_EQ(cairn_flush(nullptr, 0), CAIRN_INVALID_ARGUMENT);
  int local = 0;
  EXPECT_EQ(cairn_flush(reinterpret_cast<cairn_client*>(&local), 0), CAIRN_FAILED_PRECONDITION);
  uint64_t rows = 0;
  EXPECT_EQ(
      cairn_scan_rows(reinterpret_cast<cairn_scan*>(client_), &rows, nullptr, nullptr, nullptr),
      CAIRN_FAILED_PRECONDITION);
}

TEST_F(Capi, DescribesWhatItCreated) {
  cairn_client* const other = Connect("");
  char* json = nullptr;
  ASSERT_EQ(cairn_describe(other, 0, &json), CAIRN_OK);
  EXPECT_THAT(json, HasSubstr(R"("name":"t","kind":"embedding","dim":2)"));
  EXPECT_THAT(json, HasSubstr(R"("type":"sgd","learning_rate":0.5)"));
  cairn_free_text(json);
  float values[6] = {};
  const cairn_item item = Whole(values);
  EXPECT_EQ(cairn_pull(other, &item, 1, 0), CAIRN_OK);
  cairn_close(other);
}

// A forked child has none of the client's threads: without the check a call would wait for them.
TEST_F(Capi, AForkedChildIsRefusedAndMayConnectItself) {
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = cairn_flush(client_, 1) == CAIRN_FAILED_PRECONDITION &&
                         absl::StrContains(cairn_last_error_message(), "forked") &&
                         cairn_close(client_) == CAIRN_FAILED_PRECONDITION;
    cairn_client* const own = Connect("");
    const bool connected = cairn_flush(own, 0) == CAIRN_OK && cairn_close(own) == CAIRN_OK;
    _exit(refused && connected ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cairn_flush(client_, 0), CAIRN_OK);
}

// The server is stopped, so the pull waits for it; the interrupt check ends that wait.
TEST_F(Capi, AnInterruptedWaitEnds) {
  std::atomic<bool> asked = false;
  cairn_set_interrupt_check(
      [](void* context) {
        *static_cast<std::atomic<bool>*>(context) = true;
        return 1;
      },
      &asked, /*this_thread_only=*/1);
  float values[6] = {};
  const cairn_item item = Whole(values);
  kill(server_->pid(), SIGSTOP);
  int state = 0;
  ASSERT_EQ(waitpid(server_->pid(), &state, WUNTRACED), server_->pid());
  const absl::Time begin = absl::Now();
  EXPECT_EQ(cairn_pull(client_, &item, 1, 60), CAIRN_CANCELLED);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  EXPECT_TRUE(asked);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("interrupted"));
  // Another thread is not interrupted: its own timeout ends the wait.
  std::thread([&] {
    EXPECT_EQ(cairn_pull(client_, &item, 1, 0.5), CAIRN_DEADLINE_EXCEEDED);
  }).join();
  cairn_set_interrupt_check(nullptr, nullptr, 0);
  kill(server_->pid(), SIGCONT);
  EXPECT_EQ(cairn_pull(client_, &item, 1, 0), CAIRN_OK) << cairn_last_error_message();
}

TEST_F(Capi, AServerThatIsGoneIsAnError) {
  cairn_client* const other = Connect(", strategy: {ps_wait_seconds: 0.2}");
  server_->Kill();
  EXPECT_EQ(cairn_flush(other, 5), CAIRN_UNAVAILABLE);
  EXPECT_THAT(cairn_last_error_message(), HasSubstr("ps:0"));
  cairn_close(other);
}

// Messages of the shared code name flags and files of the programs, which this program does not
// use.
TEST_F(Capi, ErrorsNameWhatThisProgramGave) {
  const auto said = [](int code, absl::string_view text) {
    EXPECT_NE(code, CAIRN_OK);
    EXPECT_THAT(cairn_last_error_message(), HasSubstr(text));
    EXPECT_THAT(cairn_last_error_message(),
                AllOf(Not(HasSubstr("--")), Not(HasSubstr(":1: ")), Not(HasSubstr("checkpoint."))));
  };
  said(cairn_create(client_, "{name: w, shape: [9]}", 0), "another name, or drop the job");
  said(cairn_create(client_, "{name: x, shape: [9], optimizer: adma}", 0),
       "create: optimizer: found \"adma\"");
  cairn_client* client = nullptr;
  said(cairn_connect("{job: j, servers: [\"a\"]}", 0, &client), "connect: servers[0]: address 'a'");
  said(cairn_connect("{job: j, servers: [\"nohost:1\"], security: {tls_key: k}}", 0, &client),
       "tls_certificate is missing: TLS needs tls_certificate, tls_key and tls_ca");
  said(cairn_connect("{job: j, servers: [\"nohost:1\"], worker: auto}", 0, &client),
       "connect: worker: found \"auto\"");
  cairn_reader* reader = nullptr;
  said(cairn_open_reader("{model: {type: linear}, data: {format: libsvm, features: 2, train: [x]}}",
                         "/", 0, 0, 1, 0, 0, &reader),
       "data.train[0]: /x: No such file or directory; relative paths start at /");
  const std::string folder = folder_.path() + "/corrupt";
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  std::ofstream(folder + "/MANIFEST.json") << "{";
  said(cairn_restore(client_, folder.c_str()),
       "is corrupt (it is not valid JSON at byte 1 of 1, its end: it is perhaps incomplete): "
       "restore another checkpoint, or bring this file back from a copy");
  said(cairn_restore(client_, (folder + "/MANIFEST.json").c_str()), "restore: ");
}

TEST_F(Capi, CheckpointsAndRestores) {
  float values[6] = {1, 2, 3, 4, 5, 6};
  const cairn_item item = Whole(values);
  ASSERT_EQ(cairn_assign(client_, &item, 1, 0), CAIRN_OK);
  char* folder = nullptr;
  const std::string directory = folder_.path() + "/checkpoints";
  ASSERT_EQ(cairn_checkpoint(client_, directory.c_str(), 5, 0, &folder), CAIRN_OK)
      << cairn_last_error_message();
  const std::string text = FileText(std::string(folder) + "/MANIFEST.json");
  EXPECT_THAT(text, HasSubstr("\"finished\": false"));  // the run may continue
  values[0] = 100;
  ASSERT_EQ(cairn_assign(client_, &item, 1, 0), CAIRN_OK);
  cairn_client* const worker = Connect(", worker: 0");
  EXPECT_EQ(cairn_restore(worker, folder), CAIRN_FAILED_PRECONDITION);
  cairn_close(worker);
  ASSERT_EQ(cairn_restore(client_, folder), CAIRN_OK) << cairn_last_error_message();
  cairn_free_text(folder);
  cairn_client* const other = Connect("");
  char* json = nullptr;
  ASSERT_EQ(cairn_describe(other, 0, &json), CAIRN_OK);
  cairn_free_text(json);
  ASSERT_EQ(cairn_pull(other, &item, 1, 0), CAIRN_OK) << cairn_last_error_message();
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
  cairn_close(other);
}

}  // namespace
}  // namespace cairn
