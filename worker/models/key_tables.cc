#include "worker/models/key_tables.h"

#include <algorithm>

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

void PlanKeys(const Batch& batch, int64_t key_columns, int64_t hash_buckets, size_t first,
              StepState* state) {
  const size_t rows = static_cast<size_t>(batch.rows), columns = static_cast<size_t>(key_columns);
  state->positions.resize(rows * columns);
  int32_t* position = state->positions.data();
  for (size_t c = 0; c < columns; ++c) {
    std::vector<int64_t>& ids = state->uses[first + c].ids;
    ids.resize(rows);
    state->key_index.Reset(rows);
    const int64_t* key = batch.keys.data() + c;
    for (size_t r = 0; r < rows; ++r, key += columns) {
      const int64_t id = hash_buckets == 0 ? *key : HashBucket(*key, hash_buckets);
      const int32_t number = state->key_index.Insert(id);
      ids[static_cast<size_t>(number)] = id;
      *position++ = number;
    }
    ids.resize(static_cast<size_t>(state->key_index.size()));
  }
}

std::vector<std::string> ColumnNames(const std::string& prefix, int64_t columns) {
  std::vector<std::string> names;
  for (int64_t c = 1; c <= columns; ++c) names.push_back(absl::StrCat(prefix, "C", c));
  return names;
}

KeyTables::KeyTables(PartList* list, absl::Span<const std::string> names, int64_t dim,
                     const InitializerConfig& initializer)
    : first_(list->variables.size()), columns_(static_cast<int64_t>(names.size())), dim_(dim) {
  for (const std::string& name : names) list->AddTable(name, dim, initializer);
}

void KeyTables::TakeIds(const KeyTables& planned, StepState* state) const {
  for (size_t c = 0; c < static_cast<size_t>(columns_); ++c) {
    state->uses[first_ + c].ids = state->uses[planned.first_ + c].ids;
  }
}

// On the CPU works in blocks of rows, so that a block of `out` stays in the cache while its columns
// are filled. A GPU takes all rows at once, since each call costs microseconds.
void KeyTables::Gather(StepView& step, float* out, int64_t stride) const {
  const int64_t rows = step.rows();
  const int64_t block_rows = step.on_host() ? 64 : rows;
  for (int64_t begin = 0; begin < rows; begin += block_rows) {
    const size_t count = static_cast<size_t>(std::min(block_rows, rows - begin));
    for (int64_t c = 0; c < columns_; ++c) {
      step.ops().GatherRows(step.values(first_ + static_cast<size_t>(c)), static_cast<size_t>(dim_),
                            step.input().positions + c * rows + begin, count,
                            out + begin * stride + c * dim_, static_cast<size_t>(stride));
    }
  }
}

void KeyTables::Scatter(StepView& step, const float* d_out, int64_t stride) const {
  for (int64_t c = 0; c < columns_; ++c) {
    const size_t table = first_ + static_cast<size_t>(c);
    step.ops().SumRowsByPosition(
        d_out + c * dim_, static_cast<size_t>(stride), static_cast<size_t>(dim_),
        step.input().positions + c * step.rows(), static_cast<size_t>(step.rows()),
        step.id_count(table), step.gradient(table));
    step.GradientDone(table);
  }
}

void KeyTables::AddSums(StepView& step, float* sums) const {
  for (int64_t c = 0; c < columns_; ++c) {
    step.ops().AddByPosition(step.values(first_ + static_cast<size_t>(c)),
                             step.input().positions + c * step.rows(),
                             static_cast<size_t>(step.rows()), sums);
  }
}

void KeyTables::ScatterSums(StepView& step, const float* d_sums) const {
  for (int64_t c = 0; c < columns_; ++c) {
    const size_t table = first_ + static_cast<size_t>(c);
    step.ops().SumRowsByPosition(d_sums, 1, 1, step.input().positions + c * step.rows(),
                                 static_cast<size_t>(step.rows()), step.id_count(table),
                                 step.gradient(table));
    step.GradientDone(table);
  }
}

}  // namespace cairn
