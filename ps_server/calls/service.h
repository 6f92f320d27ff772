// The RPCs of one server: checks, counts and admits each call, then hands it and the parts that it
// uses to its file.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ps_server/calls/checkpoint_calls.h"
#include "ps_server/calls/step_closing.h"
#include "ps_server/core/server_core.h"
#include "thrift/ParameterServer.h"
#include "thrift/security/roles.h"

namespace cairn {

// The error of calls to a server that stops.
absl::Status StoppingError(absl::string_view server);
// The error of calls to a server that an operator drains.
absl::Status DrainingError(absl::string_view server);

// Rejects calls once the server stops, and waits for the calls that have entered.
// Thread safety: every method may be called from several threads at once; Enter shares its lock.
class CallGate {
 public:
  // False once Refuse or Close was called. If true, Leave must follow.
  bool Enter();
  void Leave() { mutex_.ReaderUnlock(); }
  // Rejects calls from now on.
  void Refuse() { closing_.store(true); }
  // Like Refuse; returns when every call has left.
  void Close();

 private:
  std::atomic<bool> closing_{false};
  absl::Mutex mutex_;
};

// Throws only wire::ServerError, with the caller's state if it is known. Rejects requests beyond
// their limits (check_request.h), also those of callers in this process.
// Thread safety: every method may be called from several threads at once.
class Service final : public wire::ParameterServerIf {
 public:
  explicit Service(ServerCore& core)
      : core_(core),
        steps_(*core.store, core.rows, core.order, core.members, core.info.options),
        checkpoints_(core.info, *core.store, core.registry, core.flusher, core.waits) {}

  // Rejects calls from now on, also those that wait for other workers, and returns when every call
  // has ended.
  void Shut();
  // From now on, calls that wait for other workers or read the files of a checkpoint end with
  // STOPPING.
  void CancelLongCalls();
  // Whether a drain runs, or its reply has not been sent yet.
  bool AnswersDrain() const { return unanswered_drains_.load() > 0; }

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
  void checkpoint(wire::CheckpointReply& reply, const wire::CheckpointRequest& request) override;
  void drop_checkpoint(wire::ServerState& state, const wire::CheckpointRequest& request) override;
  void restore(wire::RestoreReply& reply, const wire::RestoreRequest& request) override;
  void move(wire::MoveReply& reply, const wire::MoveRequest& request) override;
  void members(wire::Members& reply, const wire::Caller& caller) override;
  void change_members(wire::ChangeMembersReply& reply,
                      const wire::ChangeMembersRequest& request) override;
  void drain(wire::ServerState& state, const wire::Caller& caller) override;

 private:
  absl::Status Drain(const wire::Caller& caller);
  using Body = absl::FunctionRef<absl::Status(const Admitted&)>;
  // Checks the request, admits its caller and runs `body`, inside the gate; counts the call, fills
  // in `state` and throws the error. `state` null: the caller need not be known, and is not
  // admitted.
  template <typename Request>
  void Run(Method method, const Request& request, wire::ServerState* state, Body body);
  void Serve(Method method, const wire::Caller& caller, wire::ServerState* state,
             absl::FunctionRef<absl::Status()> check, Body body);
  absl::Status AdmitCaller(Method method, const wire::Caller& caller, Admitted& admitted);
  // Waits for other workers as the job's consistency asks, then pulls.
  absl::Status PullInStep(const Admitted& admitted, const wire::PullRequest& request,
                          wire::PullReply& reply);
  [[noreturn]] void Throw(const wire::Caller& caller, const absl::Status& status);
  // The error of rejected calls.
  absl::Status Refusal() const;

  ServerCore& core_;
  StepCloser steps_;
  Checkpoints checkpoints_;
  CallGate gate_;
  std::atomic<bool> draining_{false};
  std::atomic<int> unanswered_drains_{0};
};

}  // namespace cairn
