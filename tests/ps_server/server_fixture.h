// An engine in a folder of its own, called without a network.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "ps_server/base/engine_options.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"

namespace cairn {

class Engine;

wire::Optimizer WireOptimizer(const std::string& type, double learning_rate,
                              const std::map<std::string, double>& arguments = {});
// Dense float32, zeros, one shard on this server.
wire::VariableSpec DenseSpec(const std::string& name, const std::vector<int64_t>& shape,
                             const wire::Optimizer& optimizer);
// 64 buckets here; rows start uniform in [-0.05, 0.05).
wire::VariableSpec TableSpec(const std::string& name, int64_t dim,
                             const wire::Optimizer& optimizer);

// A wire call as a Status: OK, or the error it threw (ReasonOf, ReplayAfterOf tell its rest).
template <typename Call>
absl::Status CallStatus(Call&& call);
absl::Status ErrorStatus(const wire::ServerError& error);

// One worker, or a tool (worker -1), of job "job". Thread safety: none; one client per thread.
class TestClient {
 public:
  TestClient(wire::ParameterServerIf& service, int32_t worker) : service_(service) {
    caller_.job = "job";
    caller_.worker = worker;
  }

  wire::Caller& caller() { return caller_; }
  // For a worker: takes a new incarnation (0) or names one, and numbers pushes after what the
  // server has applied.
  absl::StatusOr<wire::HelloReply> Hello(int64_t incarnation = 0);
  absl::Status Create(const std::vector<wire::VariableSpec>& specs);

  // The next push in order. `ids` null: WHOLE.
  absl::StatusOr<wire::PushReply> Push(const std::string& variable,
                                       const std::vector<float>& gradient);
  absl::StatusOr<wire::PushReply> PushRows(const std::string& variable,
                                           const std::vector<int64_t>& ids,
                                           const std::vector<float>& gradient);
  absl::StatusOr<wire::PushReply> PushKeys(const std::string& variable,
                                           const std::vector<int64_t>& keys,
                                           const std::vector<float>& gradient);
  absl::StatusOr<wire::PushReply> Assign(const std::string& variable,
                                         const std::vector<float>& values,
                                         const std::string& slot = "");
  absl::StatusOr<wire::PushReply> AssignKeys(const std::string& variable,
                                             const std::vector<int64_t>& keys,
                                             const std::vector<float>& values,
                                             const std::string& slot = "");
  absl::StatusOr<wire::PushReply> Send(const wire::PushItem& item);
  absl::StatusOr<wire::PushReply> Send(const wire::AssignItem& item);
  // Any push, exactly as it is.
  absl::StatusOr<wire::PushReply> Send(const wire::PushRequest& request);
  absl::StatusOr<wire::PushReply> Send(const wire::AssignRequest& request);
  // With the caller and the next sequence filled in.
  wire::PushRequest NextRequest();

  absl::StatusOr<std::vector<float>> Pull(const std::string& variable,
                                          const std::string& slot = "");
  absl::StatusOr<std::vector<float>> PullRows(const std::string& variable,
                                              const std::vector<int64_t>& ids,
                                              const std::string& slot = "");
  absl::StatusOr<std::vector<float>> PullKeys(const std::string& variable,
                                              const std::vector<int64_t>& keys,
                                              const std::string& slot = "");
  absl::StatusOr<wire::PulledItem> PullItem(const wire::PullItem& item);
  absl::StatusOr<wire::DescribeReply> Describe(bool with_uses = false);
  absl::StatusOr<wire::ServerState> Flush();

  int64_t sequence = 0;  // of the last push

 private:
  absl::StatusOr<std::vector<float>> PullFloats(const std::string& variable,
                                                wire::Selection::type selection,
                                                const std::vector<int64_t>& ids,
                                                const std::string& slot);

  wire::ParameterServerIf& service_;
  wire::Caller caller_;
};

wire::PushItem WholeItem(const std::string& variable, const std::vector<float>& gradient);
wire::PushItem IdItem(const std::string& variable, wire::Selection::type selection,
                      const std::vector<int64_t>& ids, const std::vector<float>& gradient);

template <typename T>
std::vector<T> Values(const Payload& payload) {
  const absl::Span<const T> span = payload.As<T>();
  return {span.begin(), span.end()};
}
template <typename T>
Payload PayloadOf(const std::vector<T>& values) {
  return Payload::Copy(values.data(), values.size() * sizeof(T));
}

// A test with one engine; restarting keeps the folder.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest();
  ~ServerTest() override;

  void Start();
  // Closes the engine and destroys it.
  void Stop();
  // Stop, then Start.
  void Restart();
  // Opens another engine with options_ and destroys it. Returns the error of Engine::Open.
  absl::Status OpenStatus();
  // Starts on a copy of the folder as it is now: what a crash of the process would leave.
  void StartFromCopy();
  // StartFromCopy, and a client of worker 0 in place of `client` that sends again what is missing
  // of `sent`: all of its pushes, in order. Some are, with `some_lost`.
  void CrashAndSendAgain(std::vector<wire::PushRequest>& sent, bool some_lost,
                         std::unique_ptr<TestClient>& client);
  // CopyStore of the folder, to a new one.
  std::string CopyAsOfNow();
  Engine& engine() { return *engine_; }
  wire::ParameterServerIf& service();
  // The engine's methods of these names.
  absl::Status KeepRowRules();
  absl::Status AcquireMessage(int64_t bytes);
  void ReleaseMessage(int64_t bytes);
  TestClient Client(int32_t worker = -1) { return TestClient(service(), worker); }
  // A worker that has said hello.
  TestClient Joined(int32_t worker);
  // Makes a checkpoint of the job, and says how it is restored.
  void MakeCheckpoint(wire::RestoreRequest* restore);
  // Starts server `index` of `servers` in a new folder, with its part of the checkpoint.
  void StartRestored(const wire::RestoreRequest& restore, int32_t servers, int32_t index);

  TempDir folder_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Engine> crashed_;  // the one that StartFromCopy left behind
  int copies_ = 0;
};

template <typename Call>
absl::Status CallStatus(Call&& call) {
  try {
    call();
  } catch (const wire::ServerError& error) {
    return ErrorStatus(error);
  } catch (const apache::thrift::transport::TTransportException& error) {
    return absl::UnavailableError(error.what());
  }
  return absl::OkStatus();
}

}  // namespace cairn
