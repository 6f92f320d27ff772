#include "worker/collective/in_process_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/collective/in_process_rendezvous.h"
#include "worker/collective/reduce_kernels.h"

namespace cairn {
namespace {

// A turn counts its ranks below 1024, and the stack holds pointers to every rank's memory.
constexpr size_t kMaxRanks = 256;

// Work is handed out in blocks, so that a rank without a core does not delay the others. Blocks are
// large enough to hide the cost of taking one (about 50 ns), and small enough that ranks end
// together.
constexpr int64_t kMinBlockBytes = 16 << 10;
constexpr int64_t kMaxBlockBytes = 256 << 10;

int64_t BlockElements(const CollectiveCall& call, int size) {
  const auto element = static_cast<int64_t>(DTypeBytes(call.dtype));
  const int64_t share = call.count * element / (8 * size);
  return std::clamp(share / 64 * 64, kMinBlockBytes, kMaxBlockBytes) / element;
}

}  // namespace

class InProcessGroups::Rank final : public CollectiveGroup {
 public:
  Rank(std::shared_ptr<InProcessRendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  const std::string& peer(int rank) const override {
    return rendezvous_->devices()[static_cast<size_t>(rank)];
  }

  absl::Status AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out,
                         Deadline deadline) override;
  absl::Status Broadcast(int root, MutableBuffer buffer, Deadline deadline) override;
  absl::Status AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline) override;
  absl::Status ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                             Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override;
  void Abort(const absl::Status& why) override { rendezvous_->Abort(why); }
  absl::Status usable() const override;

  void set_next(uint64_t number) { next_ = number; }

 private:
  static bool IsSmall(const CollectiveCall& call) {
    return static_cast<size_t>(call.count) * DTypeBytes(call.dtype) <=
           InProcessRendezvous::kSmallBytes;
  }
  const CollectiveCall& call_of(int rank) const { return rendezvous_->part(rank, number_).call; }
  const void* in_of(int rank) const { return rendezvous_->part(rank, number_).in; }

  // Waits for the other ranks with this call, runs `work` once all have matching calls, and leaves.
  template <typename Work>
  absl::Status Run(CollectiveCall call, ConstBuffer in, MutableBuffer* out, Deadline deadline,
                   Work work);
  // After reading other ranks' memory, waits until all others have read this rank's.
  void AwaitReaders();
  void ReduceSmall(const CollectiveCall& call, MutableBuffer out);
  void ReduceBlocks(const CollectiveCall& call);
  int Divisor(ReduceOp op) const { return op == ReduceOp::kMean ? size() : 1; }

  const std::shared_ptr<InProcessRendezvous> rendezvous_;
  const int rank_;
  std::atomic<uint64_t> next_ = 1;  // atomic because a refused Reset may read it during a call
  uint64_t number_ = 0;             // of the running call
};

template <typename Work>
absl::Status InProcessGroups::Rank::Run(CollectiveCall call, ConstBuffer in, MutableBuffer* out,
                                        Deadline deadline, Work work) {
  number_ = next_++;
  call.dtype = in.dtype;
  call.count = in.count;
  const absl::Status arguments = CheckArguments(call, in, out, size());
  call.refused = arguments.ok() ? 0 : 1;
  InProcessRendezvous::Part& part = rendezvous_->Begin(rank_, number_);
  part.call = call;
  part.in = in.data;
  part.out = out == nullptr ? nullptr : out->data;
  if (arguments.ok() && in.count > 0 && IsSmall(call)) {
    std::memcpy(part.small, in.data, in.bytes());
    part.in = part.small;
  }
  absl::Status status = rendezvous_->Meet(rank_, number_, deadline);
  if (status.ok()) {
    status = rendezvous_->Agreement(number_);
    if (!arguments.ok()) status = arguments;
    if (status.ok()) status = work(call);
    if (!status.ok()) status = Annotate(status, CallerText(call.kind, number_, rank_, peer(rank_)));
  }
  rendezvous_->End(rank_);
  return status;
}

void InProcessGroups::Rank::AwaitReaders() {
  rendezvous_->PieceDone(size());
  rendezvous_->AwaitPieces(size());
}

void InProcessGroups::Rank::ReduceSmall(const CollectiveCall& call, MutableBuffer out) {
  const void* inputs[kMaxRanks];
  for (int r = 0; r < size(); ++r) inputs[r] = in_of(r);
  SumBuffers(call.dtype, absl::MakeConstSpan(inputs, static_cast<size_t>(size())), {&out.data, 1},
             static_cast<size_t>(call.count), Divisor(call.reduce));
}

// Each block is added up by the rank that takes it, in rank order, and written at once to every
// rank's output: inputs are read once, outputs written once.
void InProcessGroups::Rank::ReduceBlocks(const CollectiveCall& call) {
  const int64_t block_elements = BlockElements(call, size());
  const int64_t blocks = (call.count + block_elements - 1) / block_elements;
  const auto ranks = static_cast<size_t>(size());
  const void* inputs[kMaxRanks];
  void* outputs[kMaxRanks];
  for (int64_t block = 0; rendezvous_->TakeBlock(blocks, &block);) {
    const int64_t begin = block * block_elements;
    const size_t offset = static_cast<size_t>(begin) * DTypeBytes(call.dtype);
    for (int r = 0; r < size(); ++r) {
      const InProcessRendezvous::Part& part = rendezvous_->part(r, number_);
      inputs[r] = static_cast<const char*>(part.in) + offset;
      outputs[r] = static_cast<char*>(part.out) + offset;
    }
    SumBuffers(call.dtype, absl::MakeConstSpan(inputs, ranks), absl::MakeConstSpan(outputs, ranks),
               static_cast<size_t>(std::min(block_elements, call.count - begin)),
               Divisor(call.reduce));
    rendezvous_->PieceDone(blocks);
  }
  rendezvous_->AwaitPieces(blocks);
}

absl::Status InProcessGroups::Rank::AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out,
                                              Deadline deadline) {
  return Run({.kind = CollectiveKind::kAllReduce, .reduce = op}, in, &out, deadline,
             [&](const CollectiveCall& call) {
               if (IsSmall(call)) {
                 ReduceSmall(call, out);
               } else {
                 ReduceBlocks(call);
               }
               return absl::OkStatus();
             });
}

absl::Status InProcessGroups::Rank::Broadcast(int root, MutableBuffer buffer, Deadline deadline) {
  return Run({.kind = CollectiveKind::kBroadcast, .root = root}, buffer, nullptr, deadline,
             [&](const CollectiveCall& call) {
               if (rank_ != root && buffer.count > 0) {
                 std::memcpy(buffer.data, in_of(root), buffer.bytes());
               }
               if (!IsSmall(call)) AwaitReaders();
               return absl::OkStatus();
             });
}

absl::Status InProcessGroups::Rank::AllGatherV(ConstBuffer in, PlaceGathered place,
                                               Deadline deadline) {
  return Run({.kind = CollectiveKind::kAllGather}, in, nullptr, deadline,
             [&](const CollectiveCall&) {
               bool all_small = true;
               std::vector<int64_t> counts;
               counts.reserve(static_cast<size_t>(size()));
               for (int r = 0; r < size(); ++r) {
                 counts.push_back(call_of(r).count);
                 all_small = all_small && IsSmall(call_of(r));
               }
               absl::StatusOr<MutableBuffer> out = place(counts);
               absl::Status status = out.status();
               if (status.ok()) status = CheckPlace(*out, in.dtype, counts);
               char* to = status.ok() ? static_cast<char*>(out->data) : nullptr;
               for (int r = 0; status.ok() && r < size(); ++r) {
                 const size_t bytes = static_cast<size_t>(counts[r]) * DTypeBytes(in.dtype);
                 if (bytes > 0) std::memcpy(to, in_of(r), bytes);
                 to += bytes;
               }
               if (!all_small) AwaitReaders();
               return status;
             });
}

absl::Status InProcessGroups::Rank::ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                                                  Deadline deadline) {
  return Run({.kind = CollectiveKind::kReduceScatter, .reduce = op}, in, &out, deadline,
             [&](const CollectiveCall& call) {
               const void* inputs[kMaxRanks];
               for (int r = 0; r < size(); ++r) {
                 inputs[r] =
                     static_cast<const char*>(in_of(r)) + static_cast<size_t>(rank_) * out.bytes();
               }
               SumBuffers(call.dtype, absl::MakeConstSpan(inputs, static_cast<size_t>(size())),
                          {&out.data, 1}, static_cast<size_t>(out.count), Divisor(op));
               if (!IsSmall(call)) AwaitReaders();
               return absl::OkStatus();
             });
}

absl::Status InProcessGroups::Rank::Barrier(Deadline deadline) {
  return Run({.kind = CollectiveKind::kBarrier}, {}, nullptr, deadline,
             [](const CollectiveCall&) { return absl::OkStatus(); });
}

absl::Status InProcessGroups::Rank::usable() const {
  return Annotate(rendezvous_->aborted(), "all ranks' calls fail until InProcessGroups::Reset()");
}

absl::StatusOr<InProcessGroups> InProcessGroups::Create(std::vector<std::string> devices,
                                                        std::string name) {
  if (devices.empty() || devices.size() > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat("group '", name, "' of ", devices.size(),
                                                   " devices; allowed: 1 to ", kMaxRanks));
  }
  InProcessGroups groups;
  groups.rendezvous_ = std::make_shared<InProcessRendezvous>(std::move(devices), std::move(name));
  for (int r = 0; r < groups.rendezvous_->size(); ++r) {
    groups.ranks_.push_back(std::make_unique<Rank>(groups.rendezvous_, r));
  }
  return groups;
}

InProcessGroups::InProcessGroups(InProcessGroups&&) noexcept = default;
InProcessGroups& InProcessGroups::operator=(InProcessGroups&&) noexcept = default;
InProcessGroups::~InProcessGroups() = default;

int InProcessGroups::size() const { return static_cast<int>(ranks_.size()); }
CollectiveGroup& InProcessGroups::rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

void InProcessGroups::Abort(const absl::Status& why) { rendezvous_->Abort(why); }

absl::Status InProcessGroups::Reset() {
  ASSIGN_OR_RETURN(const uint64_t next, rendezvous_->Reset());
  for (const std::unique_ptr<Rank>& rank : ranks_) rank->set_next(next);
  return absl::OkStatus();
}

}  // namespace cairn
