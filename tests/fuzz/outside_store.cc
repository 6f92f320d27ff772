// A layer between the engine and RocksDB, which does not survive a failed allocation: inside
// RocksDB no allocation is made to fail. The linker redirects calls of StripeStore::Open to this
// one (meson.build).
#include "tests/fuzz/outside_store.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "storage/stripe_store.h"
#include "tests/support/forwarding_store.h"

namespace cairn::fuzz {
namespace {

class OutsideBatch final : public StripeBatch {
 public:
  explicit OutsideBatch(std::unique_ptr<StripeBatch> batch) : batch_(std::move(batch)) {}
  ~OutsideBatch() override {
    const OutsideCairn outside;
    batch_.reset();
  }

  StripeBatch& real() { return *batch_; }
  std::unique_ptr<StripeBatch> Release() { return std::move(batch_); }
  void SetWatermarks(absl::Span<const Watermark> watermarks) override {
    const OutsideCairn outside;
    batch_->SetWatermarks(watermarks);
  }
  void PutImage(absl::Span<const absl::string_view> pieces) override {
    const OutsideCairn outside;
    batch_->PutImage(pieces);
  }
  void PutRow(int64_t key, absl::string_view bytes) override {
    const OutsideCairn outside;
    batch_->PutRow(key, bytes);
  }
  void PutCold(int64_t key, absl::string_view bytes) override {
    const OutsideCairn outside;
    batch_->PutCold(key, bytes);
  }
  void DropCold(int64_t key) override {
    const OutsideCairn outside;
    batch_->DropCold(key);
  }
  void PutGone(int64_t key) override {
    const OutsideCairn outside;
    batch_->PutGone(key);
  }
  void SetColdCount(int64_t rows) override {
    const OutsideCairn outside;
    batch_->SetColdCount(rows);
  }
  void PutWaiting(uint32_t page, absl::string_view bytes) override {
    const OutsideCairn outside;
    batch_->PutWaiting(page, bytes);
  }
  void PutAges(absl::string_view bytes) override {
    const OutsideCairn outside;
    batch_->PutAges(bytes);
  }
  bool wants_every_row() const override { return batch_->wants_every_row(); }
  void Settle() override {
    const OutsideCairn outside;
    batch_->Settle();
  }
  size_t bytes() const override { return batch_->bytes(); }

 private:
  std::unique_ptr<StripeBatch> batch_;
};

class OutsideStore final : public ForwardingStore<OutsideCairn> {
 public:
  using ForwardingStore::ForwardingStore;

  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override {
    const OutsideCairn outside;
    return std::make_unique<OutsideBatch>(store()->NewBatch(id));
  }
  absl::Status Write(StripeBatch& batch) override {
    return store()->Write(static_cast<OutsideBatch&>(batch).real());  // NewBatch makes only these
  }
  absl::Status WriteInSnapshot(StripeBatch& batch) override {
    return store()->WriteInSnapshot(static_cast<OutsideBatch&>(batch).real());
  }
  using StripeStore::WriteEpoch;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers,
                          absl::Span<std::unique_ptr<StripeBatch>> stripes) override {
    const OutsideCairn outside;
    for (std::unique_ptr<StripeBatch>& stripe : stripes) {
      stripe = static_cast<OutsideBatch&>(*stripe).Release();
    }
    return store()->WriteEpoch(shards, workers, stripes);
  }
};

using OpenResult = absl::StatusOr<std::unique_ptr<StripeStore>>;

OpenResult WrapStore(absl::FunctionRef<OpenResult()> open) {
  const OutsideCairn outside;
  OpenResult store = open();
  if (!store.ok()) return store;
  return std::make_unique<OutsideStore>(*std::move(store));
}

}  // namespace
}  // namespace cairn::fuzz

// The linker's names of the functions in storage/, and of their replacements.
#define CAIRN_WRAPPED_OPEN(method, length)                                             \
  cairn::fuzz::OpenResult Real##method(const cairn::StoreOptions& options) __asm__(    \
      "__real__ZN5cairn11StripeStore" #length #method "ERKNS_12StoreOptionsE");        \
  cairn::fuzz::OpenResult Wrapped##method(const cairn::StoreOptions& options) __asm__( \
      "__wrap__ZN5cairn11StripeStore" #length #method "ERKNS_12StoreOptionsE");        \
  cairn::fuzz::OpenResult Wrapped##method(const cairn::StoreOptions& options) {        \
    return cairn::fuzz::WrapStore([&] { return Real##method(options); });              \
  }
CAIRN_WRAPPED_OPEN(Open, 4)
CAIRN_WRAPPED_OPEN(OpenReadOnly, 12)
