#include "worker/cluster/device_spec.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

using Words = std::vector<absl::string_view>;

class NameReader {
 public:
  explicit NameReader(absl::string_view name) : name_(name) {}

  absl::StatusOr<DeviceSpec> Read() {
    for (const absl::string_view part : absl::StrSplit(name_, '/', absl::SkipEmpty())) {
      const Words words = absl::StrSplit(part, ':');
      RETURN_IF_ERROR(ReadPart(part, words));
    }
    return spec_;
  }

 private:
  absl::Status Refuse(absl::string_view why) const {
    return InvalidArgument("device name '", name_.substr(0, 200), "': ", why);
  }

  absl::Status ReadPart(absl::string_view part, const Words& words) {
    const absl::string_view key = words[0];
    if (words.size() == 2 && key == "job") return ReadJob(words[1]);
    if (words.size() == 2 && key == "replica") return ReadNumber(part, words[1], &spec_.replica);
    if (words.size() == 2 && key == "task") return ReadNumber(part, words[1], &spec_.task);
    if (words.size() == 3 && key == "device") return ReadDevice(part, words[1], words[2]);
    const std::string type = absl::AsciiStrToUpper(key);
    if (words.size() <= 2 && (type == "CPU" || type == "GPU" || type == "TPU")) {
      return ReadDevice(part, type, words.size() == 2 ? words[1] : "*");
    }
    return Refuse(absl::StrCat("unknown attribute '", part.substr(0, 60),
                               "'; there are job:NAME, replica:N, task:N, device:TYPE:N, cpu:N and "
                               "gpu:N"));
  }

  absl::Status ReadJob(absl::string_view job) {
    if (job.empty()) return Refuse("the job has no name");
    if (spec_.job.has_value()) return Refuse("it names two jobs");
    if (job != "*") spec_.job = std::string(job);
    return absl::OkStatus();
  }

  absl::Status ReadDevice(absl::string_view part, absl::string_view type, absl::string_view index) {
    if (has_type_) return Refuse("Multiple device types are not allowed");
    has_type_ = true;
    if (type.empty()) return Refuse("the device has no type; expected CPU or GPU");
    if (type != "*") spec_.device_type = absl::AsciiStrToUpper(type);
    return ReadNumber(part, index, &spec_.device_index);
  }

  absl::Status ReadNumber(absl::string_view part, absl::string_view text,
                          std::optional<int32_t>* out) const {
    if (out->has_value()) return Refuse(absl::StrCat("'", part, "' comes after another one"));
    if (text == "*") return absl::OkStatus();
    int32_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 0) {
      return Refuse(
          absl::StrCat("'", part.substr(0, 60), "' must end with a number from 0, or with '*'"));
    }
    *out = number;
    return absl::OkStatus();
  }

  const absl::string_view name_;
  DeviceSpec spec_;
  bool has_type_ = false;
};

}  // namespace

absl::StatusOr<DeviceSpec> DeviceSpec::FromString(absl::string_view name) {
  return NameReader(name).Read();
}

std::string DeviceSpec::ToString() const {
  std::string text;
  if (job.has_value()) absl::StrAppend(&text, "/job:", *job);
  if (replica.has_value()) absl::StrAppend(&text, "/replica:", *replica);
  if (task.has_value()) absl::StrAppend(&text, "/task:", *task);
  if (device_type.has_value()) {
    absl::StrAppend(&text, "/device:", *device_type, ":");
    if (device_index.has_value()) {
      absl::StrAppend(&text, *device_index);
    } else {
      absl::StrAppend(&text, "*");
    }
  }
  return text;
}

DeviceSpec DeviceSpec::MergedWith(const DeviceSpec& over) const {
  DeviceSpec merged = *this;
  if (over.job.has_value()) merged.job = over.job;
  if (over.replica.has_value()) merged.replica = over.replica;
  if (over.task.has_value()) merged.task = over.task;
  if (over.device_type.has_value()) merged.device_type = over.device_type;
  if (over.device_index.has_value()) merged.device_index = over.device_index;
  return merged;
}

absl::StatusOr<std::string> CanonicalDeviceName(absl::string_view name) {
  ASSIGN_OR_RETURN(const DeviceSpec spec, DeviceSpec::FromString(name));
  return spec.ToString();
}

}  // namespace cairn
