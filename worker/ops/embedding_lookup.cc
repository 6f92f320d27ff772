#include "worker/ops/embedding_lookup.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/elementwise.h"

namespace cairn {
namespace {

// The weight of each id after `safe` (0: dropped), and the factor of each row's sum.
struct Combined {
  std::vector<bool> kept;
  std::vector<float> scale;     // 1 / divisor, or 0 if the divisor is 0
  std::vector<bool> row_empty;  // the row has no ids left
};

float WeightOf(const SparseIds& input, size_t n) {
  return input.weights.empty() ? 1.0f : input.weights[n];
}

absl::Status CheckShapes(absl::Span<const float> table, int64_t width, const SparseIds& input,
                         const LookupOptions& options, size_t out_size) {
  if (width <= 0 || table.size() % static_cast<size_t>(width) != 0) {
    return InvalidArgument("embedding lookup: a table of ", table.size(),
                           " elements has no rows of width ", width);
  }
  if (input.row_of_id.size() != input.ids.size() ||
      (!input.weights.empty() && input.weights.size() != input.ids.size())) {
    return InvalidArgument("embedding lookup: ", input.ids.size(), " ids, ", input.row_of_id.size(),
                           " row numbers, ", input.weights.size(),
                           " weights; give one of each per id (weights may be left out)");
  }
  if (out_size != static_cast<size_t>(input.rows * width)) {
    return InvalidArgument("embedding lookup: output of ", out_size, " elements, expected ",
                           input.rows, " x ", width);
  }
  const int64_t table_rows = static_cast<int64_t>(table.size()) / width;
  if (options.default_id >= table_rows) {
    return InvalidArgument("embedding lookup: default id ", options.default_id, " is outside [0, ",
                           table_rows, ")");
  }
  return absl::OkStatus();
}

absl::StatusOr<Combined> Combine(const SparseIds& input, const LookupOptions& options,
                                 int64_t table_rows) {
  Combined combined;
  combined.kept.assign(input.ids.size(), true);
  combined.row_empty.assign(static_cast<size_t>(input.rows), true);
  std::vector<double> divisor(static_cast<size_t>(input.rows), 0.0);
  for (size_t n = 0; n < input.ids.size(); ++n) {
    const int32_t row = input.row_of_id[n];
    if (row < 0 || row >= input.rows) {
      return InvalidArgument("embedding lookup: row ", row, " of id ", n, " is outside [0, ",
                             input.rows, ")");
    }
    const float weight = WeightOf(input, n);
    if (options.safe && (input.ids[n] < 0 || (options.combiner != Combiner::kSum && weight <= 0))) {
      combined.kept[n] = false;
      continue;
    }
    if (input.ids[n] < 0 || input.ids[n] >= table_rows) {
      return InvalidArgument("embedding lookup: id ", input.ids[n], " at ", n, " is outside [0, ",
                             table_rows, ")");
    }
    combined.row_empty[static_cast<size_t>(row)] = false;
    divisor[static_cast<size_t>(row)] +=
        options.combiner == Combiner::kSqrtn ? static_cast<double>(weight) * weight : weight;
  }
  combined.scale.assign(divisor.size(), 1.0f);
  if (options.combiner == Combiner::kSum) return combined;
  for (size_t r = 0; r < divisor.size(); ++r) {
    const double by = options.combiner == Combiner::kSqrtn ? std::sqrt(divisor[r]) : divisor[r];
    combined.scale[r] = by == 0 ? 0.0f : static_cast<float>(1 / by);
  }
  return combined;
}

bool TakesDefault(const Combined& combined, const LookupOptions& options, int64_t row) {
  return options.safe && options.default_id >= 0 && combined.row_empty[static_cast<size_t>(row)];
}

float Dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return static_cast<float>(sum);
}

}  // namespace

absl::Status CheckLookupRows(int64_t rows) {
  if (rows >= 0 && rows <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
  return InvalidArgument("embedding lookup: ", rows,
                         " rows are asked for; allowed are 0 to 2^31 - 1");
}

absl::Status EmbeddingLookup(absl::Span<const float> table, int64_t width,
                             absl::Span<const int64_t> ids, absl::Span<float> out) {
  const LookupOptions options;
  const SparseIds none{.rows = static_cast<int64_t>(ids.size())};
  RETURN_IF_ERROR(CheckShapes(table, width, none, options, out.size()));
  const int64_t rows = static_cast<int64_t>(table.size()) / width;
  for (size_t n = 0; n < ids.size(); ++n) {
    if (ids[n] < 0 || ids[n] >= rows) {
      return InvalidArgument("embedding lookup: id ", ids[n], " at ", n, " is outside [0, ", rows,
                             ")");
    }
    std::memcpy(out.data() + n * static_cast<size_t>(width), table.data() + ids[n] * width,
                static_cast<size_t>(width) * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status EmbeddingLookupSparse(absl::Span<const float> table, int64_t width,
                                   const SparseIds& input, const LookupOptions& options,
                                   absl::Span<float> out) {
  RETURN_IF_ERROR(CheckLookupRows(input.rows));
  RETURN_IF_ERROR(CheckShapes(table, width, input, options, out.size()));
  ASSIGN_OR_RETURN(const Combined combined,
                   Combine(input, options, static_cast<int64_t>(table.size()) / width));
  std::ranges::fill(out, 0.0f);
  for (size_t n = 0; n < input.ids.size(); ++n) {
    if (!combined.kept[n]) continue;
    Axpy(WeightOf(input, n), table.data() + input.ids[n] * width,
         out.data() + input.row_of_id[n] * width, static_cast<size_t>(width));
  }
  for (int64_t row = 0; row < input.rows; ++row) {
    float* to = out.data() + row * width;
    if (TakesDefault(combined, options, row)) {
      std::copy_n(table.data() + options.default_id * width, width, to);
      continue;
    }
    const float scale = combined.scale[static_cast<size_t>(row)];
    for (int64_t i = 0; i < width; ++i) to[i] *= scale;
  }
  return absl::OkStatus();
}

absl::Status EmbeddingLookupSparseBackward(absl::Span<const float> table, int64_t width,
                                           const SparseIds& input, const LookupOptions& options,
                                           absl::Span<const float> d_out, absl::Span<float> d_table,
                                           absl::Span<float> d_weights) {
  if (d_table.size() != table.size() ||
      (!d_weights.empty() && d_weights.size() != input.ids.size())) {
    return InvalidArgument("embedding lookup: gradients of ", d_table.size(), " and ",
                           d_weights.size(), " elements, expected ", table.size(), " and ",
                           input.ids.size());
  }
  std::vector<float> out(d_out.size());
  RETURN_IF_ERROR(EmbeddingLookupSparse(table, width, input, options, absl::MakeSpan(out)));
  ASSIGN_OR_RETURN(const Combined combined,
                   Combine(input, options, static_cast<int64_t>(table.size()) / width));
  std::ranges::fill(d_table, 0.0f);
  std::ranges::fill(d_weights, 0.0f);
  for (size_t n = 0; n < input.ids.size(); ++n) {
    if (!combined.kept[n]) continue;
    const int32_t row = input.row_of_id[n];
    const float scale = combined.scale[static_cast<size_t>(row)];
    const float* upstream = d_out.data() + row * width;
    Axpy(WeightOf(input, n) * scale, upstream, d_table.data() + input.ids[n] * width,
         static_cast<size_t>(width));
    if (d_weights.empty()) continue;
    // d/dw of sum / divisor: the divisor moves with w by 1 (mean) or w / divisor (sqrtn).
    const float direct = Dot(table.data() + input.ids[n] * width, upstream, width) * scale;
    const float through = Dot(out.data() + row * width, upstream, width) * scale;
    d_weights[n] = direct;
    if (options.combiner == Combiner::kMean) d_weights[n] -= through;
    if (options.combiner == Combiner::kSqrtn) d_weights[n] -= through * WeightOf(input, n) * scale;
  }
  for (int64_t row = 0; row < input.rows; ++row) {
    if (!TakesDefault(combined, options, row)) continue;
    Axpy(1.0f, d_out.data() + row * width, d_table.data() + options.default_id * width,
         static_cast<size_t>(width));
  }
  return absl::OkStatus();
}

}  // namespace cairn
