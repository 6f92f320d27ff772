// A store that lets a test observe, delay or interrupt its reads and writes.
#pragma once

#include <functional>
#include <memory>

#include "common/status.h"
#include "tests/support/forwarding_store.h"

namespace cairn {

struct NoGuard {};

// Forwards to another store; has one helper thread for reads on any machine. Thread safety: as
// StripeStore. The functions are called in the threads that use the store, and must be set while no
// thread does.
class WatchedStore final : public ForwardingStore<NoGuard> {
 public:
  using ForwardingStore::ForwardingStore;

  // Called before and after the disk is read; may be null.
  std::function<void(absl::Span<const ColdKey> keys)> before_read, after_read;
  // Called before a batch is made; may be null.
  std::function<void(const StripeId& id)> before_batch;
  // Called before stripes are loaded; may be null.
  std::function<void()> before_load;
  // Called before the disk is scanned, and before it is written to; an error or exception prevents
  // the write. May be null.
  std::function<void()> before_scan;
  std::function<absl::Status()> before_write, before_settle, before_epoch, before_decision;
  // Called before and after a map is written; may be null.
  std::function<void()> before_map, after_map;

  absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                      absl::Span<const StripeId> removed) override {
    if (before_map != nullptr) before_map();
    const absl::Status status = store()->PutMap(record, shards, removed);
    if (after_map != nullptr) after_map();
    return status;
  }
  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override {
    if (before_batch != nullptr) before_batch(id);
    return store()->NewBatch(id);
  }
  absl::Status Write(StripeBatch& batch) override {
    if (before_write != nullptr) RETURN_IF_ERROR(before_write());
    return store()->Write(batch);
  }
  absl::Status WriteInSnapshot(StripeBatch& batch) override {
    if (before_write != nullptr) RETURN_IF_ERROR(before_write());
    return store()->WriteInSnapshot(batch);
  }
  absl::Status SettleSnapshot() override {
    if (before_settle != nullptr) RETURN_IF_ERROR(before_settle());
    return store()->SettleSnapshot();
  }
  using StripeStore::WriteEpoch;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers,
                          absl::Span<std::unique_ptr<StripeBatch>> stripes) override {
    if (before_epoch != nullptr) RETURN_IF_ERROR(before_epoch());
    return store()->WriteEpoch(shards, workers, stripes);
  }
  absl::Status PutDecision(const DecisionRecord& record, bool sync) override {
    if (before_decision != nullptr) RETURN_IF_ERROR(before_decision());
    return store()->PutDecision(record, sync);
  }
  absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                           StripeVisitor& visitor) const override {
    if (before_load != nullptr) before_load();
    return store()->LoadStripes(first, end, visitor);
  }
  absl::Status ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                        ColdRows& rows) const override {
    if (before_read != nullptr) before_read(keys);
    const absl::Status status = store()->ReadCold(keys, row_bytes, rows);
    if (after_read != nullptr) after_read(keys);
    return status;
  }
  HelperPool& readers() const override { return readers_; }
  absl::Status ScanCold(
      const StripeId& id, int64_t first, size_t row_bytes,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const override {
    if (before_scan != nullptr) before_scan();
    return store()->ScanCold(id, first, row_bytes, visit);
  }

 private:
  mutable HelperPool readers_{1};
};

}  // namespace cairn
