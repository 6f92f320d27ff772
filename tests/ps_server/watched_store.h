// A store that lets a test observe, delay or interrupt its reads and writes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "storage/stripe_store.h"

namespace cairn {

// Forwards to another store; has one helper thread for reads on any machine. Thread safety: as
// StripeStore. The functions are called in the threads that use the store, and must be set while no
// thread does.
class WatchedStore final : public StripeStore {
 public:
  explicit WatchedStore(std::unique_ptr<StripeStore> store) : store_(std::move(store)) {}

  // Called before and after the disk is read; may be null.
  std::function<void(absl::Span<const ColdKey> keys)> before_read, after_read;
  // Called before stripes are loaded; may be null.
  std::function<void()> before_load;
  // Called before the disk is scanned, and before it is written to; an error or exception prevents
  // the write. May be null.
  std::function<void()> before_scan;
  std::function<absl::Status()> before_write, before_epoch, before_decision;
  // Called before and after a map is written; may be null.
  std::function<void()> before_map, after_map;

  int64_t boot_count() const override { return store_->boot_count(); }
  absl::Status PutVariable(const VariableRecord& record) override {
    return store_->PutVariable(record);
  }
  absl::StatusOr<std::vector<VariableRecord>> Variables() const override {
    return store_->Variables();
  }
  absl::Status PutJob(absl::string_view job, absl::Span<const VariableRecord> variables,
                      absl::Span<const ShardRecord> shards,
                      absl::Span<const WorkerRecord> workers) override {
    return store_->PutJob(job, variables, shards, workers);
  }
  absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                      absl::Span<const StripeId> removed) override {
    if (before_map != nullptr) before_map();
    const absl::Status status = store_->PutMap(record, shards, removed);
    if (after_map != nullptr) after_map();
    return status;
  }
  absl::Status DropLeftovers(uint32_t first, uint32_t end) override {
    return store_->DropLeftovers(first, end);
  }
  absl::Status DropJob(absl::string_view job) override { return store_->DropJob(job); }
  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override {
    return store_->NewBatch(id);
  }
  absl::Status Write(StripeBatch& batch) override {
    if (before_write != nullptr) RETURN_IF_ERROR(before_write());
    return store_->Write(batch);
  }
  absl::Status WriteInSnapshot(StripeBatch& batch) override {
    if (before_write != nullptr) RETURN_IF_ERROR(before_write());
    return store_->WriteInSnapshot(batch);
  }
  absl::Status SettleSnapshot() override { return store_->SettleSnapshot(); }
  bool Behind() const override { return store_->Behind(); }
  using StripeStore::WriteEpoch;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers,
                          absl::Span<std::unique_ptr<StripeBatch>> stripes) override {
    if (before_epoch != nullptr) RETURN_IF_ERROR(before_epoch());
    return store_->WriteEpoch(shards, workers, stripes);
  }
  absl::Status Sync() override { return store_->Sync(); }
  absl::Status PutDecision(const DecisionRecord& record, bool sync) override {
    if (before_decision != nullptr) RETURN_IF_ERROR(before_decision());
    return store_->PutDecision(record, sync);
  }
  absl::Status DropDecisions(absl::string_view job, int64_t step) override {
    return store_->DropDecisions(job, step);
  }
  absl::StatusOr<std::vector<DecisionRecord>> Decisions() const override {
    return store_->Decisions();
  }
  absl::Status PutNotes(absl::Span<const NoteRecord> notes) override {
    return store_->PutNotes(notes);
  }
  absl::StatusOr<std::vector<NoteRecord>> Notes() const override { return store_->Notes(); }
  absl::StatusOr<std::vector<ShardRecord>> Shards() const override { return store_->Shards(); }
  absl::StatusOr<std::vector<WorkerRecord>> Workers() const override { return store_->Workers(); }
  absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                           StripeVisitor& visitor) const override {
    if (before_load != nullptr) before_load();
    return store_->LoadStripes(first, end, visitor);
  }
  absl::Status ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                        ColdRows& rows) const override {
    if (before_read != nullptr) before_read(keys);
    const absl::Status status = store_->ReadCold(keys, row_bytes, rows);
    if (after_read != nullptr) after_read(keys);
    return status;
  }
  HelperPool& readers() const override { return readers_; }
  absl::Status ScanCold(
      const StripeId& id, int64_t first,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const override {
    if (before_scan != nullptr) before_scan();
    return store_->ScanCold(id, first, visit);
  }
  int64_t ColdLookupBytes() const override { return store_->ColdLookupBytes(); }
  absl::Status SetUnfinished(bool unfinished) override { return store_->SetUnfinished(unfinished); }
  absl::Status Checkpoint(const std::string& folder) override { return store_->Checkpoint(folder); }
  absl::Status StartCompaction() override { return store_->StartCompaction(); }
  std::vector<StoreStatistic> ReadStatistics() const override { return store_->ReadStatistics(); }
  int64_t DiskBytes() const override { return store_->DiskBytes(); }
  absl::Status Close() override { return store_->Close(); }

 private:
  const std::unique_ptr<StripeStore> store_;
  mutable HelperPool readers_{1};
};

}  // namespace cairn
