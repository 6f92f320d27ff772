// One rank's call of a collective; the ranks compare their calls before any data moves.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collective/buffer.h"
#include "worker/collective/reduce_op.h"

namespace cairn {

enum class CollectiveKind : int32_t {
  kAllReduce = 1,
  kBroadcast = 2,
  kAllGather = 3,
  kReduceScatter = 4,
  kBarrier = 5,
  kRefusal = 6,  // CollectiveGroup::Refuse, which agrees with no call
};

// Plain data without padding: processes exchange its bytes unchanged.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  int32_t root = 0;
  int64_t count = 0;      // elements of this rank's input
  int32_t reduction = 0;  // of CallPurpose: 1 + the op; 0: none
  uint32_t shapes = 0;    // of CallPurpose
  int64_t refused = 0;    // the rank's own arguments are wrong: 1 + the bytes of the reason
};

// "all_reduce", …
absl::string_view CollectiveKindName(CollectiveKind kind);
// "all_reduce sum of 1024 float32", "all_reduce sum of 1024 float32 for a mean".
std::string CallText(const CollectiveCall& call);

// The reporting call and rank, as the first words of an error.
//   "all_reduce #17 on rank 0 (10.0.0.1:9090)"
std::string CallerText(CollectiveKind kind, uint64_t number, int rank, absl::string_view peer);
// "rank 2 (10.0.0.3:9090)".
std::string RankText(int rank, absl::string_view peer);

// Whether a rank's call `b` matches rank 0's call `a`.
bool Agrees(const CollectiveCall& a, const CollectiveCall& b);
// Returns the same verdict on every rank: OK, or kInvalidArgument that names the first rank whose
// call differs from rank 0's, or that refused its arguments, with its reason. Only in kAllGather
// may counts differ.
absl::Status CheckAgreement(absl::Span<const CollectiveCall> calls,
                            absl::Span<const std::string> peers,
                            absl::FunctionRef<std::string(int rank)> reason_of);

// Checks this rank's own arguments. `out` is null if the call has no output.
absl::Status CheckArguments(const CollectiveCall& call, ConstBuffer in, const MutableBuffer* out,
                            int size);

// Checks the result of PlaceGathered for these counts.
absl::Status CheckPlace(MutableBuffer place, DType dtype, absl::Span<const int64_t> counts);

}  // namespace cairn
