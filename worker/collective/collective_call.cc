#include "worker/collective/collective_call.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/errors.h"

namespace cairn {
namespace {

absl::Status NullMemory(absl::string_view which, int64_t count) {
  return InvalidArgument(which, " has ", count, " elements at a null pointer");
}

}  // namespace

bool Agrees(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.reduce == b.reduce && a.reduction == b.reduction &&
         a.shapes == b.shapes && a.dtype == b.dtype && a.root == b.root &&
         (a.count == b.count || a.kind == CollectiveKind::kAllGather) && a.refused == 0 &&
         b.refused == 0;
}

absl::string_view CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kBroadcast: return "broadcast";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
    case CollectiveKind::kBarrier: return "barrier";
    case CollectiveKind::kRefusal: return "call";
  }
  return "unknown operation";
}

std::string CallText(const CollectiveCall& call) {
  const absl::string_view name = CollectiveKindName(call.kind);
  std::string what = absl::StrCat(" of ", call.count, " ", DTypeName(call.dtype));
  if (call.reduction != 0) {
    absl::StrAppend(&what, " for a ", ReduceOpName(static_cast<ReduceOp>(call.reduction - 1)));
  }
  switch (call.kind) {
    case CollectiveKind::kBarrier:
    case CollectiveKind::kRefusal: return std::string(name);
    case CollectiveKind::kBroadcast: return absl::StrCat(name, what, " from rank ", call.root);
    case CollectiveKind::kAllGather: return absl::StrCat(name, what);
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter: break;
  }
  return absl::StrCat(name, " ", ReduceOpName(call.reduce), what);
}

std::string RankText(int rank, absl::string_view peer) {
  return absl::StrCat("rank ", rank, " (", peer, ")");
}

std::string CallerText(CollectiveKind kind, uint64_t number, int rank, absl::string_view peer) {
  return absl::StrCat(CollectiveKindName(kind), " #", number, " on ", RankText(rank, peer));
}

absl::Status CheckAgreement(absl::Span<const CollectiveCall> calls,
                            absl::Span<const std::string> peers,
                            absl::FunctionRef<std::string(int rank)> reason_of) {
  for (size_t r = 0; r < calls.size(); ++r) {
    if (calls[r].refused == 0) continue;
    const int rank = static_cast<int>(r);
    return InvalidArgument(RankText(rank, peers[r]), " refused its ", CallText(calls[r]), ": ",
                           reason_of(rank));
  }
  for (size_t r = 1; r < calls.size(); ++r) {
    if (Agrees(calls[0], calls[r])) continue;
    return InvalidArgument(
        "ranks disagree: ", RankText(0, peers[0]), " calls ", CallText(calls[0]), ", ",
        RankText(static_cast<int>(r), peers[r]), " calls ", CallText(calls[r]),
        calls[0].shapes == calls[r].shapes ? "" : " with values of other shapes",
        "; every rank must make the same calls in the same order, with equal dtypes and counts");
  }
  return absl::OkStatus();
}

absl::Status CheckArguments(const CollectiveCall& call, ConstBuffer in, const MutableBuffer* out,
                            int size) {
  if (in.count < 0) return InvalidArgument("input of ", in.count, " elements");
  if (in.count > 0 && in.data == nullptr) return NullMemory("input", in.count);
  const bool reduces =
      call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kReduceScatter;
  if (reduces && call.reduce == ReduceOp::kMean && !IsFloating(call.dtype)) {
    return InvalidArgument("mean of ", DTypeName(call.dtype),
                           "; the mean of integers is not one: reduce with sum, then divide");
  }
  if (call.kind == CollectiveKind::kBroadcast && (call.root < 0 || call.root >= size)) {
    return InvalidArgument("root rank ", call.root, " is outside [0, ", size, ")");
  }
  if (out == nullptr) return absl::OkStatus();
  if (out->count > 0 && out->data == nullptr) return NullMemory("output", out->count);
  if (out->dtype != in.dtype) {
    return InvalidArgument("input is ", DTypeName(in.dtype), ", output is ", DTypeName(out->dtype));
  }
  const int64_t parts = call.kind == CollectiveKind::kReduceScatter ? size : 1;
  if (in.count != out->count * parts) {
    return InvalidArgument("input has ", in.count, " elements, output ", out->count,
                           "; the output needs ", in.count, "/", parts);
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(MutableBuffer place, DType dtype, absl::Span<const int64_t> counts) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (place.dtype != dtype || place.count != total) {
    return InvalidArgument("all_gather: the output is ", place.count, " ", DTypeName(place.dtype),
                           ", the ranks bring ", total, " ", DTypeName(dtype), " in all");
  }
  if (total > 0 && place.data == nullptr) return NullMemory("output", total);
  return absl::OkStatus();
}

}  // namespace cairn
