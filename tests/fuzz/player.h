// Plays one sequence of calls against a server, and compares every answer with the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/fuzz/choices.h"
#include "tests/fuzz/model.h"
#include "tests/fuzz/target.h"

namespace cairn::fuzz {

// A finding in a few words, which stay the same when the calls that lead to it become simpler, and
// its details. Empty: no finding.
struct Finding {
  std::string what;
  std::string details;
  explicit operator bool() const { return !what.empty(); }
};

// Called around each call, for failing allocations; invoking `call` sends the call once.
using AroundCall =
    std::function<Outcome(absl::string_view method, absl::FunctionRef<Outcome()> call)>;

// One job. Thread safety: none.
class Player {
 public:
  // `trace` is called with every call before the call is made; may be null. All arguments must
  // outlive the player.
  Player(Target& target, std::string job, std::function<void(const std::string&)> trace,
         AroundCall around = nullptr);

  // Chooses the properties of the sequence: its workers, their consistency, the kinds of calls.
  Finding Begin(Choices& choices);
  // Makes one call, and the calls that check it.
  Finding Step(Choices& choices);
  // Checks everything once more; then drops the job.
  Finding End();

 private:
  enum class Mode { kAsync, kSsp, kSync };
  enum Op : size_t {
    kPush,
    kPull,
    kAssign,
    kStep,
    kHeld,
    kScan,
    kCreate,
    kHello,
    kDescribe,
    kHeartbeat,
    kFlush,
    kWhy,
    kRules,
    kTools,
    kLeave,
    kMoves,
    kStrangers,
    kRestart,
    kCrash,
    kCheckpoint,
    kDrop,
    kContribute,
    kBegin,
    kOps
  };
  struct Held {
    std::string bytes;
    wire::HeldCopy copy;
  };
  struct Contribution {
    int64_t step = 0;
    int64_t rows = 0;
    std::string variable;
    int32_t shard = 0;
    std::vector<double> gradient;  // of the whole shard; empty: not computed here
    wire::PushRequest request;
  };
  // A shard whose step closes: its state before, and the sum of its contributions.
  struct Closing {
    std::string before;
    std::vector<bool> stale;
    std::vector<double> gradient;  // sum of the gradients, each times its rows
    std::vector<double> size;      // sum of their absolute values
  };
  // A push that is about to be sent, with its expected outcome.
  struct Plan {
    bool admitted = true;  // the caller is admitted
    bool ordered = true;   // the sequence may come now
    bool replay = false;
    bool repeated = false;
    bool hides_loss = false;  // passes only because of `through`, of a caller that names no boot
    bool finite = true;
    Verdict items = Verdict::kAccepted;
    std::string why;
    int64_t sequence = 0;
    Worker* worker = nullptr;
    std::vector<Resolved> resolved;
    std::vector<int32_t> shards;
    std::vector<std::string> gradients;
    bool accepted() const {
      return admitted && ordered && !replay && finite && items == Verdict::kAccepted;
    }
  };

  Finding Run(Op op, Choices& choices);
  template <typename Request>
  void Trace(const char* method, const Request& request);
  using Service = wire::ParameterServerIf;
  // Sends with an empty reply for every try.
  template <typename Reply, typename Request>
  Outcome Send(const char* method, Reply& reply, const Request& request,
               void (Service::*call)(Reply&, const Request&));
  Finding Fail(std::string what, std::string details = "") const;
  // Reports an outcome that is a finding for any request.
  Finding Insane(const Outcome& outcome) const;

  // Callers. player_jobs.cc
  wire::Caller AnyCaller(Choices& choices, bool may_be_odd);
  wire::Caller Tool() const;
  wire::Caller CallerOf(int32_t worker) const;
  Worker* WorkerOf(const wire::Caller& caller);
  // Whether the server admits the caller; records its `through`.
  bool Admits(const wire::Caller& caller);
  void NoteCall(const wire::Caller& caller);
  void Announce(int32_t worker, int64_t step);
  Finding CheckState(const wire::Caller& caller, const wire::ServerState& state);
  Finding Create(Choices& choices);
  Finding CreateOne(const wire::Caller& caller, const std::vector<wire::VariableSpec>& specs);
  Finding Hello(Choices& choices);
  Finding HelloOf(int32_t worker, Choices* odd);
  Finding SimpleCall(Op op, Choices& choices);
  Finding Restart(bool crash);
  Finding Drop();

  // player_tools.cc
  Finding Rules(Choices& choices);
  Finding CheckKept(VariableModel& variable);
  Finding Tools(Choices& choices);
  // A restore from directories that hold no checkpoint.
  Outcome RestoreOfNothing(Choices& choices);
  Finding Moves(Choices& choices);
  Finding Checkpoint(Choices& choices);
  Finding RestoreFrom(const wire::CheckpointReply& written);

  // player_strangers.cc
  // Calls about unknown or dropped jobs, and by unknown workers of this one.
  Finding Strangers(Choices& choices);
  wire::Caller AnyStranger(Choices& choices, const std::string& job);
  Outcome StrangeUpdate(Choices& choices, const wire::Caller& caller);
  Outcome StrangeCall(Choices& choices, const std::string& job);
  // Sends once: the calls are not repeatable, because each try may change what the next one finds.
  template <typename Reply, typename Request>
  Outcome SendStrange(const char* method, Reply& reply, const Request& request,
                      void (Service::*call)(Reply&, const Request&));

  // player_updates.cc
  std::string PickVariable(Choices& choices);
  wire::PushItem AnyPushItem(Choices& choices);
  wire::AssignItem AnyAssignItem(Choices& choices);
  template <typename Item>
  void FillTarget(Choices& choices, bool repeats, Item& item);
  wire::Sequence AnySequence(Choices& choices, const wire::Caller& caller);
  template <typename Request>
  void PlanOrder(const Request& request, Plan& plan);
  void PlanItems(const wire::PushRequest& request, Plan& plan);
  void PlanItems(const wire::AssignRequest& request, Plan& plan);
  template <typename Request>
  Finding Judge(const Request& request, const Plan& plan, const Outcome& outcome,
                const wire::PushReply& reply, bool* applied);
  void Consume(const Plan& plan, const wire::Sequence& sequence);
  void Forget(VariableModel& variable, int32_t shard);
  wire::PushRequest AnyPush(Choices& choices);
  Finding Push(Choices& choices);
  Finding StepCall(Choices& choices);
  void Apply(const wire::PushRequest& request, const Plan& plan);
  Finding Assign(Choices& choices);

  // player_reads.cc
  wire::PullItem AnyPullItem(Choices& choices, bool may_be_odd);
  Finding CheckPulled(const wire::PullItem& item, const Resolved& resolved,
                      const wire::PulledItem& pulled);
  Finding Pull(Choices& choices);
  Finding PullHeld(Choices& choices);
  Finding Scan(Choices& choices);
  Finding Describe(Choices& choices);
  Finding Verify(const std::string& name, int32_t max_rows = 65536);
  Finding VerifyDense(VariableModel& variable);
  Finding VerifyTable(VariableModel& variable, int32_t max_rows);
  Finding VerifyAll();

  // player_steps.cc
  Finding Contribute(Choices& choices);
  Finding BeginStep(Choices& choices);
  Finding CloseStep(int64_t step);
  Closing BeginClosing(VariableModel& variable, int32_t index);
  Finding CheckMean(const VariableModel& variable, int32_t index, const Closing& closing,
                    double weight) const;

  Target& target_;
  const std::string job_;
  const std::function<void(const std::string&)> trace_;
  const AroundCall around_;
  Model model_;
  Mode mode_ = Mode::kAsync;
  wire::Consistency consistency_;
  int32_t worker_count_ = 1;
  std::vector<uint32_t> weights_;
  int64_t boot_id_ = 0;
  std::map<int32_t, int64_t> clocks_;  // ssp, sync: the last step announced
  std::set<int32_t> left_;             // ssp: workers that are not waited for
  std::map<std::pair<std::string, int32_t>, Held> held_;
  std::map<int32_t, Contribution> pending_;
  int64_t open_step_ = 1;
  int moves_ = 0;
  bool contributed_ = false;  // a stranger has a contribution that may wait for its step
};

// As one line, for people.
std::string TextOf(const wire::PushRequest& request);
std::string TextOf(const wire::AssignRequest& request);
std::string TextOf(const wire::PullRequest& request);
template <typename Request>
std::string TextOf(const Request& request);
// Numbers of a payload, as `dtype`; as int64 if `dtype` is 6.
std::string NumbersText(const Payload& bytes, int32_t dtype);

}  // namespace cairn::fuzz
