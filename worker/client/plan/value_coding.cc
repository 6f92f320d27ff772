#include "worker/client/plan/value_coding.h"

#include "absl/strings/str_cat.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

absl::Status Refuse(absl::string_view call, const VariableSpec& spec, ValueFormat format,
                    absl::string_view why) {
  return InvalidArgument(call, " \"", spec.name, "\" in format ", ValueFormatName(format), ": ",
                         why);
}

absl::Status CheckDType(absl::string_view call, const VariableSpec& spec, ValueFormat format) {
  if (spec.dtype == DType::kFloat32) return absl::OkStatus();
  return Refuse(call, spec, format,
                absl::StrCat("it is for float32 values, the variable is ", DTypeName(spec.dtype),
                             ": use the plain format"));
}

}  // namespace

size_t TravelBytes(const PushCoding& coding) {
  return coding.format == ValueFormat::kTopK
             ? TopKBytes(KeptValues(coding.kept_fraction, coding.rows * coding.width))
             : EncodedBytes(coding.format, coding.rows, coding.width);
}

void EncodePush(const PushCoding& coding, const float* values, std::byte* out) {
  if (coding.format != ValueFormat::kTopK) {
    EncodeValues(coding.format, values, coding.rows, coding.width, out);
    return;
  }
  const int64_t count = coding.rows * coding.width;
  EncodeTopK({values, static_cast<size_t>(count)}, KeptValues(coding.kept_fraction, count), out);
}

void EncodeWithFeedback(const PushCoding& coding, const float* values, absl::Span<float> residual,
                        float* sums, std::byte* out) {
  for (size_t i = 0; i < residual.size(); ++i) sums[i] = values[i] + residual[i];
  EncodePush(coding, sums, out);
  // Decoding cannot fail: EncodePush has just written these bytes.
  DecodeValues(coding.format, {out, TravelBytes(coding)}, coding.rows, coding.width,
               residual.data())
      .IgnoreError();
  for (size_t i = 0; i < residual.size(); ++i) residual[i] = sums[i] - residual[i];
}

absl::Status CheckPushFormat(const VariableSpec& spec, const PushSource& source) {
  const bool plain = source.format == ValueFormat::kPlain;
  if (plain && source.residual.empty()) return absl::OkStatus();
  const auto refuse = [&](absl::string_view why) {
    return Refuse("push", spec, source.format, why);
  };
  RETURN_IF_ERROR(CheckDType("push", spec, source.format));
  if (source.format == ValueFormat::kTopK && source.part != Part::kWhole) {
    return refuse("it selects values of whole variables: use another format for rows and keys");
  }
  if (source.format == ValueFormat::kTopK &&
      !(source.kept_fraction > 0 && source.kept_fraction <= 1)) {
    return refuse(absl::StrCat("kept_fraction is ", source.kept_fraction,
                               "; above 0 and up to 1 are allowed"));
  }
  if (source.residual.empty()) return absl::OkStatus();
  if (plain || source.part != Part::kWhole) {
    return refuse("a residual is for the whole variable and formats that round");
  }
  if (source.residual.size() * sizeof(float) == source.values.size()) return absl::OkStatus();
  return refuse(absl::StrCat("the residual has ", source.residual.size(), " floats for ",
                             source.values.size() / sizeof(float), " values"));
}

absl::Status CheckPullFormat(const VariableSpec& spec, const PullTarget& target) {
  if (target.format == ValueFormat::kPlain) return absl::OkStatus();
  RETURN_IF_ERROR(CheckDType("pull", spec, target.format));
  if (target.format == ValueFormat::kTopK) {
    return Refuse("pull", spec, target.format, "it is for gradients: name another format");
  }
  if (target.slot.empty()) return absl::OkStatus();
  return Refuse("pull", spec, target.format,
                absl::StrCat("slot \"", target.slot, "\" travels plain"));
}

}  // namespace cairn
