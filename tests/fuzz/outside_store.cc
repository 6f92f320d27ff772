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

class OutsideStore final : public StripeStore {
 public:
  explicit OutsideStore(std::unique_ptr<StripeStore> store) : store_(std::move(store)) {}
  ~OutsideStore() override {
    const OutsideCairn outside;
    store_.reset();
  }

  int64_t boot_count() const override { return store_->boot_count(); }
  absl::Status PutVariable(const VariableRecord& record) override {
    const OutsideCairn outside;
    return store_->PutVariable(record);
  }
  absl::StatusOr<std::vector<VariableRecord>> Variables() const override {
    const OutsideCairn outside;
    return store_->Variables();
  }
  absl::Status PutJob(absl::string_view job, absl::Span<const VariableRecord> variables,
                      absl::Span<const ShardRecord> shards,
                      absl::Span<const WorkerRecord> workers) override {
    const OutsideCairn outside;
    return store_->PutJob(job, variables, shards, workers);
  }
  absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                      absl::Span<const StripeId> removed) override {
    const OutsideCairn outside;
    return store_->PutMap(record, shards, removed);
  }
  absl::Status DropLeftovers(uint32_t first, uint32_t end) override {
    const OutsideCairn outside;
    return store_->DropLeftovers(first, end);
  }
  absl::Status DropJob(absl::string_view job) override {
    const OutsideCairn outside;
    return store_->DropJob(job);
  }
  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override {
    const OutsideCairn outside;
    return std::make_unique<OutsideBatch>(store_->NewBatch(id));
  }
  absl::Status Write(StripeBatch& batch) override {
    const OutsideCairn outside;
    return store_->Write(static_cast<OutsideBatch&>(batch).real());  // NewBatch makes only these
  }
  absl::Status WriteInSnapshot(StripeBatch& batch) override {
    const OutsideCairn outside;
    return store_->WriteInSnapshot(static_cast<OutsideBatch&>(batch).real());
  }
  absl::Status SettleSnapshot() override {
    const OutsideCairn outside;
    return store_->SettleSnapshot();
  }
  bool Behind() const override { return store_->Behind(); }
  using StripeStore::WriteEpoch;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers,
                          absl::Span<std::unique_ptr<StripeBatch>> stripes) override {
    const OutsideCairn outside;
    for (std::unique_ptr<StripeBatch>& stripe : stripes) {
      stripe = static_cast<OutsideBatch&>(*stripe).Release();
    }
    return store_->WriteEpoch(shards, workers, stripes);
  }
  absl::Status Sync() override {
    const OutsideCairn outside;
    return store_->Sync();
  }
  absl::Status PutDecision(const DecisionRecord& record, bool sync) override {
    const OutsideCairn outside;
    return store_->PutDecision(record, sync);
  }
  absl::Status DropDecisions(absl::string_view job, int64_t step) override {
    const OutsideCairn outside;
    return store_->DropDecisions(job, step);
  }
  absl::StatusOr<std::vector<DecisionRecord>> Decisions() const override {
    const OutsideCairn outside;
    return store_->Decisions();
  }
  absl::Status PutNotes(absl::Span<const NoteRecord> notes) override {
    const OutsideCairn outside;
    return store_->PutNotes(notes);
  }
  absl::StatusOr<std::vector<NoteRecord>> Notes() const override {
    const OutsideCairn outside;
    return store_->Notes();
  }
  absl::StatusOr<std::vector<ShardRecord>> Shards() const override {
    const OutsideCairn outside;
    return store_->Shards();
  }
  absl::StatusOr<std::vector<WorkerRecord>> Workers() const override {
    const OutsideCairn outside;
    return store_->Workers();
  }
  absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                           StripeVisitor& visitor) const override {
    const OutsideCairn outside;
    return store_->LoadStripes(first, end, visitor);
  }
  absl::Status ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                        ColdRows& rows) const override {
    const OutsideCairn outside;
    return store_->ReadCold(keys, row_bytes, rows);
  }
  HelperPool& readers() const override { return store_->readers(); }
  absl::Status ScanCold(
      const StripeId& id, int64_t first,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const override {
    const OutsideCairn outside;
    return store_->ScanCold(id, first, visit);
  }
  int64_t ColdLookupBytes() const override { return store_->ColdLookupBytes(); }
  absl::Status SetUnfinished(bool unfinished) override {
    const OutsideCairn outside;
    return store_->SetUnfinished(unfinished);
  }
  absl::Status Checkpoint(const std::string& folder) override {
    const OutsideCairn outside;
    return store_->Checkpoint(folder);
  }
  absl::Status StartCompaction() override {
    const OutsideCairn outside;
    return store_->StartCompaction();
  }
  std::vector<StoreStatistic> ReadStatistics() const override {
    const OutsideCairn outside;
    return store_->ReadStatistics();
  }
  int64_t DiskBytes() const override {
    const OutsideCairn outside;
    return store_->DiskBytes();
  }
  absl::Status Close() override {
    const OutsideCairn outside;
    return store_->Close();
  }

 private:
  std::unique_ptr<StripeStore> store_;
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
