#include "worker/client/plan/push_clip.h"

#include <cstring>

#include "absl/types/span.h"
#include "common/dtype.h"
#include "common/optimizer/clip.h"

namespace cairn {
namespace {

template <typename T>
std::vector<T> SumOfRepeats(absl::Span<const int64_t> ids, absl::Span<const T> rows,
                            KeyIndex& index, std::vector<int64_t>* distinct) {
  const size_t width = ids.empty() ? 0 : rows.size() / ids.size();
  std::vector<T> sums;
  sums.reserve(rows.size());
  index.Reset(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto number = static_cast<size_t>(index.Insert(ids[i]));
    const absl::Span<const T> row = rows.subspan(i * width, width);
    if (number == distinct->size()) {
      distinct->push_back(ids[i]);
      sums.insert(sums.end(), row.begin(), row.end());
    } else {
      for (size_t j = 0; j < width; ++j) sums[number * width + j] += row[j];
    }
  }
  return sums;
}

template <typename T>
std::vector<T> ClippedValues(const PushSource& source, std::vector<T> gradient, T limit,
                             KeyIndex& index, std::vector<int64_t>* distinct) {
  if (source.part != Part::kWhole) {
    gradient = SumOfRepeats<T>(source.ids, gradient, index, distinct);
  }
  ClipByNorm(absl::MakeSpan(gradient), limit);
  return gradient;
}

}  // namespace

bool NeedsClipping(const ClientVariable& variable) {
  const VariableSpec& spec = variable.spec();
  return spec.optimizer.clipnorm > 0 && variable.groups().size() > 1 && IsFloating(spec.dtype);
}

ClippedPush ClipPush(const VariableSpec& spec, const PushSource& source, KeyIndex& index) {
  ClippedPush out;
  const size_t count = source.values.size() / DTypeBytes(spec.dtype);
  if (spec.dtype == DType::kFloat64) {
    std::vector<double> gradient(count);
    if (count > 0) std::memcpy(gradient.data(), source.values.data(), source.values.size());
    gradient = ClippedValues<double>(source, std::move(gradient), spec.optimizer.clipnorm, index,
                                     &out.ids);
    const absl::Span<const std::byte> bytes = AsBytes(absl::MakeConstSpan(gradient));
    out.values.assign(bytes.begin(), bytes.end());
    return out;
  }
  std::vector<float> gradient(count);
  ToFloat32(spec.dtype, source.values.data(), count, gradient.data());
  gradient = ClippedValues<float>(source, std::move(gradient),
                                  static_cast<float>(spec.optimizer.clipnorm), index, &out.ids);
  out.values.resize(gradient.size() * DTypeBytes(spec.dtype));
  FromFloat32(spec.dtype, gradient.data(), gradient.size(), out.values.data());
  return out;
}

}  // namespace cairn
