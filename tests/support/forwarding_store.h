// A store that forwards to another one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "storage/stripe_store.h"

namespace cairn {

// Each method that may allocate has a `Guard` while it calls the other store. Thread safety: as
// StripeStore.
template <typename Guard>
class ForwardingStore : public StripeStore {
 public:
  explicit ForwardingStore(std::unique_ptr<StripeStore> store) : store_(std::move(store)) {}
  ~ForwardingStore() override {
    [[maybe_unused]] const Guard guard{};
    store_.reset();
  }

  int64_t boot_count() const override { return store_->boot_count(); }
  absl::Status PutVariable(const VariableRecord& record) override {
    return store()->PutVariable(record);
  }
  absl::StatusOr<std::vector<VariableRecord>> Variables() const override {
    return store()->Variables();
  }
  absl::Status PutJob(absl::string_view job, absl::Span<const VariableRecord> variables,
                      absl::Span<const ShardRecord> shards,
                      absl::Span<const WorkerRecord> workers) override {
    return store()->PutJob(job, variables, shards, workers);
  }
  absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                      absl::Span<const StripeId> removed) override {
    return store()->PutMap(record, shards, removed);
  }
  absl::Status DropLeftovers(uint32_t first, uint32_t end) override {
    return store()->DropLeftovers(first, end);
  }
  absl::Status DropJob(absl::string_view job) override { return store()->DropJob(job); }
  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override {
    return store()->NewBatch(id);
  }
  absl::Status Write(StripeBatch& batch) override { return store()->Write(batch); }
  absl::Status WriteInSnapshot(StripeBatch& batch) override {
    return store()->WriteInSnapshot(batch);
  }
  absl::Status SettleSnapshot() override { return store()->SettleSnapshot(); }
  bool Behind() const override { return store_->Behind(); }
  using StripeStore::WriteEpoch;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers,
                          absl::Span<std::unique_ptr<StripeBatch>> stripes) override {
    return store()->WriteEpoch(shards, workers, stripes);
  }
  absl::Status Sync() override { return store()->Sync(); }
  absl::Status PutDecision(const DecisionRecord& record, bool sync) override {
    return store()->PutDecision(record, sync);
  }
  absl::Status DropDecisions(absl::string_view job, int64_t step) override {
    return store()->DropDecisions(job, step);
  }
  absl::StatusOr<std::vector<DecisionRecord>> Decisions() const override {
    return store()->Decisions();
  }
  absl::Status PutNotes(absl::Span<const NoteRecord> notes) override {
    return store()->PutNotes(notes);
  }
  absl::StatusOr<std::vector<NoteRecord>> Notes() const override { return store()->Notes(); }
  absl::StatusOr<std::vector<ShardRecord>> Shards() const override { return store()->Shards(); }
  absl::StatusOr<std::vector<WorkerRecord>> Workers() const override { return store()->Workers(); }
  absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                           StripeVisitor& visitor) const override {
    return store()->LoadStripes(first, end, visitor);
  }
  absl::Status ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                        ColdRows& rows) const override {
    return store()->ReadCold(keys, row_bytes, rows);
  }
  HelperPool& readers() const override { return store_->readers(); }
  absl::Status ScanCold(
      const StripeId& id, int64_t first, size_t row_bytes,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const override {
    return store()->ScanCold(id, first, row_bytes, visit);
  }
  int64_t ColdLookupBytes() const override { return store_->ColdLookupBytes(); }
  absl::Status SetUnfinished(bool unfinished) override {
    return store()->SetUnfinished(unfinished);
  }
  absl::Status Checkpoint(const std::string& folder) override {
    return store()->Checkpoint(folder);
  }
  absl::Status StartCompaction() override { return store()->StartCompaction(); }
  std::vector<StoreStatistic> ReadStatistics() const override { return store()->ReadStatistics(); }
  int64_t DiskBytes() const override { return store()->DiskBytes(); }
  absl::Status Close() override { return store()->Close(); }

 protected:
  struct Guarded {
    StripeStore* operator->() const { return store; }
    StripeStore* store;
    Guard guard{};
  };
  // The other store, for one call.
  Guarded store() const { return {store_.get()}; }

 private:
  std::unique_ptr<StripeStore> store_;
};

}  // namespace cairn
