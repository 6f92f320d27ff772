// A variable as one server has it: spec, optimizer and the shards that live here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/variable_spec.h"
#include "ps_server/hosted_dense.h"
#include "ps_server/hosted_table.h"
#include "ps_server/memory_budget.h"
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
  // With dense stripes of that many rows, which are those of a variable made before.
  static absl::StatusOr<std::shared_ptr<Variable>> Make(uint32_t id, absl::string_view job,
                                                        const VariableSpec& spec,
                                                        int32_t server_index,
                                                        int64_t rows_per_stripe,
                                                        MemoryBudget& budget);
  // What record() kept. kDataLoss: unreadable.
  struct Kept {
    VariableSpec spec;
    int64_t rows_per_stripe = 0;
  };
  static absl::StatusOr<Kept> Decode(const VariableRecord& record, int32_t server_index,
                                     int32_t server_count);
  // The same from what record() kept. kDataLoss: unreadable.
  static absl::StatusOr<std::shared_ptr<Variable>> FromRecord(const VariableRecord& record,
                                                              int32_t server_index,
                                                              int32_t server_count,
                                                              MemoryBudget& budget);
  ~Variable() { budget_.Release(charged_.load()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  uint32_t id() const { return id_; }
  const std::string& job() const { return job_; }
  const VariableSpec& spec() const { return spec_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  absl::Span<const SlotSpec> slots() const { return optimizer_->slots(); }
  int64_t width() const { return width_; }  // elements of a row
  VariableRecord record() const;

  // True where every shard or bucket is here: norms of whole gradients can be taken.
  bool whole_here() const { return whole_here_; }
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
  void Charge(int64_t bytes) { charged_.fetch_add(bytes); }

 private:
  Variable(uint32_t id, absl::string_view job, const VariableSpec& spec, MemoryBudget& budget)
      : id_(id), job_(job), spec_(spec), budget_(budget) {}
  absl::Status Allocate(int32_t server_index);
  void AllocateDense(int32_t server_index, const DenseLayout& layout);
  void AllocateTable(int32_t server_index);

  const uint32_t id_;
  const std::string job_;
  const VariableSpec spec_;
  MemoryBudget& budget_;
  std::atomic<int64_t> charged_{0};
  int64_t width_ = 1;
  int64_t rows_per_stripe_ = 0;  // fixed when the variable is made: stripes are never cut anew
  bool whole_here_ = false;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::unique_ptr<HostedDense>> dense_;  // by shard
  std::unique_ptr<HostedTable> table_;
  std::vector<HostedShard*> shards_;
};

}  // namespace cairn
