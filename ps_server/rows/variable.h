// A variable as one server has it: spec, optimizer and the shards that live here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/rows/hosted_dense.h"
#include "ps_server/rows/hosted_table.h"
#include "ps_server/rows/switched_optimizer.h"
#include "storage/stripe_store.h"

namespace cairn {

// Thread safety: immutable, but for what the shards guard themselves. Gives its memory back to the
// budget when it is destroyed.
class Variable {
 public:
  // Allocates the shards of `server_index`; dense contents are unspecified until Initialize or a
  // load. `spec` is valid. `budget` outlives the variable. kResourceExhausted: MEMORY_BUDGET.
  static absl::StatusOr<std::shared_ptr<Variable>> Make(uint32_t id, absl::string_view job,
                                                        const VariableSpec& spec,
                                                        int32_t server_index, MemoryBudget& budget);
  // What Make takes of the budget for `spec`, which is valid.
  static absl::StatusOr<int64_t> FixedBytes(const VariableSpec& spec, int32_t server_index);
  // With dense stripes of that many rows, which are those of a variable made before. `rows_of`: the
  // variable whose rows these will be, and whose optimizer they have; null: one of their own.
  static absl::StatusOr<std::shared_ptr<Variable>> Make(
      uint32_t id, absl::string_view job, const VariableSpec& spec, int32_t server_index,
      int64_t rows_per_stripe, MemoryBudget& budget, const Variable* rows_of = nullptr);
  // `before` by another map of the same variable: what stays here is shared with it, what is new
  // here comes from `arriving` (null: nothing does), a variable of those rows alone. Not while
  // either is updated. Of memory that is charged, `before` keeps what it alone has from now on.
  static std::shared_ptr<Variable> WithMap(Variable& before, const VariableSpec& spec,
                                           int32_t server_index, Variable* arriving);
  // `before` with other arguments of its optimizer (MayFollow); errors as Optimizer::Create.
  // Updates of callers who still have `before` are turned away, as after WithMap.
  static absl::StatusOr<std::shared_ptr<Variable>> WithOptimizer(Variable& before,
                                                                 const OptimizerConfig& optimizer,
                                                                 int32_t server_index);
  // What record() kept. kDataLoss: unreadable.
  struct Kept {
    VariableSpec spec;
    int64_t rows_per_stripe = 0;
    std::optional<VariableSpec> arriving;  // the map by which rows have come that are not taken yet
  };
  static absl::StatusOr<Kept> Decode(const VariableRecord& record, int32_t server_index,
                                     int32_t server_count);
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  uint32_t id() const { return id_; }
  const std::string& job() const { return job_; }
  const VariableSpec& spec() const { return spec_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  absl::Span<const SlotSpec> slots() const { return optimizer_->slots(); }
  int64_t width() const { return width_; }  // elements of a row
  int64_t rows_per_stripe() const { return rows_per_stripe_; }
  // `arriving`: the map by which rows have come that this server does not own yet; may be null.
  VariableRecord record(const VariableSpec* arriving = nullptr) const;

  // True where every shard or bucket is here: norms of whole gradients can be taken.
  bool whole_here() const { return whole_here_; }
  // Of the budget, without the rows of a table.
  int64_t fixed_bytes() const;
  // The shards of this server; empty where it has none.
  absl::Span<HostedShard* const> shards() const { return shards_; }
  // By index into spec().shards; nullptr where it lives elsewhere.
  HostedDense* dense(int32_t shard) const;
  HostedTable* table() const { return table_.get(); }

  // Part 0 is the value (`slot` empty), part s + 1 slot s. kNotFound lists the slots there are.
  absl::StatusOr<size_t> PartOf(absl::string_view slot) const;

  // Every dense stripe, or one, gets its initial values and slots. Not while others use it.
  void Initialize();
  void InitializeStripe(HostedDense& shard, DenseStripe& stripe);

  // Takes over `bytes` that were acquired for rows of this variable.
  void Charge(int64_t bytes) { shared_->charged_bytes.fetch_add(bytes); }
  // Gives bytes of them back to the budget.
  void GiveBack(int64_t bytes) {
    shared_->charged_bytes.fetch_sub(bytes);
    budget_.Release(bytes);
  }

  // Whether it takes an update cut by a map of version `map_version` (0: not told). While its rows
  // go to another server, updates are turned away: BUSY; those of callers who still have this one
  // where another has taken its place, for good. MOVED: rows have gone since that map, and whoever
  // got them is to count the update too, whether it has rows there or not. Looked at with the order
  // of the worker's calls held.
  bool TakesUpdates(int64_t map_version) const {
    return shared_->held_until_ns.load() == 0 && !replaced_.load() &&
           (map_version == 0 || map_version >= gone_version_);
  }
  // Where it says false: why, of `what`; OK where a hold has run out since, or does not apply to
  // updates of synchronous step `step` (0: it is none).
  absl::Status WhyNoUpdates(absl::string_view what, int64_t map_version, int64_t step = 0) const;
  // Rows have gone with the map that it has now.
  void NoteGone() { gone_version_ = spec_.map_version; }
  // Until the monotonic clock shows `until`; zero: no more. What is of a synchronous step up to
  // `through_step` is taken all the same.
  void Hold(absl::Duration until, int64_t through_step = 0) {
    shared_->held_through_step.store(through_step);
    shared_->held_until_ns.store(absl::ToInt64Nanoseconds(until));
  }
  // Whether there is a hold on all updates that has not run out; with `for_good`, it never will.
  bool Held(bool for_good = false);

 private:
  Variable(uint32_t id, absl::string_view job, const VariableSpec& spec, MemoryBudget& budget)
      : id_(id),
        job_(job),
        spec_(spec),
        budget_(budget),
        shared_(std::make_shared<Shared>(budget)) {}
  absl::Status Allocate(int32_t server_index);
  void AllocateDense(int32_t server_index, const DenseLayout& layout);
  void AllocateTable(int32_t server_index);

  const uint32_t id_;
  const std::string job_;
  const VariableSpec spec_;
  MemoryBudget& budget_;
  // The same variable's by any map.
  struct Shared {
    explicit Shared(MemoryBudget& of) : budget(of) {}
    ~Shared() { budget.Release(charged_bytes.load()); }
    MemoryBudget& budget;
    std::atomic<int64_t> charged_bytes{0};
    std::atomic<int64_t> held_until_ns{0};      // on the monotonic clock; 0: not held
    std::atomic<int64_t> held_through_step{0};  // up to which steps' updates are taken then
  };
  std::shared_ptr<Shared> shared_;
  MemoryHold leaving_;                 // of rows that only this one has still
  std::atomic<bool> replaced_{false};  // by one with another map
  int64_t gone_version_ = 0;  // of the last map with which rows went; 0: since the start none
  int64_t width_ = 1;
  int64_t rows_per_stripe_ = 0;  // fixed when the variable is made: stripes are never cut anew
  bool whole_here_ = false;
  std::shared_ptr<SwitchedOptimizer> optimizer_;     // the same variable's by any map
  std::vector<std::shared_ptr<HostedDense>> dense_;  // by shard
  std::shared_ptr<HostedTable> table_;
  std::vector<HostedShard*> shards_;
};

// The variables of a job by name at one moment; a request works on one such map. Unlike Abseil's
// hash tables, std::map stays consistent when an allocation fails.
using VariableMap = std::map<std::string, std::shared_ptr<Variable>, std::less<>>;

}  // namespace cairn
