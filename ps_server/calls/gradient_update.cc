#include "ps_server/calls/gradient_update.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/numeric_type.h"
#include "common/optimizer/clip.h"
#include "common/status.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// NaN and infinity are the values whose exponent bits are all set.
bool HalvesFinite(const std::byte* values, size_t count, uint16_t exponent_bits) {
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
    finite &= (bits & exponent_bits) != exponent_bits;
  }
  return finite;
}

// An update whose copies of gradients have more bytes charges the budget for them.
constexpr int64_t kUnchargedCopyBytes = 1 << 20;

template <typename T>
absl::Span<const T> SpanOf(const std::byte* values, size_t count) {
  return {reinterpret_cast<const T*>(values), count};
}

// True where none of `count` elements is NaN or infinite.
bool IsFinite(DType dtype, const std::byte* values, size_t count) {
  switch (dtype) {
    case DType::kFloat32: return AllFinite(SpanOf<float>(values, count));
    case DType::kFloat64: return AllFinite(SpanOf<double>(values, count));
    case DType::kFloat16: return HalvesFinite(values, count, 0x7c00);
    case DType::kBFloat16: return HalvesFinite(values, count, 0x7f80);
    case DType::kInt32:
    case DType::kInt64: return true;
  }
  return true;
}

// The gradient scaled so that its norm is at most `limit`, in `clipped`: Keras' clipnorm.
void ClipNorm(DType dtype, const std::byte* gradient, size_t count, double limit,
              std::vector<std::byte>& clipped) {
  clipped.assign(gradient, gradient + count * DTypeBytes(dtype));
  if (dtype == DType::kFloat64) {
    return ClipByNorm({reinterpret_cast<double*>(clipped.data()), count}, limit);
  }
  if (dtype == DType::kFloat32) {
    return ClipByNorm({reinterpret_cast<float*>(clipped.data()), count}, static_cast<float>(limit));
  }
  std::vector<float> floats(count);
  ToFloat32(dtype, gradient, count, floats.data());
  ClipByNorm(absl::MakeSpan(floats), static_cast<float>(limit));
  FromFloat32(dtype, floats.data(), count, clipped.data());
}

ItemName NameOf(const wire::PushItem& item) {
  return {.call = "push",
          .variable = item.variable,
          .shard = item.shard,
          .selection = item.selection,
          .map_version = item.map_version};
}

absl::Status CheckMovable(absl::string_view server, const ItemName& name,
                          const Variable& variable) {
  if (variable.spec().optimizer.type != "none" && IsFloating(variable.spec().dtype)) {
    return absl::OkStatus();
  }
  return InvalidArgument(ItemText(server, name), ": a ", DTypeName(variable.spec().dtype),
                         " variable with optimizer '", variable.spec().optimizer.type,
                         "' takes no gradients: assign to it, or create it with an optimizer");
}

}  // namespace

absl::Status GradientUpdate::ChargeCopies(const ItemName& name, int64_t bytes) {
  copied_bytes_ += bytes;
  const int64_t uncharged = copied_bytes_ - scratch_.hold_.bytes();
  if (copied_bytes_ <= kUnchargedCopyBytes || uncharged <= 0) return absl::OkStatus();
  RETURN_IF_ERROR(access_.budget.Acquire(
      uncharged, absl::StrCat(ItemText(access_.server, name), ": copies of gradients")));
  if (!scratch_.is_charged()) {
    scratch_.hold_ = MemoryHold(access_.budget, uncharged);
  } else {
    scratch_.hold_.Grow(uncharged);
  }
  return absl::OkStatus();
}

absl::Status GradientUpdate::PrepareGradient(const ItemName& name, ItemScratch& scratch,
                                             PreparedItem& item) {
  const ItemTarget& target = item.target;
  const double limit = target.variable->optimizer().config().clipnorm;
  const bool clip = limit > 0 && target.variable->whole_here();
  const DenseLayout layout{.dtype = target.variable->spec().dtype,
                           .width = target.variable->width()};
  // Keys of a table are summed stripe by stripe, unless clipping needs the norm of the sums first.
  const bool sort = !target.whole && (target.dense != nullptr || clip);
  const int64_t element = static_cast<int64_t>(DTypeBytes(layout.dtype));
  const int64_t elements = target.rows * layout.width;
  if (sort && AreSorted(target.ids)) {
    item.rows = {.ids = target.ids, .gradients = item.gradient};
  } else if (sort) {
    RETURN_IF_ERROR(ChargeCopies(name, elements * element));
    item.rows = SortRows(target.ids, item.gradient, layout, scratch.rows);
  }
  if (clip) {
    const int64_t floats = Is16Bit(layout.dtype) ? static_cast<int64_t>(sizeof(float)) : 0;
    RETURN_IF_ERROR(ChargeCopies(name, elements * (element + floats)));
    const int64_t rows = sort ? static_cast<int64_t>(item.rows.ids.size()) : target.rows;
    ClipNorm(layout.dtype, sort ? item.rows.gradients : item.gradient,
             static_cast<size_t>(rows * layout.width), limit, scratch.clipped);
    item.gradient = item.rows.gradients = scratch.clipped.data();
    if (target.table != nullptr) {
      scratch.groups.Build(item.rows.ids, target.table->bucket_count());
      item.target.groups = &scratch.groups;
      item.target.likely_rows = nullptr;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const std::byte>> GradientUpdate::ValuesOf(const wire::PushItem& item,
                                                                     const ItemName& name,
                                                                     const ItemTarget& target) {
  if (item.format == wire::ValueFormat::PLAIN) {
    RETURN_IF_ERROR(CheckValues(access_.server, name, target, item.dtype, item.values));
    return absl::MakeConstSpan(item.values.data(), item.values.size());
  }
  ASSIGN_OR_RETURN(DecodedValues decoded, Decode(access_.server, access_.budget, name, target,
                                                 {item.dtype, item.format}, item.values));
  return decoded_.emplace_back(std::move(decoded)).bytes();
}

std::vector<absl::Span<const std::byte>> GradientUpdate::values() const {
  std::vector<absl::Span<const std::byte>> values;
  for (const PreparedItem& item : scratch_.prepared_) values.push_back(item.values);
  return values;
}

absl::Status GradientUpdate::Prepare(const VariableMap& variables, size_t i) {
  const wire::PushItem& item = items_[i];
  const ItemName name = NameOf(item);
  ItemScratch& scratch = scratch_.item(i);
  PreparedItem prepared{.pulled_version = item.pulled_version};
  ASSIGN_OR_RETURN(prepared.target, ResolveItem(access_.server, variables, name, item.ids,
                                                scratch.groups, last_pull_));
  RETURN_IF_ERROR(CheckMovable(access_.server, name, *prepared.target.variable));
  if (const Variable& variable = *prepared.target.variable;
      !variable.TakesUpdates(item.map_version)) {
    RETURN_IF_ERROR(variable.WhyNoUpdates(ItemText(access_.server, name), item.map_version, step_));
  }
  ASSIGN_OR_RETURN(prepared.values, ValuesOf(item, name, prepared.target));
  prepared.gradient = prepared.values.data();
  const DType dtype = prepared.target.part_dtype();
  if (!IsFinite(dtype, prepared.gradient, prepared.values.size() / DTypeBytes(dtype))) {
    if (finite_) not_finite_item_ = ItemText(access_.server, name);
    finite_ = false;
    return absl::OkStatus();  // errors of the other items take precedence
  }
  RETURN_IF_ERROR(PrepareGradient(name, scratch, prepared));
  if (prepared.target.table != nullptr) {
    prepared.cold = &scratch.cold;
    prepared.cold->Begin(access_, *prepared.target.variable, *prepared.target.groups);
  }
  scratch_.prepared_.push_back(std::move(prepared));
  return absl::OkStatus();
}

// A stripe applies a sequence once, so a second item of the same shard would be lost.
absl::Status GradientUpdate::CheckDistinct() {
  auto& shards = scratch_.shards_;
  shards.clear();
  for (const PreparedItem& item : scratch_.prepared_) shards.push_back(&item.target.shard());
  std::ranges::sort(shards);
  const auto twice = std::ranges::adjacent_find(shards);
  if (twice == shards.end()) return absl::OkStatus();
  for (const PreparedItem& item : scratch_.prepared_) {
    if (&item.target.shard() != *twice) continue;
    return InvalidArgument("push on ", access_.server, " names shard ", (*twice)->index(), " of \"",
                           item.target.variable->spec().name,
                           "\" twice: give all its rows in one item, repeated ids are summed");
  }
  return absl::OkStatus();
}

// Reserves memory for the rows that this update may create: first as if every row were new, which
// needs no lookup; if that exceeds the budget, for the new rows only. If the table has cold rows,
// the keys are looked up in any case, and their cold rows are read from the disk.
absl::Status GradientUpdate::AcquireRows(MemoryHold& hold) {
  int64_t most = 0;
  bool any_cold = false;
  for (const PreparedItem& item : scratch_.prepared_) {
    if (item.target.table == nullptr) continue;
    any_cold |= item.target.table->cold_rows() > 0;
    most += item.target.rows * item.target.table->layout().row_charge();
  }
  if (most == 0) return absl::OkStatus();
  if (any_cold) {
    std::vector<ColdFetch*> fetches;
    for (const PreparedItem& item : scratch_.prepared_) {
      if (item.cold != nullptr) fetches.push_back(item.cold);
    }
    return FetchRows(access_, fetches, absl::StrCat("push on ", access_.server), hold);
  }
  if (!access_.budget.TryAcquire(most)) {
    most = 0;
    for (const PreparedItem& item : scratch_.prepared_) {
      if (item.target.table == nullptr) continue;
      most += item.target.table->CountAbsent(*item.target.groups) *
              item.target.table->layout().row_charge();
    }
    RETURN_IF_ERROR(access_.budget.Acquire(
        most, absl::StrCat("push on ", access_.server, ": new embedding rows")));
  }
  hold = MemoryHold(access_.budget, most);
  for (const PreparedItem& item : scratch_.prepared_) {
    if (item.cold != nullptr) item.cold->UseHold(hold);
  }
  return absl::OkStatus();
}

bool GradientUpdate::ApplyDense(const PreparedItem& item, const UpdateStep& step,
                                const Origin& origin) {
  const ItemTarget& target = item.target;
  const Optimizer& optimizer = target.variable->optimizer();
  if (target.whole) return target.dense->PushWhole(optimizer, step, origin, item.gradient);
  const bool others_too = target.variable->spec().touched_rows == TouchedRows::kAll &&
                          !optimizer.ZeroGradientIsIdentity();
  return target.dense->PushRows(optimizer, step, origin, item.rows, others_too);
}

absl::Status GradientUpdate::ApplyItem(const PreparedItem& item, const Origin& origin,
                                       MemoryHold& hold, wire::PushReply& reply) {
  const ItemTarget& target = item.target;
  const HostedShard::Update update = target.shard().CountUpdate(origin, item.pulled_version);
  const UpdateStep step = target.variable->optimizer().Begin(update.done_before);
  bool any = update.first;
  counted_ |= update.first;
  if (target.table != nullptr) {
    HostedTable::Changed changed;
    // New rows take memory even if the update fails later.
    const absl::Cleanup charged = [&] {
      if (changed.made > 0) {
        access_.counters.Add("rows_made", changed.made);
        target.variable->Charge(hold.Transfer(changed.made * target.table->layout().row_charge()));
      }
      if (changed.waiting_bytes > 0) {
        access_.budget.Force(changed.waiting_bytes);  // bounded, and the push is applied
        target.variable->Charge(changed.waiting_bytes);
      }
    };
    target.table->Push(step, origin, *target.groups, reinterpret_cast<const float*>(item.gradient),
                       target.likely_rows, scratch_.table_, *item.cold, changed);
    any |= changed.any;
    RETURN_IF_ERROR(item.cold->Failure());
  } else {
    any |= ApplyDense(item, step, origin);
  }
  if (any) reply.repeated = false;
  wire::PushedItem pushed;
  pushed.version = update.version;
  pushed.staleness = update.staleness;
  access_.NoteStaleness(update.staleness);
  reply.items.push_back(pushed);
  return absl::OkStatus();
}

absl::StatusOr<bool> GradientUpdate::PrepareAll(const VariableMap& variables,
                                                wire::PushReply& reply) {
  scratch_.prepared_.clear();
  for (size_t i = 0; i < items_.size(); ++i) RETURN_IF_ERROR(Prepare(variables, i));
  RETURN_IF_ERROR(CheckDistinct());
  reply.items.clear();
  reply.repeated = reply.dropped = false;
  if (finite_) return true;
  access_.counters.Add("not_finite");
  if (access_.not_finite == NotFinitePolicy::kSkip) return false;
  return WithReason(
      InvalidArgument(not_finite_item_,
                      ": the gradient holds NaN or infinity; nothing was applied: lower "
                      "the learning rate, clip, or start the server with "
                      "--not_finite=skip"),
      wire::ErrorReason::NOT_FINITE);
}

void GradientUpdate::FillVersions(const VariableMap& variables, wire::PushReply& reply) const {
  for (const wire::PushItem& item : items_) {
    const Variable& variable = *variables.find(item.variable)->second;
    wire::PushedItem there;
    there.version = variable.table() != nullptr ? variable.table()->version()
                                                : variable.dense(item.shard)->version();
    there.staleness = -1;
    reply.items.push_back(there);
  }
}

absl::StatusOr<bool> GradientUpdate::Check(const VariableMap& variables, wire::PushReply& reply) {
  ASSIGN_OR_RETURN(const bool finite, PrepareAll(variables, reply));
  FillVersions(variables, reply);
  // Staleness is the number of updates since the step began: 0 for a contribution that is in time.
  for (size_t i = 0; i < items_.size() && finite; ++i) {
    const int64_t pulled = items_[i].pulled_version;
    if (pulled < 0) continue;
    reply.items[i].staleness = std::max<int64_t>(0, reply.items[i].version - pulled);
    access_.NoteStaleness(reply.items[i].staleness);
  }
  return finite;
}

TouchedParts GradientUpdate::Touched() const {
  TouchedParts touched{.counted = counted_};
  for (const PreparedItem& item : scratch_.prepared_) item.target.AddStripes(&touched.stripes);
  return touched;
}

absl::Status GradientUpdate::Apply(const VariableMap& variables, const Origin& origin,
                                   wire::PushReply& reply, TouchedParts* touched) {
  ASSIGN_OR_RETURN(const bool finite, PrepareAll(variables, reply));
  if (!finite) {
    FillVersions(variables, reply);
    return absl::OkStatus();
  }
  MemoryHold hold;
  RETURN_IF_ERROR(AcquireRows(hold));
  reply.repeated = origin.worker >= 0 && !scratch_.prepared_.empty();
  CAIRN_CRASH_POINT("push: before it is applied");
  for (const PreparedItem& item : scratch_.prepared_) {
    RETURN_IF_ERROR(ApplyItem(item, origin, hold, reply));
    CAIRN_CRASH_POINT("push: between variables");
  }
  if (reply.repeated) access_.counters.Add("pushes_repeated");
  // If an applied sequence still changed something, stripes had arrived from another server without
  // it. The worker may regard the sequence as durable, so the change must be durable first.
  const bool changed_again = origin.applied && !reply.repeated && !scratch_.prepared_.empty();
  if (touched != nullptr) *touched = Touched();
  return changed_again ? access_.flusher.AwaitDurable(touched != nullptr ? *touched : Touched())
                       : absl::OkStatus();
}

absl::Status ApplyStepMean(const RowAccess& access, const VariableMap& variables,
                           const std::vector<wire::PushItem>& items, const Origin& origin) {
  auto scratch = std::make_unique<UpdateScratch>();
  GradientUpdate update(access, items, origin.sequence, /*last_pull=*/nullptr, *scratch);
  wire::PushReply reply;
  return update.Apply(variables, origin, reply);
}

}  // namespace cairn
