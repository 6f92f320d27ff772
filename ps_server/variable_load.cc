#include "ps_server/variable_load.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"

namespace cairn {
namespace {

// What one thread loads at a time: an eighth of a table, or 16 MiB of a dense shard's values. Small
// enough that the cores end together, large enough that opening an iterator does not count.
constexpr uint32_t kUnitsPerTable = 8;
constexpr uint32_t kDenseStripesPerUnit = 64;
constexpr unsigned kMaxThreads = 8;

class Loader final : public StripeVisitor {
 public:
  Loader(MemoryBudget& budget, const StripeRange& unit)
      : budget_(budget),
        variable_(*unit.variable),
        first_(unit.first),
        has_image_(variable_.table() != nullptr ? 0 : unit.end - unit.first) {}

  absl::Status Header(const StripeId& id, absl::Span<const Watermark> watermarks) override {
    RETURN_IF_ERROR(FinishTable());
    Stripe* stripe = nullptr;
    embedding_ = nullptr;
    dense_ = nullptr;
    if (HostedTable* table = variable_.table(); table != nullptr) {
      if (id.stripe < table->bucket_count()) stripe = embedding_ = table->stripe(id.stripe);
    } else {
      stripe = dense_ = variable_.dense(static_cast<int32_t>(id.shard))->stripe(id.stripe);
    }
    // One that is on its way here, or was.
    foreign_ = stripe == nullptr;
    if (stripe != nullptr) stripe->LoadWatermarks(watermarks);
    return absl::OkStatus();
  }

  absl::Status Image(const StripeId& id, absl::string_view bytes) override {
    if (foreign_) return absl::OkStatus();
    if (dense_ == nullptr) return absl::DataLossError("an embedding has a dense image");
    has_image_[id.stripe - first_] = true;
    return dense_->LoadImage(bytes);
  }

  absl::Status Rows(const StripeId&, const StoredRows& rows) override {
    if (foreign_) return absl::OkStatus();
    if (embedding_ == nullptr) return absl::DataLossError("a dense variable has rows by key");
    return embedding_->LoadRows(rows);
  }

  // After the unit's last stripe. `dense`: the unit's shard; nullptr for a table.
  absl::Status Finish(HostedDense* dense) {
    RETURN_IF_ERROR(FinishTable());
    for (uint32_t i = 0; i < has_image_.size(); ++i) {
      if (!has_image_[i]) variable_.InitializeStripe(*dense, *dense->stripe(first_ + i));
    }
    return absl::OkStatus();
  }

 private:
  // The rows of the embedding stripe that was loaded last.
  absl::Status FinishTable() {
    if (embedding_ == nullptr) return absl::OkStatus();
    embedding_->FinishLoad();
    HostedTable& table = *variable_.table();
    const int64_t charge = embedding_->row_count() * table.layout().row_charge();
    RETURN_IF_ERROR(budget_.Acquire(charge, "loading its rows"));
    variable_.Charge(charge);
    table.CountLoaded(embedding_->row_count());
    return absl::OkStatus();
  }

  MemoryBudget& budget_;
  Variable& variable_;
  const uint32_t first_;
  EmbeddingStripe* embedding_ = nullptr;
  DenseStripe* dense_ = nullptr;
  bool foreign_ = false;
  std::vector<bool> has_image_;  // by stripe of the unit
};

absl::Status LoadUnit(MemoryBudget& budget, const StripeRange& unit) {
  Loader loader(budget, unit);
  absl::Status status = unit.store->LoadStripes(
      {.variable = unit.stored_id, .shard = unit.shard, .stripe = unit.first},
      {.variable = unit.stored_id, .shard = unit.shard, .stripe = unit.end}, loader);
  if (status.ok()) status = loader.Finish(unit.variable->dense(static_cast<int32_t>(unit.shard)));
  return Annotate(status, absl::StrCat("stored variable \"", unit.variable->spec().name, "\""));
}

std::vector<StripeRange> UnitsOf(const StripeStore& store,
                                 absl::Span<const std::shared_ptr<Variable>> variables) {
  std::vector<StripeRange> units;
  for (const auto& variable : variables) {
    for (const HostedShard* shard : variable->shards()) {
      const HostedTable* table = variable->table();
      const uint32_t stripes =
          table != nullptr ? table->bucket_count() : static_cast<uint32_t>(shard->stripe_count());
      const uint32_t step =
          table != nullptr ? (stripes + kUnitsPerTable - 1) / kUnitsPerTable : kDenseStripesPerUnit;
      for (uint32_t first = 0; first < stripes; first += step) {
        units.push_back({.store = &store,
                         .stored_id = variable->id(),
                         .variable = variable.get(),
                         .shard = static_cast<uint32_t>(shard->index()),
                         .first = first,
                         .end = std::min(first + step, stripes)});
      }
    }
  }
  return units;
}

}  // namespace

absl::Status LoadVariables(const StripeStore& store, MemoryBudget& budget,
                           absl::Span<const std::shared_ptr<Variable>> variables) {
  return LoadStripeRanges(budget, UnitsOf(store, variables));
}

absl::Status LoadStripeRanges(MemoryBudget& budget, absl::Span<const StripeRange> units) {
  std::atomic<size_t> next{0};
  absl::Mutex mutex;
  absl::Status result;  // guarded by mutex: the first failure
  const auto load = [&] {
    for (size_t i = next++; i < units.size(); i = next++) {
      const absl::Status status = LoadUnit(budget, units[i]);
      if (status.ok()) continue;
      absl::MutexLock lock(&mutex);
      if (result.ok()) result = status;
      next = units.size();
    }
  };
  const size_t threads = std::min<size_t>(
      units.size(), std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads));
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < threads; ++i) helpers.emplace_back(load);
  load();
  for (std::thread& helper : helpers) helper.join();
  return result;
}

}  // namespace cairn
