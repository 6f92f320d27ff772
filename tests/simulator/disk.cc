#include "tests/simulator/disk.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "storage/bytes.h"
#include "storage/stored_rows.h"

namespace cairn::simulator {

void Disk::Apply(Write write) {
  if (write.is_stripe) {
    StripeContent& kept = synced_.stripes[{write.id.variable, write.id.stripe}];
    kept.watermarks = std::move(write.stripe.watermarks);
    for (auto& [key, row] : write.stripe.rows) kept.rows[key] = std::move(row);
  }
  for (ShardRecord& shard : write.shards) synced_.shards[shard.variable] = std::move(shard);
  for (WorkerRecord& worker : write.workers) synced_.workers[worker.worker] = std::move(worker);
  for (DecisionRecord& decision : write.decisions) {
    synced_.decisions[decision.step] = std::move(decision);
  }
  synced_.decisions.erase(synced_.decisions.begin(),
                          synced_.decisions.upper_bound(write.forgotten));
  for (VariableRecord& variable : write.variables) {
    synced_.variables[variable.id] = std::move(variable);
  }
  for (const StripeId& id : write.removed) synced_.stripes.erase({id.variable, id.stripe});
  for (NoteRecord& note : write.notes) synced_.notes[note.name] = std::move(note.text);
}

bool Disk::Has(const StripeId& id) const {
  for (auto write = pending_.rbegin(); write != pending_.rend(); ++write) {
    if (write->is_stripe && write->id == id) return true;
    if (std::find(write->removed.begin(), write->removed.end(), id) != write->removed.end())
      return false;
  }
  return synced_.stripes.contains({id.variable, id.stripe});
}

void Disk::Sync() {
  if (lies_) return;
  std::vector<Write> unlogged;
  for (Write& write : pending_) {
    if (!write.logged) {
      unlogged.push_back(std::move(write));
      continue;
    }
    for (const StripeId& id : write.removed) {
      std::erase_if(unlogged, [&id](const Write& before) { return before.id == id; });
    }
    Apply(std::move(write));
  }
  pending_ = std::move(unlogged);
}

void Disk::FlushUnlogged() {
  if (lies_ || never_flushes_) return;
  const auto is_unlogged = [](const Write& write) { return !write.logged; };
  if (std::none_of(pending_.begin(), pending_.end(), is_unlogged)) return;
  for (Write& write : pending_) Apply(std::move(write));
  pending_.clear();
}

void Disk::FlushUnlogged(const StripeId& id) {
  const auto is_unlogged = [&](const Write& w) { return !w.logged && w.id == id; };
  if (std::any_of(pending_.begin(), pending_.end(), is_unlogged)) FlushUnlogged();
}

void Disk::EndProcess() {
  std::erase_if(pending_, [](const Write& write) { return !write.logged; });
  Sync();
}

void Disk::EndMachine(Random& random) {
  std::erase_if(pending_, [](const Write& write) { return !write.logged; });
  const size_t kept = random.Below(static_cast<int64_t>(pending_.size()) + 1);
  for (size_t i = 0; i < kept; ++i) Apply(std::move(pending_[i]));
  if (tears_ && kept < pending_.size() && pending_[kept].is_stripe) {
    pending_[kept].stripe.rows.clear();  // keeps only the watermarks
    Apply(std::move(pending_[kept]));
  }
  pending_.clear();
}

namespace {

absl::Status NotHere() { return absl::UnimplementedError("the simulated disk cannot do this"); }

class Batch : public StripeBatch {
 public:
  Batch(const StripeId& id, bool first) : first_(first) {
    write_.is_stripe = true;
    write_.id = id;
  }
  void SetWatermarks(absl::Span<const Watermark> watermarks) override {
    write_.stripe.watermarks.assign(watermarks.begin(), watermarks.end());
  }
  void PutImage(absl::Span<const absl::string_view>) override {}  // all variables are tables
  void PutRow(int64_t key, absl::string_view bytes) override {
    write_.stripe.rows[key] = std::string(bytes);
  }
  void PutCold(int64_t, absl::string_view) override {}  // budgets are ample
  void PutGone(int64_t) override {}
  void SetColdCount(int64_t) override {}
  void PutWaiting(uint32_t, absl::string_view) override {}  // tables have no row rules
  void PutAges(absl::string_view) override {}
  void DropCold(int64_t) override {}
  bool wants_every_row() const override { return first_; }
  void Settle() override {}
  size_t bytes() const override { return write_.stripe.rows.size(); }
  Disk::Write Take() { return std::move(write_); }

 private:
  const bool first_;
  Disk::Write write_;
};

class Store : public StripeStore {
 public:
  Store(Disk* disk, const DiskCosts& costs, const bool* alive)
      : disk_(*disk), costs_(costs), alive_(*alive), boots_(disk->Open()) {}

  int64_t boot_count() const override { return boots_; }

  absl::Status PutVariable(const VariableRecord& record) override {
    RETURN_IF_ERROR(Take(0));
    Disk::Write write;
    write.variables = {record};
    disk_.Put(std::move(write));
    return Sync();
  }
  absl::StatusOr<std::vector<VariableRecord>> Variables() const override {
    std::vector<VariableRecord> records;
    for (const auto& [id, record] : disk_.content().variables) records.push_back(record);
    return records;
  }
  absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                      absl::Span<const StripeId> removed) override {
    RETURN_IF_ERROR(Take(costs_.write));
    Disk::Write write;
    write.variables = {record};
    write.shards.assign(shards.begin(), shards.end());
    write.removed.assign(removed.begin(), removed.end());
    disk_.Put(std::move(write));
    return Sync();
  }
  absl::Status PutJob(absl::string_view, absl::Span<const VariableRecord>,
                      absl::Span<const ShardRecord>, absl::Span<const WorkerRecord>) override {
    return NotHere();
  }
  absl::Status DropLeftovers(uint32_t, uint32_t) override { return absl::OkStatus(); }
  absl::Status DropJob(absl::string_view) override { return NotHere(); }

  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override {
    return std::make_unique<Batch>(id, !disk_.Has(id));
  }
  absl::Status Write(StripeBatch& batch) override {
    RETURN_IF_ERROR(Take(costs_.write));
    Disk::Write write = static_cast<Batch&>(batch).Take();
    disk_.FlushUnlogged(write.id);
    disk_.Put(std::move(write));
    return absl::OkStatus();
  }
  absl::Status WriteInSnapshot(StripeBatch& batch) override {
    RETURN_IF_ERROR(Take(costs_.write));
    Disk::Write write = static_cast<Batch&>(batch).Take();
    write.logged = write.id.stripe % 2 == 0;
    if (write.logged) disk_.FlushUnlogged(write.id);
    disk_.Put(std::move(write));
    return absl::OkStatus();
  }
  absl::Status SettleSnapshot() override {
    RETURN_IF_ERROR(Take(costs_.sync));
    disk_.FlushUnlogged();
    return absl::OkStatus();
  }
  using StripeStore::WriteEpoch;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers,
                          absl::Span<std::unique_ptr<StripeBatch>> stripes) override {
    if (!stripes.empty()) return NotHere();  // all variables are tables
    RETURN_IF_ERROR(Take(costs_.write));
    Disk::Write write;
    write.shards.assign(shards.begin(), shards.end());
    write.workers.assign(workers.begin(), workers.end());
    disk_.Put(std::move(write));
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    RETURN_IF_ERROR(Take(costs_.sync));
    disk_.Sync();
    return absl::OkStatus();
  }

  // Takes no time: the caller holds a lock that other fibers need, and all fibers share a thread.
  absl::Status PutDecision(const DecisionRecord& decision, bool sync) override {
    RETURN_IF_ERROR(Take(0));
    Disk::Write write;
    write.decisions = {decision};
    disk_.Put(std::move(write));
    if (sync) disk_.Sync();
    return absl::OkStatus();
  }
  // Takes no time, for the same reason; syncs.
  absl::Status PutNotes(absl::Span<const NoteRecord> notes) override {
    RETURN_IF_ERROR(Take(0));
    Disk::Write write;
    write.notes.assign(notes.begin(), notes.end());
    disk_.Put(std::move(write));
    disk_.Sync();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<NoteRecord>> Notes() const override {
    std::vector<NoteRecord> notes;
    for (const auto& [name, text] : disk_.content().notes) notes.push_back({name, text});
    return notes;
  }
  absl::Status DropDecisions(absl::string_view, int64_t through) override {
    RETURN_IF_ERROR(Take(0));
    Disk::Write write;
    write.forgotten = through;
    disk_.Put(std::move(write));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<DecisionRecord>> Decisions() const override {
    std::vector<DecisionRecord> decisions;
    for (const auto& [step, decision] : disk_.content().decisions) decisions.push_back(decision);
    return decisions;
  }
  absl::StatusOr<std::vector<ShardRecord>> Shards() const override {
    std::vector<ShardRecord> shards;
    for (const auto& [variable, shard] : disk_.content().shards) shards.push_back(shard);
    return shards;
  }
  absl::StatusOr<std::vector<WorkerRecord>> Workers() const override {
    std::vector<WorkerRecord> workers;
    for (const auto& [worker, record] : disk_.content().workers) workers.push_back(record);
    return workers;
  }
  absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                           StripeVisitor& visitor) const override;
  absl::Status ReadCold(absl::Span<const ColdKey>, size_t, ColdRows&) const override {
    return NotHere();
  }
  HelperPool& readers() const override { return readers_; }
  absl::Status ScanCold(const StripeId&, int64_t, size_t,
                        absl::FunctionRef<bool(int64_t, absl::string_view)>) const override {
    return absl::OkStatus();
  }
  int64_t ColdLookupBytes() const override { return 0; }
  absl::Status SetUnfinished(bool) override { return NotHere(); }
  absl::Status Checkpoint(const std::string&) override { return NotHere(); }
  bool Behind() const override { return false; }
  absl::Status StartCompaction() override { return absl::OkStatus(); }
  std::vector<StoreStatistic> ReadStatistics() const override { return {}; }
  int64_t DiskBytes() const override { return 0; }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  absl::Status Take(Nanos cost) {
    if (alive_ && cost > 0) Scheduler::Current().Sleep(cost);
    return alive_ ? absl::OkStatus() : absl::UnavailableError("the server has crashed");
  }

  Disk& disk_;
  const DiskCosts costs_;
  const bool& alive_;
  const int64_t boots_;
  mutable HelperPool readers_{0};  // there are no cold rows
};

absl::Status Store::LoadStripes(const StripeId& first, const StripeId& end,
                                StripeVisitor& visitor) const {
  const auto& stripes = disk_.content().stripes;
  const auto last = stripes.lower_bound({end.variable, end.stripe});
  for (auto at = stripes.lower_bound({first.variable, first.stripe}); at != last; ++at) {
    const StripeId id{.variable = at->first.first, .stripe = at->first.second};
    RETURN_IF_ERROR(visitor.Header(id, at->second.watermarks));
    for (const auto& [key, row] : at->second.rows) {
      std::string bytes(StoredRows::kKeyBytes, '\0');
      StoreLittleEndian(static_cast<uint64_t>(key), bytes.data());
      bytes += row;
      RETURN_IF_ERROR(visitor.Rows(id, StoredRows(bytes, row.size())));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<StripeStore> OpenOn(Disk* disk, const DiskCosts& costs, const bool* alive) {
  return std::make_unique<Store>(disk, costs, alive);
}

}  // namespace cairn::simulator
