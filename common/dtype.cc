#include "common/dtype.h"

#include <array>
#include <cstring>

#include "common/errors.h"
#include "common/float16.h"
#include "common/nearest.h"

namespace cairn {
namespace {

struct DTypeInfo {
  DType dtype;
  absl::string_view name;
  size_t bytes;
  bool floating;
};
constexpr DTypeInfo kInfos[] = {
    {DType::kFloat32, "float32", 4, true}, {DType::kFloat64, "float64", 8, true},
    {DType::kFloat16, "float16", 2, true}, {DType::kBFloat16, "bfloat16", 2, true},
    {DType::kInt32, "int32", 4, false},    {DType::kInt64, "int64", 8, false},
};
constexpr absl::string_view kNames = "float32, float64, float16, bfloat16, int32, int64";

const DTypeInfo* FindInfo(int32_t number) {
  for (const DTypeInfo& info : kInfos) {
    if (static_cast<int32_t>(info.dtype) == number) return &info;
  }
  return nullptr;
}

template <typename T, typename Convert>
void Read(const void* from, size_t count, float* to, Convert convert) {
  const auto* bytes = static_cast<const char*>(from);
  for (size_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, bytes + i * sizeof(T), sizeof(T));
    to[i] = convert(element);
  }
}

template <typename T, typename Convert>
void Write(const float* from, size_t count, void* to, Convert convert) {
  auto* bytes = static_cast<char*>(to);
  for (size_t i = 0; i < count; ++i) {
    const T element = convert(from[i]);
    std::memcpy(bytes + i * sizeof(T), &element, sizeof(T));
  }
}

}  // namespace

size_t DTypeBytes(DType dtype) {
  const DTypeInfo* info = FindInfo(static_cast<int32_t>(dtype));
  return info == nullptr ? 0 : info->bytes;
}

absl::string_view DTypeName(DType dtype) {
  const DTypeInfo* info = FindInfo(static_cast<int32_t>(dtype));
  return info == nullptr ? "unknown" : info->name;
}

absl::StatusOr<DType> DTypeFromName(absl::string_view name) {
  std::array<absl::string_view, std::size(kInfos)> names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (kInfos[i].name == name) return kInfos[i].dtype;
    names[i] = kInfos[i].name;
  }
  return InvalidArgument("unknown dtype ", QuotedName(name), DidYouMean(name, names),
                         "; known: ", kNames);
}

absl::StatusOr<DType> DTypeFromNumber(int32_t number) {
  const DTypeInfo* info = FindInfo(number);
  if (info != nullptr) return info->dtype;
  return InvalidArgument("dtype number ", number, " is unknown; known are 1 to 6: ", kNames);
}

bool IsFloating(DType dtype) {
  const DTypeInfo* info = FindInfo(static_cast<int32_t>(dtype));
  return info != nullptr && info->floating;
}

uint16_t Float16FromFloat(float value) { return EncodeFloat16(value); }
float FloatFromFloat16(uint16_t bits) { return DecodeFloat16(bits); }
uint16_t BFloat16FromFloat(float value) { return EncodeBFloat16(value); }
float FloatFromBFloat16(uint16_t bits) { return DecodeBFloat16(bits); }

void ToFloat32(DType dtype, const void* from, size_t count, float* to) {
  if (count == 0) return;  // memcpy takes no null pointers
  switch (dtype) {
    case DType::kFloat32: std::memcpy(to, from, count * sizeof(float)); return;
    case DType::kFloat64:
      Read<double>(from, count, to, [](double x) { return static_cast<float>(x); });
      return;
    case DType::kFloat16: Read<uint16_t>(from, count, to, FloatFromFloat16); return;
    case DType::kBFloat16: Read<uint16_t>(from, count, to, FloatFromBFloat16); return;
    case DType::kInt32:
    case DType::kInt64: return;
  }
}

void FromFloat32(DType dtype, const float* from, size_t count, void* to) {
  if (count == 0) return;  // memcpy takes no null pointers
  switch (dtype) {
    case DType::kFloat32: std::memcpy(to, from, count * sizeof(float)); return;
    case DType::kFloat64:
      Write<double>(from, count, to, [](float x) { return static_cast<double>(x); });
      return;
    case DType::kFloat16: Write<uint16_t>(from, count, to, Float16FromFloat); return;
    case DType::kBFloat16: Write<uint16_t>(from, count, to, BFloat16FromFloat); return;
    case DType::kInt32:
    case DType::kInt64: return;
  }
}

}  // namespace cairn
