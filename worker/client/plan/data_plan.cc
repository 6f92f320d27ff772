#include "worker/client/plan/data_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "worker/client/plan/value_coding.h"

namespace cairn {
namespace {

// Bytes on the wire of an item without its name, ids and values, and of a message without its
// items; generous upper bounds.
constexpr int64_t kItemBytes = 256;
constexpr int64_t kMessageBytes = 8 << 10;
// Scratch memory that an idle plan keeps.
constexpr size_t kKeptScratchBytes = size_t{64} << 20;

wire::Selection::type SelectionOf(Part part) {
  switch (part) {
    case Part::kWhole: return wire::Selection::WHOLE;
    case Part::kRows: return wire::Selection::ROWS;
    case Part::kKeys: return wire::Selection::KEYS;
  }
  return wire::Selection::WHOLE;
}

// The next unused item of a list whose items are reused between calls.
template <typename Item>
Item& Next(std::vector<Item>& items, size_t used) {
  if (used == items.size()) items.emplace_back();
  return items[used];
}

template <typename Item>
void FillItem(const ClientVariable& variable, size_t group, Part part,
              absl::Span<const int64_t> ids, Item* item) {
  item->variable = variable.spec().name;
  item->shard = variable.groups()[group].shard;
  item->selection = SelectionOf(part);
  item->map_version = variable.spec().map_version;
  item->ids = Payload::ViewOf(ids);
}

}  // namespace

DataPlan::DataPlan(const ServerTable& sessions, const PlanLimits& limits)
    : sessions_(sessions), limits_(limits) {
  Reset();
}

void DataPlan::Reset() {
  variables_.clear();
  repeats_.clear();
  clipped_.clear();
  used_ = sorted_used_ = encoded_used_ = 0;
  bytes_out_ = bytes_in_ = 0;
  contribution_step_ = contribution_rows_ = 0;
  together_ = false;
  first_.assign(sessions_.size(), nullptr);
  current_.assign(sessions_.size(), nullptr);
  waves_.clear();
  wave_ends_.clear();
  size_t bytes = index_.bytes();
  for (const Sorted& sorted : sorted_) bytes += sorted.bytes();
  for (const auto& encoded : encoded_) bytes += encoded.bytes();
  if (bytes <= kKeptScratchBytes) return;
  index_ = KeyIndex();
  sorted_.clear();
  encoded_.clear();
}

// Makes room for a server that joined after the plan was begun.
void DataPlan::Reach(int32_t server) {
  const auto index = static_cast<size_t>(server);
  if (index < first_.size()) return;
  first_.resize(index + 1, nullptr);
  current_.resize(index + 1, nullptr);
}

DataPlan::Slot& DataPlan::NewSlot(int32_t server, size_t wave) {
  if (used_ == slots_.size()) slots_.emplace_back();
  Slot& slot = slots_[used_++];
  slot.session = &sessions_[server];
  slot.repeatable = true;
  slot.sent = slot.done = false;
  slot.call.targets.clear();
  slot.call.step = 0;
  slot.call.request.push.step = slot.call.request.push.rows = 0;
  slot.call.request.push.replaces = false;
  slot.call.request.push.decisions.clear();
  slot.call.request.pull.step = slot.call.request.pull.all_durable_step = 0;
  slot.call.request.pull.decisions.clear();
  slot.call.request.pull.decisions_after = -1;
  slot.wave = wave;
  slot.pushes = slot.assigns = 0;
  slot.destinations.clear();
  slot.out_bytes = slot.in_bytes = kMessageBytes;
  slot.ids = 0;
  current_[server] = &slot;
  return slot;
}

DataPlan::Slot& DataPlan::FirstSlot(int32_t server) {
  Reach(server);
  if (first_[server] == nullptr) first_[server] = &NewSlot(server, 0);
  return *first_[server];
}

void DataPlan::ContributeToAll(int64_t step, int64_t rows) {
  contribution_step_ = step;
  contribution_rows_ = rows;
  sessions_.ForEachLive([&](const ServerSession& session) { FirstSlot(session.index()); });
}

void DataPlan::PullFromAll(int64_t step) {
  sessions_.ForEachLive(
      [&](const ServerSession& session) { FirstSlot(session.index()).call.step = step; });
}

absl::Status DataPlan::CheckPart(const ClientVariable& variable, Part part,
                                 absl::Span<const int64_t> ids, size_t value_bytes,
                                 absl::string_view what) const {
  const std::string& name = variable.spec().name;
  if (variable.embedding() != (part == Part::kKeys)) {
    return absl::InvalidArgumentError(
        variable.embedding()
            ? absl::StrCat(what, " \"", name, "\": an embedding table is named by keys")
            : absl::StrCat(what, " \"", name,
                           "\": a dense variable is named whole or by rows, not by keys"));
  }
  if (part == Part::kWhole && !ids.empty()) {
    return InvalidArgument(what, " \"", name, "\": ", ids.size(),
                           " ids given for the whole variable");
  }
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument(what, " \"", name, "\": ", ids.size(),
                           " ids in one call; 2^31 - 1 allowed");
  }
  const size_t rows = part == Part::kWhole ? static_cast<size_t>(variable.rows()) : ids.size();
  if (value_bytes != rows * variable.row_bytes()) {
    return InvalidArgument(what, " \"", name, "\" (", DTypeName(variable.spec().dtype), " ",
                           ShapeText(variable.spec().shape), "): ", value_bytes, " bytes given; ",
                           rows, " rows of ", variable.row_bytes(), " bytes are ",
                           rows * variable.row_bytes());
  }
  if (part != Part::kRows) return absl::OkStatus();
  // Converted to unsigned, negative ids are too large as well. The loop has no exit, so that the
  // compiler vectorizes it.
  uint64_t largest = 0;
  for (const int64_t id : ids) largest = std::max(largest, static_cast<uint64_t>(id));
  if (ids.empty() || largest < static_cast<uint64_t>(variable.rows())) return absl::OkStatus();
  const auto bad =
      std::ranges::find_if(ids, [&](int64_t id) { return id < 0 || id >= variable.rows(); });
  return InvalidArgument(what, " \"", name, "\": ids[", bad - ids.begin(), "] is row ", *bad,
                         ", outside [0, ", variable.rows(), ")");
}

int64_t DataPlan::WidthOf(const ClientVariable& variable) {
  return static_cast<int64_t>(variable.row_bytes() / sizeof(float));
}

size_t DataPlan::BytesOf(const PullDestination& destination, int64_t rows) {
  return destination.format == ValueFormat::kPlain
             ? static_cast<size_t>(rows) * destination.variable->row_bytes()
             : EncodedBytes(destination.format, rows, WidthOf(*destination.variable));
}

ScratchArray<std::byte>& DataPlan::NextScratch() {
  if (encoded_used_ == encoded_.size()) encoded_.emplace_back();
  return encoded_[encoded_used_++];
}

absl::Span<const std::byte> DataPlan::Encode(const RequestItem& entry) {
  // Do not derive the rows from the bytes: rows of a shape such as [3, 0] have none.
  const int64_t rows = entry.part == Part::kWhole ? entry.variable->groups()[entry.group].rows
                                                  : static_cast<int64_t>(entry.ids.size());
  const PushCoding coding{entry.format, entry.kept_fraction, rows, WidthOf(*entry.variable)};
  const auto* const values = reinterpret_cast<const float*>(entry.values.data());
  const size_t bytes = TravelBytes(coding);
  std::byte* const out = NextScratch().Get(bytes);
  if (entry.residual.empty()) {
    EncodePush(coding, values, out);
  } else {
    auto* const sums = reinterpret_cast<float*>(NextScratch().Get(entry.values.size()));
    EncodeWithFeedback(coding, values, entry.residual, sums, out);
  }
  return {out, bytes};
}

absl::Status DataPlan::AddPush(ClientVariablePtr held, const PushSource& source) {
  const ClientVariable& variable = *variables_.emplace_back(std::move(held));
  if (!source.slot.empty()) {
    return InvalidArgument("push \"", variable.spec().name, "\" names slot \"", source.slot,
                           "\": gradients go to the value; slots are set by assign");
  }
  RETURN_IF_ERROR(CheckPushFormat(variable.spec(), source));
  if (!NeedsClipping(variable)) return AddUpdate(variable, source, /*assign=*/false);
  RETURN_IF_ERROR(CheckPart(variable, source.part, source.ids, source.values.size(), "push"));
  const ClippedPush& clipped = clipped_.emplace_back(ClipPush(variable.spec(), source, index_));
  PushSource scaled = source;
  scaled.ids = clipped.ids;
  scaled.values = clipped.values;
  return AddUpdate(variable, scaled, /*assign=*/false);
}

absl::Status DataPlan::AddAssign(ClientVariablePtr held, const PushSource& source) {
  const ClientVariable& variable = *variables_.emplace_back(std::move(held));
  return AddUpdate(variable, source, /*assign=*/true);
}

absl::Status DataPlan::AddUpdate(const ClientVariable& variable, const PushSource& source,
                                 bool assign) {
  const absl::string_view what = assign ? "assign" : "push";
  RETURN_IF_ERROR(CheckPart(variable, source.part, source.ids, source.values.size(), what));
  RETURN_IF_ERROR(CheckRepeats(variable, source.combine_repeats, what));
  const bool combines = source.combine_repeats && !assign;
  const absl::Span<const ClientVariableGroup> groups = variable.groups();
  RequestItem entry{&variable, 0, source.part, source.ids, source.values, source.slot};
  if (!assign) {
    entry.format = source.format;
    entry.kept_fraction = source.kept_fraction;
    entry.residual = source.residual;
  } else {
    entry.updates = source.updates;
  }
  if (source.part == Part::kWhole) {
    for (entry.group = 0; entry.group < groups.size(); ++entry.group) {
      const ClientVariableGroup& group = groups[entry.group];
      entry.values = source.values.subspan(group.first_row * variable.row_bytes(),
                                           group.rows * variable.row_bytes());
      if (!source.residual.empty()) {
        const size_t width = variable.row_bytes() / sizeof(float);
        entry.residual = source.residual.subspan(group.first_row * width, group.rows * width);
      }
      RETURN_IF_ERROR(PutUpdate(entry, assign));
    }
    return absl::OkStatus();
  }
  if (groups.size() == 1 && !combines) {
    return assign && source.ids.empty() ? absl::OkStatus() : PutUpdate(entry, assign);
  }
  ASSIGN_OR_RETURN(Sorted * sorted, Sort(variable, source.ids, combines));
  const std::byte* const rows = SortValues(variable, source, combines, *sorted);
  for (entry.group = 0; entry.group < groups.size(); ++entry.group) {
    const int64_t start = sorted->starts[entry.group];
    const size_t count = sorted->starts[entry.group + 1] - start;
    // A push counts as an update of the variable on every server, even on servers where it touches
    // no row.
    if (assign && count == 0) continue;
    entry.ids = absl::MakeConstSpan(sorted->ids.Get(0) + start, count);
    entry.values =
        absl::MakeConstSpan(rows + start * variable.row_bytes(), count * variable.row_bytes());
    RETURN_IF_ERROR(PutUpdate(entry, assign));
  }
  return absl::OkStatus();
}

absl::Status DataPlan::PutUpdate(const RequestItem& entry, bool assign) {
  Slot& slot = FirstSlot(entry.variable->groups()[entry.group].server);
  const absl::Span<const std::byte> values =
      entry.format == ValueFormat::kPlain ? entry.values : Encode(entry);
  const int64_t payload = values.size() + entry.ids.size() * sizeof(int64_t);
  slot.out_bytes += payload + entry.variable->spec().name.size() + kItemBytes;
  slot.ids += entry.ids.size();
  bytes_out_ += payload;
  const auto dtype = static_cast<wire::DType::type>(entry.variable->spec().dtype);
  if (assign) {
    wire::AssignItem& item = Next(slot.call.assign.items, slot.assigns++);
    FillItem(*entry.variable, entry.group, entry.part, entry.ids, &item);
    item.dtype = dtype;
    item.values = Payload::ViewOf(entry.values);
    item.slot.assign(entry.slot.data(), entry.slot.size());
    item.__isset.updates = entry.updates >= 0;
    item.updates = entry.updates;
  } else {
    wire::PushItem& item = Next(slot.call.request.push.items, slot.pushes++);
    FillItem(*entry.variable, entry.group, entry.part, entry.ids, &item);
    item.dtype = dtype;
    item.format = ToWire(entry.format);
    item.values = Payload::ViewOf(values);
    item.pulled_version = entry.variable->pulled_version(entry.group);
  }
  // A push is one message per server, so it cannot be divided further.
  const int64_t items = static_cast<int64_t>(slot.pushes + slot.assigns);
  if (slot.out_bytes <= limits_.max_message_bytes() && slot.ids <= limits_.max_ids &&
      items <= limits_.max_items && payload <= kMaxPayloadBytes) {
    return absl::OkStatus();
  }
  return WithReason(
      ResourceExhausted(assign ? "assign" : "push", " of \"", entry.variable->spec().name,
                        "\": the part for ", slot.session->name(), " has ", slot.out_bytes,
                        " bytes, ", slot.ids, " ids and ", items, " items; one message takes ",
                        limits_.max_message_bytes(), " bytes (--max_message_bytes), ",
                        limits_.max_ids, " ids and ", limits_.max_items,
                        " items: use several calls, or more shards"),
      wire::ErrorReason::LIMIT);
}

absl::Status DataPlan::CheckHeld(const ClientVariable& variable, const PullTarget& target) const {
  if (target.held == nullptr || (target.part == Part::kWhole && target.slot.empty())) {
    return absl::OkStatus();
  }
  return InvalidArgument("pull \"", variable.spec().name,
                         "\": held is for the value of the whole variable, and this is ",
                         target.slot.empty() ? std::string("some rows of it")
                                             : absl::StrCat("slot \"", target.slot, "\""),
                         ": leave it out");
}

absl::Status DataPlan::AddPull(ClientVariablePtr held, const PullTarget& target) {
  const ClientVariable& variable = *variables_.emplace_back(std::move(held));
  RETURN_IF_ERROR(CheckPart(variable, target.part, target.ids, target.out.size(), "pull"));
  RETURN_IF_ERROR(CheckRepeats(variable, target.combine_repeats, "pull"));
  RETURN_IF_ERROR(CheckPullFormat(variable.spec(), target));
  RETURN_IF_ERROR(CheckHeld(variable, target));
  const absl::Span<const ClientVariableGroup> groups = variable.groups();
  const size_t row_bytes = variable.row_bytes();
  RequestItem entry{&variable, 0, target.part, target.ids, {}, target.slot};
  PullDestination destination{.variable = &variable,
                              .value = target.slot.empty(),
                              .format = target.format,
                              .out = target.out.data(),
                              .updates = target.updates};
  if (target.part == Part::kWhole) {
    if (target.updates != nullptr) *target.updates = std::numeric_limits<int64_t>::max();
    if (target.held != nullptr) {
      target.held->Begin(target.out.data(), groups.size(), target.format);
    }
    for (entry.group = 0; entry.group < groups.size(); ++entry.group) {
      if (target.held != nullptr) destination.held = &target.held->shards_[entry.group];
      destination.group = entry.group;
      destination.rows = groups[entry.group].rows;
      destination.out = target.out.data() + groups[entry.group].first_row * row_bytes;
      // A shard without rows has no values, but counts updates.
      if (destination.rows == 0 && target.updates == nullptr) continue;
      RETURN_IF_ERROR(PutPullItem(entry, destination, destination.out));
    }
    return absl::OkStatus();
  }
  if (target.ids.empty()) return absl::OkStatus();
  if (groups.size() == 1 && !target.combine_repeats)
    return PutPull(entry, destination, destination.out);
  ASSIGN_OR_RETURN(Sorted * sorted, Sort(variable, target.ids, target.combine_repeats));
  const auto count = static_cast<size_t>(sorted->starts.back());
  std::byte* const rows = sorted->rows.Get(count * row_bytes);
  if (target.combine_repeats) repeats_.push_back({sorted, target.out, row_bytes});
  for (entry.group = 0; entry.group < groups.size(); ++entry.group) {
    const int64_t start = sorted->starts[entry.group];
    entry.ids =
        absl::MakeConstSpan(sorted->ids.Get(0) + start, sorted->starts[entry.group + 1] - start);
    destination.group = entry.group;
    if (target.combine_repeats) {
      destination.out = rows + start * row_bytes;
    } else {
      destination.order = sorted->order.Get(0) + start;
    }
    RETURN_IF_ERROR(PutPull(entry, destination, rows + start * row_bytes));
  }
  return absl::OkStatus();
}

// Divides the ids where a message would become too large.
absl::Status DataPlan::PutPull(const RequestItem& entry, PullDestination destination,
                               std::byte* target) {
  const size_t row_bytes = entry.variable->row_bytes();
  const int64_t room = std::min(limits_.max_message_bytes() - 2 * kMessageBytes, kMaxPayloadBytes);
  const int64_t bytes_per_id = std::max(row_bytes, sizeof(int64_t));
  const size_t most = std::clamp<int64_t>(room / bytes_per_id, 1, limits_.max_ids);
  RequestItem rest = entry;
  for (size_t done = 0; done < entry.ids.size(); done += most) {
    rest.ids = entry.ids.subspan(done, most);
    destination.rows = static_cast<int64_t>(rest.ids.size());
    RETURN_IF_ERROR(PutPullItem(rest, destination, target + done * row_bytes));
    if (destination.order != nullptr) {
      destination.order += rest.ids.size();
    } else {
      destination.out += rest.ids.size() * row_bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status DataPlan::PutPullItem(const RequestItem& entry, const PullDestination& destination,
                                   std::byte* target) {
  const int32_t server = entry.variable->groups()[entry.group].server;
  const int64_t values = static_cast<int64_t>(BytesOf(destination, destination.rows));
  const int64_t ids = static_cast<int64_t>(entry.ids.size());
  const int64_t named = static_cast<int64_t>(entry.variable->spec().name.size()) + kItemBytes;
  if (values + named + kMessageBytes > limits_.max_message_bytes() || values > kMaxPayloadBytes) {
    return WithReason(
        ResourceExhausted("pull of \"", entry.variable->spec().name, "\": shard ",
                          entry.variable->groups()[entry.group].shard, " has ", values,
                          " bytes; one message takes ", limits_.max_message_bytes(),
                          " (--max_message_bytes): use more shards"),
        wire::ErrorReason::LIMIT);
  }
  Reach(server);
  Slot* slot = current_[server];
  if (slot == nullptr) {
    slot = &FirstSlot(server);
  } else if (slot->in_bytes + values + named > limits_.max_message_bytes() ||
             slot->out_bytes + ids * 8 + named > limits_.max_message_bytes() ||
             slot->ids + ids > limits_.max_ids ||
             static_cast<int64_t>(slot->destinations.size()) >= limits_.max_items) {
    slot = &NewSlot(server, slot->wave + 1);
  }
  wire::PullItem& item = Next(slot->call.request.pull.items, slot->destinations.size());
  FillItem(*entry.variable, entry.group, entry.part, entry.ids, &item);
  item.slot.assign(entry.slot.data(), entry.slot.size());
  item.format = ToWire(destination.format);
  slot->destinations.push_back(destination);
  item.__isset.held = destination.held != nullptr;
  if (destination.held != nullptr) {
    item.held.boot_id = destination.held->boot_id;
    item.held.mark = destination.held->mark;
    slot->destinations.back().may_be_changes = destination.held->mark > 0;
    *destination.held = {};
  }
  if (destination.format != ValueFormat::kPlain) {
    slot->destinations.back().decoded = target;
    target = NextScratch().Get(static_cast<size_t>(values));
  }
  slot->call.targets.push_back(absl::MakeSpan(target, values));
  slot->in_bytes += values + named;
  slot->out_bytes += ids * 8 + named;
  slot->ids += ids;
  bytes_in_ += values;
  return absl::OkStatus();
}

void DataPlan::BeginStep(int64_t step, bool everywhere) {
  if (everywhere) {
    sessions_.ForEachLive([&](const ServerSession& session) { FirstSlot(session.index()); });
  }
  for (Slot* const slot : first_) {
    if (slot == nullptr || (slot->destinations.empty() && !everywhere)) continue;
    slot->call.request.pull.step = step;
  }
}

void DataPlan::Finish() {
  size_t waves = 0;
  for (size_t i = 0; i < used_; ++i) {
    Slot& slot = slots_[i];
    DataCall& call = slot.call;
    call.request.push.items.resize(slot.pushes);
    call.assign.items.resize(slot.assigns);
    call.assign.__isset.together = call.assign.together = together_;
    call.request.pull.items.resize(slot.destinations.size());
    const bool pulls = !slot.destinations.empty() || call.request.pull.step != 0;
    call.kind = slot.assigns > 0           ? CallKind::kAssign
                : slot.pushes > 0 && pulls ? CallKind::kStep
                : slot.pushes > 0          ? CallKind::kPush
                                           : CallKind::kPull;
    if (contribution_step_ > 0) {
      call.kind = CallKind::kPush;
      call.request.push.step = contribution_step_;
      call.request.push.rows = contribution_rows_;
    }
    waves = std::max(waves, slot.wave + 1);
  }
  for (size_t wave = 0; wave < waves; ++wave) {
    for (size_t i = 0; i < used_; ++i) {
      if (slots_[i].wave == wave) waves_.push_back(&slots_[i]);
    }
    wave_ends_.push_back(waves_.size());
  }
}

size_t DataPlan::WaveCount() {
  if (wave_ends_.empty()) Finish();
  return wave_ends_.size();
}

absl::Span<Exchange* const> DataPlan::Wave(size_t wave) {
  const size_t begin = wave == 0 ? 0 : wave_ends_[wave - 1];
  return absl::MakeConstSpan(waves_).subspan(begin, wave_ends_[wave] - begin);
}

}  // namespace cairn
