#include "common/dlpack.h"

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr struct {
  DType dtype;
  DLDataTypeCode code;
} kTypes[] = {{DType::kFloat32, kDLFloat}, {DType::kFloat64, kDLFloat},
              {DType::kFloat16, kDLFloat}, {DType::kBFloat16, kDLBfloat},
              {DType::kInt32, kDLInt},     {DType::kInt64, kDLInt}};

DLDataType ToDLType(DType dtype) {
  DLDataType type{
      .code = kDLFloat, .bits = static_cast<uint8_t>(8 * DTypeBytes(dtype)), .lanes = 1};
  for (const auto& known : kTypes) {
    if (known.dtype == dtype) type.code = static_cast<uint8_t>(known.code);
  }
  return type;
}

absl::StatusOr<DType> FromDLType(const DLDataType& type) {
  for (const auto& [dtype, code] : kTypes) {
    if (type.code == code && type.bits == 8 * DTypeBytes(dtype) && type.lanes == 1) return dtype;
  }
  return InvalidArgument("DLPack tensor: found type code ", type.code, " of ", type.bits,
                         " bits and ", type.lanes,
                         " lanes; allowed are float16, bfloat16, float32, "
                         "float64, int32 and int64: convert it first");
}

absl::StatusOr<Device> DeviceOf(const DLDevice& device) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) return Cpu(0);
  if (device.device_type == kDLCUDA) return Gpu(device.device_id);
  return InvalidArgument(
      "DLPack tensor: found device type ", static_cast<int>(device.device_type),
      "; allowed are CPU (1), CUDA (2) and pinned host memory (3): copy it to one of them first");
}

absl::StatusOr<Shape> ShapeOf(const DLTensor& tensor) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    return InvalidArgument("DLPack tensor: found ", tensor.ndim, " dimensions without a shape");
  }
  Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  RETURN_IF_ERROR(Annotate(ElementCount(shape).status(), "DLPack tensor"));
  return shape;
}

// Null strides mean packed, row-major. Strides of axes with one element have no meaning.
absl::Status CheckPacked(const DLTensor& tensor, const Shape& shape, int64_t elements) {
  if (tensor.strides == nullptr || elements == 0) return absl::OkStatus();
  int64_t packed = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1 && tensor.strides[axis] != packed) {
      return InvalidArgument("DLPack tensor of shape ", ShapeText(shape), ": found stride ",
                             tensor.strides[axis], " of axis ", axis, ", allowed is ", packed,
                             " (row-major): make it contiguous first");
    }
    packed *= shape[axis];
  }
  return absl::OkStatus();
}

// The data behind an exported DLManagedTensor.
struct Shared {
  Tensor tensor;
  Shape shape;
  DLManagedTensor managed;
};

void Release(DLManagedTensor* managed) { delete static_cast<Shared*>(managed->manager_ctx); }

}  // namespace

absl::StatusOr<DLManagedTensor*> ToDLPack(const Tensor& tensor) {
  if (tensor.is_text()) {
    return InvalidArgument("to DLPack: found ", tensor.TypeText(),
                           "; allowed are tensors of numbers");
  }
  auto shared = std::make_unique<Shared>(Shared{.tensor = tensor, .shape = tensor.shape()});
  const Device device = tensor.device();
  shared->managed.dl_tensor = {.data = shared->tensor.mutable_data(),
                               .device = {.device_type = device.is_cpu() ? kDLCPU : kDLCUDA,
                                          .device_id = device.is_cpu() ? 0 : device.index},
                               .ndim = static_cast<int>(tensor.rank()),
                               .dtype = ToDLType(tensor.dtype()),
                               .shape = shared->shape.data(),
                               .strides = nullptr,
                               .byte_offset = 0};
  shared->managed.manager_ctx = shared.get();
  shared->managed.deleter = Release;
  return &shared.release()->managed;
}

absl::StatusOr<Tensor> FromDLPack(DLManagedTensor* managed) {
  if (managed == nullptr) return absl::InvalidArgumentError("from DLPack: found no tensor");
  const DLTensor& tensor = managed->dl_tensor;
  ASSIGN_OR_RETURN(const DType dtype, FromDLType(tensor.dtype));
  ASSIGN_OR_RETURN(const Device device, DeviceOf(tensor.device));
  ASSIGN_OR_RETURN(Shape shape, ShapeOf(tensor));
  ASSIGN_OR_RETURN(const int64_t elements, ElementCount(shape));
  RETURN_IF_ERROR(CheckPacked(tensor, shape, elements));
  if (elements > 0 && tensor.data == nullptr) {
    return InvalidArgument("DLPack tensor of shape ", ShapeText(shape),
                           ": found no memory for its elements");
  }
  char* const data =
      tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
  if (reinterpret_cast<uintptr_t>(data) % DTypeBytes(dtype) != 0) {
    return InvalidArgument("DLPack tensor of ", DTypeName(dtype), ": its memory is not aligned to ",
                           DTypeBytes(dtype), " bytes: copy it first");
  }
  std::shared_ptr<void> owner(managed, [](void* memory) {
    auto* const held = static_cast<DLManagedTensor*>(memory);
    if (held->deleter != nullptr) held->deleter(held);
  });
  return Tensor::Wrap(dtype, std::move(shape), device, std::move(owner), data);
}

}  // namespace cairn
