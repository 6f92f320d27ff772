#include "worker/collective/batch_all_reduce.h"

#include <vector>

#include "common/status.h"
#include "worker/collective/packing.h"

namespace cairn {
namespace {

// Copying this in and out of a pack takes about as long as the rendezvous that it saves.
constexpr size_t kAloneBytes = 64 << 10;

class PackReducer {
 public:
  PackReducer(CollectiveGroup& group, ReduceOp op, const CommunicationOptions& options,
              Deadline deadline, const CallPurpose& purpose)
      : group_(group), op_(op), options_(options), deadline_(deadline), purpose_(purpose) {}

  absl::Status Reduce(absl::Span<const MutableBuffer> pack) {
    std::vector<MutableBuffer> small;
    for (const MutableBuffer& gradient : pack) {
      if (gradient.bytes() <= kAloneBytes) {
        small.push_back(gradient);
      } else {
        RETURN_IF_ERROR(group_.AllReduce(op_, gradient, Limit(), purpose_));
      }
    }
    if (small.empty()) return absl::OkStatus();
    if (small.size() == 1) return group_.AllReduce(op_, small[0], Limit(), purpose_);
    const std::vector<ConstBuffer> from(small.begin(), small.end());
    ASSIGN_OR_RETURN(ConcatenatedPacks together, ConcatenatedPacks::Make(from, 1));
    RETURN_IF_ERROR(group_.AllReduce(op_, together.packs()[0], Limit(), purpose_));
    return together.CopyTo(small);
  }

 private:
  Deadline Limit() const {
    if (!options_.timeout.has_value()) return deadline_;
    return Deadline::Earlier(deadline_, Deadline::In(*options_.timeout));
  }

  CollectiveGroup& group_;
  const ReduceOp op_;
  const CommunicationOptions& options_;
  const Deadline deadline_;
  const CallPurpose& purpose_;
};

}  // namespace

absl::Status BatchAllReduce(CollectiveGroup& group, ReduceOp op,
                            absl::Span<const MutableBuffer> gradients,
                            const CommunicationOptions& options, Deadline deadline,
                            const CallPurpose& purpose) {
  RETURN_IF_ERROR(options.Validate());
  PackReducer reducer(group, op, options, deadline, purpose);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                            DType::kInt32, DType::kInt64}) {
    std::vector<MutableBuffer> reversed;
    std::vector<PackItem> items;
    for (auto gradient = gradients.rbegin(); gradient != gradients.rend(); ++gradient) {
      if (gradient->dtype != dtype) continue;
      reversed.push_back(*gradient);
      items.push_back({gradient->count, dtype});
    }
    if (items.empty()) continue;
    ASSIGN_OR_RETURN(const std::vector<std::vector<size_t>> packs,
                     GroupBySize(items, options.bytes_per_pack));
    for (const std::vector<size_t>& indices : packs) {
      std::vector<MutableBuffer> pack;
      pack.reserve(indices.size());
      for (const size_t index : indices) pack.push_back(reversed[index]);
      RETURN_IF_ERROR(reducer.Reduce(pack));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
