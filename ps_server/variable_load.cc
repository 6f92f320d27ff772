#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/variable.h"

namespace cairn {
namespace {

// Rows acquired from the budget at a time.
constexpr int64_t kRowsAtOnce = 4096;

class Loader final : public StripeVisitor {
 public:
  Loader(MemoryBudget& budget, Variable& variable) : budget_(budget), variable_(variable) {
    for (int32_t shard = 0; shard < static_cast<int32_t>(variable.spec().shards.size()); ++shard) {
      const HostedDense* dense = variable.dense(shard);
      has_image_.emplace_back(dense == nullptr ? 0 : static_cast<size_t>(dense->stripe_count()));
    }
  }

  absl::Status Header(const StripeId& id, absl::Span<const Watermark> watermarks) override {
    Stripe* stripe = nullptr;
    if (HostedTable* table = variable_.table(); table != nullptr) {
      embedding_ = id.stripe < table->bucket_count() ? table->stripe(id.stripe) : nullptr;
      stripe = embedding_;
    } else if (HostedDense* dense = variable_.dense(static_cast<int32_t>(id.shard));
               dense != nullptr) {
      dense_ = dense->stripe(id.stripe);
      stripe = dense_;
    }
    if (stripe == nullptr) {
      return absl::DataLossError(absl::StrCat("stripe ", id.stripe, " of shard ", id.shard,
                                              " is stored, but not part of the variable here"));
    }
    stripe->LoadWatermarks(watermarks);
    return absl::OkStatus();
  }

  absl::Status Image(const StripeId& id, absl::string_view bytes) override {
    if (dense_ == nullptr) return absl::DataLossError("an embedding has a dense image");
    has_image_[id.shard][id.stripe] = true;
    return dense_->LoadImage(bytes);
  }

  absl::Status Row(const StripeId&, int64_t key, absl::string_view bytes) override {
    if (embedding_ == nullptr) return absl::DataLossError("a dense variable has rows by key");
    ASSIGN_OR_RETURN(const bool is_new, embedding_->LoadRow(key, bytes));
    if (!is_new) return absl::OkStatus();
    if (rows_ % kRowsAtOnce == 0) {
      const int64_t charge = kRowsAtOnce * variable_.table()->layout().row_charge();
      RETURN_IF_ERROR(budget_.Acquire(charge, "loading its rows"));
      variable_.Charge(charge);
    }
    ++rows_;
    return absl::OkStatus();
  }

  // After the last stripe.
  void Finish() {
    if (HostedTable* table = variable_.table(); table != nullptr) {
      table->CountLoaded(rows_);
      const int64_t unused = (kRowsAtOnce - rows_ % kRowsAtOnce) % kRowsAtOnce;
      const int64_t bytes = unused * table->layout().row_charge();
      variable_.Charge(-bytes);
      budget_.Release(bytes);
    }
    for (size_t shard = 0; shard < has_image_.size(); ++shard) {
      for (size_t stripe = 0; stripe < has_image_[shard].size(); ++stripe) {
        if (has_image_[shard][stripe]) continue;
        HostedDense& dense = *variable_.dense(static_cast<int32_t>(shard));
        variable_.InitializeStripe(dense, *dense.stripe(static_cast<uint32_t>(stripe)));
      }
    }
  }

 private:
  MemoryBudget& budget_;
  Variable& variable_;
  EmbeddingStripe* embedding_ = nullptr;
  DenseStripe* dense_ = nullptr;
  int64_t rows_ = 0;
  std::vector<std::vector<bool>> has_image_;  // by shard and stripe
};

}  // namespace

absl::Status LoadVariable(const StripeStore& store, MemoryBudget& budget, Variable& variable) {
  Loader loader(budget, variable);
  absl::Status status = store.LoadStripes(variable.id(), loader);
  if (!status.ok()) {
    return Annotate(status, absl::StrCat("stored variable \"", variable.spec().name, "\""));
  }
  loader.Finish();
  return absl::OkStatus();
}

}  // namespace cairn
