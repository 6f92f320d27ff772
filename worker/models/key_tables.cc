#include "worker/models/key_tables.h"

#include "absl/strings/str_cat.h"
#include "common/hash.h"

namespace cairn {

namespace {

// Keys whose slots in the index are on their way.
constexpr size_t kAhead = 16;

// The high word of hash x buckets: uniform over all buckets, without a division.
int64_t HashBucket(int64_t key, int64_t hash_buckets) {
  const auto hash = static_cast<unsigned __int128>(MixBits(static_cast<uint64_t>(key)));
  return static_cast<int64_t>((hash * static_cast<uint64_t>(hash_buckets)) >> 64);
}

}  // namespace

void PlanKeys(const Batch& batch, const KeyPlan& plan, size_t first, StepState* state) {
  const auto rows = static_cast<size_t>(batch.rows), columns = static_cast<size_t>(plan.columns);
  const bool one_vocabulary = plan.sharing == TableSharing::kVocabulary;
  state->positions.resize(rows * columns);
  state->distinct.assign(one_vocabulary ? 1 : columns, 0);
  if (one_vocabulary) state->key_index.Reset(rows * columns);
  int32_t* position = state->positions.data();
  size_t begin = 0;  // of the column's ids in its table
  const bool own_table = plan.sharing == TableSharing::kNothing;
  for (size_t c = 0; c < columns; ++c) {
    std::vector<int64_t>& all = state->uses[own_table ? first + c : first].ids;
    size_t& distinct = state->distinct[one_vocabulary ? 0 : c];
    all.resize(begin + distinct + rows);
    int64_t* const ids = all.data() + begin;
    const int64_t first_bucket =
        plan.sharing == TableSharing::kTable ? static_cast<int64_t>(c) * plan.hash_buckets : 0;
    if (!one_vocabulary) state->key_index.Reset(rows);
    // Where the distinct ids go, at the latest.
    int64_t* const of_rows = ids + distinct;
    const int64_t* key = batch.keys.data() + c;
    for (size_t r = 0; r < rows; ++r, key += columns) {
      of_rows[r] =
          plan.hash_buckets == 0 ? *key : first_bucket + HashBucket(*key, plan.hash_buckets);
    }
    for (size_t r = 0; r < rows; ++r) {
      if (r + kAhead < rows) state->key_index.Prefetch(of_rows[r + kAhead]);
      const int64_t id = of_rows[r];
      const int32_t number = state->key_index.Insert(id);
      ids[number] = id;
      *position++ = number;
    }
    distinct = static_cast<size_t>(state->key_index.size());
    all.resize(begin + distinct);
    if (plan.sharing == TableSharing::kTable) begin = all.size();
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

KeyTables::KeyTables(PartList* list, const std::string& prefix, int64_t columns,
                     TableSharing sharing, int64_t dim, const InitializerConfig& initializer)
    : first_(list->variables.size()),
      columns_(columns),
      sharing_(columns > 0 ? sharing : TableSharing::kNothing),
      dim_(dim),
      parts_(list->AddBuffer()) {
  const auto add = [&](absl::string_view name) {
    list->AddTable(absl::StrCat(prefix, name), dim, initializer);
  };
  switch (sharing_) {
    case TableSharing::kTable: add(kSharedTable); break;
    case TableSharing::kVocabulary: add(kSharedVocabulary); break;
    case TableSharing::kNothing:
      for (int64_t c = 1; c <= columns; ++c) add(absl::StrCat("C", c));
  }
}

void KeyTables::Plan(const Batch& batch, int64_t hash_buckets, StepState* state) const {
  PlanKeys(batch, {.columns = columns_, .hash_buckets = hash_buckets, .sharing = sharing_}, first_,
           state);
}

void KeyTables::TakeIds(const KeyTables& planned, StepState* state) const {
  for (size_t t = 0; t < table_count(); ++t) {
    state->uses[first_ + t].ids = state->uses[planned.first_ + t].ids;
  }
}

std::vector<const float*> KeyTables::Values(StepView& step) const {
  std::vector<const float*> values;
  size_t begin = 0;
  for (size_t c = 0; c < static_cast<size_t>(columns_); ++c) {
    if (sharing_ == TableSharing::kNothing) {
      values.push_back(step.values(first_ + c));
      continue;
    }
    values.push_back(step.values(first_) + begin * static_cast<size_t>(dim_));
    if (sharing_ == TableSharing::kTable) begin += step.distinct()[c];
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
  if (columns_ == 0) return;
  const auto rows = static_cast<size_t>(step.rows());
  std::vector<TableSums> tables;
  const absl::Span<const size_t> distinct = step.distinct();
  size_t begin = 0;
  const bool own_table = sharing_ == TableSharing::kNothing;
  for (size_t t = 0; t < distinct.size(); ++t) {
    float* const gradient = step.gradient(own_table ? first_ + t : first_);
    tables.push_back({gradient + begin * static_cast<size_t>(dim_), distinct[t]});
    if (!own_table) begin += distinct[t];
  }
  const size_t columns = static_cast<size_t>(columns_) / tables.size();  // of a table
  const SumOrder order = step.OrderOfSums(distinct);
  const auto width = static_cast<size_t>(dim_);
  float* const parts =
      order.part_count == 0 ? nullptr : step.Buffer(parts_, order.part_count * width);
  step.ops().SumRowsOfTables(d_out, static_cast<size_t>(stride), column_stride, width,
                             step.input().positions, rows, rows, tables, columns, order, parts);
  for (size_t t = 0; t < table_count(); ++t) step.GradientDone(first_ + t);
}

}  // namespace cairn
