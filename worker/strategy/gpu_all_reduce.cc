#include "worker/strategy/gpu_all_reduce.h"

#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "common/status.h"
#include "worker/collective/packing.h"
#include "worker/ops/device_tensors.h"
#include "worker/ops/tensor_math.h"

namespace cairn {
namespace {

// Alignment of each tensor in its pack, for the widest loads.
constexpr int64_t kAlignmentFloats = 64;

}  // namespace

// Values that are added up together, and their offsets in one tensor on each device.
struct GpuAllReduce::Pack {
  std::vector<size_t> values;
  std::vector<int64_t> offsets;  // in floats
  int64_t floats = 0;
  std::vector<std::shared_ptr<Tensor>> memory;  // by device

  float* data(size_t device) const { return static_cast<float*>(memory[device]->mutable_data()); }
};

GpuAllReduce::GpuAllReduce(std::vector<Device> devices, int64_t bytes_per_pack,
                           std::unique_ptr<GpuRanks> ranks)
    : devices_(std::move(devices)), bytes_per_pack_(bytes_per_pack), ranks_(std::move(ranks)) {}

GpuAllReduce::~GpuAllReduce() = default;

bool GpuAllReduce::CanReduce(absl::Span<const Value> of_devices) const {
  if (of_devices.size() != devices_.size()) return false;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (of_devices[d].kind() != Value::Kind::kTensor) return false;
    const Tensor& tensor = of_devices[d].tensor();
    if (tensor.is_text() || tensor.dtype() != DType::kFloat32 || tensor.device() != devices_[d] ||
        tensor.shape() != of_devices[0].tensor().shape()) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<std::vector<GpuAllReduce::Pack>> GpuAllReduce::MakePacks(
    absl::Span<const Value::Sequence> locals) const {
  // In reverse order, because the backward pass computes the last gradients first.
  std::vector<PackItem> items;
  for (size_t v = locals.size(); v-- > 0;) items.push_back({locals[v][0].tensor().elements()});
  ASSIGN_OR_RETURN(const std::vector<std::vector<size_t>> groups,
                   GroupBySize(items, bytes_per_pack_));
  std::vector<Pack> packs;
  for (const std::vector<size_t>& group : groups) {
    Pack& pack = packs.emplace_back();
    for (const size_t reversed : group) {
      const size_t v = locals.size() - 1 - reversed;
      const int64_t count = locals[v][0].tensor().elements();
      pack.values.push_back(v);
      pack.offsets.push_back(pack.floats);
      pack.floats += (count + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
    }
    for (const Device device : devices_) {
      ASSIGN_OR_RETURN(Tensor memory, NewTensor(DType::kFloat32, {pack.floats}, device));
      pack.memory.push_back(std::make_shared<Tensor>(std::move(memory)));
    }
  }
  return packs;
}

absl::Status GpuAllReduce::RunDevice(size_t device, ReduceOp op,
                                     absl::Span<const Value::Sequence> locals,
                                     absl::Span<Pack> packs, DeviceTensorsLock& gpus,
                                     DeviceRank& rank) const {
  const CollectiveGroup* const others = ranks_->peers().workers;
  const int workers = others == nullptr ? 1 : others->size();
  const float count = static_cast<float>(devices_.size()) * static_cast<float>(workers);
  const auto queue_all = [&](DeviceQueue& queue) {
    std::vector<RankSum> sums;
    for (const Pack& pack : packs) {
      float* const to = pack.data(device);
      for (size_t i = 0; i < pack.values.size(); ++i) {
        const Tensor& from = locals[pack.values[i]][device].tensor();
        if (from.bytes() == 0) continue;
        queue.tensor_ops().CopyBlocks(from.data(), from.bytes(), 1, from.bytes(),
                                      to + pack.offsets[i], from.bytes());
      }
      const auto floats = static_cast<size_t>(pack.floats);
      if (floats == 0) continue;
      if (op == ReduceOp::kMean) {
        queue.ops().Scale(1.0F / count, to, floats);
      }
      sums.push_back({to, floats, RankSum::kAllRanks});
    }
    if (!sums.empty()) queue.Reduce(rank, sums);
  };
  absl::Status status = gpus.Compute(device, queue_all);
  if (!status.ok()) rank.Fail(status);
  return status;
}

absl::Status GpuAllReduce::RunDevices(ReduceOp op, absl::Span<const Value::Sequence> locals,
                                      absl::Span<Pack> packs,
                                      absl::Span<const std::unique_ptr<DeviceRank>> ranks) const {
  std::vector<std::shared_ptr<DeviceTensors>> tensors;
  for (const Device device : devices_) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), DeviceTensors::Of(device));
  }
  DeviceTensorsLock gpus(std::move(tensors));
  std::vector<absl::Status> statuses(devices_.size());
  const auto run = [&](size_t device) {
    statuses[device] = RunDevice(device, op, locals, packs, gpus, *ranks[device]);
  };
  // Each device has a thread, because NCCL's calls wait for the other ranks' calls.
  std::vector<std::thread> threads;
  for (size_t d = 1; d < devices_.size(); ++d) {
    const absl::Status started =
        CallCatching(absl::StrCat("starting the thread of ", devices_[d].text()),
                     [&] { threads.emplace_back(run, d); });
    if (started.ok()) continue;
    statuses[d] = absl::ResourceExhaustedError(started.message());
    ranks[d]->Fail(statuses[d]);  // the other ranks would wait for it
  }
  run(0);
  for (std::thread& thread : threads) thread.join();
  absl::Status failure;
  for (const absl::Status& status : statuses) {
    if (failure.ok() || (absl::IsAborted(failure) && !status.ok())) failure = status;
  }
  return Annotate(failure, "sums over GPUs by NCCL");
}

absl::StatusOr<std::vector<Value>> GpuAllReduce::Reduce(ReduceOp op,
                                                        absl::Span<const Value::Sequence> locals) {
  absl::MutexLock lock(&mutex_);
  ranks_->Acquire();
  const absl::Cleanup give_back = [this] { ranks_->Release(); };
  ASSIGN_OR_RETURN(const absl::Span<const std::unique_ptr<DeviceRank>> ranks, ranks_->Joined());
  // Allocates before anything is queued, because an allocation may wait for sums.
  absl::StatusOr<std::vector<Pack>> packs = MakePacks(locals);
  absl::Status status = packs.status();
  if (packs.ok()) status = RunDevices(op, locals, absl::MakeSpan(*packs), ranks);
  // The other workers wait for this one's ranks. Without others, ranks stay usable where memory was
  // short.
  if (!status.ok() && ranks_->peers().workers != nullptr) ranks.front()->Fail(status);
  RETURN_IF_ERROR(ranks_->Agree(status));
  std::vector<Value> results(locals.size());
  for (const Pack& pack : *packs) {
    for (size_t i = 0; i < pack.values.size(); ++i) {
      const Shape& shape = locals[pack.values[i]][0].tensor().shape();
      Value::Sequence copies;
      for (size_t d = 0; d < devices_.size(); ++d) {
        copies.emplace_back(Tensor::Wrap(DType::kFloat32, shape, devices_[d], pack.memory[d],
                                         pack.data(d) + pack.offsets[i]));
      }
      results[pack.values[i]] = Value::Mirrored(std::move(copies));
    }
  }
  return results;
}

}  // namespace cairn
