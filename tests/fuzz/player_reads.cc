// Pulls, scans and describe; and the checks of the model's whole state.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/value_format.h"
#include "ps_server/calls/check_request.h"
#include "tests/fuzz/player-inl.h"
#include "tests/fuzz/values.h"
#include "thrift/convert.h"
#include "thrift/limits.h"

namespace cairn::fuzz {
namespace {

std::string BytesOf(const Payload& payload) {
  return std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
}

std::string FirstDifference(const std::string& found, const std::string& expected, DType dtype) {
  const auto number = static_cast<int32_t>(dtype);
  return absl::StrCat("found ", NumbersText(Payload::View(found.data(), found.size()), number),
                      ", expected ",
                      NumbersText(Payload::View(expected.data(), expected.size()), number));
}

}  // namespace

wire::PullItem Player::AnyPullItem(Choices& choices, bool may_be_odd) {
  wire::PullItem item;
  FillTarget(choices, /*repeats=*/true, item);
  const auto found = model_.variables.find(item.variable);
  if (found == model_.variables.end()) return item;
  const VariableModel& variable = found->second;
  if (!variable.slots.empty() && choices.OneIn(3)) item.slot = choices.Of(variable.slots);
  if (choices.OneIn(6)) item.format = static_cast<wire::ValueFormat::type>(choices.Of({1, 2, 3}));
  if (may_be_odd && choices.OneIn(40)) {
    item.format = static_cast<wire::ValueFormat::type>(choices.Of({4, 5, -1, kMost32}));
  }
  if (may_be_odd && choices.OneIn(40)) item.slot = AnyBytes(choices, kMaxSlotNameBytes);
  return item;
}

Finding Player::CheckPulled(const wire::PullItem& item, const Resolved& resolved,
                            const wire::PulledItem& pulled) {
  VariableModel& variable = *resolved.variable;
  const size_t row_bytes = variable.part_row_bytes(resolved.part);
  if (pulled.version != variable.version_of(item.shard)) {
    return Fail("a pull names another version than the one pushed",
                absl::StrCat(pulled.version, ", not ", variable.version_of(item.shard)));
  }
  if (pulled.format != item.format) return Fail("a pull is answered in another format");
  const bool whole = item.selection == wire::Selection::WHOLE;
  const DenseModel* const dense = variable.embedding() ? nullptr : &variable.shards.at(item.shard);
  std::string bytes = BytesOf(pulled.values);
  if (item.format != wire::ValueFormat::PLAIN) {
    const size_t expected =
        EncodedBytes(static_cast<ValueFormat>(item.format), resolved.rows, variable.width);
    if (bytes.size() == expected) return {};
    return Fail("a pull has another size", absl::StrCat(bytes.size(), ", not ", expected));
  }
  if (bytes.size() != static_cast<size_t>(resolved.rows) * row_bytes) {
    return Fail("a pull has another size", absl::StrCat(bytes.size(), " bytes"));
  }
  if (row_bytes == 0) return {};  // there may be 2^53 rows without elements
  for (int64_t i = 0; i < resolved.rows; ++i) {
    const std::string row = bytes.substr(static_cast<size_t>(i) * row_bytes, row_bytes);
    std::string expected;
    if (dense != nullptr) {
      const auto at =
          static_cast<size_t>(whole ? i : resolved.ids[static_cast<size_t>(i)] - dense->first_row);
      if (dense->stale[at]) continue;
      expected = dense->parts[resolved.part].substr(at * row_bytes, row_bytes);
    } else {
      const int64_t key = resolved.ids[static_cast<size_t>(i)];
      const auto found = variable.rows.find(key);
      if (!variable.keys_known || !(variable.spec.row_storage == RowStorage())) continue;
      if (found == variable.rows.end()) {
        if (resolved.part > 0) continue;
        expected = variable.initial(key, 0);
      } else if (found->second.stale) {
        continue;
      } else {
        expected = found->second.parts[resolved.part];
      }
    }
    if (row != expected) {
      return Fail(
          "a pull has other values than were pushed",
          absl::StrCat("row ", i, ": ", FirstDifference(row, expected, variable.spec.dtype)));
    }
  }
  return {};
}

Finding Player::Pull(Choices& choices) {
  wire::PullRequest request;
  request.caller = AnyCaller(choices, /*may_be_odd=*/true);
  request.wait_seconds = 1e-6;
  if (choices.OneIn(60)) request.wait_seconds = AnyDouble(choices);
  const size_t count = choices.Of<size_t>({1, 2, 0, 4});
  for (size_t i = 0; i < count; ++i) request.items.push_back(AnyPullItem(choices, true));
  if (mode_ == Mode::kSsp && request.caller.worker >= 0 && choices.OneIn(2)) {
    const auto clock = clocks_.find(request.caller.worker);
    request.step = clock == clocks_.end() ? 1 : std::max<int64_t>(clock->second + 1, 1);
    // The other workers never arrive while this call waits; a wait that no server accepts fails at
    // once.
    if (request.wait_seconds > 1e-6 && request.wait_seconds <= kMaxWaitSeconds) {
      request.wait_seconds = 1e-6;
    }
  }
  const bool admitted = Admits(request.caller) && CheckRequest(request).ok();
  bool valid = admitted;
  bool unsure = request.step != 0;
  std::vector<Resolved> resolved;
  for (const wire::PullItem& item : request.items) {
    resolved.push_back(model_.ResolvePull(item));
    valid &= resolved.back().verdict != Verdict::kRefused;
    unsure |= resolved.back().verdict == Verdict::kUnsure;
  }
  if (admitted) NoteCall(request.caller);
  Trace("pull", request);
  wire::PullReply reply;
  const Outcome outcome = Send("pull", reply, request, &Service::pull);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) {
    if (valid && !unsure) return Fail("a valid pull was refused", outcome.error.message);
    // The step is announced before the call waits, and before its items are checked.
    if (request.step > 0 && admitted) Announce(request.caller.worker, request.step);
    return {};
  }
  if (!valid) return Fail("an invalid pull was answered");
  FUZZ_RETURN_IF(CheckState(request.caller, reply.state));
  if (request.step > 0) {
    const int64_t bound = consistency_.staleness_bound_steps;
    Announce(request.caller.worker, request.step);
    for (const auto& [worker, clock] : clocks_) {
      if (clock >= 0 && !left_.contains(worker) && request.step > bound &&
          clock < request.step - bound) {
        return Fail("ssp let a worker run ahead", absl::StrCat("worker ", worker, " is at ", clock,
                                                               ", this one at ", request.step));
      }
    }
  }
  if (reply.items.size() != request.items.size()) return Fail("a pull has not its items");
  for (size_t i = 0; i < request.items.size(); ++i) {
    FUZZ_RETURN_IF(CheckPulled(request.items[i], resolved[i], reply.items[i]));
  }
  return {};
}

// A worker that keeps a copy of a shard and pulls only the changes.
Finding Player::PullHeld(Choices& choices) {
  const std::string name = PickVariable(choices);
  const auto found = model_.variables.find(name);
  if (found == model_.variables.end() || found->second.shards.empty()) return Pull(choices);
  VariableModel& variable = found->second;
  auto shard = variable.shards.begin();
  std::advance(shard, choices.Below(variable.shards.size()));
  Held& held = held_[{name, shard->first}];
  wire::PullRequest request;
  request.caller = Tool();
  wire::PullItem item;
  item.variable = name;
  item.shard = shard->first;
  item.__set_held(held.copy);
  const bool foreign = choices.OneIn(20);
  if (foreign) {
    item.held.boot_id = choices.OneIn(2) ? boot_id_ : std::max<int64_t>(0, AnyInt64(choices));
    item.held.mark = std::max<int64_t>(0, AnyInt64(choices));
  }
  request.items = {item};
  item.__isset.held = false;
  request.items.push_back(item);
  Trace("pull", request);
  wire::PullReply reply;
  const Outcome outcome = Send("pull", reply, request, &Service::pull);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) return Fail("a valid pull was refused", outcome.error.message);
  if (reply.items.size() != 2) return Fail("a pull has not its items");
  const wire::PulledItem& changes = reply.items[0];
  const std::string whole = BytesOf(reply.items[1].values);
  if (!changes.__isset.mark || changes.mark <= 0) return Fail("a held copy has no mark");
  const size_t row_bytes = variable.part_row_bytes(0);
  const std::string bytes = BytesOf(changes.values);
  if (foreign && changes.__isset.changed) return {};  // of a copy that does not exist
  if (!changes.__isset.changed) {
    held.bytes = bytes;
  } else {
    size_t at = 0;
    for (size_t i = 0; i + 1 < changes.changed.size(); i += 2) {
      // Row numbers are relative to the variable; the copy has only the shard's rows.
      const int64_t first = changes.changed[i] - shard->second.first_row;
      const int64_t count = changes.changed[i + 1];
      if (first < 0 || count < 1 || first > shard->second.rows - count) {
        return Fail("changed rows lie outside the shard");
      }
      const size_t size = static_cast<size_t>(count) * row_bytes;
      if (bytes.size() - at < size) return Fail("changed rows have no values");
      held.bytes.replace(static_cast<size_t>(first) * row_bytes, size, bytes, at, size);
      at += size;
    }
    if (at != bytes.size()) return Fail("values of no changed row");
  }
  held.copy.boot_id = boot_id_;
  held.copy.mark = changes.mark;
  if (held.bytes != whole) {
    return Fail("a held copy misses a change",
                FirstDifference(held.bytes, whole, variable.spec.dtype));
  }
  return {};
}

Finding Player::Scan(Choices& choices) {
  wire::ScanRequest request;
  request.caller = AnyCaller(choices, true);
  request.variable = PickVariable(choices);
  request.max_rows = choices.Of({4096, 1, 65536, 2});
  const auto found = model_.variables.find(request.variable);
  if (found != model_.variables.end() && found->second.embedding()) {
    if (!choices.OneIn(6)) return Verify(request.variable, choices.Of({65536, 7, 40}));
    if (!found->second.slots.empty()) request.slot = found->second.slots[0];
  }
  request.cursor = AnyBytes(choices, 13);
  if (choices.OneIn(10)) request.max_rows = AnyInt32(choices);
  if (choices.OneIn(10)) request.map_version = AnyInt64(choices);
  if (Admits(request.caller) && CheckRequest(request).ok()) NoteCall(request.caller);
  Trace("scan", request);
  wire::ScanReply reply;
  const Outcome outcome = Send("scan", reply, request, &Service::scan);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) return {};
  const bool valid = found != model_.variables.end() && found->second.embedding() &&
                     request.max_rows >= 1 && request.max_rows <= kMaxScanRows;
  if (!valid) return Fail("an invalid scan was answered");
  const auto keys = static_cast<int64_t>(reply.keys.size() / sizeof(int64_t));
  if (keys > request.max_rows) return Fail("a scan has more rows than were asked for");
  return {};
}

Finding Player::Describe(Choices& choices) {
  wire::DescribeRequest request;
  request.caller = AnyCaller(choices, true);
  request.with_server = choices.OneIn(8);
  request.with_uses = choices.OneIn(2);
  const bool named = choices.OneIn(4);
  if (named) request.variables.push_back(PickVariable(choices));
  const bool admitted = Admits(request.caller) && CheckRequest(request).ok();
  if (admitted) NoteCall(request.caller);
  Trace("describe", request);
  wire::DescribeReply reply;
  const Outcome outcome = Send("describe", reply, request, &Service::describe);
  FUZZ_RETURN_IF(Insane(outcome));
  const bool known = !named || model_.variables.contains(request.variables[0]);
  if (!outcome.ok) {
    if (admitted && known) return Fail("a valid describe was refused", outcome.error.message);
    return {};
  }
  if (!admitted || !known) return Fail("an invalid describe was answered");
  if (reply.variables.size() != (named ? 1 : model_.variables.size())) {
    return Fail("describe has other variables than were made",
                absl::StrCat(reply.variables.size(), ", not ", model_.variables.size()));
  }
  for (const wire::VariableInfo& info : reply.variables) {
    const auto found = model_.variables.find(info.spec.name);
    if (found == model_.variables.end()) return Fail("describe has a variable of no name made");
    VariableModel& variable = found->second;
    if (!(info.spec == ToWire(variable.spec))) {
      return Fail("describe has another spec than was made", TextOf(info.spec));
    }
    if (info.slots != variable.slots) return Fail("describe has other slots");
    for (const wire::ShardInfo& shard : info.shards) {
      if (shard.version != variable.version_of(shard.shard)) {
        return Fail("describe counts other updates than there were");
      }
    }
  }
  return {};
}

Finding Player::Verify(const std::string& name, int32_t max_rows) {
  const auto found = model_.variables.find(name);
  if (found == model_.variables.end()) return {};
  return found->second.embedding() ? VerifyTable(found->second, max_rows)
                                   : VerifyDense(found->second);
}

Finding Player::VerifyAll() {
  for (const auto& [name, variable] : model_.variables) FUZZ_RETURN_IF(Verify(name));
  return {};
}

Finding Player::VerifyDense(VariableModel& variable) {
  for (auto& [index, shard] : variable.shards) {
    wire::PullRequest request;
    request.caller = Tool();
    for (size_t part = 0; part <= variable.slots.size(); ++part) {
      wire::PullItem item;
      item.variable = variable.spec.name;
      item.shard = index;
      if (part > 0) item.slot = variable.slots[part - 1];
      request.items.push_back(item);
    }
    wire::PullReply reply;
    const Outcome outcome = Send("pull", reply, request, &Service::pull);
    FUZZ_RETURN_IF(Insane(outcome));
    if (!outcome.ok) return Fail("a variable cannot be read", outcome.error.message);
    if (reply.items.size() != request.items.size()) return Fail("a pull has not its items");
    for (size_t part = 0; part < reply.items.size(); ++part) {
      Resolved resolved{.variable = &variable, .part = part, .rows = shard.rows};
      FUZZ_RETURN_IF(CheckPulled(request.items[part], resolved, reply.items[part]));
      shard.parts[part] = BytesOf(reply.items[part].values);
    }
    shard.stale.assign(shard.stale.size(), false);
  }
  return {};
}

Finding Player::VerifyTable(VariableModel& variable, int32_t max_rows) {
  const auto rows = static_cast<int32_t>(variable.rows.size());
  std::map<int64_t, std::vector<std::string>> found;
  for (size_t part = 0; part <= variable.slots.size(); ++part) {
    wire::ScanRequest request;
    request.caller = Tool();
    request.variable = variable.spec.name;
    if (part > 0) request.slot = variable.slots[part - 1];
    request.max_rows = std::max(max_rows, 1 + rows / 8);
    const size_t row_bytes = variable.part_row_bytes(part);
    for (int replies = 0; replies == 0 || !request.cursor.empty(); ++replies) {
      if (replies > 100) return Fail("a scan does not end");
      wire::ScanReply reply;
      const Outcome outcome = Send("scan", reply, request, &Service::scan);
      FUZZ_RETURN_IF(Insane(outcome));
      if (!outcome.ok) return Fail("a table cannot be read", outcome.error.message);
      const std::string keys = BytesOf(reply.keys), values = BytesOf(reply.values);
      const size_t count = keys.size() / sizeof(int64_t);
      if (values.size() != count * row_bytes) return Fail("a scan has rows without values");
      for (size_t i = 0; i < count; ++i) {
        int64_t key = 0;
        std::memcpy(&key, keys.data() + i * sizeof(key), sizeof(key));
        std::vector<std::string>& parts = found[key];
        if (parts.size() != part) return Fail("a scan has a row twice, or none");
        parts.push_back(values.substr(i * row_bytes, row_bytes));
      }
      request.cursor = reply.cursor;
    }
  }
  for (auto& [key, parts] : found) {
    const auto row = variable.rows.find(key);
    if (row == variable.rows.end()) {
      if (!variable.keys_known) {
        variable.rows[key] = {.parts = parts, .stale = false, .pushed_by = model_.now};
        continue;
      }
      return Fail("a table has a row that was not pushed", absl::StrCat("key ", key));
    }
    for (size_t part = 0; part < parts.size() && !row->second.stale; ++part) {
      if (parts[part] == row->second.parts[part]) continue;
      return Fail(
          "a row has other values than were pushed",
          absl::StrCat("key ", key, " part ", part, ": ",
                       FirstDifference(parts[part], row->second.parts[part], variable.spec.dtype)));
    }
    row->second.parts = parts;
    row->second.stale = false;
  }
  for (auto row = variable.rows.begin(); row != variable.rows.end();) {
    if (found.contains(row->first)) {
      ++row;
    } else if (variable.keys_known) {
      return Fail("a table misses a row that was pushed", absl::StrCat("key ", row->first));
    } else {
      row = variable.rows.erase(row);
    }
  }
  variable.keys_known = true;
  return {};
}

}  // namespace cairn::fuzz
