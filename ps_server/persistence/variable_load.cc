#include "ps_server/persistence/variable_load.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/run_in_threads.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/persistence/evictor.h"

namespace cairn {
namespace {

// The unit of work of a loading thread: an eighth of a table, or 16 MiB of a dense shard's values.
// Small enough that all cores finish together, and large enough that the cost of an iterator does
// not matter.
constexpr uint32_t kUnitsPerTable = 8;
constexpr uint32_t kDenseStripesPerUnit = 64;
constexpr unsigned kMaxThreads = 8;

class Loader final : public StripeVisitor {
 public:
  Loader(MemoryBudget& budget, const StripeRange& unit)
      : budget_(budget),
        unit_(unit),
        variable_(*unit.variable),
        first_(unit.first),
        has_image_(variable_.table() != nullptr ? 0 : unit.end - unit.first) {}

  absl::Status Header(const StripeId& id, absl::Span<const Watermark> watermarks) override {
    ASSIGN_OR_RETURN(const Finished finished, FinishTable());
    if (finished == Finished::kUnsettled) {
      resume_at_ = id.stripe;
      return absl::CancelledError("the previous stripe must be settled first");
    }
    Stripe* stripe = nullptr;
    embedding_ = nullptr;
    dense_ = nullptr;
    if (HostedTable* table = variable_.table(); table != nullptr) {
      if (id.stripe < table->bucket_count()) stripe = embedding_ = table->stripe(id.stripe);
      indexed_ = false;
    } else {
      stripe = dense_ = variable_.dense(static_cast<int32_t>(id.shard))->stripe(id.stripe);
    }
    // The stripe is moving here, or was here before.
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

  absl::Status ColdCount(const StripeId&, int64_t rows) override {
    if (!foreign_) cold_ = rows;
    return absl::OkStatus();
  }

  absl::Status Waiting(const StripeId&, uint32_t, absl::string_view bytes) override {
    if (foreign_) return absl::OkStatus();
    if (embedding_ == nullptr) return absl::DataLossError("a dense variable has waiting keys");
    return embedding_->LoadWaiting(bytes, /*put=*/unit_.target == unit_.store);
  }

  absl::Status Ages(const StripeId&, absl::string_view bytes) override {
    if (foreign_) return absl::OkStatus();
    if (embedding_ == nullptr) return absl::DataLossError("a dense variable has row ages");
    return embedding_->LoadAges(bytes);
  }

  // After the unit's last stripe. `dense`: the unit's shard; nullptr for a table.
  absl::Status Finish(HostedDense* dense) {
    RETURN_IF_ERROR(Settle());
    for (uint32_t i = 0; i < has_image_.size(); ++i) {
      if (!has_image_[i]) variable_.InitializeStripe(*dense, *dense->stripe(first_ + i));
    }
    return absl::OkStatus();
  }

  // The stripe at which the load was interrupted, so that the store can be called; after Settle,
  // the load continues there.
  std::optional<uint32_t> TakeResumption() { return std::exchange(resume_at_, std::nullopt); }

  // Called outside the load: makes rows cold that do not fit, and copies cold rows from `store`.
  absl::Status Settle() {
    ASSIGN_OR_RETURN(const Finished finished, FinishTable());
    if (finished == Finished::kSettled) return absl::OkStatus();
    EmbeddingStripe& stripe = *std::exchange(embedding_, nullptr);
    HostedTable& table = *variable_.table();
    const int64_t row_charge = table.layout().row_charge();
    if (std::exchange(cold_, 0) > 0) RETURN_IF_ERROR(CopyCold(stripe));
    if (!budget_.TryAcquireBelow(stripe.row_count() * row_charge, budget_.load_bytes())) {
      const int64_t room = std::max<int64_t>(0, budget_.load_bytes() - budget_.used_bytes());
      const int64_t excess = std::max<int64_t>(0, stripe.row_count() - room / row_charge);
      RETURN_IF_ERROR(EvictRows(*unit_.target, stripe, EmbeddingStripe::Leave::kAny,
                                static_cast<uint32_t>(excess))
                          .status());
      // Another thread may have taken the memory in the meantime: at most one stripe's worth.
      budget_.Force(stripe.row_count() * row_charge);
    }
    variable_.Charge(stripe.row_count() * row_charge);
    table.CountRows(stripe.row_count(), stripe.cold_rows());
    ChargeWaiting(stripe);
    return absl::OkStatus();
  }

 private:
  enum class Finished { kSettled, kUnsettled };

  // Completes the last loaded embedding stripe.
  absl::StatusOr<Finished> FinishTable() {
    if (embedding_ == nullptr) return Finished::kSettled;
    // Settle calls this function again for a stripe that it left unsettled.
    if (!std::exchange(indexed_, true)) RETURN_IF_ERROR(embedding_->FinishLoad());
    const bool restored = unit_.target != unit_.store;
    if (cold_ > 0 && restored) return Finished::kUnsettled;
    if (cold_ > 0) embedding_->LoadColdCount(std::exchange(cold_, 0));
    HostedTable& table = *variable_.table();
    const int64_t charge = embedding_->row_count() * table.layout().row_charge();
    // The budget above load_bytes() is for everything else that a start needs.
    if (!budget_.TryAcquireBelow(charge, budget_.load_bytes())) return Finished::kUnsettled;
    variable_.Charge(charge);
    table.CountRows(embedding_->row_count(), embedding_->cold_rows());
    ChargeWaiting(*embedding_);
    embedding_ = nullptr;
    return Finished::kSettled;
  }

  void ChargeWaiting(const EmbeddingStripe& stripe) {
    const auto bytes = static_cast<int64_t>(stripe.waiting_bytes());
    budget_.Force(bytes);
    variable_.Charge(bytes);
    variable_.table()->CountWaiting(bytes);
  }

  // Copies cold rows from the store that the job is restored from, except rows that have a newer
  // copy in memory.
  absl::Status CopyCold(EmbeddingStripe& stripe) {
    constexpr size_t kBatchBytes = 1 << 20;
    const StripeId stored{.variable = unit_.stored_id, .stripe = stripe.id().stripe};
    std::unique_ptr<StripeBatch> batch = unit_.target->NewBatch(stripe.id());
    absl::Status status;
    int64_t copied = 0;
    const auto copy = [&](int64_t key, absl::string_view row) {
      if (stripe.table().FindOne(key) != RowTable::kNone) return true;
      batch->PutCold(key, row);
      ++copied;
      if (batch->bytes() < kBatchBytes) return true;
      status = unit_.target->Write(*batch);
      batch = unit_.target->NewBatch(stripe.id());
      return status.ok();
    };
    RETURN_IF_ERROR(unit_.store->ScanCold(stored, std::numeric_limits<int64_t>::min(),
                                          stripe.table().stored_bytes(), copy));
    RETURN_IF_ERROR(status);
    batch->SetColdCount(copied);
    RETURN_IF_ERROR(unit_.target->Write(*batch));
    stripe.LoadColdCount(copied);
    return absl::OkStatus();
  }

  MemoryBudget& budget_;
  const StripeRange& unit_;
  Variable& variable_;
  const uint32_t first_;
  EmbeddingStripe* embedding_ = nullptr;
  bool indexed_ = false;  // FinishLoad was called for `embedding_`
  int64_t cold_ = 0;      // cold rows of `embedding_`
  std::optional<uint32_t> resume_at_;
  DenseStripe* dense_ = nullptr;
  bool foreign_ = false;
  std::vector<bool> has_image_;  // by stripe of the unit
};

absl::Status LoadUnit(MemoryBudget& budget, const StripeRange& unit) {
  Loader loader(budget, unit);
  StripeId first{.variable = unit.stored_id, .shard = unit.shard, .stripe = unit.first};
  const StripeId end{.variable = unit.stored_id, .shard = unit.shard, .stripe = unit.end};
  absl::Status status = unit.store->LoadStripes(first, end, loader);
  for (auto next = loader.TakeResumption(); next.has_value(); next = loader.TakeResumption()) {
    RETURN_IF_ERROR(loader.Settle());
    first.stripe = *next;
    status = unit.store->LoadStripes(first, end, loader);
  }
  if (status.ok()) status = loader.Finish(unit.variable->dense(static_cast<int32_t>(unit.shard)));
  return Annotate(status, absl::StrCat("stored variable \"", unit.variable->spec().name, "\""));
}

std::vector<StripeRange> UnitsOf(StripeStore& store,
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
                         .target = &store,
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

absl::Status LoadVariables(StripeStore& store, MemoryBudget& budget,
                           absl::Span<const std::shared_ptr<Variable>> variables) {
  return LoadStripeRanges(budget, UnitsOf(store, variables));
}

absl::Status LoadStripeRanges(MemoryBudget& budget, absl::Span<const StripeRange> units) {
  std::atomic<size_t> next{0};
  absl::Mutex mutex;
  absl::Status result;  // guarded by mutex: the first failure
  const auto load = [&] {
    for (size_t i = next++; i < units.size(); i = next++) {
      const absl::Status status = CatchBadAlloc([&] { return LoadUnit(budget, units[i]); });
      if (status.ok()) continue;
      absl::MutexLock lock(&mutex);
      if (result.ok()) result = status;
      next = units.size();
    }
  };
  const size_t threads = std::min<size_t>(
      units.size(), std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads));
  RunInThreads(threads, load);
  return result;
}

}  // namespace cairn
