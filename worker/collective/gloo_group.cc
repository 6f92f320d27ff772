#include "worker/collective/gloo_group.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/monotonic_cond_var.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "worker/collective/collective_call.h"
#include "worker/collective/control_server.h"
#include "worker/collective/control_wire.h"
#include "worker/collective/gloo_link.h"
#include "worker/collective/gloo_pair.h"
#include "worker/collective/gloo_ring.h"
#include "worker/collective/group_health.h"
#include "worker/collective/reduce_kernels.h"

namespace cairn {
namespace {

// A call begins with a greeting from each rank to each other: its call, and its input if the input
// is this small, or the beginning of the reason why the rank refuses its arguments. Greetings of
// odd and even calls have separate memory: a rank sends the greeting of call n + 2 only after it
// has received all greetings of call n + 1, whose senders have read those of call n.
constexpr size_t kEagerBytes = 4096;
constexpr size_t kGreetingBytes = sizeof(CollectiveCall) + kEagerBytes;
static_assert(sizeof(CollectiveCall) == 40, "sent as raw bytes: no padding");
constexpr uint64_t kGreetingTag = 1;  // for even calls; for odd calls add 1

// Part of a deadline that is reserved for finding the rank at fault after a transfer has failed.
absl::Duration TimeToAsk(Deadline deadline) {
  return std::min(absl::Milliseconds(500), deadline.Remaining() / 4);
}

// How often a rank that waits for another one asks for its status. Gloo does not report that a
// connection has ended if that happens in the middle of a message.
constexpr absl::Duration kWatchInterval = absl::Seconds(1);

// Time that Abort may take to tell the other ranks. Its caller must not wait longer.
constexpr absl::Duration kTimeToTell = absl::Milliseconds(100);

size_t InputBytes(const CollectiveCall& call) {
  return static_cast<size_t>(call.count) * DTypeBytes(call.dtype);
}

// `call`, for a purpose.
CollectiveCall CallFor(const CallPurpose& purpose, CollectiveCall call) {
  if (purpose.reduction.has_value()) call.reduction = 1 + static_cast<int32_t>(*purpose.reduction);
  call.shapes = purpose.shapes;
  return call;
}

bool IsEager(const CollectiveCall& call) { return InputBytes(call) <= kEagerBytes; }

absl::StatusOr<MutableBuffer> Placed(CollectiveGroup::PlaceGathered place,
                                     absl::Span<const int64_t> counts) {
  try {
    return place(counts);
  } catch (const std::exception& thrown) {
    return ResourceExhausted("no memory for the values of ", counts.size(),
                             " ranks: ", thrown.what());
  }
}

class GlooGroup final : public CollectiveGroup {
 public:
  explicit GlooGroup(const GlooOptions& options)
      : options_(options),
        health_(options.name, options.rank, options.addresses, [this] { link_->Interrupt(); }) {}
  ~GlooGroup() override;
  absl::Status Connect(Deadline deadline);

  int rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.addresses.size()); }
  const std::string& peer(int rank) const override {
    return options_.addresses[static_cast<size_t>(rank)];
  }

  absl::Status AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out, Deadline deadline,
                         const CallPurpose& purpose) override;
  absl::Status Broadcast(int root, MutableBuffer buffer, Deadline deadline,
                         const CallPurpose& purpose) override;
  absl::Status AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline,
                          const CallPurpose& purpose) override;
  absl::Status ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                             Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override;
  void Refuse(const absl::Status& why, Deadline deadline) override;
  void Abort(const absl::Status& why) override;
  absl::Status usable() const override { return health_.usable(); }
  absl::Status open_refusal() const override { return open_refusal_; }
  absl::Status FindFault(bool silence_is_fault, Deadline deadline) override;

 private:
  // The greetings of even or odd calls. Gloo's buffers refer to the memory and are destroyed first.
  struct Greetings {
    std::unique_ptr<char[]> out;
    std::vector<std::unique_ptr<char[]>> in;  // by rank; null for this rank
    std::unique_ptr<GlooBuffer> out_memory;
    std::vector<std::unique_ptr<GlooBuffer>> in_memory;
  };

  absl::Status CheckOptions() const;
  void PrepareGreetings();
  // Sends the greeting of this rank's call: `in` if it is small, or the reason of a refusal.
  void SendGreetings(const CollectiveCall& call, ConstBuffer in, absl::string_view reason);
  // Waits for the other ranks' greetings. After this call, calls_ has every rank's call, and
  // eager_of(r) rank r's input if it is small; of a broadcast, the root's; of a refused call, the
  // reason.
  void AwaitGreetings();
  // Ends the exchange of greetings, which have been read: posts receives for the call after the
  // next.
  void EndGreetings();
  template <typename Work>
  absl::Status Run(CollectiveCall call, ConstBuffer in, MutableBuffer* out, Deadline deadline,
                   Work work) {
    call.dtype = in.dtype;
    call.count = in.count;
    return RunChecked(call, in, CheckArguments(call, in, out, size()), deadline, work);
  }
  // `arguments` is an error if this rank refuses the call.
  template <typename Work>
  absl::Status RunChecked(CollectiveCall call, ConstBuffer in, const absl::Status& arguments,
                          Deadline deadline, Work work);
  // Makes this rank's next call, in which `exchange` transfers data: ends an open refusal first.
  template <typename Exchange>
  absl::Status MakeCall(CollectiveKind kind, Deadline deadline, Exchange exchange);
  // Finds the rank at fault, notifies the others, and closes the connections.
  void Break(const GlooFailure& failure, Deadline deadline);
  absl::Status Broken(CollectiveKind kind, uint64_t number) const;
  // What watcher_ does: ends waits that cannot end otherwise.
  void Watch();

  Greetings& greetings() { return greetings_[number_ & 1]; }
  const CollectiveCall& call_of(int rank) const { return calls_[static_cast<size_t>(rank)]; }
  // Bytes of the input that the rank of `call` sends right after its greeting.
  size_t PairBytes(const CollectiveCall& call) const {
    const bool sends = size() == 2 && call.kind == CollectiveKind::kAllReduce &&
                       call.refused == 0 && !IsEager(call) && InputBytes(call) <= kMaxPairBytes;
    return sends ? InputBytes(call) : 0;
  }
  // The input of another rank, which came with its greeting.
  const char* eager_of(int rank) {
    return greetings().in[static_cast<size_t>(rank)].get() + sizeof(CollectiveCall);
  }
  // Why another rank refused its arguments.
  std::string ReasonOf(int rank) {
    const int64_t bytes = std::clamp<int64_t>(call_of(rank).refused - 1, 0, kEagerBytes);
    return {eager_of(rank), static_cast<size_t>(bytes)};
  }
  // Every rank's input in rank order, from byte `offset` on. All came with the greetings, except
  // this rank's, which is `own`.
  std::vector<const void*> EagerInputs(const void* own, size_t offset);
  int Divisor(ReduceOp op) const { return op == ReduceOp::kMean ? size() : 1; }

  const GlooOptions options_;
  std::unique_ptr<GlooLink> link_;
  Greetings greetings_[2];
  std::unique_ptr<PairExchange> pair_;  // null unless there are two ranks
  std::vector<CollectiveCall> calls_;   // every rank's call, for the running one
  uint64_t number_ = 0;                 // of the running call
  // Why this rank refused its last call, whose greetings of the other ranks it has not received.
  absl::Status open_refusal_;
  GroupHealth health_;
  // The servers come last, so that their threads end before the state that they read.
  std::unique_ptr<ControlServer> rendezvous_server_;
  std::unique_ptr<ControlServer> status_server_;
  StopFlag ended_;
  std::thread watcher_;
};

absl::Status GlooGroup::CheckOptions() const {
  const size_t size = options_.addresses.size();
  if (size == 0 || size > kMaxGlooRanks || options_.rank < 0 || rank() >= this->size()) {
    return InvalidArgument("group '", options_.name, "': rank ", options_.rank, " of ", size,
                           " addresses; a group has 1 to ", kMaxGlooRanks,
                           " ranks, numbered from 0");
  }
  for (const std::string& address : options_.addresses) {
    RETURN_IF_ERROR(Annotate(ParseHostPort(address).status(), "group '" + options_.name + "'"));
  }
  return absl::OkStatus();
}

absl::Status GlooGroup::Connect(Deadline deadline) {
  RETURN_IF_ERROR(CheckOptions());
  ASSIGN_OR_RETURN(const HostPort own, ParseHostPort(peer(rank())));
  const std::string any_port = HostPortText(own.host, 0);
  ASSIGN_OR_RETURN(status_server_, ControlServer::Start(any_port, [this](const std::string& told) {
                     return health_.Exchange(told);
                   }));
  std::string rendezvous = options_.rendezvous_address;
  if (rendezvous.empty()) {
    rendezvous = peer(0);
    if (rank() == 0) {
      ASSIGN_OR_RETURN(rendezvous_server_, ControlServer::Start(rendezvous));
      rendezvous = rendezvous_server_->address();
    }
  }
  ASSIGN_OR_RETURN(link_, GlooLink::Open(own.host, rank(), size(), deadline));
  ControlWriter blob;
  blob.Bytes(status_server_->address());
  for (const std::string& address : link_->Addresses()) blob.Bytes(address);
  ASSIGN_OR_RETURN(
      const std::vector<std::string> blobs,
      Join(rendezvous, options_.name, rank(), options_.addresses, blob.Take(), deadline));
  std::vector<std::string> addresses, status_addresses;
  for (const std::string& other : blobs) {
    ControlReader reader(other);
    status_addresses.push_back(reader.Bytes());
    for (int r = 0; r < rank(); ++r) reader.Bytes();
    addresses.push_back(reader.Bytes());
  }
  health_.set_status_addresses(std::move(status_addresses));
  try {
    link_->Connect(addresses);
    PrepareGreetings();
  } catch (const GlooFailure& failure) {
    return Unavailable("group '", options_.name, "', ", RankText(rank(), peer(rank())),
                       ": no connection to ", RankText(failure.rank(), peer(failure.rank())), ": ",
                       failure.what(), "; connect again on every rank");
  }
  if (size() > 1) {
    ASSIGN_OR_RETURN(watcher_, StartThread([this] { Watch(); }));
  }
  return absl::OkStatus();
}

void GlooGroup::Watch() {
  uint64_t watched = 0;  // the wait that was in progress at the last look
  int asks = 0;
  while (!ended_.WaitFor(kWatchInterval)) {
    const GlooLink::Wait wait = link_->wait();
    if (wait.rank < 0 || wait.number != watched) {
      watched = wait.number;
      asks = 0;
    } else if (++asks >= health_.AsksAllowed(wait.rank, kWatchInterval)) {
      link_->InterruptIfStill(wait);
    }
  }
}

// Waits until the data that this rank sent in its last calls has reached the other ranks.
GlooGroup::~GlooGroup() {
  ended_.Stop();
  if (watcher_.joinable()) watcher_.join();
  if (link_ == nullptr || !usable().ok()) return;
  link_->set_deadline(Deadline::In(absl::Seconds(1)));
  try {
    for (Greetings& greetings : greetings_) {
      if (greetings.out_memory != nullptr) greetings.out_memory->AwaitSent();
    }
  } catch (const GlooFailure&) {  // the other ranks are gone and need nothing more
  }
}

void GlooGroup::PrepareGreetings() {
  const auto ranks = static_cast<size_t>(size());
  calls_.resize(ranks);
  for (uint64_t parity = 0; parity < 2; ++parity) {
    Greetings& greetings = greetings_[parity];
    greetings.out = std::make_unique<char[]>(kGreetingBytes);
    greetings.out_memory =
        std::make_unique<GlooBuffer>(*link_, greetings.out.get(), kGreetingBytes);
    greetings.in.resize(ranks);
    greetings.in_memory.resize(ranks);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const auto at = static_cast<size_t>(r);
      greetings.in[at] = std::make_unique<char[]>(kGreetingBytes);
      greetings.in_memory[at] =
          std::make_unique<GlooBuffer>(*link_, greetings.in[at].get(), kGreetingBytes);
      greetings.in_memory[at]->Post(r, kGreetingTag + parity, 0, kGreetingBytes);
    }
  }
  if (size() == 2) pair_ = std::make_unique<PairExchange>(*link_);
}

void GlooGroup::SendGreetings(const CollectiveCall& call, ConstBuffer in,
                              absl::string_view reason) {
  Greetings& now = greetings();
  const uint64_t tag = kGreetingTag + (number_ & 1);
  const bool has_input = call.kind != CollectiveKind::kBroadcast || call.root == rank();
  size_t eager = call.refused == 0 && has_input && IsEager(call) ? in.bytes() : 0;
  if (call.refused != 0) eager = reason.size();
  const void* const sent = call.refused != 0 ? reason.data() : in.data;
  now.out_memory->AwaitSent();
  std::memcpy(now.out.get(), &call, sizeof(call));
  if (eager > 0) std::memcpy(now.out.get() + sizeof(call), sent, eager);
  for (int k = 1; k < size(); ++k) {
    now.out_memory->Send((rank() + k) % size(), tag, 0, sizeof(call) + eager);
  }
  if (PairBytes(call) > 0) pair_->Send(in);
  calls_[static_cast<size_t>(rank())] = call;
}

void GlooGroup::AwaitGreetings() {
  Greetings& now = greetings();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto at = static_cast<size_t>(r);
    now.in_memory[at]->AwaitReceived(r);
    std::memcpy(&calls_[at], now.in[at].get(), sizeof(CollectiveCall));
  }
}

void GlooGroup::EndGreetings() {
  if (pair_ != nullptr) pair_->Finish(PairBytes(call_of(1 - rank())));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    greetings().in_memory[static_cast<size_t>(r)]->Post(r, kGreetingTag + (number_ & 1), 0,
                                                        kGreetingBytes);
  }
}

std::vector<const void*> GlooGroup::EagerInputs(const void* own, size_t offset) {
  std::vector<const void*> inputs;
  inputs.reserve(calls_.size());
  for (int r = 0; r < size(); ++r) {
    inputs.push_back((r == rank() ? static_cast<const char*>(own) : eager_of(r)) + offset);
  }
  return inputs;
}

template <typename Exchange>
absl::Status GlooGroup::MakeCall(CollectiveKind kind, Deadline deadline, Exchange exchange) {
  const uint64_t number = number_ + 1;
  if (!health_.BeginCall(number)) {
    // A rank that the failure has not reached may wait for this one.
    if (!health_.has_told()) health_.Tell(kTimeToTell);
    number_ = number;
    return Broken(kind, number);
  }
  link_->set_deadline(Deadline::In(deadline.Remaining() - TimeToAsk(deadline)));
  absl::Status status;
  try {
    if (!open_refusal_.ok()) {
      AwaitGreetings();
      EndGreetings();
      open_refusal_ = absl::OkStatus();
    }
    number_ = number;
    status = exchange();
  } catch (const GlooFailure& failure) {
    Break(failure, deadline);
    return Broken(kind, number);
  } catch (const std::exception& thrown) {
    // Such as std::bad_alloc. The others wait for this rank.
    status = absl::ResourceExhaustedError(thrown.what());
    Abort(status);
    return Annotate(status, CallerText(kind, number, rank(), peer(rank())));
  }
  health_.EndCall();
  if (status.ok()) return status;
  return Annotate(status, CallerText(kind, number, rank(), peer(rank())));
}

template <typename Work>
absl::Status GlooGroup::RunChecked(CollectiveCall call, ConstBuffer in,
                                   const absl::Status& arguments, Deadline deadline, Work work) {
  const absl::string_view reason = arguments.message().substr(0, kEagerBytes);
  call.refused = arguments.ok() ? 0 : 1 + static_cast<int64_t>(reason.size());
  return MakeCall(call.kind, deadline, [&] {
    SendGreetings(call, in, reason);
    AwaitGreetings();
    const auto reason_of = [this](int refusing) { return ReasonOf(refusing); };
    absl::Status status =
        arguments.ok() ? CheckAgreement(calls_, options_.addresses, reason_of) : arguments;
    if (status.ok()) status = work(call);
    EndGreetings();
    return status;
  });
}

void GlooGroup::Break(const GlooFailure& failure, Deadline deadline) {
  if (!usable().ok()) return;  // Abort has reported it
  const absl::Duration left = std::max(deadline.Remaining(), absl::Milliseconds(50));
  health_.Conclude(health_.Ask(Deadline::In(left * 0.7)), number_, failure.rank(), failure.what(),
                   left * 0.2);
  link_->Close();
}

absl::Status GlooGroup::FindFault(bool silence_is_fault, Deadline deadline) {
  RETURN_IF_ERROR(usable());
  GroupHealth::Statuses statuses = health_.Ask(deadline);
  int at_fault = -1;
  for (size_t r = 0; r < statuses.size() && at_fault < 0; ++r) {
    const bool silent = !statuses[r].ok() && !absl::IsUnavailable(statuses[r].status());
    const bool fault = statuses[r].ok() ? !statuses[r]->failure.ok() : !silent || silence_is_fault;
    if (static_cast<int>(r) != rank() && fault) at_fault = static_cast<int>(r);
  }
  if (at_fault < 0) return usable();
  health_.Conclude(std::move(statuses), number_, at_fault, "", kTimeToTell);
  link_->Close();
  return usable();
}

absl::Status GlooGroup::Broken(CollectiveKind kind, uint64_t number) const {
  return Annotate(usable(), CallerText(kind, number, rank(), peer(rank())));
}

void GlooGroup::Abort(const absl::Status& why) {
  if (why.ok()) return;
  const GroupStatus before =
      health_.Fail(Aborted(RankText(rank(), peer(rank())),
                           " gave up: ", why.ToString(absl::StatusToStringMode::kWithNoExtraData)),
                   rank());
  if (!before.failure.ok()) return;
  const bool all_know = health_.Tell(kTimeToTell);
  link_->Interrupt();
  // Another rank may still be in the last call that this one has completed, whose data are on
  // their way.
  if (before.in_call || !all_know) link_->Close();
}

absl::Status GlooGroup::AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out, Deadline deadline,
                                  const CallPurpose& purpose) {
  return Run(CallFor(purpose, {.kind = CollectiveKind::kAllReduce, .reduce = op}), in, &out,
             deadline, [&](const CollectiveCall& call) {
               if (PairBytes(call) > 0) {
                 pair_->Sum(in, out, Divisor(op));
                 return absl::OkStatus();
               }
               if (!IsEager(call) && size() > 1) {
                 RingAllReduce(*link_, in, out, Divisor(op));
                 return absl::OkStatus();
               }
               const std::vector<const void*> inputs = EagerInputs(in.data, 0);
               SumBuffers(call.dtype, inputs, {&out.data, 1}, static_cast<size_t>(call.count),
                          Divisor(op));
               return absl::OkStatus();
             });
}

absl::Status GlooGroup::Broadcast(int root, MutableBuffer buffer, Deadline deadline,
                                  const CallPurpose& purpose) {
  return Run(CallFor(purpose, {.kind = CollectiveKind::kBroadcast, .root = root}), buffer, nullptr,
             deadline, [&](const CollectiveCall& call) {
               if (!IsEager(call)) {
                 ChainBroadcast(*link_, root, buffer);
               } else if (rank() != root && buffer.count > 0) {
                 std::memcpy(buffer.data, eager_of(root), buffer.bytes());
               }
               return absl::OkStatus();
             });
}

absl::Status GlooGroup::AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline,
                                   const CallPurpose& purpose) {
  const auto work = [&](const CollectiveCall&) {
    const auto ranks = static_cast<size_t>(size());
    std::vector<int64_t> counts(ranks);
    std::vector<size_t> bytes(ranks);
    const auto is_eager = std::make_unique<bool[]>(ranks);
    for (size_t r = 0; r < ranks; ++r) {
      counts[r] = calls_[r].count;
      bytes[r] = static_cast<size_t>(counts[r]) * DTypeBytes(in.dtype);
      is_eager[r] = IsEager(calls_[r]);
    }
    const absl::StatusOr<MutableBuffer> out = Placed(place, counts);
    absl::Status status = out.status();
    if (status.ok()) status = CheckPlace(*out, in.dtype, counts);
    char* to = status.ok() ? static_cast<char*>(out->data) : nullptr;
    DirectGather(*link_, in.data, bytes, absl::MakeConstSpan(is_eager.get(), ranks), to);
    for (size_t r = 0; r < ranks && to != nullptr; to += bytes[r], ++r) {
      const bool own = r == static_cast<size_t>(rank());
      if (bytes[r] == 0 || (!own && !is_eager[r])) continue;
      std::memcpy(to, own ? in.data : eager_of(static_cast<int>(r)), bytes[r]);
    }
    return status;
  };
  return Run(CallFor(purpose, {.kind = CollectiveKind::kAllGather}), in, nullptr, deadline, work);
}

absl::Status GlooGroup::ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                                      Deadline deadline) {
  return Run(
      {.kind = CollectiveKind::kReduceScatter, .reduce = op}, in, &out, deadline,
      [&](const CollectiveCall& call) {
        if (!IsEager(call) && size() > 1) {
          RingReduceScatter(*link_, in, out, Divisor(op));
          return absl::OkStatus();
        }
        const size_t offset = static_cast<size_t>(rank()) * out.bytes();
        const std::vector<const void*> inputs = EagerInputs(in.data, offset);
        SumBuffers(call.dtype, inputs, {&out.data, 1}, static_cast<size_t>(out.count), Divisor(op));
        return absl::OkStatus();
      });
}

absl::Status GlooGroup::Barrier(Deadline deadline) {
  return Run({.kind = CollectiveKind::kBarrier}, {}, nullptr, deadline,
             [](const CollectiveCall&) { return absl::OkStatus(); });
}

void GlooGroup::Refuse(const absl::Status& why, Deadline deadline) {
  if (why.ok()) return;
  const absl::string_view reason = why.message().substr(0, kEagerBytes);
  const CollectiveCall call = {.kind = CollectiveKind::kRefusal,
                               .refused = 1 + static_cast<int64_t>(reason.size())};
  MakeCall(call.kind, deadline, [&] {
    SendGreetings(call, {}, reason);
    // The next call waits for the others, so that this rank reports its error at once.
    open_refusal_ = why;
    return absl::OkStatus();
  }).IgnoreError();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectGloo(const GlooOptions& options,
                                                             Deadline deadline) {
  // Gloo writes to sockets without MSG_NOSIGNAL.
  struct sigaction action = {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
  auto group = std::make_unique<GlooGroup>(options);
  RETURN_IF_ERROR(group->Connect(deadline));
  return group;
}

}  // namespace cairn
