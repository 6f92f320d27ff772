// What one rank wants of the others: compared between ranks before anything moves.
#pragma once

#include <string>
#include <vector>

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
};

// Plain data without padding: it travels between processes as it is.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  int32_t root = 0;
  int64_t count = 0;    // elements of this rank's input
  int64_t refused = 0;  // 1: the rank's own arguments are wrong
};

// "all_reduce", …
absl::string_view CollectiveKindName(CollectiveKind kind);
// "all_reduce sum of 1024 float32".
std::string CallText(const CollectiveCall& call);

// Who reports what: the first words of an error.
//   "all_reduce #17 on rank 0 (cpu:0)"
std::string CallerText(CollectiveKind kind, uint64_t number, int rank, absl::string_view peer);
// "rank 2 (cpu:2)".
std::string RankText(int rank, absl::string_view peer);

// Whether a rank may call `b` where rank 0 calls `a`.
bool Agrees(const CollectiveCall& a, const CollectiveCall& b);
// The same verdict on every rank: OK, or kInvalidArgument that names the first rank that differs
// from rank 0, or that refused. Counts may differ in kAllGather alone.
absl::Status CheckAgreement(absl::Span<const CollectiveCall> calls,
                            absl::Span<const std::string> peers);

// This rank's own arguments. `out` is null where there is none.
absl::Status CheckArguments(const CollectiveCall& call, ConstBuffer in, const MutableBuffer* out,
                            int size);

// What PlaceGathered returned for these counts.
absl::Status CheckPlace(MutableBuffer place, DType dtype, absl::Span<const int64_t> counts);

}  // namespace cairn
