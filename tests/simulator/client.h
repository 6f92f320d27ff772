// A worker's client: the program's own sessions, push order, fan-out and resume rules, put together
// as PsClientImpl does, without tensors and without threads.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "tests/simulator/network.h"
#include "tests/simulator/options.h"
#include "tests/simulator/workload.h"
#include "thrift/limits.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/position.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/delivery/retention.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/delivery/step_book.h"
#include "worker/client/delivery/step_clock.h"
#include "worker/client/moves/membership.h"
#include "worker/client/moves/moved_updates.h"
#include "worker/client/plan/data_plan.h"
#include "worker/client/routing/client_variable.h"

namespace cairn::simulator {

// Called in fibers of its process. Thread safety: none; fibers may call Beat beside the others.
class Client : private MovedUpdates::Host, private Membership::Host {
 public:
  // Longer than any outage: a worker gives up by ps_wait.
  static constexpr absl::Duration kCallDeadline = absl::Minutes(10);

  // All outlive the client.
  Client(Network* network, const Workload& work, std::shared_ptr<Process> process);

  // Says hello to every server, as a new start.
  absl::Status Connect();
  // Which of the worker's pushes is next; 1, 2, ….
  int64_t next() const { return item_ + 1; }
  // The last step announced; -1: none are taken any more.
  int64_t clock() const { return clock_.Announced(); }

  // Pushes `next()` and begins the step after it.
  absl::Status Step();
  // Under sync, before the first.
  absl::Status BeginSteps();
  absl::Status EndSteps();
  absl::Status Leave();
  // Of no effect where the server has left.
  absl::Status Beat(size_t slot);
  size_t slots() const { return sessions_.size(); }
  // Servers that have not answered its last call, by their names.
  std::vector<std::string> Gone() const;

  int64_t retries() const { return retries_; }

 private:
  // All errors but those of servers that leave meanwhile.
  absl::Status ForEachServer(absl::Span<const int32_t> slots,
                             absl::FunctionRef<absl::Status(size_t)> body);
  void Resume(const std::vector<wire::HelloReply>& replies);
  // Fills in what the next push has for that server; false: nothing.
  bool Prepare(Exchange* exchange, size_t slot, int64_t step);
  void FillPush(wire::PushRequest* push, uint32_t stripes);
  // Numbers them and sends them until all are answered. In a turn, which it ends.
  absl::Status Send(absl::Span<Exchange* const> exchanges, absl::string_view position,
                    Deadline deadline);
  // --- client_moves.cc: of a table that moves between servers, as PsClientImpl.
  // What the next push has of each row that it touches, in keys_ and values_.
  void Compute();
  absl::Status AddPush();
  absl::Status PushThenPull(Deadline deadline);
  // Of the plan's calls; numbers them. In a turn, which it ends.
  absl::Status SendPlan(absl::string_view position, Deadline deadline, bool* moved);
  absl::Status PullAll(int64_t step, Deadline deadline);
  absl::Status AddPull();
  absl::Status RunExchanges(absl::Span<Exchange* const> exchanges, Deadline deadline);
  // What was pulled has every push so far.
  void CheckPulled();
  absl::Status CheckOpen(absl::string_view what, Deadline deadline) const override;
  absl::Status KnowServersOf(const VariableSpec& spec, Deadline deadline) override {
    return membership_.KnowServersOf(spec, deadline);
  }
  void CountRetries(int64_t retries) override { retries_ += retries; }
  // --- Membership's.
  absl::StatusOr<std::unique_ptr<ServerSession>> Reach(int32_t server,
                                                       const std::string& address) override;
  absl::StatusOr<wire::Members> AskMembers(Deadline deadline) override;
  absl::StatusOr<JobHoldings> DescribeOn(absl::Span<const int32_t> servers,
                                         Deadline deadline) override;
  void Joined(ServerSession&) override {}  // Beat goes from server to server
  // --- client_steps.cc: under sync, as PsClientImpl's of the same names.
  void ResumeSteps(const ResumePoint& point, const std::vector<wire::HelloReply>& replies);
  bool Recomputes();
  absl::Status Contribute(Deadline deadline);
  absl::Status PullStep(int64_t step, Deadline deadline);
  // *moved: rows have, and it is to be asked anew.
  absl::Status PullStepOnce(int64_t step, Deadline deadline, bool* moved);
  // The calls of a contribution, and of a pull that begins a step: to every server.
  absl::StatusOr<std::vector<Exchange*>> PlanContribution(int64_t step);
  absl::StatusOr<std::vector<Exchange*>> PlanStepPull(int64_t step);
  absl::Status RunStepPulls(const std::vector<Exchange*>& exchanges, Deadline deadline);
  absl::Status StepPulled(Exchange& exchange);
  absl::Status Call(size_t slot, absl::string_view method, Deadline deadline,
                    absl::FunctionRef<void(wire::ParameterServerIf&, const wire::Caller&)> body);

  Network& network_;
  const Workload& work_;
  const std::shared_ptr<Process> process_;
  StepClock clock_;
  StepBook steps_;
  Retention retention_;
  Membership::Flags flags_;
  const ClientIdentity identity_;
  const FanOut::Limits limits_;
  ServerTable sessions_;
  PushOrder order_;
  FanOut fan_out_;
  std::vector<Exchange> exchanges_;  // by slot
  ClientVariableMap variables_;
  Membership membership_;
  std::set<int32_t> have_position_;  // of the servers that joined
  MovedUpdates moved_updates_{identity_, sessions_, order_, fan_out_, variables_, *this};
  const PlanLimits plan_limits_{kDefaultMaxMessageBytes, kMaxItemsPerCall, kMaxIdsPerCall};
  DataPlan plan_{sessions_, plan_limits_};
  std::vector<int64_t> keys_;
  std::vector<float> values_, pulled_;
  int64_t item_ = 0;  // of the worker's pushes, the last that was sent
  bool recomputes_ = false;
  int64_t recompute_through_ = 0;
  int64_t void_through_ = 0;  // above that only where the rule is left out
  int64_t retries_ = 0;
};

}  // namespace cairn::simulator
