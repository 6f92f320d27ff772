// Steps that choose elements and their order: Repeat, Take, Skip, Shard, Shuffle, Cache.
#include <algorithm>
#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/order_steps.h"
#include "worker/input/dataset/step_node.h"
#include "worker/input/random.h"
#include "worker/input/shuffle_window.h"

namespace cairn {
namespace {

class RepeatNode : public DatasetNode {
 public:
  RepeatNode(NodePtr input, int64_t count) : DatasetNode({std::move(input)}), count_(count) {}
  std::string name() const override { return "Repeat"; }
  int64_t cardinality() const override {
    const int64_t once = input().cardinality();
    if (once == 0 || count_ == 0) return 0;
    if (count_ == kInfiniteCardinality || once == kInfiniteCardinality) return kInfiniteCardinality;
    if (!IsKnown(once) || once > INT64_MAX / count_) return kUnknownCardinality;
    return once * count_;
  }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<RepeatNode>(inputs.front(), count_);
  }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    // any: the pass has yielded an element.
    return IterateBy([input = inputs().front(), count = count_, context, pass = IteratorPtr(),
                      done = int64_t{0}, any = false,
                      ended = false](Element* element) mutable -> absl::StatusOr<bool> {
      while (!ended && (count == kInfiniteCardinality || done < count)) {
        if (pass == nullptr) {
          IterationContext next = context;
          if (done > 0) next.pass = CombineSeeds(next.pass, static_cast<uint64_t>(done));
          ASSIGN_OR_RETURN(pass, input->MakeIterator(next));
          any = false;
        }
        ASSIGN_OR_RETURN(const bool more, pass->Next(element));
        if (more) return any = true;
        pass = nullptr;
        ++done;
        // An input without elements would be repeated forever.
        ended = !any;
      }
      return false;
    });
  }

 private:
  const int64_t count_;
};

// Skips `skip` elements, then yields up to `take`.
class WindowNode : public StepNode {
 public:
  WindowNode(NodePtr input, int64_t skip, int64_t take)
      : StepNode(std::move(input)), skip_(skip), take_(take) {}
  std::string name() const override { return skip_ != 0 ? "Skip" : "Take"; }
  int64_t cardinality() const override {
    if (skip_ == kInfiniteCardinality || take_ == 0) return 0;
    int64_t count = input().cardinality();
    if (IsKnown(count)) count = std::max<int64_t>(count - skip_, 0);
    if (take_ == kInfiniteCardinality) return count;
    if (count == kInfiniteCardinality) return take_;
    return IsKnown(count) ? std::min(count, take_) : count;
  }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<WindowNode>(inputs.front(), skip_, take_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr all, const IterationContext&) const override {
    return IterateBy([all = std::move(all), skip = skip_,
                      take = take_](Element* element) mutable -> absl::StatusOr<bool> {
      if (skip == kInfiniteCardinality || take == 0) return false;
      for (; skip > 0; --skip) {
        ASSIGN_OR_RETURN(const bool more, all->Next(element));
        if (!more) return false;
      }
      if (take > 0) --take;
      return all->Next(element);
    });
  }

  const int64_t skip_;
  const int64_t take_;
};

class CacheNode : public DatasetNode {
 public:
  explicit CacheNode(NodePtr input)
      : DatasetNode({std::move(input)}), memory_(std::make_shared<Memory>()) {}
  std::string name() const override { return "Cache"; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<CacheNode>(inputs.front());
  }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    if (auto elements = memory_->elements(); elements != nullptr) {
      return IterateBy([elements = std::move(elements),
                        next = size_t{0}](Element* element) mutable -> absl::StatusOr<bool> {
        if (next == elements->size()) return false;
        *element = (*elements)[next++];
        return true;
      });
    }
    ASSIGN_OR_RETURN(IteratorPtr input, this->input().MakeIterator(context));
    // failed: an element is missing, so this pass is not cached.
    return IterateBy([input = std::move(input), memory = memory_, kept = std::vector<Element>(),
                      ended = false,
                      failed = false](Element* element) mutable -> absl::StatusOr<bool> {
      if (ended) return false;
      const absl::StatusOr<bool> more = input->Next(element);
      if (!more.ok()) {
        failed = true;
      } else if (*more) {
        if (!failed) kept.push_back(*element);
      } else {
        ended = true;
        if (!failed) memory->Offer(std::move(kept));
      }
      return more;
    });
  }

 private:
  using Elements = std::shared_ptr<const std::vector<Element>>;

  class Memory {
   public:
    Elements elements() const {
      absl::MutexLock lock(&mutex_);
      return elements_;
    }
    // Keeps the first complete pass.
    void Offer(std::vector<Element> elements) {
      auto offered = std::make_shared<const std::vector<Element>>(std::move(elements));
      absl::MutexLock lock(&mutex_);
      if (elements_ == nullptr) elements_ = std::move(offered);
    }

   private:
    mutable absl::Mutex mutex_;
    Elements elements_ ABSL_GUARDED_BY(mutex_);  // null: no pass is complete yet
  };

  const std::shared_ptr<Memory> memory_;
};

class ShardIterator : public DatasetIterator {
 public:
  ShardIterator(IteratorPtr all, int64_t shards, int64_t index, bool all_must_have)
      : all_(std::move(all)), shards_(shards), index_(index), all_must_have_(all_must_have) {}
  absl::StatusOr<bool> Next(Element* element) override {
    RETURN_IF_ERROR(too_few_);
    // This shard's element is the one at index_ in each round.
    while (!ended_ && at_ < index_) {
      RETURN_IF_ERROR(Pass());
    }
    if (ended_) return false;
    ASSIGN_OR_RETURN(const bool more, all_->Next(element));
    ended_ = !more;
    if (!more) return false;
    at_ = index_ + 1 - shards_;
    if (!all_must_have_ || checked_) return true;
    // The round must also have an element for each shard of higher index; otherwise there are too
    // few.
    for (int64_t next = index_ + 1; next < shards_ && !ended_; ++next) {
      RETURN_IF_ERROR(Pass());
      if (ended_) {
        return too_few_ = InvalidArgument(
                   "Could not apply FILE or DATA based sharding: the dataset has only ", next,
                   " file(s) or element(s), fewer than the ", shards_,
                   " workers; give it more, or use AutoShardPolicy::kOff (every worker reads "
                   "all)");
      }
    }
    checked_ = true;
    return true;
  }

 private:
  absl::Status Pass() {
    ASSIGN_OR_RETURN(const bool more, all_->Next(&passed_));
    ended_ = !more;
    ++at_;
    return absl::OkStatus();
  }

  const IteratorPtr all_;
  const int64_t shards_;
  const int64_t index_;
  const bool all_must_have_;
  int64_t at_ = 0;  // position in this round; negative: still in the previous round
  bool ended_ = false;
  bool checked_ = false;
  absl::Status too_few_;
  Element passed_;
};

uint64_t RandomSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

absl::StatusOr<IteratorPtr> ShuffleNode::MakeIterator(const IterationContext& context) const {
  ASSIGN_OR_RETURN(IteratorPtr input, this->input().MakeIterator(context));
  const uint64_t seed = reshuffle_ ? CombineSeeds(seed_, context.pass) : seed_;
  return IterateBy([input = std::move(input),
                    window = ShuffleWindow<Element>(static_cast<size_t>(buffer_size_), seed)](
                       Element* element) mutable -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(Element* const next,
                     window.Next([&input](Element* held) { return input->Next(held); }));
    if (next != nullptr) *element = std::move(*next);
    return next != nullptr;
  });
}

NodePtr ShuffleNode::WithInputs(std::vector<NodePtr> inputs) const {
  return std::make_shared<ShuffleNode>(inputs.front(), buffer_size_, seed_, reshuffle_);
}

absl::StatusOr<IteratorPtr> ShardNode::MakeIterator(const IterationContext& context) const {
  if (is_hint()) {
    return absl::InvalidArgumentError(
        "Shard(kShardHint, …) has no number of shards of its own; distribute the dataset with "
        "AutoShardPolicy::kHint, or call Shard with numbers");
  }
  ASSIGN_OR_RETURN(IteratorPtr all, input().MakeIterator(context));
  return std::make_unique<ShardIterator>(std::move(all), shards_, index_, all_must_have_);
}

int64_t ShardNode::cardinality() const {
  const int64_t all = input().cardinality();
  if (!IsKnown(all) || is_hint()) return all;
  return all / shards_ + (index_ < all % shards_ ? 1 : 0);
}

NodePtr ShardNode::WithInputs(std::vector<NodePtr> inputs) const {
  return std::make_shared<ShardNode>(inputs.front(), shards_, index_, all_must_have_);
}

Dataset Dataset::Shuffle(int64_t buffer_size, ShuffleOptions options) const {
  if (node_ == nullptr) return *this;
  if (buffer_size < 1) return Refused("Shuffle", "buffer_size", buffer_size, "1 or more");
  const uint64_t seed = options.seed.has_value() ? *options.seed : RandomSeed();
  return With(
      std::make_shared<ShuffleNode>(node_, buffer_size, seed, options.reshuffle_each_iteration));
}

Dataset Dataset::Repeat(int64_t count) const {
  if (node_ == nullptr) return *this;
  if (count < -1) return Refused("Repeat", "count", count, "0 or more, or -1: without end");
  return With(std::make_shared<RepeatNode>(node_, count));
}

Dataset Dataset::Take(int64_t count) const {
  if (node_ == nullptr) return *this;
  if (count < -1) return Refused("Take", "count", count, "0 or more, or -1: all");
  return With(std::make_shared<WindowNode>(node_, 0, count));
}

Dataset Dataset::Skip(int64_t count) const {
  if (node_ == nullptr) return *this;
  if (count < -1) return Refused("Skip", "count", count, "0 or more, or -1: all");
  return With(std::make_shared<WindowNode>(node_, count, kInfiniteCardinality));
}

Dataset Dataset::Cache() const {
  return node_ == nullptr ? *this : With(std::make_shared<CacheNode>(node_));
}

Dataset Dataset::Shard(int64_t num_shards, int64_t index) const {
  if (node_ == nullptr) return *this;
  const bool hint = num_shards == kShardHint;
  if (!hint && num_shards < 1) {
    return Refused("Shard", "num_shards", num_shards, "1 or more, or kShardHint");
  }
  if (index < 0 || (!hint && index >= num_shards)) {
    return Refused("Shard", "index", index,
                   absl::StrCat("0 to ", std::max<int64_t>(num_shards, 1) - 1));
  }
  return With(std::make_shared<ShardNode>(node_, num_shards, index,
                                          /*all_must_have=*/false));
}

}  // namespace cairn
