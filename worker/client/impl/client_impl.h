// PsClient over any ServerLink. Five source files: client_impl.cc has sessions and leases,
// client_data.cc the hot path, client_steps.cc training steps, client_catalog.cc what concerns
// whole variables, client_checkpoint.cc the whole job.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "common/monotonic_cond_var.h"
#include "thrift/limits.h"
#include "worker/client/delivery/early_epochs.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/position.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/delivery/retention.h"
#include "worker/client/delivery/retention_pace.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/delivery/staleness.h"
#include "worker/client/delivery/step_book.h"
#include "worker/client/moves/membership.h"
#include "worker/client/moves/moved_updates.h"
#include "worker/client/plan/data_plan.h"
#include "worker/client/plan/plan_pool.h"
#include "worker/client/ps_client.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

class PsClientImpl : public PsClient, private MovedUpdates::Host, private Membership::Host {
 public:
  // How a server is reached: at `address`, which is empty for one of options.servers.
  struct Reached {
    std::string name;  // in messages
    std::unique_ptr<ServerLink> link;
  };
  using ReachServer =
      std::function<absl::StatusOr<Reached>(int32_t server, const std::string& address)>;

  // Of servers 0 … server_count - 1, and those that join them. Says hello.
  static absl::StatusOr<std::unique_ptr<PsClient>> Start(const ClientOptions& options,
                                                         int32_t server_count, ReachServer reach,
                                                         Deadline deadline);
  ~PsClientImpl() override;

  std::vector<int32_t> servers() const override { return sessions_.Live(); }
  const std::string& position() const override { return position_; }
  absl::Status Create(absl::Span<const VariableSpec> specs, Deadline deadline) override;
  absl::StatusOr<std::vector<VariableSpec>> Describe(Deadline deadline) override;
  absl::StatusOr<JobHoldings> Examine(Deadline deadline) override;
  absl::Status Pull(absl::Span<const PullTarget> targets, Deadline deadline) override;
  absl::Status Push(absl::Span<const PushSource> sources, absl::string_view position,
                    Deadline deadline) override;
  absl::Status PushPull(absl::Span<const PushSource> sources, absl::string_view position,
                        absl::Span<const PullTarget> targets, Deadline deadline) override;
  absl::Status Step(absl::Span<const PushSource> sources, absl::string_view position,
                    absl::Span<const PullTarget> targets, Deadline deadline, int64_t rows) override;
  absl::Status EndStep(absl::Span<const PushSource> sources, absl::string_view position,
                       int64_t rows, Deadline deadline) override;
  absl::Status EndSteps(Deadline deadline) override;
  absl::StatusOr<int64_t> LargestStepGap(Deadline deadline) override;
  absl::Status Assign(absl::Span<const PushSource> sources, Deadline deadline) override;
  absl::Status Scan(absl::string_view variable,
                    const std::function<void(int64_t key, absl::Span<const std::byte> values)>& row,
                    Deadline deadline) override;
  absl::Status Flush(Deadline deadline) override;
  absl::Status Leave(Deadline deadline) override;
  absl::Status DropJob(Deadline deadline) override;
  absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view directory,
                                                           absl::string_view name,
                                                           Deadline deadline) override;
  absl::Status DropCheckpoint(absl::string_view directory, absl::string_view name,
                              Deadline deadline) override;
  absl::Status Restore(const RestoreSource& source, Deadline deadline) override;
  StalenessSummary staleness() const override { return staleness_.Summary(); }
  ClientCounters counters() const override;

 private:
  using ServiceCall =
      absl::FunctionRef<void(wire::ParameterServerIf&, const wire::Caller&, int32_t server)>;

  PsClientImpl(const ClientOptions& options, std::vector<Reached> servers, ReachServer reach);

  // --- client_impl.cc ---
  // `dropped`: the job, by this client, just before.
  absl::Status SayHello(Deadline deadline, bool dropped = false);
  // kDataLoss where the servers do not hold one life of the job. A server that leaves meanwhile is
  // not waited for: `replies`, by server, say how far this worker was there.
  absl::Status CheckHoldings(Deadline deadline, std::vector<wire::HelloReply>& replies);
  // Membership's.
  absl::StatusOr<std::unique_ptr<ServerSession>> Reach(int32_t server,
                                                       const std::string& address) override;
  absl::StatusOr<wire::Members> AskMembers(Deadline deadline) override;
  void Joined(ServerSession& session) override { StartHeartbeat(session); }
  absl::Status KnowServersOf(const VariableSpec& spec, Deadline deadline) override {
    return membership_.KnowServersOf(spec, deadline);
  }
  // One above the highest index that a map may name.
  int32_t most_servers() const {
    return std::max(static_cast<int32_t>(sessions_.size()), kMaxServers);
  }
  // `body(server)` for each, at once where they are other processes. All errors but those of
  // servers that leave meanwhile.
  absl::Status ForEachServer(absl::Span<const int32_t> servers,
                             absl::FunctionRef<absl::Status(int32_t)> body);
  // One call on each, repeated as is safe for calls that may run twice.
  absl::Status CallAll(absl::Span<const int32_t> servers, absl::string_view method,
                       absl::Duration attempt_limit, Deadline deadline, ServiceCall body);
  absl::Status CallOne(int32_t server, absl::string_view method, absl::Duration attempt_limit,
                       Deadline deadline, ServiceCall body);
  // One server's pushes made durable; the session learns of it.
  // *durable: the last push that is, of those with a part there.
  absl::Status FlushServer(int32_t server, absl::Duration attempt_limit, Deadline deadline,
                           int64_t* durable = nullptr);
  void AskForEarlyEpochs();
  void StartHeartbeats();
  void StartHeartbeat(ServerSession& session);
  void StopHeartbeats();
  void HeartbeatLoop(ServerSession& session, absl::Duration interval);
  absl::Status Beat(ServerSession& session, absl::Duration timeout);
  wire::WorkerVitals Vitals() const;

  // --- client_checkpoint.cc ---
  // MOVED: rows moved between servers meanwhile, and some may be missing; it is to be dropped.
  absl::StatusOr<std::vector<ServerCheckpoint>> TryCheckpoint(absl::string_view directory,
                                                              absl::string_view name,
                                                              Deadline deadline);

  absl::StatusOr<ServerCheckpoint> PartOfLeft(int32_t server, Deadline deadline);
  // Drops the job from the servers that a failed restore has made it on. `restored`: by server.
  void TakeBack(absl::Span<const char> restored);

  // --- client_data.cc ---
  // PushPull, and where `begins_step` Step.
  absl::Status PushThenPull(absl::Span<const PushSource> sources, absl::string_view position,
                            absl::Span<const PullTarget> targets, bool begins_step,
                            Deadline deadline);
  absl::StatusOr<ClientVariablePtr> FindVariable(absl::string_view what,
                                                 absl::string_view name) const;
  absl::Status CheckOpen(absl::string_view what, Deadline deadline) const override;
  void CountRetries(int64_t retries) override {
    if (retries > 0) retries_.fetch_add(retries, std::memory_order_relaxed);
  }
  // Adds `sources` to the plan. *skip: the push is to be dropped.
  absl::Status PlanPush(absl::Span<const PushSource> sources, DataPlan* plan, bool* skip);
  absl::Status PlanPulls(absl::Span<const PullTarget> targets, DataPlan* plan);
  // kInvalidArgument where a variable is named twice.
  absl::Status CheckTwice(absl::Span<const PushSource> sources) const;
  absl::StatusOr<bool> AllFinite(const ClientVariable& variable, const PushSource& source) const;
  // Runs the plan's calls. `position`: of a push; nullptr: the plan has assigns or pulls only.
  // *moved: rows have moved, and the new map is known: the updates are in all the same, the pulls
  // are to be planned and run anew.
  absl::Status RunPlan(DataPlan& plan, bool updates, const absl::string_view* position,
                       Deadline deadline, bool* moved);
  absl::Status RunNumbered(DataPlan& plan, const absl::string_view* position, Deadline deadline,
                           bool* moved);
  // Pulls until no rows move meanwhile; `step` above 0 begins it.
  absl::Status PullAll(absl::Span<const PullTarget> targets, int64_t step, Deadline deadline);
  // Waits until the updates of `exchanges` fit in what may be retained.
  absl::Status MakeRoom(absl::Span<Exchange* const> exchanges, Deadline deadline);
  absl::Status RunWave(DataPlan& plan, size_t wave, bool numbered, Deadline deadline);
  absl::Status RunExchanges(DataPlan& plan, absl::Span<Exchange* const> exchanges, bool numbered,
                            Deadline deadline);

  // --- client_steps.cc ---
  // Under sync, a new start: what its pushes after `point` are.
  void ResumeSteps(const ResumePoint& point, absl::Span<const wire::HelloReply> replies);
  // Whether its next push is one that counts, or is void, already.
  absl::StatusOr<bool> Recomputes(Deadline deadline);
  // Under sync: Step.
  absl::Status Contribute(absl::Span<const PushSource> sources, absl::string_view position,
                          int64_t rows, absl::Span<const PullTarget> targets, Deadline deadline);
  // Announces `step`, waits for others and pulls; the open step is in the book then.
  absl::Status PullStep(int64_t step, absl::Span<const PullTarget> targets, Deadline deadline);
  // *moved: rows have, and nothing is known of `targets`.
  absl::Status PullStepOnce(int64_t step, absl::Span<const PullTarget> targets, Deadline deadline,
                            bool* moved);
  absl::Status RunStepPulls(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                            Deadline deadline);
  absl::Status StepPulled(DataPlan& plan, Exchange& exchange);

  // --- client_catalog.cc ---
  absl::Status Place(const VariableSpec* existing, VariableSpec* spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(create_mutex_);
  absl::Status CreatePlaced(absl::Span<const VariableSpec> specs, Deadline deadline);
  // What they have, by the newest maps, which this client does not go by yet.
  absl::StatusOr<JobHoldings> DescribeOn(absl::Span<const int32_t> servers,
                                         Deadline deadline) override;
  absl::StatusOr<JobHoldings> DescribeOnce(absl::Span<const int32_t> servers, Deadline deadline);

  const ClientOptions options_;
  Retention retention_;
  RetentionPace pace_{retention_.limit_bytes()};  // of the push whose turn it is
  StepClock clock_;
  StepBook steps_;
  Membership::Flags flags_;  // of identity_
  ClientIdentity identity_;
  const ReachServer reach_;
  ServerTable sessions_;
  const FanOut::Limits retry_limits_;
  FanOut fan_out_{&retry_limits_};
  PlanLimits plan_limits_;
  PlanPool plans_;
  ClientVariableMap variables_;
  Membership membership_;
  std::string position_;
  // Under sync. True until this start has pushed again what there is up to recompute_through_.
  std::atomic<bool> recomputes_{false};
  int64_t recompute_through_ = 0;
  absl::Duration lease_ = absl::ZeroDuration();
  std::atomic<bool> left_{false};

  absl::Mutex create_mutex_;
  std::shared_ptr<Placement> placement_ ABSL_GUARDED_BY(create_mutex_);
  size_t placed_on_ ABSL_GUARDED_BY(create_mutex_) = 0;  // servers that placement_ is for

  PushOrder order_;
  MovedUpdates moved_updates_{identity_, sessions_, order_, fan_out_, variables_, *this};
  StalenessCounter staleness_;
  std::atomic<int64_t> bytes_pushed_{0};
  std::atomic<int64_t> bytes_pulled_{0};
  std::atomic<int64_t> retries_{0};
  std::atomic<int64_t> pushes_dropped_{0};
  std::atomic<int64_t> pushes_late_{0};

  // Shared by heartbeats; alone: DropJob, which forgets the worker.
  absl::Mutex heartbeat_mutex_;
  StopFlag stop_;
  absl::Mutex threads_mutex_;
  // One a server: one that is gone holds up no other's.
  std::vector<std::thread> heartbeats_ ABSL_GUARDED_BY(threads_mutex_);
  bool beating_ ABSL_GUARDED_BY(threads_mutex_) = false;
  EarlyEpochs early_epochs_{[this] { AskForEarlyEpochs(); }};
};

}  // namespace cairn
