#include "ps_server/embedding_stripe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Rows looked up, and rows updated, at a time: their cache lines stay in the first-level cache.
constexpr size_t kLookupRows = 64;
constexpr size_t kApplyRows = 128;
// Rows loaded before they are indexed together; bounds the memory of rows that come again.
constexpr uint32_t kIndexedRows = 64 << 10;
// Beyond this many the dirty rows of a stripe are found by its bits.
constexpr size_t kFewDirtyRows = 256;

void CopyFloats(const float* from, size_t count, float* to) {
  // Widths of common tables get copies the compiler unrolls.
  switch (count) {
    case 8: std::memcpy(to, from, 8 * sizeof(float)); return;
    case 16: std::memcpy(to, from, 16 * sizeof(float)); return;
    case 32: std::memcpy(to, from, 32 * sizeof(float)); return;
    case 64: std::memcpy(to, from, 64 * sizeof(float)); return;
    default: std::memcpy(to, from, count * sizeof(float)); return;
  }
}

}  // namespace

EmbeddingStripe::EmbeddingStripe(const StripeId& id, const TableLayout& layout, ChunkPool& pool)
    : Stripe(id), layout_(layout), table_(layout.floats_per_row(), pool) {}

int64_t EmbeddingStripe::CountAbsent(absl::Span<const int64_t> keys, TableScratch& scratch) const {
  scratch.rows.resize(keys.size());
  table_.Find(keys, scratch.rows.data());
  return std::count(scratch.rows.begin(), scratch.rows.end(), RowTable::kNone);
}

uint32_t EmbeddingStripe::FindOrMake(uint32_t found, int64_t key, int64_t& made) {
  if (found != RowTable::kNone) return found;
  const auto [row, is_new] = table_.FindOrInsert(key);
  if (is_new) {
    float* floats = table_.floats(row);
    InitializeRow(layout_.initializer, layout_.table_hash, key,
                  absl::MakeSpan(floats, layout_.dim));
    for (const float initial : layout_.slot_initial) {
      floats += layout_.dim;
      std::fill_n(floats, layout_.dim, initial);
    }
    ++made;
  }
  return row;
}

bool EmbeddingStripe::TakeRows(absl::Span<const int64_t> keys, TableScratch& scratch,
                               int64_t& made) {
  ++updates_;
  bool repeats = false;
  scratch.rows.resize(keys.size());
  for (size_t base = 0; base < keys.size(); base += kLookupRows) {
    const absl::Span<const int64_t> batch = keys.subspan(base, kLookupRows);
    uint32_t* rows = scratch.rows.data() + base;
    table_.Find(batch, rows);
    for (size_t i = 0; i < batch.size(); ++i) {
      rows[i] = FindOrMake(rows[i], batch[i], made);
      repeats |= table_.last_update(rows[i]) == updates_;
      table_.set_last_update(rows[i], updates_);
      MarkDirty(rows[i]);
    }
  }
  return repeats;
}

int64_t EmbeddingStripe::Push(const UpdateStep& step, const KeyBatch& keys, const float* gradients,
                              TableScratch& scratch) {
  int64_t made = 0;
  if (TakeRows(keys.keys, scratch, made)) {
    ApplySummed(step, keys, gradients, scratch);
  } else {
    ApplyOnce(step, keys, gradients, scratch);
  }
  return made;
}

void EmbeddingStripe::ApplyOnce(const UpdateStep& step, const KeyBatch& keys,
                                const float* gradients, TableScratch& scratch) {
  const size_t dim = layout_.dim;
  scratch.gradients.resize(kApplyRows * dim);
  scratch.pointers.resize(kApplyRows);
  for (size_t base = 0; base < keys.keys.size(); base += kApplyRows) {
    const size_t n = std::min(kApplyRows, keys.keys.size() - base);
    for (size_t i = 0; i < n; ++i) {
      scratch.pointers[i] = table_.floats(scratch.rows[base + i]);
      CopyFloats(gradients + keys.positions[base + i] * dim, dim,
                 scratch.gradients.data() + i * dim);
    }
    layout_.optimizer->ApplyRows(step, absl::MakeSpan(scratch.pointers.data(), n), dim,
                                 scratch.gradients.data());
  }
}

void EmbeddingStripe::ApplySummed(const UpdateStep& step, const KeyBatch& keys,
                                  const float* gradients, TableScratch& scratch) {
  const size_t dim = layout_.dim;
  scratch.ordered.resize(keys.keys.size());
  for (size_t i = 0; i < keys.keys.size(); ++i) {
    scratch.ordered[i] = uint64_t{scratch.rows[i]} << 32 | i;
  }
  std::sort(scratch.ordered.begin(), scratch.ordered.end());
  scratch.gradients.resize(kApplyRows * dim);
  scratch.pointers.resize(kApplyRows);
  size_t n = 0;
  for (size_t i = 0; i < scratch.ordered.size();) {
    const uint64_t row = scratch.ordered[i] >> 32;
    float* sum = scratch.gradients.data() + n * dim;
    std::fill_n(sum, dim, 0.0f);
    for (; i < scratch.ordered.size() && scratch.ordered[i] >> 32 == row; ++i) {
      const size_t key = scratch.ordered[i] & UINT32_MAX;
      const float* gradient = gradients + keys.positions[key] * dim;
      for (size_t d = 0; d < dim; ++d) sum[d] += gradient[d];
    }
    scratch.pointers[n++] = table_.floats(static_cast<uint32_t>(row));
    if (n < kApplyRows && i < scratch.ordered.size()) continue;
    layout_.optimizer->ApplyRows(step, absl::MakeSpan(scratch.pointers.data(), n), dim,
                                 scratch.gradients.data());
    n = 0;
  }
}

void EmbeddingStripe::Pull(size_t part, const KeyBatch& keys, float* out) const {
  const size_t dim = layout_.dim;
  uint32_t rows[kLookupRows];
  for (size_t base = 0; base < keys.keys.size(); base += kLookupRows) {
    const absl::Span<const int64_t> batch = keys.keys.subspan(base, kLookupRows);
    table_.Find(batch, rows);
    for (size_t i = 0; i < batch.size(); ++i) {
      float* to = out + keys.positions[base + i] * dim;
      if (rows[i] != RowTable::kNone) {
        CopyFloats(table_.floats(rows[i]) + part * dim, dim, to);
      } else if (part == 0) {
        InitializeRow(layout_.initializer, layout_.table_hash, batch[i], absl::MakeSpan(to, dim));
      } else {
        std::fill_n(to, dim, layout_.slot_initial[part - 1]);
      }
    }
  }
}

int64_t EmbeddingStripe::Assign(size_t part, const KeyBatch& keys, const float* values) {
  const size_t dim = layout_.dim;
  int64_t made = 0;
  uint32_t rows[kLookupRows];
  for (size_t base = 0; base < keys.keys.size(); base += kLookupRows) {
    const absl::Span<const int64_t> batch = keys.keys.subspan(base, kLookupRows);
    table_.Find(batch, rows);
    for (size_t i = 0; i < batch.size(); ++i) {
      const uint32_t row = FindOrMake(rows[i], batch[i], made);
      CopyFloats(values + keys.positions[base + i] * dim, dim, table_.floats(row) + part * dim);
      MarkDirty(row);
    }
  }
  return made;
}

void EmbeddingStripe::Copy(size_t part, uint32_t first, uint32_t count, int64_t* keys,
                           float* values) const {
  for (uint32_t i = 0; i < count; ++i) {
    keys[i] = table_.key(first + i);
    CopyFloats(table_.floats(first + i) + part * layout_.dim, layout_.dim,
               values + i * layout_.dim);
  }
}

void EmbeddingStripe::MarkDirty(uint32_t row) {
  const size_t word = row / 64;
  if (word >= dirty_bits_.size()) dirty_bits_.resize(word + 1);
  const uint64_t bit = uint64_t{1} << (row % 64);
  if ((dirty_bits_[word] & bit) != 0) return;
  dirty_bits_[word] |= bit;
  if (many_dirty_) return;
  if (dirty_rows_.size() < kFewDirtyRows) {
    dirty_rows_.push_back(row);
  } else {
    many_dirty_ = true;
  }
}

void EmbeddingStripe::DrainContent(StripeBatch& batch) {
  const auto put = [&](uint32_t row) {
    batch.PutRow(table_.key(row),
                 {reinterpret_cast<const char*>(table_.stored(row)), table_.stored_bytes()});
  };
  if (batch.wants_every_row()) {
    for (uint32_t row = 0; row < table_.size(); ++row) put(row);
    std::fill(dirty_bits_.begin(), dirty_bits_.end(), 0);
  } else if (many_dirty_) {
    for (size_t word = 0; word < dirty_bits_.size(); ++word) {
      for (uint64_t bits = dirty_bits_[word]; bits != 0; bits &= bits - 1) {
        put(static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(bits)));
      }
      dirty_bits_[word] = 0;
    }
  } else {
    for (const uint32_t row : dirty_rows_) {
      put(row);
      dirty_bits_[row / 64] &= ~(uint64_t{1} << (row % 64));
    }
  }
  dirty_rows_.clear();
  many_dirty_ = false;
}

absl::Status EmbeddingStripe::LoadRow(int64_t key, absl::string_view stored) {
  if (stored.size() != table_.stored_bytes()) {
    return absl::DataLossError(absl::StrCat("the row of key ", key, " has ", stored.size(),
                                            " bytes, not ", table_.stored_bytes()));
  }
  std::byte* row = table_.Append(key);
  std::memcpy(row, stored.data(), stored.size());
  uint32_t last_update;
  std::memcpy(&last_update, row, sizeof(last_update));
  updates_ = std::max(updates_, last_update);
  if (table_.appended() == kIndexedRows) table_.IndexAppended();
  return absl::OkStatus();
}

}  // namespace cairn
