// Device names: "/job:worker/replica:0/task:1/device:GPU:0" (tf.DeviceSpec).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// A full or partial name; an unset field matches anything. Thread safety: a value.
struct DeviceSpec {
  std::optional<std::string> job = {};
  std::optional<int32_t> replica = {};
  std::optional<int32_t> task = {};
  std::optional<std::string> device_type = {};  // upper case: "CPU", "GPU"
  std::optional<int32_t> device_index = {};

  // Parts in any order, each at most once: "/job:NAME", "/replica:N", "/task:N", "/device:TYPE:N",
  // and the short "/cpu:N", "/gpu:N", "/tpu:N", in which the first '/' and ":N" are optional. "*"
  // matches anything. "" is a spec without fields.
  // kInvalidArgument: an unknown part, an invalid number, a second device type.
  static absl::StatusOr<DeviceSpec> FromString(absl::string_view name);

  // The canonical text, in the order of the fields: "/job:ps/task:0/device:CPU:*".
  std::string ToString() const;

  // This spec, with every field that `over` sets taken from `over`.
  DeviceSpec MergedWith(const DeviceSpec& over) const;

  bool operator==(const DeviceSpec&) const = default;
};

// FromString, then ToString: "gpu:1" is "/device:GPU:1".
absl::StatusOr<std::string> CanonicalDeviceName(absl::string_view name);

}  // namespace cairn
