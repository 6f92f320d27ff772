#include "tests/simulator/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"

namespace cairn {

// The simulation's access to internals of a client, and the changes that mutations make.
class PsClientPeer {
 public:
  explicit PsClientPeer(PsClientImpl& client) : client_(client) {}

  int64_t next() const { return client_.order_.next(); }
  int64_t clock() const { return client_.clock_.Announced(); }
  const ServerTable& sessions() const { return client_.sessions_; }

  // Pretends that no server has a push of an earlier start, so that none is sent one first.
  void ForgetWhoHadPushes() {
    for (size_t s = 0; s < sessions().size(); ++s) Begin(s, 0, sessions()[s].last_part(), -1);
    client_.deliverer_.Begin({});
  }
  // Pretends that every stored position requires every push from every server, so that no part is
  // sent ahead.
  void AskEverybody() {
    client_.deliverer_.Begin(
        {.assumed_complete = std::vector<std::vector<SequenceRange>>(sessions().size())});
  }
  // Resumes after the highest push that any server has.
  void ResumeHighest() {
    int64_t highest = next() - 1;
    for (size_t s = 0; s < sessions().size(); ++s) {
      highest = std::max(highest, sessions()[s].had_at_start());
    }
    for (size_t s = 0; s < sessions().size(); ++s) {
      Begin(s, sessions()[s].had_at_start(), sessions()[s].had_at_start(), highest);
    }
    client_.order_.Reset(highest, client_.position());
    AskEverybody();
  }
  // Numbers the next push above `through`, once every push up to `computed_again_through` is
  // recomputed.
  void SkipVoid(int64_t computed_again_through, int64_t through) {
    if (next() > computed_again_through && next() <= through) client_.order_.Reset(through, "");
  }

 private:
  // `through` -1: unchanged.
  void Begin(size_t server, int64_t durable, int64_t last_part, int64_t through) {
    ServerSession& session = sessions()[server];
    if (session.departed()) return;
    wire::Caller caller;
    wire::HelloReply reply;
    reply.state.boot_id = session.FillCaller(&caller);
    reply.state.durable = durable;
    reply.state.closed_step = session.closed_step();
    reply.state.durable_step = session.durable_step();
    session.Begin(reply, caller.incarnation, last_part, through < 0 ? caller.through : through);
  }

  PsClientImpl& client_;
};

namespace simulator {
namespace {

// Longer than any outage: ps_wait ends a call first.
constexpr absl::Duration kCallDeadline = absl::Minutes(10);

Deadline Soon() { return Deadline::In(kCallDeadline); }

}  // namespace

Client::Client(Network* network, const Workload& work, std::shared_ptr<Process> process)
    : network_(*network), work_(work), process_(std::move(process)) {}

absl::Status Client::Connect() {
  const Options& options = network_.options();
  const std::vector<int32_t>& servers = work_.Servers(process_->worker);
  ClientOptions client;
  client.job = kJob;
  client.worker = process_->worker;
  client.task = absl::StrCat("worker:", process_->worker);
  client.consistency = options.consistency;
  client.expected_workers = options.sync() ? options.workers : 0;
  const auto reach = [&network = network_, &servers, process = process_](
                         int32_t slot, const std::string&) -> absl::StatusOr<ReachedServer> {
    const auto index = static_cast<size_t>(slot);
    const int32_t server = index < servers.size() ? servers[index] : slot;
    return ReachedServer{absl::StrCat("ps:", server),
                         SimulatedLink(&network, process, index, servers.size(), server)};
  };
  ASSIGN_OR_RETURN(client_, PsClientImpl::Start(client, static_cast<int32_t>(servers.size()), reach,
                                                Soon(), absl::Nanoseconds(options.heartbeat)));
  MutateStart();
  item_ = PsClientPeer(*client_).next() - 1;
  if (options.sync() && !absl::SimpleAtoi(client_->position(), &item_)) item_ = 0;
  return client_->Describe(Soon()).status();
}

void Client::MutateStart() {
  PsClientPeer peer(*client_);
  switch (network_.options().mutation) {
    case Mutation::kResumesHighest: peer.ResumeHighest(); break;
    case Mutation::kHadItLast: peer.ForgetWhoHadPushes(); break;
    case Mutation::kNoneAhead: peer.AskEverybody(); break;
    default: break;
  }
}

int64_t Client::clock() const { return client_ == nullptr ? -1 : PsClientPeer(*client_).clock(); }

void Client::Compute() {
  parts_.clear();
  const bool moves = network_.options().rows_move();
  const std::vector<int32_t>& servers = work_.Servers(process_->worker);
  for (size_t slot = 0; slot < (moves ? 1 : servers.size()); ++slot) {
    const uint32_t stripes = work_.Stripes(process_->worker, next(), slot);
    if (stripes == 0) continue;
    Part& part = parts_.emplace_back();
    part.table = TableOf(network_.options(), servers[slot]);
    for (uint32_t stripe = 0; stripes >> stripe != 0; ++stripe) {
      if ((stripes >> stripe & 1) == 0) continue;
      part.keys.push_back(work_.Key(process_->worker, stripe));
      part.values.push_back(-1);  // SGD subtracts
      part.values.push_back(static_cast<float>(-Workload::Mark(process_->worker, next())));
    }
    part.pulled.resize(part.values.size());
  }
}

std::vector<PushSource> Client::Sources() const {
  std::vector<PushSource> sources;
  for (const Part& part : parts_) {
    sources.push_back({.variable = part.table,
                       .part = cairn::Part::kKeys,
                       .ids = part.keys,
                       .values = AsBytes(absl::MakeConstSpan(part.values))});
  }
  return sources;
}

std::vector<PullTarget> Client::Targets() {
  std::vector<PullTarget> targets;
  for (Part& part : parts_) {
    targets.push_back({.variable = part.table,
                       .part = cairn::Part::kKeys,
                       .ids = part.keys,
                       .out = AsWritableBytes(absl::MakeSpan(part.pulled))});
  }
  return targets;
}

absl::Status Client::Step() {
  const Options& options = network_.options();
  if (options.mutation == Mutation::kLeavesOutVoid) {
    PsClientPeer(*client_).SkipVoid(process_->first_applied, process_->highest_applied);
  }
  Compute();
  if (options.sync()) {
    network_.observer().Contributes(process_->worker, PsClientPeer(*client_).next(), next());
  }
  const std::string position = options.sync() ? absl::StrCat(next()) : "";
  RETURN_IF_ERROR(client_->Step(Sources(), position, Targets(), Soon(), /*rows=*/1));
  ++item_;
  if (options.rows_move() && !options.sync()) CheckPulled();
  return absl::OkStatus();
}

absl::Status Client::BeginSteps() { return client_->Step({}, "", {}, Soon(), /*rows=*/1); }

absl::Status Client::EndSteps() { return client_->EndSteps(Soon()); }

absl::Status Client::Leave() { return client_->Leave(Soon()); }

void Client::Close() { client_ = nullptr; }

void Client::CheckPulled() const {
  for (const Part& part : parts_) {
    for (size_t i = 0; i < part.keys.size(); ++i) {
      const auto stripe = BucketOfKey(part.keys[i], static_cast<uint32_t>(work_.stripes()));
      network_.observer().CheckRow(process_->worker, 0, stripe, item_,
                                   {.pushes = part.pulled[2 * i], .marks = part.pulled[2 * i + 1]});
    }
  }
}

}  // namespace simulator
}  // namespace cairn
