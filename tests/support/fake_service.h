// A parameter server made of maps, for tests of the client: subtracts pushed gradients (SGD with
// rate 1), follows the rules of sequences, and fails where a test requests it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/variables/variable_spec.h"
#include "thrift/ParameterServer.h"

namespace cairn {

class Engine;

namespace test {

// Only float32 variables. Thread safety: every method may be called from several threads at once;
// calls run one at a time.
class FakeService : public wire::ParameterServerNull {
 public:
  explicit FakeService(int32_t server_index = 0, int32_t server_count = 1);
  ~FakeService() override;

  // Serves this service to a real Listener, without a memory limit and without statistics. Valid as
  // long as the service.
  Engine& engine() { return *engine_; }

  // Called with the method's name before and after its work. May throw and may block (no lock is
  // held).
  std::function<void(absl::string_view method)> before;
  std::function<void(absl::string_view method)> after;

  // Simulates a crash: a new boot id, and for each worker only the pushes up to `durable`.
  void Reboot(int64_t durable);
  // Makes state durable only at flush, leave and a new start's hello. By default everything is
  // durable at once. Call before the first call of the service.
  void KeepOnlyWhatIsFlushed() { keeps_flushed_ = true; }
  // With KeepOnlyWhatIsFlushed: a new boot id, and the last durable state.
  void Crash();
  // Adds a server to the list that this one, as ps:0, gives to clients.
  void AddMember(int32_t index, const std::string& address);
  // Marks a server in that list as left.
  void RemoveMember(int32_t index);
  // Acts as if another start of the worker had replaced it.
  void Fence(int32_t worker);

  int64_t calls(absl::string_view method) const;
  int64_t applied(int32_t worker) const;
  int64_t boot_id() const;
  // Sequences of pushes and assigns in the order applied, including those of earlier boots.
  std::vector<int64_t> sequences() const;

  double lease_seconds = 0;  // 0: no heartbeats
  int64_t max_message_bytes = 0;
  int32_t protocol_version = 1;
  // >= 0: hello answers as that server, as if it had taken this one's address.
  std::atomic<int32_t> answers_as = -1;

  // Other calls do nothing.
  void hello(wire::HelloReply& reply, const wire::HelloRequest& request) override;
  void heartbeat(wire::ServerState& state, const wire::Caller& caller) override;
  void leave(wire::ServerState& state, const wire::Caller& caller) override;
  void create_variables(wire::ServerState& state, const wire::Caller& caller,
                        const std::vector<wire::VariableSpec>& specs) override;
  void push(wire::PushReply& reply, const wire::PushRequest& request) override;
  void assign(wire::PushReply& reply, const wire::AssignRequest& request) override;
  void pull(wire::PullReply& reply, const wire::PullRequest& request) override;
  void step(wire::StepReply& reply, const wire::StepRequest& request) override;
  void describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) override;
  void scan(wire::ScanReply& reply, const wire::ScanRequest& request) override;
  void flush(wire::ServerState& state, const wire::Caller& caller) override;
  void why(wire::WhyReply& reply, const wire::Caller& caller) override;
  void drop_job(wire::ServerState& state, const wire::Caller& caller) override;
  void members(wire::Members& reply, const wire::Caller& caller) override;

 private:
  struct Stored {
    wire::VariableSpec wire;
    VariableSpec spec;
    std::map<int64_t, std::vector<float>> rows;  // by global row or key; absent: zeros
    int64_t version = 0;
    size_t width = 0;
  };
  struct Worker {
    int64_t incarnation = 0;
    int64_t applied = 0;
    int64_t durable = 0;
    std::string position;
  };
  class Scope;  // counts the call, runs the hooks, locks

  Worker* Admit(const wire::Caller& caller);  // nullptr: not sequenced
  // False: the sequence is already applied.
  bool Begin(Worker* worker, const wire::Sequence& sequence);
  void State(const wire::Caller& caller, wire::ServerState* state);
  void Epoch();
  template <typename Item>
  std::vector<int64_t> RowsOf(const Stored& stored, const Item& item) const;
  template <typename Item>
  Stored& Find(const Item& item);
  void ApplyPush(const wire::PushRequest& request, wire::PushReply* reply);
  void ReadPull(const wire::PullRequest& request, wire::PullReply* reply);

  const std::unique_ptr<Engine> engine_;
  const int32_t index_;
  const int32_t count_;
  mutable absl::Mutex mutex_;
  int64_t boot_id_ = 1;
  int64_t incarnations_ = 0;
  std::map<std::string, Stored> variables_;
  std::map<int32_t, Worker> workers_;
  wire::Members members_;  // version 0: as in the cluster file
  bool keeps_flushed_ = false;
  std::map<std::string, Stored> durable_variables_;
  std::map<int32_t, Worker> durable_workers_;
  std::map<std::string, int64_t> calls_;
  std::vector<int64_t> sequences_;
};

// Throws a ServerError.
[[noreturn]] void Refuse(wire::ErrorCode::type code, wire::ErrorReason::type reason,
                         const std::string& message, int64_t replay_after = 0);

}  // namespace test
}  // namespace cairn
