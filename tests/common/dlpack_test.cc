// Tensors pass to other frameworks and back without a copy and live as long as they are needed. A
// tensor that Cairn does not support is refused and stays with its owner.
#include "common/dlpack.h"

#include <dlpack/dlpack.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Another framework's tensor: [2, 3] of float32 unless a test changes it.
struct Foreign {
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> strides;
  int deleted = 0;
  DLManagedTensor managed = {};

  DLManagedTensor* Make() {
    managed.dl_tensor = {.data = data.data(),
                         .device = {.device_type = kDLCPU, .device_id = 0},
                         .ndim = static_cast<int>(shape.size()),
                         .dtype = {.code = kDLFloat, .bits = 32, .lanes = 1},
                         .shape = shape.data(),
                         .strides = strides.empty() ? nullptr : strides.data(),
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
    return &managed;
  }
};

TEST(DLPack, ATensorOfAnotherFrameworkIsSeenAndReleasedWithItsLastCopy) {
  Foreign foreign;
  {
    absl::StatusOr<Tensor> tensor = FromDLPack(foreign.Make());
    ASSERT_OK(tensor);
    const Tensor copy = *tensor;
    *tensor = Tensor();
    foreign.data[5] = 9;
    EXPECT_EQ(copy.text(), "float32 [2, 3] (1, 2, 3, 4, 5, 9)");
    EXPECT_EQ(copy.data(), foreign.data.data());
    EXPECT_EQ(copy.device(), Cpu(0));
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, AnotherFrameworkSeesOurMemoryAndKeepsIt) {
  Tensor tensor = Tensor::Of<int64_t>({2, 2}, {1, 2, 3, 4});
  absl::StatusOr<DLManagedTensor*> shared = ToDLPack(tensor);
  ASSERT_OK(shared);
  tensor.mutable_values<int64_t>()[0] = 7;
  tensor = Tensor();
  const DLTensor& seen = (*shared)->dl_tensor;
  EXPECT_EQ(seen.dtype.code, kDLInt);
  EXPECT_EQ(seen.dtype.bits, 64);
  ASSERT_EQ(seen.ndim, 2);
  EXPECT_EQ(seen.shape[1], 2);
  EXPECT_EQ(static_cast<const int64_t*>(seen.data)[0], 7);
  (*shared)->deleter(*shared);
}

TEST(DLPack, EveryDTypeSurvivesTheRoundTrip) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                            DType::kInt32, DType::kInt64}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0}}) {
      const Tensor tensor = Tensor::Full(dtype, shape, 2);
      const absl::StatusOr<Tensor> back = FromDLPack(ToDLPack(tensor).value());
      ASSERT_OK(back);
      EXPECT_EQ(back->text(), tensor.text());
      EXPECT_EQ(back->data(), tensor.data());
    }
  }
}

TEST(DLPack, GpuMemoryKeepsItsDevice) {
  Foreign foreign;
  foreign.Make()->dl_tensor.device = {.device_type = kDLCUDA, .device_id = 3};
  const Tensor tensor = FromDLPack(&foreign.managed).value();
  EXPECT_EQ(tensor.device(), Gpu(3));
  DLManagedTensor* const shared = ToDLPack(tensor).value();
  EXPECT_EQ(shared->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(shared->dl_tensor.device.device_id, 3);
  shared->deleter(shared);
}

TEST(DLPack, StridesOfPackedElementsAreAccepted) {
  Foreign foreign{.shape = {2, 1, 3}, .strides = {3, 99, 1}};
  EXPECT_OK(FromDLPack(foreign.Make()));
  Foreign part{.shape = {2}};
  part.Make()->dl_tensor.byte_offset = 8;
  EXPECT_THAT(FromDLPack(&part.managed).value().ToDoubles(), ElementsAre(3, 4));
}

TEST(DLPack, UnsupportedTensorsAreRefusedAndLeftToTheirOwner) {
  const auto refused = [](Foreign foreign, void (*change)(DLTensor&), const auto& message) {
    change(foreign.Make()->dl_tensor);
    EXPECT_THAT(FromDLPack(&foreign.managed),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
    EXPECT_EQ(foreign.deleted, 0);
  };
  refused(
      {.strides = {1, 2}}, [](DLTensor&) {},
      AllOf(HasSubstr("found stride 2 of axis 1, allowed is 1"), HasSubstr("contiguous")));
  refused(
      {.shape = {-1}}, [](DLTensor&) {}, HasSubstr("-1"));
  refused(
      {}, [](DLTensor& tensor) { tensor.shape = nullptr; }, HasSubstr("without a shape"));
  refused(
      {}, [](DLTensor& tensor) { tensor.data = nullptr; }, HasSubstr("no memory"));
  refused(
      {}, [](DLTensor& tensor) { tensor.byte_offset = 2; }, HasSubstr("aligned to 4 bytes"));
  refused(
      {}, [](DLTensor& tensor) { tensor.dtype.code = kDLUInt; }, HasSubstr("type code 1"));
  refused(
      {}, [](DLTensor& tensor) { tensor.dtype.lanes = 4; }, HasSubstr("4 lanes"));
  refused(
      {}, [](DLTensor& tensor) { tensor.device.device_type = kDLVulkan; },
      HasSubstr("device type 7"));
  EXPECT_THAT(FromDLPack(nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tensor")));
  EXPECT_THAT(ToDLPack(Tensor::Texts({1}, {"a"})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text [1]")));
}

}  // namespace
}  // namespace cairn
