// The functions of context.h. They need the definition of Strategy, which context.h only declares.
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/context.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/reduce_values.h"
#include "worker/strategy/replica_barrier.h"
#include "worker/strategy/strategy.h"

namespace cairn {

Strategy& GetStrategy() {
  const ContextStack& stack = ContextStack::OfThisThread();
  return stack.top() != nullptr ? *stack.top()->strategy : DefaultStrategy();
}

bool HasStrategy() { return !GetStrategy().is_default(); }

bool InCrossReplicaContext() {
  const ContextStack& stack = ContextStack::OfThisThread();
  return stack.top() != nullptr && stack.top()->replica == nullptr;
}

std::shared_ptr<ReplicaContext> GetReplicaContext() {
  const ContextStack& stack = ContextStack::OfThisThread();
  if (stack.top() != nullptr) return stack.top()->replica;
  thread_local const auto outside =
      std::make_shared<ReplicaContext>(&DefaultStrategy(), nullptr, 0, 0, Cpu(0));
  return outside;
}

std::optional<int32_t> UpdateReplicaId() {
  const ContextStack& stack = ContextStack::OfThisThread();
  return stack.update_ids.empty() ? std::nullopt : stack.update_ids.back();
}

Device CurrentDevice() {
  const ContextStack& stack = ContextStack::OfThisThread();
  return stack.devices.empty() ? Cpu(0) : stack.devices.back().value;
}

absl::Status SetStrategy(Strategy* strategy) {
  ContextStack& stack = ContextStack::OfThisThread();
  const bool only_chosen =
      stack.modes.size() == 1 && stack.chosen != nullptr && stack.modes[0].scope == stack.chosen;
  if (!stack.modes.empty() && !only_chosen) {
    return FailedPrecondition(
        "SetStrategy must not be called inside a scope or replica function; this thread is in one "
        "of ",
        stack.top()->strategy->name(), "; leave it first");
  }
  stack.PopTo(0);
  stack.chosen = nullptr;
  if (strategy == nullptr || strategy->is_default()) return absl::OkStatus();
  RETURN_IF_ERROR(strategy->CheckCrossReplica("SetStrategy"));
  stack.chosen = stack.Enter(*strategy);
  return absl::OkStatus();
}

absl::Status OutsideEveryScope(absl::FunctionRef<absl::Status()> fn) {
  struct Restored {
    ~Restored() { ContextStack::OfThisThread() = std::move(entered); }
    ContextStack entered = std::exchange(ContextStack::OfThisThread(), ContextStack());
  };
  const Restored restored;
  return fn();
}

DeviceScope::DeviceScope(Device device) : left_(std::make_shared<std::atomic<bool>>(false)) {
  ContextStack::OfThisThread().devices.push_back({device, left_});
}

DeviceScope::~DeviceScope() { *left_ = true; }

int32_t ReplicaContext::num_replicas_in_sync() const {
  const Strategy* const strategy = this->strategy();
  return strategy == nullptr ? 0 : strategy->num_replicas_in_sync();
}

absl::Status ReplicaContext::CheckCurrent() const {
  const std::shared_ptr<ReplicaContext> current = GetReplicaContext();
  if (current.get() == this) return absl::OkStatus();
  const Strategy* const own = strategy();
  std::string found = "another replica's, or that of a later Run";
  if (own == nullptr) {
    found = "not of its strategy, which was destroyed";
  } else if (&GetStrategy() != own) {
    found = absl::StrCat("of ", GetStrategy().name(), ", not of this context's ", own->name());
  } else if (current == nullptr) {
    found = "cross-replica, so there is none";
  }
  return FailedPrecondition(
      "replica context of replica ", replica_id_, " used where the current one is ", found,
      "; call GetReplicaContext() inside the replica function and do not keep it");
}

absl::StatusOr<Value> MergeCallFor(ReplicaContext& context, const CallName& name,
                                   const ReplicaContext::MergeFn& merge_fn,
                                   absl::Span<const Value> args) {
  RETURN_IF_ERROR(context.CheckCurrent());
  if (merge_fn == nullptr) {
    return absl::InvalidArgumentError("MergeCall: found no function; give one that can be called");
  }
  Strategy* const strategy = context.strategy();
  if (context.barrier_ != nullptr) {
    return context.barrier_->Rendezvous(context.local_replica_, name, {args.begin(), args.end()},
                                        [&](absl::Span<const Value::Sequence> of_replicas) {
                                          return ReplicaBarrier::Merge(strategy, merge_fn,
                                                                       of_replicas);
                                        });
  }
  const PushedMode cross(strategy, nullptr);
  return merge_fn.Call("the function of MergeCall", *strategy, args);
}

absl::StatusOr<Value> ReplicaContext::MergeCall(const MergeFn& merge_fn,
                                                absl::Span<const Value> args) {
  return MergeCallFor(*this, {.what = "MergeCall"}, merge_fn, args);
}

namespace {

using LeafFn = std::function<absl::StatusOr<std::vector<Value>>(absl::Span<const Value>)>;

// Calls `fn` for each leaf position of structures that are alike, and builds structures of the
// results.
absl::StatusOr<std::vector<Value>> MapTogether(absl::Span<const Value> of_replicas,
                                               const LeafFn& fn) {
  const Value& first = of_replicas[0];
  const size_t count = of_replicas.size();
  for (size_t i = 1; i < count; ++i) {
    if (of_replicas[i].kind() != first.kind()) {
      return InvalidArgument("replica 0 gives ", first.TypeText(), ", replica ", i, " ",
                             of_replicas[i].TypeText());
    }
  }
  if (!first.is_sequence() && first.kind() != Value::Kind::kDict) return fn(of_replicas);
  std::vector<Value::Sequence> sequences(count);
  std::vector<Value::Dict> dicts(count);
  const auto add = [&](const std::string* key, const auto& take) -> absl::Status {
    std::vector<Value> column;
    for (const Value& value : of_replicas) column.push_back(take(value));
    ASSIGN_OR_RETURN(std::vector<Value> results, MapTogether(column, fn));
    for (size_t i = 0; i < count; ++i) {
      if (key == nullptr) {
        sequences[i].push_back(std::move(results[i]));
      } else {
        dicts[i][*key] = std::move(results[i]);
      }
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(CheckAlike(of_replicas));
  if (first.is_sequence()) {
    for (size_t i = 0; i < first.items().size(); ++i) {
      RETURN_IF_ERROR(add(nullptr, [i](const Value& value) { return value.items()[i]; }));
    }
  } else {
    for (const auto& entry : first.dict()) {
      const std::string& key = entry.first;
      RETURN_IF_ERROR(add(&key, [&key](const Value& value) { return value.dict().at(key); }));
    }
  }
  std::vector<Value> results;
  for (size_t i = 0; i < count; ++i) {
    const bool list = first.kind() == Value::Kind::kList;
    results.push_back(first.kind() == Value::Kind::kDict ? Value::OfDict(std::move(dicts[i]))
                      : list                             ? Value::List(std::move(sequences[i]))
                                                         : Value::Tuple(std::move(sequences[i])));
  }
  return results;
}

// Leaves may be variables and host numbers, which are reduced as tensors.
absl::StatusOr<std::vector<Value>> AsTensors(const Strategy& strategy,
                                             absl::Span<const Value> leaves) {
  ASSIGN_OR_RETURN(const Value::Sequence own, strategy.OwnComponents("AllReduce", leaves));
  std::vector<Value> tensors;
  for (const Value& leaf : own) {
    if (leaf.kind() == Value::Kind::kSlices) {
      tensors.push_back(leaf);
      continue;
    }
    ASSIGN_OR_RETURN(tensors.emplace_back(), leaf.ToTensor());
  }
  return tensors;
}

// AllReduce of structures that are alike: reduces all leaves at once.
absl::StatusOr<std::vector<Value>> ReduceTogether(Strategy& strategy, ReduceOp op,
                                                  absl::Span<const Value> of_replicas,
                                                  const CommunicationOptions& options) {
  std::vector<Value::Sequence> leaves;
  const auto collect = [&](absl::Span<const Value> of_leaf) -> absl::StatusOr<std::vector<Value>> {
    if (!of_leaf[0].is_none()) {
      ASSIGN_OR_RETURN(leaves.emplace_back(), AsTensors(strategy, of_leaf));
    }
    return std::vector<Value>(of_leaf.begin(), of_leaf.end());
  };
  absl::Status collected = CheckReduceOp("AllReduce", op);
  if (collected.ok()) collected = MapTogether(of_replicas, collect).status();
  if (!collected.ok()) {
    strategy.RefuseCollective(collected);
    return collected;
  }
  ASSIGN_OR_RETURN(const std::vector<Value> reduced, strategy.ReduceAll(op, leaves, options));
  auto next = reduced.begin();
  return MapTogether(of_replicas,
                     [&](absl::Span<const Value> of_leaf) -> absl::StatusOr<std::vector<Value>> {
                       if (of_leaf[0].is_none()) return std::vector<Value>(of_leaf.size());
                       return SpreadOver(*next++, strategy.worker_devices());
                     });
}

// The first argument of each replica.
std::vector<Value> Firsts(absl::Span<const Value::Sequence> of_replicas) {
  std::vector<Value> firsts;
  for (const Value::Sequence& args : of_replicas) firsts.push_back(args[0]);
  return firsts;
}

// The first refusal among the replicas' second arguments, which are texts, or none for a replica
// that does not refuse.
absl::Status FirstRefusal(absl::Span<const Value::Sequence> of_replicas) {
  for (const Value::Sequence& args : of_replicas) {
    if (!args[1].is_none()) return absl::InvalidArgumentError(args[1].text());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> ReplicaContext::Together(std::string what,
                                               const CommunicationOptions& options,
                                               const Value& value, CollectiveFn fn) {
  // A replica that refuses its options still arrives, and waits as if it had given none. Its
  // refusal then fails the call of every replica and of every other worker.
  const absl::Status valid = options.Validate();
  CallName name = {.what = std::move(what), .with_other_workers = true};
  Value refusal;
  if (valid.ok()) {
    name.timeout = options.timeout;
  } else {
    refusal = std::string(valid.message());
  }
  Value::Sequence args = {value, refusal};
  const auto call =
      [this,
       &fn](absl::Span<const Value::Sequence> of_replicas) -> absl::StatusOr<std::vector<Value>> {
    const absl::Status refused = FirstRefusal(of_replicas);
    if (refused.ok()) return fn(Firsts(of_replicas));
    strategy()->RefuseCollective(refused);
    return refused;
  };
  if (barrier_ != nullptr) {
    return barrier_->Rendezvous(local_replica_, std::move(name), std::move(args), call);
  }
  ASSIGN_OR_RETURN(std::vector<Value> own, call({&args, 1}));
  return std::move(own[0]);
}

absl::StatusOr<Value> ReplicaContext::AllReduce(ReduceOp op, const Value& value,
                                                const CommunicationOptions& options) {
  RETURN_IF_ERROR(CheckCurrent());
  Strategy* const strategy = this->strategy();
  const auto reduce = [strategy, op, &options](absl::Span<const Value> of_replicas) {
    return ReduceTogether(*strategy, op, of_replicas, options);
  };
  return Together(absl::StrCat("AllReduce ", ReduceOpName(op)), options, value, reduce);
}

absl::StatusOr<Value> ReplicaContext::AllGather(const Value& value, int64_t axis,
                                                const CommunicationOptions& options) {
  RETURN_IF_ERROR(CheckCurrent());
  Strategy* const strategy = this->strategy();
  const auto gather = [strategy, axis, &options](absl::Span<const Value> of_replicas) {
    // Structures that differ between replicas are refused before any worker gathers a leaf.
    const auto unchanged = [](absl::Span<const Value> leaves) {
      return absl::StatusOr<std::vector<Value>>(std::vector<Value>(leaves.begin(), leaves.end()));
    };
    if (const absl::Status alike = MapTogether(of_replicas, unchanged).status(); !alike.ok()) {
      strategy->RefuseCollective(alike);
      return absl::StatusOr<std::vector<Value>>(alike);
    }
    return MapTogether(
        of_replicas, [&](absl::Span<const Value> leaves) -> absl::StatusOr<std::vector<Value>> {
          const absl::StatusOr<Value::Sequence> own = strategy->OwnComponents("AllGather", leaves);
          if (!own.ok()) {
            strategy->RefuseCollective(own.status());
            return own.status();
          }
          ASSIGN_OR_RETURN(const Tensor whole, strategy->GatherAll(*own, axis, options));
          std::vector<Value> copies;
          for (size_t i = 0; i < leaves.size(); ++i) {
            const Device device = strategy->worker_devices()[i];
            if (i == 0 && whole.device() == device) {
              copies.emplace_back(whole);
              continue;
            }
            ASSIGN_OR_RETURN(copies.emplace_back(), CopyTensor(whole, device));
          }
          return copies;
        });
  };
  return Together(absl::StrCat("AllGather of axis ", axis), options, value, gather);
}

absl::StatusOr<Value> ReplicaContext::AllGatherGradient(const Value& upstream, int64_t axis,
                                                        int64_t extent) {
  ASSIGN_OR_RETURN(const Value extents, AllGather(Tensor::Vector<int64_t>({extent}), 0));
  ASSIGN_OR_RETURN(const Value sum, AllReduce(ReduceOp::kSum, upstream));
  if (sum.kind() != Value::Kind::kTensor) {
    return InvalidArgument(
        "gradient of AllGather: a tensor of the gathered shape is needed, found ", sum.TypeText());
  }
  const Tensor& whole = sum.tensor();
  ASSIGN_OR_RETURN(const std::vector<int64_t> at, CheckAxes({axis}, whole.rank()));
  int64_t first = 0;
  int64_t total = 0;
  ASSIGN_OR_RETURN(const Tensor known, HostTensor(extents.tensor()));
  const auto all = known.values<int64_t>();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0) {
      return InvalidArgument("gradient of AllGather: replica ", i, " gives extent ", all[i],
                             "; an extent is not negative");
    }
    // Saturates: the sum of any extents is no tensor's extent then.
    total = all[i] > std::numeric_limits<int64_t>::max() - total
                ? std::numeric_limits<int64_t>::max()
                : total + all[i];
    if (static_cast<int32_t>(i) + 1 == replica_id_) first = total;
  }
  const int64_t found = whole.shape()[static_cast<size_t>(at[0])];
  if (total != found) {
    return InvalidArgument("gradient of AllGather has extent ", found, " along axis ", axis,
                           "; the replicas' parts have ", total, " together");
  }
  ASSIGN_OR_RETURN(Tensor own, SliceTensor(whole, at[0], first, extent));
  return Value(std::move(own));
}

}  // namespace cairn
