#include "common/tensor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/numeric_type.h"
#include "glog/logging.h"

namespace cairn {
namespace {

constexpr std::align_val_t kTensorAlignment{64};

std::shared_ptr<void> Allocate(size_t bytes) {
  return {::operator new(std::max<size_t>(bytes, 1), kTensorAlignment),
          [](void* memory) { ::operator delete(memory, kTensorAlignment); }};
}

int64_t CheckedCount(const Shape& shape) {
  const absl::StatusOr<int64_t> count = ElementCount(shape);
  CHECK(count.ok()) << count.status();
  return *count;
}

}  // namespace

Tensor::Tensor() : Tensor(Uninitialized(DType::kFloat32, {0})) {}

Tensor Tensor::Wrap(DType dtype, Shape shape, Device device, std::shared_ptr<void> owner,
                    void* data) {
  const int64_t count = CheckedCount(shape);
  auto memory = std::make_shared<Memory>();
  memory->dtype = dtype;
  memory->foreign = true;
  memory->device = device;
  memory->data = data;
  memory->owner = std::move(owner);
  return Tensor(std::move(memory), std::move(shape), count);
}

Tensor Tensor::Uninitialized(DType dtype, Shape shape, Device device) {
  CHECK(device.is_cpu()) << "memory of " << device.text() << " is not host memory: use NewTensor";
  std::shared_ptr<void> owner =
      Allocate(static_cast<size_t>(CheckedCount(shape)) * DTypeBytes(dtype));
  void* data = owner.get();
  Tensor tensor = Wrap(dtype, std::move(shape), device, std::move(owner), data);
  tensor.memory_->foreign = false;
  return tensor;
}

Tensor Tensor::Zeros(DType dtype, Shape shape, Device device) {
  Tensor zeros = Uninitialized(dtype, std::move(shape), device);
  std::memset(zeros.mutable_data(), 0, zeros.bytes());
  return zeros;
}

Tensor Tensor::Full(DType dtype, Shape shape, double value, Device device) {
  Tensor full = Uninitialized(dtype, std::move(shape), device);
  if (Is16Bit(dtype)) {
    const std::vector<float> values(static_cast<size_t>(full.elements()),
                                    static_cast<float>(value));
    FromFloat32(dtype, values.data(), values.size(), full.mutable_data());
    return full;
  }
  WithNumericType(dtype, [&full, value](auto zero) {
    absl::Span<decltype(zero)> values = full.mutable_values<decltype(zero)>();
    std::ranges::fill(values, static_cast<decltype(zero)>(value));
  });
  return full;
}

Tensor Tensor::Copy(DType dtype, Shape shape, const void* values, size_t count) {
  Tensor copy = Uninitialized(dtype, std::move(shape));
  CHECK_EQ(static_cast<size_t>(copy.elements()), count)
      << "values for a tensor of shape " << ShapeText(copy.shape());
  if (count > 0) std::memcpy(copy.mutable_data(), values, copy.bytes());
  return copy;
}

Tensor Tensor::Texts(Shape shape, std::vector<std::string> texts) {
  const int64_t count = CheckedCount(shape);
  CHECK_EQ(static_cast<size_t>(count), texts.size())
      << "texts for a tensor of shape " << ShapeText(shape);
  auto memory = std::make_shared<Memory>();
  memory->text = true;
  memory->texts = std::move(texts);
  return Tensor(std::move(memory), std::move(shape), count);
}

DType Tensor::dtype() const {
  CHECK(!is_text()) << "a tensor of texts has no dtype";
  return memory_->dtype;
}

void Tensor::CheckType(DType asked) const {
  CHECK(dtype() == asked) << "values of a tensor " << TypeText() << " asked for as "
                          << DTypeName(asked);
  CHECK(device().is_cpu()) << "values of a tensor on " << device().text()
                           << " are not host memory: read a copy, HostTensor's";
}

Tensor Tensor::Reshaped(Shape shape) const {
  CHECK_EQ(CheckedCount(shape), elements_)
      << "elements of " << ShapeText(shape) << " for those of " << ShapeText(shape_);
  return Tensor(memory_, std::move(shape), elements_);
}

bool Tensor::IsOnlyCopy() const {
  return memory_.use_count() == 1 && memory_->owner.use_count() == 1 && !memory_->foreign;
}

Tensor Tensor::Slice(int64_t begin, Shape shape) const {
  const int64_t count = CheckedCount(shape);
  CHECK(begin >= 0 && count <= elements_ - begin)
      << "elements from " << begin << " as " << ShapeText(shape) << " of " << ShapeText(shape_);
  if (is_text()) {
    const auto some = texts().subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    return Texts(std::move(shape), {some.begin(), some.end()});
  }
  auto memory = std::make_shared<Memory>(*memory_);
  memory->data =
      static_cast<char*>(memory->data) + static_cast<size_t>(begin) * DTypeBytes(memory->dtype);
  return Tensor(std::move(memory), std::move(shape), count);
}

Tensor Tensor::CopyTo(Device device) const {
  CHECK(device.is_cpu() && this->device().is_cpu())
      << "copies from " << this->device().text() << " to " << device.text()
      << " can fail: use CopyTensor";
  if (is_text()) return Texts(shape_, memory_->texts);
  Tensor copy = Uninitialized(dtype(), shape_, device);
  if (elements_ > 0) std::memcpy(copy.mutable_data(), data(), bytes());
  return copy;
}

std::vector<double> Tensor::ToDoubles() const {
  if (Is16Bit(dtype())) {
    std::vector<float> floats(static_cast<size_t>(elements_));
    ToFloat32(dtype(), data(), floats.size(), floats.data());
    return {floats.begin(), floats.end()};
  }
  std::vector<double> doubles;
  WithNumericType(dtype(), [this, &doubles](auto zero) {
    const auto values = this->values<decltype(zero)>();
    doubles.assign(values.begin(), values.end());
  });
  return doubles;
}

std::string Tensor::TypeText() const {
  return absl::StrCat(is_text() ? "text" : DTypeName(memory_->dtype), " ", ShapeText(shape_));
}

std::string Tensor::text() const {
  constexpr int64_t kShown = 16;
  const auto shown = static_cast<size_t>(std::min(elements_, kShown));
  std::string list;
  if (is_text()) {
    list = absl::StrJoin(texts().subspan(0, shown), ", ");
  } else if (!device().is_cpu()) {
    return absl::StrCat(TypeText(), " on ", device().text());
  } else {
    const std::vector<double> doubles = ToDoubles();
    list = absl::StrJoin(absl::MakeSpan(doubles).subspan(0, shown), ", ");
  }
  return absl::StrCat(TypeText(), " (", list, elements_ > kShown ? ", …)" : ")");
}

}  // namespace cairn
