#include "worker/ops/device_stream.h"

#include <memory>

#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/device_tensors.h"

namespace cairn {
namespace {

absl::StatusOr<std::shared_ptr<DeviceTensors>> TensorsOf(Device gpu) {
  if (!gpu.is_cpu()) return DeviceTensors::Of(gpu);
  return InvalidArgument("streams: found ", gpu.text(), ", which has none; give a GPU");
}

}  // namespace

absl::Status ComputeOnStream(Device gpu, absl::FunctionRef<absl::Status(CUstream_st* stream)> use) {
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceTensors> tensors, TensorsOf(gpu));
  return tensors->Compute([&](DeviceQueue& queue) {
    const absl::StatusOr<CUstream_st*> stream = queue.OpStream();
    const absl::Status status = stream.ok() ? use(*stream) : stream.status();
    if (!status.ok()) queue.Fail(status);
  });
}

absl::Status AwaitStream(Device gpu, CUstream_st* stream) {
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceTensors> tensors, TensorsOf(gpu));
  return tensors->Compute([&](DeviceQueue& queue) { queue.Follow(stream); });
}

}  // namespace cairn
