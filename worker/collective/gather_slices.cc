#include "worker/collective/gather_slices.h"

#include "common/errors.h"
#include "common/status.h"
#include "worker/collective/reduce_kernels.h"

namespace cairn {

absl::StatusOr<GatheredSlices> GatherSlices(CollectiveGroup& group, ReduceOp op, ConstBuffer ids,
                                            ConstBuffer rows, int64_t width, Deadline deadline,
                                            CallPurpose purpose) {
  if (!purpose.reduction.has_value()) purpose.reduction = op;
  absl::Status arguments;
  if (ids.dtype != DType::kInt64 || width < 0 || rows.count != ids.count * width) {
    arguments =
        InvalidArgument("gathering slices: ", ids.count, " ", DTypeName(ids.dtype), " ids with ",
                        rows.count, " values; ids are int64, and each has ", width, " values");
  } else if (op == ReduceOp::kMean && !IsFloating(rows.dtype)) {
    arguments =
        InvalidArgument("gathering slices: mean of ", DTypeName(rows.dtype), "; request the sum");
  }
  GatheredSlices gathered;
  if (!arguments.ok()) {
    group.Refuse(arguments, deadline);
    return arguments;
  }
  const auto place_ids = [&](absl::Span<const int64_t> counts) -> absl::StatusOr<MutableBuffer> {
    size_t total = 0;
    for (const int64_t count : counts) total += static_cast<size_t>(count);
    gathered.ids.resize(total);
    return MutableBuffer{DType::kInt64, gathered.ids.data(), static_cast<int64_t>(total)};
  };
  RETURN_IF_ERROR(group.AllGatherV(ids, place_ids, deadline, purpose));
  const int64_t total = static_cast<int64_t>(gathered.ids.size()) * width;
  MutableBuffer out = {rows.dtype, nullptr, total};
  const auto place_rows = [&](absl::Span<const int64_t>) -> absl::StatusOr<MutableBuffer> {
    gathered.rows.resize(static_cast<size_t>(total) * DTypeBytes(rows.dtype));
    out.data = gathered.rows.data();
    return out;
  };
  RETURN_IF_ERROR(group.AllGatherV(rows, place_rows, deadline, purpose));
  if (op == ReduceOp::kMean && total > 0) {
    const void* in = out.data;
    SumBuffers(out.dtype, {&in, 1}, {&out.data, 1}, static_cast<size_t>(total), group.size());
  }
  return gathered;
}

}  // namespace cairn
