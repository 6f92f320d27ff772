#include "tests/simulator/server.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "ps_server/engine/server_load.h"
#include "ps_server/moves/move_pieces.h"
#include "thrift/errors.h"

namespace cairn::simulator {
namespace {

EngineOptions OptionsOf(int32_t index, const Options& options) {
  EngineOptions engine;
  engine.directory = absl::StrCat("simulated/ps-", index);
  engine.server_index = index;
  engine.server_count = std::max(options.servers, index + 1);
  engine.snapshot_interval = absl::Nanoseconds(options.snapshot_interval);
  engine.lease = absl::Nanoseconds(options.lease);
  return engine;
}

// A table of two columns with SGD. All buckets are on this server or, if rows move, on all servers
// of the cluster file but the last.
wire::VariableSpec TableSpec(int32_t server, const Options& options, int32_t stripes) {
  wire::VariableSpec spec;
  spec.name = TableOf(options, server);
  spec.kind = wire::VariableKind::EMBEDDING;
  spec.shape = {2};
  spec.optimizer.type = "sgd";
  spec.optimizer.learning_rate.arguments["learning_rate"] = 1;
  spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.bucket_ps.assign(stripes, server);
  const int32_t servers = std::max(options.servers - 1, 1);
  for (int32_t b = 0; options.rows_move() && b < stripes; ++b) spec.bucket_ps[b] = b % servers;
  return spec;
}

wire::Caller Anybody() {
  wire::Caller caller;
  caller.job = kJob;
  return caller;
}

}  // namespace

std::string TableOf(const Options& options, int32_t server) {
  return options.rows_move() ? kTable : absl::StrCat(kTable, "-", server);
}

// One start of the server. Its fibers keep it alive.
struct Server::Run {
  Run(const EngineOptions& options, Disk* disk, const DiskCosts& costs)
      : core(options, OpenOn(disk, costs, &alive)), service(core) {}

  bool alive = true;
  ServerCore core;
  Service service;
  std::map<int64_t, CallPtr> calls;  // unanswered
};

Server::Server(int32_t index, const Options& options, const Workload& work, Observer* observer,
               std::function<void(CallPtr)> answered)
    : index_(index),
      options_(options),
      work_(work),
      observer_(*observer),
      answered_(std::move(answered)),
      cores_(options.cores) {
  if (options.mutation == Mutation::kDiskLies) disk_.LoseEverySync();
  if (options.mutation == Mutation::kNeverSettles) disk_.NeverFlush();
  if (options.mutation == Mutation::kTornStripes) disk_.TearWrites();
}

Server::~Server() = default;

void Server::Start() {
  if (run_ != nullptr || retired_) return;
  ++starts_;
  run_ = std::make_shared<Run>(OptionsOf(index_, options_), &disk_, options_.disk);
  Scheduler::Current().Spawn("a server's start", [this, run = run_] { Load(run); });
}

void Server::Load(const std::shared_ptr<Run>& run) {
  ServerCore& core = run->core;
  const absl::Status members = core.members.Load(*core.store);
  CHECK(members.ok()) << members;
  const absl::StatusOr<int64_t> variables = LoadServer(core.catalog, core.moves, core.budget);
  CHECK(variables.ok()) << variables.status();
  if (*variables == 0 && index_ < options_.servers) {
    wire::ServerState state;
    try {
      run->service.create_variables(state, Anybody(),
                                    {TableSpec(index_, options_, work_.stripes())});
    } catch (const wire::ServerError& error) {
      CHECK(!run->alive) << error.message;
    }
  }
  if (!run->alive) return;
  std::fill(cores_.begin(), cores_.end(), Scheduler::Current().now());
  up_ = true;
  // Acts as the flusher's thread.
  while (run->alive) {
    Scheduler::Current().Sleep(absl::ToInt64Nanoseconds(core.flusher.TickInterval()));
    if (run->alive) core.flusher.Tick();
  }
}

void Server::Crash(bool machine, Random& random) {
  if (run_ == nullptr) return;
  ++observer_.server_crashes;
  const std::shared_ptr<Run> run = std::exchange(run_, nullptr);
  up_ = false;
  run->alive = false;
  epochs_before_ += run->core.flusher.epochs();
  if (machine) {
    disk_.EndMachine(random);
  } else {
    disk_.EndProcess();
  }
  for (const auto& job : run->core.registry.jobs()) {
    job->EndWaits(absl::UnavailableError("the server has crashed"));
  }
  for (auto& [number, call] : run->calls) {
    call->fate = Call::Fate::kBroken;
    call->broken = absl::UnavailableError("the connection was reset");
    answered_(call);
  }
  run->calls.clear();
}

bool Server::Receive(CallPtr call) {
  if (!up_) return false;
  const auto core = std::min_element(cores_.begin(), cores_.end());
  const auto cost = static_cast<Nanos>(static_cast<double>(options_.call_cost) * slow_);
  Scheduler& scheduler = Scheduler::Current();
  *core = std::max(*core, scheduler.now()) + cost;
  observer_.Served(index_, cost);
  run_->calls[call->number] = call;
  scheduler.At(*core, [this, run = run_, call = std::move(call)] {
    if (!run->alive) return;
    Scheduler::Current().Spawn("a call", [this, run, call] { Serve(run, call); });
  });
  return true;
}

// The pieces of a move (ps_server/moves/move_pieces.h) without the workers' sequences.
Payload WithoutNumbers(const Payload& data) {
  absl::string_view left(reinterpret_cast<const char*>(data.data()), data.size());
  std::string pieces;
  while (!left.empty()) {
    absl::StatusOr<MovePiece> piece = TakePiece(&left);
    CHECK(piece.ok()) << piece.status();
    if (piece->kind == PieceKind::kNumbers) piece->marks.clear();
    AppendPiece(*piece, &pieces);
  }
  return Payload::Copy(pieces.data(), pieces.size());
}

void Server::MutateMove(Run& run, wire::MoveRequest& request) const {
  const std::shared_ptr<Job> job = run.core.registry.Find(kJob);
  if (options_.mutation == Mutation::kNoClaims) request.start = 1;
  if (options_.mutation == Mutation::kHoldsAtOnce && job != nullptr) {
    for (const auto& session : job->sessions()) session->NoteCaughtUp();
  }
}

void Server::MutateReply(Call& call) const {
  if (options_.mutation == Mutation::kNoNumbers && !call.move_reply.data.empty()) {
    call.move_reply.data = WithoutNumbers(call.move_reply.data);
  }
}

void Server::Mutate(Run& run, Call& call) const {
  if (call.method == Method::kMove) MutateMove(run, call.move);
  if (options_.mutation == Mutation::kLastWordsHigh) {
    for (wire::LastWord& word : call.change.last_words) word.applied = int64_t{1} << 40;
  }
  if (options_.mutation == Mutation::kRaisesStep) call.hello.keeps_step = false;
  if (options_.mutation == Mutation::kMarksNotExact) {
    const std::shared_ptr<Variable> variable = table();
    for (int32_t b = 0; variable != nullptr && variable->table() != nullptr && b < work_.stripes();
         ++b) {
      Stripe* const stripe = variable->table()->stripe(static_cast<uint32_t>(b));
      if (stripe == nullptr || !stripe->exact()) continue;
      const std::vector<Watermark> marks(stripe->watermarks().begin() + 1,
                                         stripe->watermarks().end());
      stripe->LoadWatermarks(marks);
    }
  }
  wire::PushRequest* const push = PushOf(call);
  if (push == nullptr) return;
  switch (options_.mutation) {
    case Mutation::kNoAfter: push->caller.boot_id = push->sequence.after = 0; break;
    case Mutation::kNoFence:
      push->caller.incarnation =
          std::max(push->caller.incarnation, observer_.promised(index_, call.worker));
      call.data.pull.caller.incarnation = push->caller.incarnation;
      break;
    case Mutation::kNoIdentity: push->caller.worker = -1; break;
    default: break;
  }
}

void Server::Serve(const std::shared_ptr<Run>& run, const CallPtr& call) {
  if (!run->alive) return;
  const int64_t incarnation = CallerOf(*call).incarnation;
  const int64_t promised = PushOf(*call) == nullptr ? 0 : observer_.promised(index_, call->worker);
  Mutate(*run, *call);
  Execute(*run, *call);
  if (!run->alive) return;  // the reply is lost
  if (options_.show && call->method != Method::kHeartbeat) Show(*run, *call, incarnation);
  Observe(*run, *call, incarnation, promised);
  run->calls.erase(call->number);
  call->fate = Call::Fate::kAnswered;
  answered_(call);
}

void Server::Execute(Run& run, Call& call) {
  Service& service = run.service;
  try {
    switch (call.method) {
      case Method::kPush: service.push(call.data_reply.push, call.data.push); break;
      case Method::kPull: service.pull(call.data_reply.pull, call.data.pull); break;
      case Method::kStep: service.step(call.data_reply, call.data); break;
      case Method::kHello: service.hello(call.hello_reply, call.hello); break;
      case Method::kHeartbeat: service.heartbeat(call.state, call.caller); break;
      case Method::kLeave: service.leave(call.state, call.caller); break;
      case Method::kFlush: service.flush(call.state, call.caller); break;
      case Method::kMove:
        service.move(call.move_reply, call.move);
        MutateReply(call);
        break;
      case Method::kDescribe: service.describe(call.describe_reply, call.describe); break;
      case Method::kCreate: service.create_variables(call.state, call.caller, call.specs); break;
      case Method::kMembers: service.members(call.members, call.caller); break;
      case Method::kChangeMembers: service.change_members(call.change_reply, call.change); break;
    }
  } catch (const wire::ServerError& error) {
    call.refusal = FromServerError(error);
  }
}

void Server::Observe(Run& run, Call& call, int64_t incarnation, int64_t promised) {
  const wire::PushRequest* const push = PushOf(call);
  observer_.Trace(index_ * int64_t{16} + static_cast<int>(call.method), call.worker,
                  static_cast<int64_t>(call.refusal.code()) * 16 + ReasonOf(call.refusal));
  if (!call.refusal.ok()) return;
  if (call.method == Method::kHello) {
    const int64_t answered = call.hello_reply.incarnation;
    if (call.hello.incarnation == 0) {
      observer_.Granted(call.worker, call.hello.start, answered);
    }
    observer_.Promised(index_, call.worker, answered);
  }
  if (push != nullptr) {
    const int64_t sequence = push->sequence.sequence;
    wire::ServerState& state = call.data_reply.push.state;
    observer_.Trace(sequence, state.applied, state.durable);
    // A late part is applied before it waits for the disk, and a hello may be answered in the
    // meantime, so the promise is the one at its start.
    observer_.Pushed(index_, incarnation, sequence, call.worker,
                     push->late ? promised : observer_.promised(index_, call.worker));
    // Under sync the push waits for its step.
    if (options_.rows_move()) {
      CheckPushed(run, call, *push);
    } else if (!options_.sync() && observer_.pushes % options_.verify_one_in == 0) {
      CheckRows(run, call.worker, call.slot, work_.Stripes(call.worker, sequence, call.slot),
                std::max(state.applied, sequence));
    }
    if (options_.mutation == Mutation::kFreesApplied) {
      state.durable = state.applied;
      call.data_reply.pull.state = state;
    }
  }
  if (index_ == 0) observer_.Decided(call.data_reply.pull.decisions);
  CheckStep(run, call);
}

void Server::Show(Run& run, const Call& call, int64_t incarnation) {
  std::string text = absl::StrCat("worker ", call.worker, ".", incarnation, " ");
  const std::shared_ptr<Variable> variable = table();
  if (call.method == Method::kMove) {
    const wire::MoveRequest& move = call.move;
    absl::StrAppend(&text, "move ", wire::_MoveAction_VALUES_TO_NAMES.at(move.action), " map ",
                    move.map_version, " start ", move.start, " ps:", move.source,
                    " to ps:", move.target, " of ", absl::StrJoin(move.bucket_ps, ""), ", left ",
                    call.move_reply.bytes_left);
  } else if (const wire::PushRequest* push = PushOf(const_cast<Call&>(call)); push != nullptr) {
    absl::StrAppend(&text, push->late ? "late part" : "push", " ", push->sequence.sequence,
                    " after ", push->sequence.after, push->step > 0 ? " for a step" : "");
    for (const wire::PushItem& item : push->items) {
      absl::StrAppend(&text, ", map ", item.map_version, " buckets");
      for (const int64_t key : item.ids.As<int64_t>()) {
        absl::StrAppend(&text, " ", BucketOfKey(key, static_cast<uint32_t>(work_.stripes())));
      }
    }
    const wire::ServerState& state = call.data_reply.push.state;
    absl::StrAppend(&text, "; applied ", state.applied, " durable ", state.durable,
                    call.data_reply.push.repeated ? " repeated" : "");
  } else if (call.method == Method::kChangeMembers) {
    absl::StrAppend(&text, wire::_MembersAction_VALUES_TO_NAMES.at(call.change.action),
                    " ps:", call.change.index);
  } else {
    absl::StrAppend(&text, "call ", static_cast<int>(call.method));
  }
  std::fprintf(
      stderr, "%10.3f ms ps:%d.%d map %d %s: %s\n",
      static_cast<double>(Scheduler::Current().now()) / kMillisecond, index_,
      static_cast<int>(starts_),
      variable == nullptr ? 0 : static_cast<int>(variable->spec().map_version), text.c_str(),
      call.refusal.ok() ? "ok" : std::string(call.refusal.message().substr(0, 240)).c_str());
}

void Server::CheckStep(Run& run, const Call& call) {
  const bool pulls = call.method == Method::kStep || call.method == Method::kPull;
  if (!clock_of || !pulls || call.data.pull.step <= 0) return;
  // it has no rows, and workers may not say hello to it
  if (!run.core.members.CheckStays().ok()) return;
  const std::shared_ptr<Job> job = run.core.registry.Find(kJob);
  const int64_t needed = call.data.pull.step - options_.consistency.staleness_bound_steps;
  for (int32_t w = 0; w < options_.workers; ++w) {
    if (w == call.worker) continue;
    const int64_t clock = clock_of(w);
    if (clock < 0 || clock >= needed) continue;
    const std::shared_ptr<Session> session = job->FindSession(w);
    if (session == nullptr || !session->leased() || session->stopped()) continue;
    const std::vector<wire::WorkerStanding> standing = job->cohort().StandingsOf({w});
    observer_.Violation(absl::StrCat("staleness: ps:", index_, " lets worker ", call.worker,
                                     " begin step ", call.data.pull.step, " while worker ", w,
                                     " is at step ", clock, "; to the server it is ",
                                     standing[0].state, " at step ", standing[0].step));
  }
}

std::shared_ptr<Variable> Server::table() const {
  const std::shared_ptr<Job> job = run_ == nullptr ? nullptr : run_->core.registry.Find(kJob);
  if (job == nullptr) return nullptr;
  const auto variables = job->variables();
  const auto found = variables->find(TableOf(options_, index_));
  return found == variables->end() ? nullptr : found->second;
}

void Server::CheckPushed(Run& run, const Call& call, const wire::PushRequest& push) {
  if (options_.sync() || observer_.pushes % options_.verify_one_in != 0) return;
  const auto stripes = static_cast<uint32_t>(work_.stripes());
  uint32_t touched = 0;
  for (const wire::PushItem& item : push.items) {
    for (const int64_t key : item.ids.As<int64_t>()) touched |= 1u << BucketOfKey(key, stripes);
  }
  // Checks only `touched` stripes: the sequence says nothing about stripes that moved here.
  CheckRows(run, call.worker, 0, touched, push.sequence.sequence);
}

void Server::CheckRows(Run& run, int32_t worker, size_t slot, uint32_t stripes, int64_t sequence) {
  std::vector<uint32_t> found;
  std::vector<int64_t> keys;
  const std::shared_ptr<Variable> variable = table();
  for (uint32_t stripe = 0; stripe < static_cast<uint32_t>(work_.stripes()); ++stripe) {
    if ((stripes >> stripe & 1) == 0) continue;
    // moved away
    if (variable == nullptr || variable->table()->stripe(stripe) == nullptr) continue;
    found.push_back(stripe);
    keys.push_back(work_.Key(worker, stripe));
  }
  if (keys.empty()) return;
  wire::PullRequest request;
  request.caller = Anybody();
  wire::PullItem& item = request.items.emplace_back();
  item.variable = TableOf(options_, index_);
  item.selection = wire::Selection::KEYS;
  item.ids = Payload::View(keys.data(), keys.size() * sizeof(int64_t));
  wire::PullReply reply;
  run.service.pull(reply, request);
  const absl::Span<const float> values = reply.items[0].values.As<float>();
  for (size_t i = 0; i < found.size(); ++i) {
    const RowValue value{.pushes = values[2 * i], .marks = values[2 * i + 1]};
    if (options_.sync()) {
      observer_.CheckCounted(worker, slot, found[i], value);
    } else {
      observer_.CheckRow(worker, slot, found[i], sequence, value);
    }
  }
}

void Server::CheckEverything(int64_t steps) {
  const auto all = static_cast<uint32_t>((uint64_t{1} << work_.stripes()) - 1);
  for (int32_t w = 0; w < options_.workers; ++w) {
    if (options_.rows_move()) {
      CheckRows(*run_, w, 0, all, steps);
      continue;
    }
    const std::vector<int32_t>& servers = work_.Servers(w);
    const auto slot = std::find(servers.begin(), servers.end(), index_) - servers.begin();
    if (static_cast<size_t>(slot) < servers.size()) CheckRows(*run_, w, slot, all, steps);
  }
}

std::vector<std::string> Server::Waits() {
  std::vector<std::string> texts;
  if (run_ == nullptr) return {absl::StrCat("ps:", index_, " is down")};
  wire::WhyReply reply;
  try {
    run_->service.why(reply, Anybody());
  } catch (const wire::ServerError& error) {
    return {absl::StrCat("ps:", index_, ": ", error.message)};
  }
  for (const wire::WaitingCall& call : reply.waiting) {
    texts.push_back(absl::StrCat("ps:", index_, ": ", call.text));
  }
  return texts;
}

int64_t Server::epochs() const {
  return epochs_before_ + (run_ == nullptr ? 0 : run_->core.flusher.epochs());
}

}  // namespace cairn::simulator
