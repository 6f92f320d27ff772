#include "common/device.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/errors.h"

namespace cairn {

std::string Device::text() const { return absl::StrCat(is_cpu() ? "cpu:" : "gpu:", index); }

absl::StatusOr<Device> ParseDevice(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  absl::string_view rest = lower;
  for (const absl::string_view local :
       {"/job:localhost", "/replica:0", "/task:0", "/", "device:"}) {
    absl::ConsumePrefix(&rest, local);
  }
  const bool gpu = absl::ConsumePrefix(&rest, "gpu:");
  int32_t index = 0;
  if ((gpu || absl::ConsumePrefix(&rest, "cpu:")) && !rest.empty() &&
      absl::ascii_isdigit(rest[0]) && absl::SimpleAtoi(rest, &index)) {
    return gpu ? Gpu(index) : Cpu(index);
  }
  return InvalidArgument(
      "device '", text,
      "' is not a device of this process; write cpu:N (logical devices) or gpu:N");
}

}  // namespace cairn
