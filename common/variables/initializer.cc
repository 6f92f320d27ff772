#include "common/variables/initializer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/arguments.h"
#include "common/errors.h"
#include "common/hash.h"
#include "common/nearest.h"
#include "common/status.h"

namespace cairn {
namespace {

// Values are counter-based: number `i` of stream `s` depends only on (s, i).
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

// Each word has two 32-bit numbers; the even element takes the upper half.
uint64_t Word(uint64_t stream, uint64_t pair) { return MixBits(stream + pair * kGolden); }

// Calls make(bits) for elements [first, first + out.size()) of `stream`.
template <typename Make>
void Fill(uint64_t stream, int64_t first, absl::Span<float> out, const Make& make) {
  const auto begin = static_cast<uint64_t>(first);
  size_t i = 0;
  if (begin % 2 == 1 && !out.empty()) {
    out[i++] = make(static_cast<uint32_t>(Word(stream, begin / 2)));
  }
  for (; i + 2 <= out.size(); i += 2) {
    const uint64_t word = Word(stream, (begin + i) / 2);
    out[i] = make(static_cast<uint32_t>(word >> 32));
    out[i + 1] = make(static_cast<uint32_t>(word));
  }
  if (i < out.size()) out[i] = make(static_cast<uint32_t>(Word(stream, (begin + i) / 2) >> 32));
}

// The midpoint of part number `bits` when (0, 1) is divided into 2^32 equal parts.
double Fraction(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

template <size_t kCount>
double Polynomial(const double (&coefficients)[kCount], double x) {
  double value = coefficients[kCount - 1];
  for (size_t i = kCount - 1; i > 0; --i) value = value * x + coefficients[i - 1];
  return value;
}

// Inverse of the normal distribution function: algorithm AS 241, PPND7 (Wichura, "The percentage
// points of the normal distribution", Applied Statistics 37, 1988), about 7 digits.
double NormalQuantile(double p) {
  constexpr double kCentreUp[] = {3.3871327179e+00, 5.0434271938e+01, 1.5929113202e+02,
                                  5.9109374720e+01};
  constexpr double kCentreDown[] = {1.0, 1.7895169469e+01, 7.8757757664e+01, 6.7187563600e+01};
  constexpr double kMiddleUp[] = {1.4234372777e+00, 2.7568153900e+00, 1.3067284816e+00,
                                  1.7023821103e-01};
  constexpr double kMiddleDown[] = {1.0, 7.3700164250e-01, 1.2021132975e-01};
  constexpr double kTailUp[] = {6.6579051150e+00, 3.0812263860e+00, 4.2868294337e-01,
                                1.7337203997e-02};
  constexpr double kTailDown[] = {1.0, 2.4197894225e-01, 1.2258202635e-02};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kCentreUp, r) / Polynomial(kCentreDown, r);
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? Polynomial(kMiddleUp, r - 1.6) / Polynomial(kMiddleDown, r - 1.6)
                          : Polynomial(kTailUp, r - 5) / Polynomial(kTailDown, r - 5);
  return q < 0 ? -x : x;
}

struct Fans {
  double in;
  double out;
};

// As in Keras, the axes before the last two are a receptive field.
Fans FansOf(absl::Span<const int64_t> shape) {
  if (shape.empty()) return {1, 1};
  if (shape.size() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double field = 1;
  for (size_t axis = 0; axis + 2 < shape.size(); ++axis) field *= static_cast<double>(shape[axis]);
  return {field * static_cast<double>(shape[shape.size() - 2]),
          field * static_cast<double>(shape[shape.size() - 1])};
}

void FillUniform(uint64_t stream, int64_t first, double low, double high, absl::Span<float> out) {
  const double width = high - low;
  Fill(stream, first, out,
       [&](uint32_t bits) { return static_cast<float>(low + width * Fraction(bits)); });
}

struct TypeSpec {
  absl::string_view type;
  std::vector<ArgumentSpec> arguments;
};

const std::vector<TypeSpec>& Types() {
  static const auto* types = new std::vector<TypeSpec>{
      {"zeros", {}},
      {"ones", {}},
      {"constant", {{"value", 0, Range::kAny}}},
      {"uniform", {{"minval", -0.05, Range::kAny}, {"maxval", 0.05, Range::kAny}}},
      {"normal", {{"mean", 0, Range::kAny}, {"stddev", 0.05, Range::kNotNegative}}},
      {"glorot_uniform", {}},
      {"wave", {{"scale", 1, Range::kAny}}}};
  return *types;
}

const TypeSpec* FindType(absl::string_view type) {
  for (const TypeSpec& known : Types()) {
    if (known.type == type) return &known;
  }
  return nullptr;
}

// Fills `out` from element `first` of `stream`, for every type except wave.
void FillFrom(const InitializerConfig& config, uint64_t stream, Fans fans, int64_t first,
              absl::Span<float> out) {
  const Arguments& at = config.arguments;
  if (config.type == "uniform") {
    FillUniform(stream, first, ArgumentOr(at, "minval", -0.05), ArgumentOr(at, "maxval", 0.05),
                out);
  } else if (config.type == "glorot_uniform") {
    const double limit = std::sqrt(6 / std::max(2.0, fans.in + fans.out));
    FillUniform(stream, first, -limit, limit, out);
  } else if (config.type == "normal") {
    const double mean = ArgumentOr(at, "mean", 0);
    const double stddev = ArgumentOr(at, "stddev", 0.05);
    Fill(stream, first, out, [&](uint32_t bits) {
      return static_cast<float>(mean + stddev * NormalQuantile(Fraction(bits)));
    });
  } else {
    const double fallback = config.type == "ones" ? 1 : 0;
    std::ranges::fill(out, static_cast<float>(ArgumentOr(at, "value", fallback)));
  }
}

}  // namespace

InitializerConfig WithDefaults(const InitializerConfig& config) {
  InitializerConfig full = config;
  if (const TypeSpec* type = FindType(config.type); type != nullptr) {
    AddDefaults(type->arguments, &full.arguments);
  }
  return full;
}

bool InitializerConfig::operator==(const InitializerConfig& other) const {
  return type == other.type && seed == other.seed &&
         WithDefaults(*this).arguments == WithDefaults(other).arguments;
}

absl::Status ValidateInitializer(const InitializerConfig& config, bool is_embedding) {
  const std::string owner = absl::StrCat("initializer ", QuotedName(config.type));
  const TypeSpec* type = FindType(config.type);
  if (type == nullptr) {
    std::vector<absl::string_view> types;
    for (const TypeSpec& known : Types()) types.push_back(known.type);
    return InvalidArgument("unknown ", owner, DidYouMean(config.type, types),
                           "; known: ", absl::StrJoin(types, ", "));
  }
  RETURN_IF_ERROR(CheckArguments(owner, config.arguments, type->arguments));
  const InitializerConfig full = WithDefaults(config);
  const double low = ArgumentOr(full.arguments, "minval", 0);
  const double high = ArgumentOr(full.arguments, "maxval", 0);
  if (low > high) {
    return InvalidArgument(owner, ": minval ", NumberText(low), " is more than maxval ",
                           NumberText(high));
  }
  if (is_embedding && config.type == "wave") {
    return InvalidArgument(owner,
                           " is for dense variables only: an embedding row has no flat index; use ",
                           "uniform or normal");
  }
  return absl::OkStatus();
}

std::string InitializerText(const InitializerConfig& config) {
  const std::string arguments = ArgumentsText(WithDefaults(config).arguments);
  return absl::StrCat(config.type, "(", arguments, arguments.empty() ? "" : ", ",
                      "seed=", config.seed, ")");
}

void InitializeDense(const InitializerConfig& config, absl::string_view name,
                     absl::Span<const int64_t> shape, int64_t first, absl::Span<float> out) {
  if (config.type == "wave") {
    const double scale = ArgumentOr(config.arguments, "scale", 1);
    for (size_t i = 0; i < out.size(); ++i) {
      const double index = static_cast<double>(first) + static_cast<double>(i);
      out[i] = static_cast<float>(scale * std::cos(0.37 * index));
    }
    return;
  }
  const uint64_t seed = MixBits(static_cast<uint64_t>(config.seed));
  FillFrom(config, MixBits(seed ^ HashBytes(name)), FansOf(shape), first, out);
}

void InitializeRow(const InitializerConfig& config, uint64_t table_hash, int64_t key,
                   absl::Span<float> out) {
  const uint64_t seed = MixBits(static_cast<uint64_t>(config.seed));
  const uint64_t stream = MixBits(MixBits(seed ^ table_hash) + static_cast<uint64_t>(key));
  FillFrom(config, stream, {1, static_cast<double>(out.size())}, 0, out);
}

}  // namespace cairn
