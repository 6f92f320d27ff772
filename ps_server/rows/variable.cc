#include "ps_server/rows/variable.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/hash.h"
#include "common/nearest.h"
#include "common/status.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/spec_bytes.h"

namespace cairn {
namespace {

// VariableRecord::spec: the version below, rows of a dense stripe (both little-endian), Thrift
// bytes.
// Version 2 is for variables whose rows have moved; programs that do not know about stripes from
// other servers reject it. Before the Thrift bytes it has 8 bytes with the length of further Thrift
// bytes, and these: the map by which rows are arriving (length 0: none are).
// Version 3 is for tables with row rules. It has the form of version 2; programs that do not apply
// the rules reject it.
// Version 4 is for tables with compact rows. It has the form of version 3; programs that do not
// know compact rows reject it.
constexpr uint32_t kRecordVersion = 1;
constexpr uint32_t kMovedRecordVersion = 2;
constexpr uint32_t kRulesRecordVersion = 3;
constexpr uint32_t kCompactRecordVersion = 4;
constexpr absl::Duration kHeldRetry = absl::Milliseconds(20);
constexpr size_t kRecordHeaderBytes = sizeof(uint32_t) + sizeof(uint64_t);
constexpr int64_t kInitializeElements = 4096;

template <typename T>
void FromFloats(const float* from, size_t count, std::byte* to) {
  // The largest floats below the type's limits: converting larger ones is undefined.
  constexpr double kLimit = std::numeric_limits<T>::max() / 2;
  for (size_t i = 0; i < count; ++i) {
    const T value = static_cast<T>(std::clamp(std::trunc(double{from[i]}), -kLimit, kLimit));
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

void FillDoubles(double value, size_t count, std::byte* to) {
  for (size_t i = 0; i < count; ++i) std::memcpy(to + i * sizeof(value), &value, sizeof(value));
}

void StoreElements(DType dtype, const float* from, size_t count, std::byte* to) {
  switch (dtype) {
    case DType::kInt32: return FromFloats<int32_t>(from, count, to);
    case DType::kInt64: return FromFloats<int64_t>(from, count, to);
    default: return FromFloat32(dtype, from, count, to);
  }
}

int64_t DenseBytes(const DenseLayout& layout, int64_t rows, int64_t rows_per_stripe) {
  constexpr int64_t kAlignmentSlack = 64;
  int64_t row_bytes = 0;
  for (size_t part = 0; part <= layout.slot_count; ++part) {
    row_bytes += static_cast<int64_t>(layout.part_row_bytes(part));
  }
  const int64_t stripes = (rows + rows_per_stripe - 1) / rows_per_stripe;
  const int64_t per_stripe = static_cast<int64_t>(sizeof(DenseStripe)) +
                             kAlignmentSlack * static_cast<int64_t>(layout.slot_count + 1);
  return rows * row_bytes + stripes * per_stripe;
}

int64_t DenseBytes(const HostedDense& shard, int64_t rows_per_stripe) {
  return DenseBytes(shard.layout(), shard.row_count(), rows_per_stripe);
}

DenseLayout LayoutOf(const VariableSpec& spec, const Optimizer& optimizer) {
  const bool embedding = spec.kind == VariableKind::kEmbedding;
  return {.dtype = spec.dtype,
          .width = embedding ? spec.shape[0] : RowWidth(spec.shape),
          .slot_count = optimizer.slots().size()};
}

int64_t RowsPerStripeOf(const VariableSpec& spec) {
  return RowsPerStripe(static_cast<size_t>(RowWidth(spec.shape)) * DTypeBytes(spec.dtype));
}

int64_t FixedBytesOf(const VariableSpec& spec, int32_t server_index, const DenseLayout& layout,
                     int64_t rows_per_stripe) {
  int64_t bytes = sizeof(Variable);
  if (spec.kind == VariableKind::kEmbedding) {
    const int64_t local = std::ranges::count(spec.bucket_ps, server_index);
    return bytes + HostedTable::FixedBytes(spec.bucket_ps.size(), local);
  }
  for (const DenseShard& shard : spec.shards) {
    if (shard.ps == server_index) bytes += DenseBytes(layout, shard.rows, rows_per_stripe);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Variable>> Variable::Make(uint32_t id, absl::string_view job,
                                                         const VariableSpec& spec,
                                                         int32_t server_index,
                                                         MemoryBudget& budget) {
  return Make(id, job, spec, server_index, RowsPerStripeOf(spec), budget);
}

absl::StatusOr<std::shared_ptr<Variable>> Variable::Make(
    uint32_t id, absl::string_view job, const VariableSpec& spec, int32_t server_index,
    int64_t rows_per_stripe, MemoryBudget& budget, const Variable* rows_of) {
  std::shared_ptr<Variable> variable(new Variable(id, job, spec, budget));
  variable->rows_per_stripe_ = rows_per_stripe;
  if (rows_of != nullptr) {
    variable->optimizer_ = rows_of->optimizer_;
  } else {
    ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer, Optimizer::Create(spec.optimizer));
    SwitchedOptimizer::One first;
    first.push_back(std::move(optimizer));
    variable->optimizer_ = std::make_shared<SwitchedOptimizer>(std::move(first));
  }
  RETURN_IF_ERROR(variable->Allocate(server_index));
  return variable;
}

absl::StatusOr<int64_t> Variable::FixedBytes(const VariableSpec& spec, int32_t server_index) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer, Optimizer::Create(spec.optimizer));
  return FixedBytesOf(spec, server_index, LayoutOf(spec, *optimizer), RowsPerStripeOf(spec));
}

int64_t Variable::fixed_bytes() const {
  int64_t bytes = sizeof(Variable);
  for (const auto& shard : dense_) {
    if (shard != nullptr) bytes += DenseBytes(*shard, rows_per_stripe_);
  }
  if (table_ == nullptr) return bytes;
  return bytes + HostedTable::FixedBytes(table_->bucket_count(), table_->stripe_count());
}

absl::StatusOr<Variable::Kept> Variable::Decode(const VariableRecord& record, int32_t server_index,
                                                int32_t server_count) {
  const std::string who = absl::StrCat("stored variable \"", record.name, "\"");
  uint32_t version = 0;
  uint64_t rows_per_stripe = 0;
  if (record.spec.size() >= kRecordHeaderBytes) {
    std::memcpy(&version, record.spec.data(), sizeof(version));
    std::memcpy(&rows_per_stripe, record.spec.data() + sizeof(version), sizeof(rows_per_stripe));
  }
  const bool moved = version >= kMovedRecordVersion && version <= kCompactRecordVersion;
  if ((version != kRecordVersion && !moved) || rows_per_stripe == 0) {
    return DataLoss(who, ": its record of ", record.spec.size(), " bytes has version ", version,
                    ", this program reads ", kRecordVersion, " to ", kCompactRecordVersion);
  }
  const auto read = [&](absl::string_view bytes) -> absl::StatusOr<VariableSpec> {
    const absl::StatusOr<wire::VariableSpec> kept = SpecFromBytes(bytes);
    if (!kept.ok()) return Annotate(kept.status(), who);
    absl::StatusOr<VariableSpec> spec = FromWire(*kept, server_index, server_count);
    return spec.ok() ? spec : Annotate(spec.status(), who);
  };
  Kept kept{.rows_per_stripe = static_cast<int64_t>(rows_per_stripe)};
  absl::string_view rest = absl::string_view(record.spec).substr(kRecordHeaderBytes);
  if (moved) {
    uint64_t bytes = 0;
    if (rest.size() >= sizeof(bytes)) std::memcpy(&bytes, rest.data(), sizeof(bytes));
    rest.remove_prefix(std::min(rest.size(), sizeof(bytes)));
    if (bytes > rest.size()) {
      return DataLoss(who, ": its record ends inside a map");
    }
    if (bytes > 0) {
      ASSIGN_OR_RETURN(kept.arriving, read(rest.substr(0, bytes)));
    }
    rest.remove_prefix(bytes);
  }
  ASSIGN_OR_RETURN(kept.spec, read(rest));
  return kept;
}

VariableRecord Variable::record(const VariableSpec* arriving) const {
  const bool rules = !(spec_.row_rules == RowRules());
  const bool compact = !(spec_.row_storage == RowStorage());
  const bool moved = compact || rules || arriving != nullptr || spec_.map_version > 1;
  const uint32_t version = compact ? kCompactRecordVersion
                           : rules ? kRulesRecordVersion
                           : moved ? kMovedRecordVersion
                                   : kRecordVersion;
  const uint64_t rows_per_stripe = static_cast<uint64_t>(rows_per_stripe_);
  std::string bytes(kRecordHeaderBytes, '\0');
  std::memcpy(bytes.data(), &version, sizeof(version));
  std::memcpy(bytes.data() + sizeof(version), &rows_per_stripe, sizeof(rows_per_stripe));
  if (moved) {
    const std::string map = arriving == nullptr ? "" : SpecToBytes(ToWire(*arriving));
    const uint64_t map_bytes = map.size();
    bytes.append(reinterpret_cast<const char*>(&map_bytes), sizeof(map_bytes));
    bytes += map;
  }
  bytes += SpecToBytes(ToWire(spec_));
  return {.id = id_, .job = job_, .name = spec_.name, .spec = std::move(bytes)};
}

absl::Status Variable::Allocate(int32_t server_index) {
  const DenseLayout layout = LayoutOf(spec_, *optimizer_);
  width_ = layout.width;
  const int64_t bytes = FixedBytesOf(spec_, server_index, layout, rows_per_stripe_);
  RETURN_IF_ERROR(budget_.Acquire(bytes, absl::StrCat("variable \"", spec_.name, "\"")));
  Charge(bytes);
  if (spec_.kind == VariableKind::kEmbedding) {
    AllocateTable(server_index);
  } else {
    AllocateDense(server_index, layout);
  }
  return absl::OkStatus();
}

void Variable::AllocateDense(int32_t server_index, const DenseLayout& layout) {
  dense_.resize(spec_.shards.size());
  for (size_t i = 0; i < dense_.size(); ++i) {
    const DenseShard& shard = spec_.shards[i];
    if (shard.ps != server_index) continue;
    dense_[i] = std::make_shared<HostedDense>(id_, static_cast<int32_t>(i), layout, shard.first_row,
                                              shard.rows, rows_per_stripe_);
    shards_.push_back(dense_[i].get());
  }
  whole_here_ = dense_.size() == 1 && dense_[0] != nullptr;
}

void Variable::AllocateTable(int32_t server_index) {
  TableLayout layout{.dim = static_cast<size_t>(width_),
                     .optimizer = optimizer_.get(),
                     .initializer = spec_.initializer,
                     .table_hash = HashBytes(spec_.name),
                     .storage = spec_.row_storage};
  const RowRules& rules = spec_.row_rules;
  layout.admit_after_pushes = static_cast<uint32_t>(rules.admit_after_pushes);
  layout.expire_after_seconds = rules.expire_after_seconds;
  layout.deletes_rows = rules.expire_after_seconds > 0 || rules.max_rows > 0;
  for (const SlotSpec& slot : slots()) {
    layout.slot_initial.push_back(static_cast<float>(slot.initial_value));
  }
  table_ = std::make_shared<HostedTable>(id_, std::move(layout), spec_.bucket_ps, server_index);
  table_->KeepAlive(optimizer_);
  if (table_->stripe_count() > 0) shards_.push_back(table_.get());
  whole_here_ = table_->all_buckets_here();
}

std::shared_ptr<Variable> Variable::WithMap(Variable& before, const VariableSpec& spec,
                                            int32_t server_index, Variable* arriving) {
  std::shared_ptr<Variable> variable = Share(before, spec, server_index, arriving);
  before.replaced_.store(true);
  return variable;
}

std::shared_ptr<Variable> Variable::Share(Variable& before, const VariableSpec& spec,
                                          int32_t server_index, Variable* arriving) {
  std::shared_ptr<Variable> variable(new Variable(before.id_, before.job_, spec, before.budget_));
  variable->width_ = before.width_;
  variable->rows_per_stripe_ = before.rows_per_stripe_;
  variable->optimizer_ = before.optimizer_;
  int64_t leaving = 0;
  if (before.table_ != nullptr) {
    HostedTable* const comes = arriving == nullptr ? nullptr : arriving->table_.get();
    variable->table_ = std::make_shared<HostedTable>(*before.table_, spec.bucket_ps, server_index,
                                                     comes, &leaving);
    // The stripe list of `comes` is released as well.
    if (comes != nullptr) leaving += HostedTable::FixedBytes(spec.bucket_ps.size(), 0);
    if (variable->table_->stripe_count() > 0) variable->shards_.push_back(variable->table_.get());
    variable->whole_here_ = variable->table_->all_buckets_here();
  } else {
    variable->dense_.resize(spec.shards.size());
    for (size_t i = 0; i < spec.shards.size(); ++i) {
      const bool here = spec.shards[i].ps == server_index;
      if (!here && before.dense_[i] != nullptr) {
        leaving += DenseBytes(*before.dense_[i], before.rows_per_stripe_);
        before.dense_[i]->HandOver();
      }
      if (!here) continue;
      const bool comes = before.dense_[i] == nullptr && arriving != nullptr;
      variable->dense_[i] = comes ? arriving->dense_[i] : before.dense_[i];
      if (variable->dense_[i] != nullptr) variable->shards_.push_back(variable->dense_[i].get());
    }
    variable->whole_here_ = variable->dense_.size() == 1 && variable->dense_[0] != nullptr;
  }
  if (arriving != nullptr) leaving += sizeof(Variable);  // only the rows of `arriving` stay
  variable->handed_over_version_ = before.handed_over_version_;
  variable->shared_ = before.shared_;
  variable->shared_->charged_bytes.fetch_sub(leaving);
  before.leaving_ = MemoryHold(before.budget_, leaving);
  if (arriving != nullptr) variable->Charge(arriving->shared_->charged_bytes.exchange(0));
  return variable;
}

absl::StatusOr<std::shared_ptr<Variable>> Variable::WithOptimizer(Variable& before,
                                                                  const OptimizerConfig& optimizer,
                                                                  int32_t server_index) {
  ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> next, Optimizer::Create(optimizer));
  VariableSpec spec = before.spec_;
  spec.optimizer = optimizer;
  std::shared_ptr<Variable> variable = Share(before, spec, server_index, nullptr);
  variable->next_optimizer_.push_back(std::move(next));
  return variable;
}

void Variable::Follow(Variable& before) {
  before.replaced_.store(true);
  optimizer_->Switch(std::move(next_optimizer_));
}

absl::Status Variable::WhyNoUpdates(absl::string_view what, int64_t map_version,
                                    int64_t step) const {
  const int64_t until = shared_->held_until_ns.load();
  const bool held = until != 0 && absl::ToInt64Nanoseconds(MonotonicNow()) < until &&
                    (step == 0 || step > shared_->held_through_step.load());
  if (held || replaced_.load()) {
    return BusyError(absl::StrCat(what,
                                  ": its rows are moving to another server, which takes less "
                                  "than a second: send it again"),
                     kHeldRetry);
  }
  if (map_version == 0 || map_version >= handed_over_version_) return absl::OkStatus();
  return MovedError(
      absl::StrCat(what, ": rows have gone to other servers by partition map version ",
                   spec_.map_version, ", and the caller's has version ", map_version,
                   ": send each its part"),
      {ToWire(spec_)});
}

bool Variable::Held(bool for_good) {
  if (shared_->held_through_step.load() != 0) return false;
  int64_t until = shared_->held_until_ns.load();
  while (until != 0 && absl::ToInt64Nanoseconds(MonotonicNow()) < until) {
    if (!for_good) return true;
    if (shared_->held_until_ns.compare_exchange_weak(until, std::numeric_limits<int64_t>::max())) {
      return true;
    }
  }
  return false;
}

HostedDense* Variable::dense(int32_t shard) const {
  return shard >= 0 && static_cast<size_t>(shard) < dense_.size()
             ? dense_[static_cast<size_t>(shard)].get()
             : nullptr;
}

absl::StatusOr<size_t> Variable::PartOf(absl::string_view slot) const {
  if (slot.empty()) return 0;
  std::vector<absl::string_view> names;
  for (size_t s = 0; s < slots().size(); ++s) {
    if (slots()[s].name == slot) return s + 1;
    names.push_back(slots()[s].name);
  }
  return NotFound("optimizer ", spec_.optimizer.type, " has no slot '", slot, "'",
                  DidYouMean(slot, names), "; it has ",
                  names.empty() ? "none" : absl::StrJoin(names, ", "));
}

void Variable::Initialize() {
  for (const auto& shard : dense_) {
    if (shard == nullptr) continue;
    for (uint32_t i = 0; i < shard->stripe_count(); ++i) {
      InitializeStripe(*shard, *shard->stripe(i));
    }
  }
}

void Variable::InitializeStripe(HostedDense& shard, DenseStripe& stripe) {
  if (width_ == 0) return;
  const DenseLayout& layout = shard.layout();
  std::vector<float> floats;
  std::vector<std::byte> bytes;
  const int64_t rows_at_once = std::max<int64_t>(1, kInitializeElements / width_);
  const int64_t first_row = shard.stripe_first_row(stripe.id().stripe);
  for (size_t part = 0; part <= layout.slot_count; ++part) {
    for (int64_t row = 0; row < stripe.rows(); row += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, stripe.rows() - row);
      floats.resize(static_cast<size_t>(rows * width_));
      bytes.resize(static_cast<size_t>(rows) * layout.part_row_bytes(part));
      if (part == 0) {
        InitializeDense(spec_.initializer, spec_.name, spec_.shape, (first_row + row) * width_,
                        absl::MakeSpan(floats));
        StoreElements(layout.dtype, floats.data(), floats.size(), bytes.data());
      } else if (const double initial = slots()[part - 1].initial_value;
                 layout.part_dtype(part) == DType::kFloat64) {
        FillDoubles(initial, floats.size(), bytes.data());
      } else {
        std::ranges::fill(floats, static_cast<float>(initial));
        StoreElements(DType::kFloat32, floats.data(), floats.size(), bytes.data());
      }
      stripe.Write(part, row, rows, bytes.data());
    }
  }
}

}  // namespace cairn
