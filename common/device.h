// Devices: where a tensor's memory is and where a replica computes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class DeviceType : int8_t { kCpu, kGpu };

// One local device. CPU devices are logical: cpu:0, cpu:1, … share the machine's cores, but each
// replica on one has its own memory and thread. gpu:N is the N-th visible GPU.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t index = 0;

  bool is_cpu() const { return type == DeviceType::kCpu; }
  // "cpu:0".
  std::string text() const;

  friend bool operator==(const Device& a, const Device& b) = default;
  friend auto operator<=>(const Device& a, const Device& b) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Device& device) {
    return H::combine(std::move(hash), device.type, device.index);
  }
};

inline Device Cpu(int32_t index) { return {DeviceType::kCpu, index}; }
inline Device Gpu(int32_t index) { return {DeviceType::kGpu, index}; }

// Parses "cpu:0", "GPU:1", "/device:CPU:0" or the full name of a local device
// ("/job:localhost/replica:0/task:0/device:CPU:0"). kInvalidArgument: not a device, or a device of
// a task other than localhost:0.
absl::StatusOr<Device> ParseDevice(absl::string_view text);

}  // namespace cairn
