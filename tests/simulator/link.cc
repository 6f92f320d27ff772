// The client's links into the simulated network.
#include <algorithm>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/simulator/network.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"

namespace cairn::simulator {
namespace {

struct Failed {
  Outcome outcome;
};

Outcome Dead() { return {Progress::kNotSent, absl::CancelledError("the process has ended")}; }

Payload Copied(const Payload& payload) { return Payload::Copy(payload.data(), payload.size()); }

class FiberChannel;

class Link : public ServerLink {
 public:
  Link(Network* network, std::shared_ptr<Process> process, size_t slot, size_t slots,
       int32_t server)
      : network_(*network),
        process_(std::move(process)),
        slot_(slot),
        slots_(slots),
        server_(server) {}

  Outcome Take(Deadline deadline, cairn::Channel** channel) override;
  void Release(cairn::Channel* channel) override { idle_.push_back(channel); }
  void Discard(cairn::Channel* channel) override {
    idle_.push_back(channel);
    connected_to_ = 0;
  }
  bool in_process() const override { return false; }

  Network& network() { return network_; }
  Process& process() { return *process_; }
  size_t slot() const { return slot_; }
  size_t slots() const { return slots_; }
  CallPtr New(Method method) {
    CallPtr call = network_.NewCall(*process_, slot_, server_);
    call->method = method;
    return call;
  }
  // Processes the reply to the process's first hello to the server. Under a mutation, servers other
  // than ps:0 hide their sequences.
  void NoteHello(wire::HelloReply& reply);
  // Highest acknowledged push on this link; a push with a lower number is a replay.
  int64_t acknowledged = 0;

 private:
  Outcome Connect(Deadline deadline);

  Network& network_;
  const std::shared_ptr<Process> process_;
  const size_t slot_, slots_;
  const int32_t server_;
  int64_t connected_to_ = 0;  // number of the server's start; 0: not connected
  std::vector<std::unique_ptr<cairn::Channel>> channels_;
  std::vector<cairn::Channel*> idle_;
};

void Link::NoteHello(wire::HelloReply& reply) {
  if (process_->connected) return;
  int64_t& applied = reply.state.applied;
  if (slot_ == 0) process_->first_applied = applied;
  process_->highest_applied = std::max(process_->highest_applied, applied);
  if (slot_ != 0 && network_.options().mutation == Mutation::kLeavesOutVoid) applied = 0;
}

// The service, whose calls go over the simulated network.
class Stub;

class FiberChannel : public cairn::Channel {
 public:
  explicit FiberChannel(Link* link) : link_(*link) {}

  Outcome Send(const DataCall& call, Deadline deadline) override;
  Outcome Receive(DataCall& call, Deadline deadline) override;
  Outcome Call(absl::string_view method, absl::FunctionRef<void(wire::ParameterServerIf&)> body,
               Deadline deadline) override;

  CallPtr New(Method method) { return link_.New(method); }
  // Mutation: sends the late parts that should have gone before the part that was just answered.
  void SendPutOff(Deadline deadline);
  // Waits for the reply to `call`, which was sent.
  Outcome Await(const CallPtr& call, Deadline deadline);
  Link& link() { return link_; }

 private:
  Link& link_;
  CallPtr sent_;  // between Send and Receive
  bool pretended_ = false;
};

class Stub : public wire::ParameterServerNull {
 public:
  Stub(FiberChannel* channel, Deadline deadline) : channel_(*channel), deadline_(deadline) {}

  void hello(wire::HelloReply& reply, const wire::HelloRequest& request) override {
    const CallPtr call = channel_.New(Method::kHello);
    call->hello = request;
    const uint64_t bit = uint64_t{1} << channel_.link().slot();
    channel_.link().process().unsure |= bit;
    Travel(call);
    channel_.link().process().unsure &= ~bit;
    reply = call->hello_reply;
    channel_.link().NoteHello(reply);
    if (channel_.link().network().options().rows_move()) return;
    // The worker knows only some servers, and numbers them from 0.
    reply.server_index = static_cast<int32_t>(channel_.link().slot());
    reply.server_count = static_cast<int32_t>(channel_.link().slots());
  }
  void heartbeat(wire::ServerState& state, const wire::Caller& caller) override {
    Tell(Method::kHeartbeat, state, caller);
  }
  void leave(wire::ServerState& state, const wire::Caller& caller) override {
    Tell(Method::kLeave, state, caller);
  }
  void flush(wire::ServerState& state, const wire::Caller& caller) override {
    Tell(Method::kFlush, state, caller);
  }
  void pull(wire::PullReply& reply, const wire::PullRequest& request) override {
    const CallPtr call = channel_.New(Method::kPull);
    call->data.pull = request;
    Travel(call);
    reply = call->data_reply.pull;
  }
  void move(wire::MoveReply& reply, const wire::MoveRequest& request) override {
    const CallPtr call = channel_.New(Method::kMove);
    call->move = request;
    Travel(call);
    reply = call->move_reply;
  }
  void describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) override {
    const CallPtr call = channel_.New(Method::kDescribe);
    call->describe = request;
    Travel(call);
    reply = call->describe_reply;
    if (channel_.link().network().options().rows_move()) return;
    for (wire::VariableInfo& info : reply.variables) {
      const auto slot = static_cast<int32_t>(channel_.link().slot());
      std::fill(info.spec.bucket_ps.begin(), info.spec.bucket_ps.end(), slot);
    }
  }
  void create_variables(wire::ServerState& state, const wire::Caller& caller,
                        const std::vector<wire::VariableSpec>& specs) override {
    const CallPtr call = channel_.New(Method::kCreate);
    call->caller = caller;
    call->specs = specs;
    Travel(call);
    state = call->state;
  }
  void members(wire::Members& members, const wire::Caller& caller) override {
    const CallPtr call = channel_.New(Method::kMembers);
    call->caller = caller;
    Travel(call);
    members = call->members;
  }
  void change_members(wire::ChangeMembersReply& reply,
                      const wire::ChangeMembersRequest& request) override {
    const CallPtr call = channel_.New(Method::kChangeMembers);
    call->change = request;
    Travel(call);
    reply = call->change_reply;
  }

 private:
  void Tell(Method method, wire::ServerState& state, const wire::Caller& caller) {
    const CallPtr call = channel_.New(method);
    call->caller = caller;
    Travel(call);
    state = call->state;
  }
  void Travel(const CallPtr& call) {
    channel_.link().network().Send(call);
    Outcome outcome = channel_.Await(call, deadline_);
    if (outcome.progress != Progress::kAnswered || !outcome.status.ok()) {
      throw Failed{std::move(outcome)};
    }
  }

  FiberChannel& channel_;
  const Deadline deadline_;
};

Outcome FiberChannel::Await(const CallPtr& call, Deadline deadline) {
  Process& process = link_.process();
  Scheduler& scheduler = Scheduler::Current();
  if (process.alive && call->fate == Call::Fate::kUnderWay) {
    call->waited_for = true;
    call->waiter = scheduler.Prepare();
    process.waiting.push_back(call);
    const Nanos left = absl::ToInt64Nanoseconds(deadline.Remaining());
    scheduler.Wait(call->waiter, scheduler.now() + std::min(left, kForever - scheduler.now()));
    call->waited_for = false;
    process.waiting.erase(std::find(process.waiting.begin(), process.waiting.end(), call));
  }
  if (!process.alive) return {Progress::kUnknown, Dead().status};
  switch (call->fate) {
    case Call::Fate::kAnswered: return {Progress::kAnswered, call->refusal};
    case Call::Fate::kBroken: return {Progress::kUnknown, call->broken};
    case Call::Fate::kUnderWay: break;
  }
  call->fate = Call::Fate::kBroken;  // the caller has given up
  return {Progress::kUnknown, absl::DeadlineExceededError("no answer came in time")};
}

Outcome FiberChannel::Send(const DataCall& call, Deadline) {
  if (!link_.process().alive) return Dead();
  const wire::PushRequest& push = call.request.push;
  const Mutation mutation = link_.network().options().mutation;
  const bool puts_off =
      mutation == Mutation::kLateLast && call.kind == CallKind::kPush && push.late;
  pretended_ = puts_off || (mutation == Mutation::kForgetsReplay && call.kind == CallKind::kPush &&
                            push.sequence.sequence <= link_.acknowledged);
  if (pretended_ && !puts_off) return {};
  switch (call.kind) {
    case CallKind::kPush:
    case CallKind::kAssign: sent_ = New(Method::kPush); break;
    case CallKind::kPull: sent_ = New(Method::kPull); break;
    case CallKind::kStep: sent_ = New(Method::kStep); break;
  }
  // The call may arrive after its caller has continued, so it needs copies of the payloads.
  if (call.kind != CallKind::kPull) {
    sent_->data.push = push;
    for (wire::PushItem& item : sent_->data.push.items) {
      item.ids = Copied(item.ids);
      item.values = Copied(item.values);
    }
  }
  if (call.kind != CallKind::kPush) {
    sent_->data.pull = call.request.pull;
    for (wire::PullItem& item : sent_->data.pull.items) item.ids = Copied(item.ids);
  }
  if (puts_off) {
    link_.process().put_off.push_back(std::exchange(sent_, nullptr));
    return {};
  }
  link_.network().Send(sent_);
  return {};
}

Outcome FiberChannel::Receive(DataCall& call, Deadline deadline) {
  if (std::exchange(pretended_, false)) return {};
  const CallPtr sent = std::exchange(sent_, nullptr);
  Outcome outcome = Await(sent, deadline);
  if (outcome.progress != Progress::kAnswered || !outcome.status.ok()) return outcome;
  call.reply = sent->data_reply;
  if (sent->method != Method::kPull) {
    link_.acknowledged = std::max(link_.acknowledged, sent->data.push.sequence.sequence);
    SendPutOff(deadline);
  }
  return outcome;
}

void FiberChannel::SendPutOff(Deadline deadline) {
  constexpr Nanos kPause = 50 * kMillisecond;
  for (const CallPtr& put_off : std::exchange(link_.process().put_off, {})) {
    const auto sent = [&] {
      const CallPtr call = link_.network().NewCall(link_.process(), put_off->slot, put_off->server);
      call->method = put_off->method;
      call->data = put_off->data;
      link_.network().Send(call);
      const Outcome outcome = Await(call, deadline);
      return outcome.progress == Progress::kAnswered &&
             ReasonOf(outcome.status) != wire::ErrorReason::BUSY;
    };
    while (link_.process().alive && !sent()) Scheduler::Current().Sleep(kPause);
  }
}

Outcome FiberChannel::Call(absl::string_view,
                           absl::FunctionRef<void(wire::ParameterServerIf&)> body,
                           Deadline deadline) {
  if (!link_.process().alive) return Dead();
  Stub stub(this, deadline);
  try {
    body(stub);
  } catch (const Failed& failed) {
    return failed.outcome;
  }
  return {};
}

Outcome Link::Connect(Deadline deadline) {
  Scheduler& scheduler = Scheduler::Current();
  network_.observer().Attempt();
  process_->unreached.insert(server_);
  const Nanos blocked = network_.Blocked(process_->worker, server_);
  const Nanos left = absl::ToInt64Nanoseconds(deadline.Remaining());
  if (blocked >= left) {
    scheduler.Sleep(left);
    return {Progress::kNotSent, absl::DeadlineExceededError("no connection in time")};
  }
  scheduler.Sleep(blocked + 2 * network_.Delay());
  if (!process_->alive) return Dead();
  Server& server = network_.server(server_);
  if (!server.up()) return {Progress::kNotSent, absl::UnavailableError("connection refused")};
  connected_to_ = server.start_number();
  process_->unreached.erase(server_);
  return {};
}

Outcome Link::Take(Deadline deadline, cairn::Channel** channel) {
  *channel = nullptr;
  if (!process_->alive) return Dead();
  if (connected_to_ != network_.server(server_).start_number()) {
    Outcome outcome = Connect(deadline);
    if (!outcome.status.ok()) return outcome;
  }
  if (idle_.empty()) {
    channels_.push_back(std::make_unique<FiberChannel>(this));
    idle_.push_back(channels_.back().get());
  }
  *channel = idle_.back();
  idle_.pop_back();
  return {};
}

}  // namespace

std::unique_ptr<ServerLink> SimulatedLink(Network* network, std::shared_ptr<Process> process,
                                          size_t slot, size_t slots, int32_t server) {
  return std::make_unique<Link>(network, std::move(process), slot, slots, server);
}

}  // namespace cairn::simulator
