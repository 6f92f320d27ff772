#include "worker/models/key_tables.h"

#include "absl/strings/str_cat.h"
#include "common/hash.h"

namespace cairn {

namespace {

// The high word of hash x buckets: uniform over all buckets, without a division.
int64_t HashBucket(int64_t key, int64_t hash_buckets) {
  const auto hash = static_cast<unsigned __int128>(MixBits(static_cast<uint64_t>(key)));
  return static_cast<int64_t>((hash * static_cast<uint64_t>(hash_buckets)) >> 64);
}

}  // namespace

void PlanKeys(const Batch& batch, int64_t key_columns, int64_t hash_buckets, bool shared,
              size_t first, StepState* state) {
  const size_t rows = static_cast<size_t>(batch.rows), columns = static_cast<size_t>(key_columns);
  state->positions.resize(rows * columns);
  state->distinct.resize(columns);
  int32_t* position = state->positions.data();
  size_t before = 0;  // ids of earlier columns in the same table
  for (size_t c = 0; c < columns; ++c) {
    std::vector<int64_t>& all = state->uses[shared ? first : first + c].ids;
    all.resize(before + rows);
    int64_t* const ids = all.data() + before;
    const int64_t first_bucket = shared ? static_cast<int64_t>(c) * hash_buckets : 0;
    state->key_index.Reset(rows);
    const int64_t* key = batch.keys.data() + c;
    for (size_t r = 0; r < rows; ++r, key += columns) {
      const int64_t id = hash_buckets == 0 ? *key : first_bucket + HashBucket(*key, hash_buckets);
      const int32_t number = state->key_index.Insert(id);
      ids[number] = id;
      *position++ = number;
    }
    state->distinct[c] = static_cast<size_t>(state->key_index.size());
    all.resize(before + state->distinct[c]);
    if (shared) before = all.size();
  }
}

KeyTables::KeyTables(PartList* list, absl::Span<const std::string> names, int64_t dim,
                     const InitializerConfig& initializer)
    : first_(list->variables.size()),
      columns_(static_cast<int64_t>(names.size())),
      dim_(dim),
      parts_(list->AddBuffer()) {
  for (const std::string& name : names) list->AddTable(name, dim, initializer);
}

KeyTables::KeyTables(PartList* list, const std::string& prefix, int64_t columns, bool shared,
                     int64_t dim, const InitializerConfig& initializer)
    : first_(list->variables.size()),
      columns_(columns),
      shared_(shared && columns > 0),
      dim_(dim),
      parts_(list->AddBuffer()) {
  if (shared_) list->AddTable(absl::StrCat(prefix, kSharedTable), dim, initializer);
  for (int64_t c = 1; c <= columns && !shared_; ++c) {
    list->AddTable(absl::StrCat(prefix, "C", c), dim, initializer);
  }
}

void KeyTables::TakeIds(const KeyTables& planned, StepState* state) const {
  for (size_t t = 0; t < table_count(); ++t) {
    state->uses[first_ + t].ids = state->uses[planned.first_ + t].ids;
  }
}

std::vector<const float*> KeyTables::Values(StepView& step) const {
  std::vector<const float*> values;
  size_t before = 0;
  for (size_t c = 0; c < static_cast<size_t>(columns_); ++c) {
    values.push_back(shared_ ? step.values(first_) + before * static_cast<size_t>(dim_)
                             : step.values(first_ + c));
    before += step.distinct()[c];
  }
  return values;
}

void KeyTables::Gather(StepView& step, float* out, int64_t stride) const {
  const auto rows = static_cast<size_t>(step.rows());
  step.ops().GatherTables(Values(step), static_cast<size_t>(dim_), step.input().positions, rows,
                          rows, out, static_cast<size_t>(stride));
}

void KeyTables::Scatter(StepView& step, const float* d_out, int64_t stride) const {
  ScatterColumns(step, d_out, stride, static_cast<size_t>(dim_));
}

void KeyTables::AddSums(StepView& step, float* sums) const {
  const auto rows = static_cast<size_t>(step.rows());
  step.ops().AddTablesByPosition(Values(step), step.input().positions, rows, rows, sums);
}

// All tables have the same gradient, that of the sum.
void KeyTables::ScatterSums(StepView& step, const float* d_sums) const {
  ScatterColumns(step, d_sums, 1, 0);
}

void KeyTables::ScatterColumns(StepView& step, const float* d_out, int64_t stride,
                               size_t column_stride) const {
  const auto rows = static_cast<size_t>(step.rows());
  std::vector<TableSums> tables;
  const absl::Span<const size_t> distinct = step.distinct();
  size_t before = 0;
  for (size_t c = 0; c < distinct.size(); ++c) {
    float* const gradient = shared_ ? step.gradient(first_) + before * static_cast<size_t>(dim_)
                                    : step.gradient(first_ + c);
    tables.push_back({gradient, distinct[c]});
    before += distinct[c];
  }
  const SumOrder order = step.OrderOfSums(distinct);
  const auto width = static_cast<size_t>(dim_);
  float* const parts =
      order.part_count == 0 ? nullptr : step.Buffer(parts_, order.part_count * width);
  step.ops().SumRowsOfTables(d_out, static_cast<size_t>(stride), column_stride, width,
                             step.input().positions, rows, rows, tables, order, parts);
  for (size_t t = 0; t < table_count(); ++t) step.GradientDone(first_ + t);
}

}  // namespace cairn
