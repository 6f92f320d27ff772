#include "worker/collective/cross_device_ops.h"

#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/collective/reduce_kernels.h"

namespace cairn {
namespace {

absl::Status CheckBuffers(absl::string_view who, ReduceOp op, absl::Span<const ConstBuffer> values,
                          absl::Span<const MutableBuffer> outputs) {
  if (values.empty()) return absl::InvalidArgumentError(absl::StrCat(who, ": no values to reduce"));
  const ConstBuffer& first = values[0];
  if (op == ReduceOp::kMean && !IsFloating(first.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": mean of ", DTypeName(first.dtype), "; reduce with sum, then divide"));
  }
  const auto check = [&](absl::string_view which, size_t i,
                         const ConstBuffer& buffer) -> absl::Status {
    if (buffer.dtype == first.dtype && buffer.count == first.count) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        who, ": ", which, " ", i, " is ", buffer.count, " ", DTypeName(buffer.dtype),
        ", value 0 is ", first.count, " ", DTypeName(first.dtype), "; all must be alike"));
  };
  for (size_t i = 0; i < values.size(); ++i) RETURN_IF_ERROR(check("value", i, values[i]));
  for (size_t i = 0; i < outputs.size(); ++i) RETURN_IF_ERROR(check("output", i, outputs[i]));
  return absl::OkStatus();
}

std::vector<const void*> Pointers(absl::Span<const ConstBuffer> buffers) {
  std::vector<const void*> pointers;
  pointers.reserve(buffers.size());
  for (const ConstBuffer& buffer : buffers) pointers.push_back(buffer.data);
  return pointers;
}

std::vector<void*> Pointers(absl::Span<const MutableBuffer> buffers) {
  std::vector<void*> pointers;
  pointers.reserve(buffers.size());
  for (const MutableBuffer& buffer : buffers) pointers.push_back(buffer.data);
  return pointers;
}

bool AnyCpu(absl::Span<const Device> devices) {
  return std::any_of(devices.begin(), devices.end(), [](const Device& d) { return d.is_cpu(); });
}

}  // namespace

absl::string_view CrossDeviceOpsName(CrossDeviceOps ops) {
  switch (ops) {
    case CrossDeviceOps::kReductionToOneDevice: return "ReductionToOneDevice";
    case CrossDeviceOps::kHierarchicalCopy: return "HierarchicalCopyAllReduce";
    case CrossDeviceOps::kNccl: return "NcclAllReduce";
    case CrossDeviceOps::kRing: return "RING";
  }
  return "unknown";
}

absl::Status CheckNumPacks(CrossDeviceOps ops, int64_t num_packs) {
  if (num_packs >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(CrossDeviceOpsName(ops), ": num_packs is ",
                                                 num_packs,
                                                 "; it must be >= 0, and 0 means no packing"));
}

CrossDeviceOps DefaultCrossDeviceOps(const ReplicaDevices& replicas,
                                     CommunicationImplementation implementation, bool has_nccl) {
  const auto cpus = std::count_if(replicas.devices.begin(), replicas.devices.end(),
                                  [](const Device& device) { return device.is_cpu(); });
  const auto count = static_cast<int64_t>(replicas.devices.size());
  if (cpus == count) return CrossDeviceOps::kRing;
  if (cpus > 0) return CrossDeviceOps::kReductionToOneDevice;
  const absl::flat_hash_set<Device> distinct(replicas.devices.begin(), replicas.devices.end());
  const bool physical = !replicas.virtual_gpus && static_cast<int64_t>(distinct.size()) == count;
  const bool ring = implementation == CommunicationImplementation::kRing;
  return physical && has_nccl && !ring ? CrossDeviceOps::kNccl : CrossDeviceOps::kRing;
}

CrossDeviceOps OpsForCall(CrossDeviceOps configured, const ReductionCall& call) {
  const bool all_reduces =
      configured == CrossDeviceOps::kNccl || configured == CrossDeviceOps::kHierarchicalCopy;
  const bool collective =
      configured == CrossDeviceOps::kNccl || configured == CrossDeviceOps::kRing;
  const bool cannot = call.from != call.to || (collective && call.dtype == DType::kInt32) ||
                      (all_reduces && (call.sparse || AnyCpu(call.to)));
  return cannot ? CrossDeviceOps::kReductionToOneDevice : configured;
}

absl::Status ReductionToOneDevice(ReduceOp op, absl::Span<const ConstBuffer> values,
                                  absl::Span<const MutableBuffer> outputs) {
  RETURN_IF_ERROR(CheckBuffers("ReductionToOneDevice", op, values, outputs));
  const int divisor = op == ReduceOp::kMean ? static_cast<int>(values.size()) : 1;
  SumBuffers(values[0].dtype, Pointers(values), Pointers(outputs),
             static_cast<size_t>(values[0].count), divisor);
  return absl::OkStatus();
}

HierarchicalPlan PlanHierarchicalCopy(int devices, int64_t pack) {
  HierarchicalPlan plan;
  plan.main = static_cast<int>(pack % devices);
  plan.other_leader = plan.main;
  if (devices == 1) {
    plan.main_half = {0};
    return plan;
  }
  const int half = devices / 2;
  const bool main_is_low = plan.main < half;
  for (int d = 0; d < devices; ++d) {
    ((d < half) == main_is_low ? plan.main_half : plan.other_half).push_back(d);
  }
  // The device opposite `main`, so that the packs' leaders are spread over the half.
  plan.other_leader = plan.other_half[static_cast<size_t>(plan.main) % plan.other_half.size()];
  return plan;
}

absl::Status HierarchicalCopyAllReduce(ReduceOp op, absl::Span<const ConstBuffer> values,
                                       absl::Span<const MutableBuffer> outputs) {
  RETURN_IF_ERROR(CheckBuffers("HierarchicalCopyAllReduce", op, values, outputs));
  if (values.size() == 1) return ReductionToOneDevice(op, values, outputs);
  const size_t half = values.size() / 2;
  const DType dtype = values[0].dtype;
  const auto count = static_cast<size_t>(values[0].count);
  const auto memory = std::make_unique<char[]>(2 * values[0].bytes());
  void* sums[2] = {memory.get(), memory.get() + values[0].bytes()};
  SumBuffers(dtype, Pointers(values.subspan(0, half)), {&sums[0], 1}, count, 1);
  SumBuffers(dtype, Pointers(values.subspan(half)), {&sums[1], 1}, count, 1);
  SumBuffers(dtype, {sums, 2}, Pointers(outputs), count,
             op == ReduceOp::kMean ? static_cast<int>(values.size()) : 1);
  return absl::OkStatus();
}

}  // namespace cairn
