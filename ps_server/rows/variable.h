// One server's part of a variable: spec, optimizer and the shards on this server.
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

// Thread safety: immutable, except for state that the shards guard themselves. The destructor
// returns the variable's memory to the budget.
class Variable {
 public:
  // Allocates the shards of `server_index`; dense contents are unspecified until Initialize or a
  // load. `spec` is valid. `budget` outlives the variable. kResourceExhausted: MEMORY_BUDGET.
  static absl::StatusOr<std::shared_ptr<Variable>> Make(uint32_t id, absl::string_view job,
                                                        const VariableSpec& spec,
                                                        int32_t server_index, MemoryBudget& budget);
  // How many bytes Make takes from the budget for `spec`, which is valid.
  static absl::StatusOr<int64_t> FixedBytes(const VariableSpec& spec, int32_t server_index);
  // As above, with dense stripes of `rows_per_stripe` rows, as in the variable's earlier record.
  // `rows_of`: the variable that these rows will join, whose optimizer they use; null: an optimizer
  // of its own.
  static absl::StatusOr<std::shared_ptr<Variable>> Make(
      uint32_t id, absl::string_view job, const VariableSpec& spec, int32_t server_index,
      int64_t rows_per_stripe, MemoryBudget& budget, const Variable* rows_of = nullptr);
  // The same variable as `before` with another map. Shards and buckets that stay here are shared
  // with `before`; those that are new here are taken from `arriving`, a variable that has only
  // these rows (null: none arrive). Neither may be updated during this call. `before` keeps the
  // memory charge of what only it still holds.
  static std::shared_ptr<Variable> WithMap(Variable& before, const VariableSpec& spec,
                                           int32_t server_index, Variable* arriving);
  // `before` with other arguments of its optimizer (MayFollow), which take effect in Follow. Errors
  // as in Optimizer::Create.
  static absl::StatusOr<std::shared_ptr<Variable>> WithOptimizer(Variable& before,
                                                                 const OptimizerConfig& optimizer,
                                                                 int32_t server_index);
  // This variable was made from `before` by WithOptimizer: its arguments take effect, and as after
  // WithMap, updates through `before` are rejected. Does not allocate: the change is on disk
  // already.
  void Follow(Variable& before);
  // The decoded form of record(). kDataLoss: the record is unreadable.
  struct Kept {
    VariableSpec spec;
    int64_t rows_per_stripe = 0;
    std::optional<VariableSpec> arriving;  // map of arrived rows that are not owned yet
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
  // `arriving`: the map of rows that have arrived and that this server does not own yet; may be
  // null.
  VariableRecord record(const VariableSpec* arriving = nullptr) const;

  // True if every shard or bucket is on this server, so that norms of whole gradients can be
  // computed.
  bool whole_here() const { return whole_here_; }
  // Bytes charged to the budget, without the rows of a table.
  int64_t fixed_bytes() const;
  // The shards on this server; may be empty.
  absl::Span<HostedShard* const> shards() const { return shards_; }
  // By index into spec().shards; nullptr if the shard is on another server.
  HostedDense* dense(int32_t shard) const;
  HostedTable* table() const { return table_.get(); }

  // Part 0 is the value (`slot` empty), part s + 1 is slot s. kNotFound: the message lists the
  // slots.
  absl::StatusOr<size_t> PartOf(absl::string_view slot) const;

  // Sets every dense stripe, or one stripe, to its initial values and slots. No other thread may
  // use them.
  void Initialize();
  void InitializeStripe(HostedDense& shard, DenseStripe& stripe);

  // Takes ownership of `bytes` that were acquired for rows of this variable.
  void Charge(int64_t bytes) { shared_->charged_bytes.fetch_add(bytes); }
  // Releases `bytes` of them to the budget.
  void GiveBack(int64_t bytes) {
    shared_->charged_bytes.fetch_sub(bytes);
    budget_.Release(bytes);
  }

  // Whether this variable accepts an update that was cut by a map of version `map_version` (0:
  // unknown). While its rows move to another server, updates are rejected with BUSY; once another
  // Variable has replaced this one, updates through this one are rejected for good. MOVED: rows
  // have gone since that map, and the server that received them must count the update too, even if
  // the update has no rows there. Call this while holding the order of the worker's calls.
  bool TakesUpdates(int64_t map_version) const {
    return shared_->held_until_ns.load() == 0 && !replaced_.load() &&
           (map_version == 0 || map_version >= handed_over_version_);
  }
  // If TakesUpdates is false: the error, whose message begins with `what`. OK if the hold has ended
  // since, or does not apply to updates of synchronous step `step` (0: not a synchronous update).
  absl::Status WhyNoUpdates(absl::string_view what, int64_t map_version, int64_t step = 0) const;
  // Records that rows were handed over by the current map.
  void NoteHandedOver() { handed_over_version_ = spec_.map_version; }
  // Holds updates until the monotonic clock shows `until`; zero ends the hold. Updates of
  // synchronous steps up to `through_step` are still accepted.
  void Hold(absl::Duration until, int64_t through_step = 0) {
    shared_->held_through_step.store(through_step);
    shared_->held_until_ns.store(absl::ToInt64Nanoseconds(until));
  }
  // Whether a hold on all updates is in effect. If so and `for_good` is set, the hold never ends.
  bool Held(bool for_good = false);

 private:
  Variable(uint32_t id, absl::string_view job, const VariableSpec& spec, MemoryBudget& budget)
      : id_(id),
        job_(job),
        spec_(spec),
        budget_(budget),
        shared_(std::make_shared<Shared>(budget)) {}
  // WithMap, except that `before` still accepts updates.
  static std::shared_ptr<Variable> Share(Variable& before, const VariableSpec& spec,
                                         int32_t server_index, Variable* arriving);
  absl::Status Allocate(int32_t server_index);
  void AllocateDense(int32_t server_index, const DenseLayout& layout);
  void AllocateTable(int32_t server_index);

  const uint32_t id_;
  const std::string job_;
  const VariableSpec spec_;
  MemoryBudget& budget_;
  // Shared by all versions of this variable, whatever their map.
  struct Shared {
    explicit Shared(MemoryBudget& of) : budget(of) {}
    ~Shared() { budget.Release(charged_bytes.load()); }
    MemoryBudget& budget;
    std::atomic<int64_t> charged_bytes{0};
    std::atomic<int64_t> held_until_ns{0};      // on the monotonic clock; 0: not held
    std::atomic<int64_t> held_through_step{0};  // steps up to this one are accepted while held
  };
  std::shared_ptr<Shared> shared_;
  MemoryHold leaving_;                 // charge for rows that only this version still has
  std::atomic<bool> replaced_{false};  // by another version
  int64_t handed_over_version_ =
      0;  // last map version that moved rows away; 0: none since the start
  int64_t width_ = 1;
  int64_t rows_per_stripe_ = 0;  // never changes: stripes keep their size
  bool whole_here_ = false;
  std::shared_ptr<SwitchedOptimizer> optimizer_;     // shared by all versions
  SwitchedOptimizer::One next_optimizer_;            // until Follow; may be empty
  std::vector<std::shared_ptr<HostedDense>> dense_;  // by shard
  std::shared_ptr<HostedTable> table_;
  std::vector<HostedShard*> shards_;
};

// The variables of a job by name at one moment; a request works on one such map. Unlike Abseil's
// hash tables, std::map stays consistent if an allocation fails.
using VariableMap = std::map<std::string, std::shared_ptr<Variable>, std::less<>>;

}  // namespace cairn
