#include "ps_server/calls/check_request.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

absl::Status Beyond(absl::string_view field, int64_t found, absl::string_view unit, int64_t limit,
                    absl::string_view limit_name) {
  return WithReason(InvalidArgument("field ", field, " has ", found, " ", unit, "; at most ", limit,
                                    " are allowed (", limit_name, ")"),
                    wire::ErrorReason::LIMIT);
}

absl::Status CheckLength(absl::string_view field, const std::string& text, int64_t limit,
                         absl::string_view limit_name) {
  const auto bytes = static_cast<int64_t>(text.size());
  return bytes <= limit ? absl::OkStatus() : Beyond(field, bytes, "bytes", limit, limit_name);
}

// Checks text of a caller that appears in logs, errors and tools, or names a path.
absl::Status CheckText(absl::string_view field, const std::string& text, int64_t limit,
                       absl::string_view limit_name) {
  RETURN_IF_ERROR(CheckLength(field, text, limit, limit_name));
  const std::string control = FirstControlOf(text);
  if (control.empty()) return absl::OkStatus();
  return InvalidArgument("field ", field, " has the control character ", control,
                         "; it is text of one line without any");
}

absl::Status CheckItemCount(absl::string_view field, size_t count) {
  const auto found = static_cast<int64_t>(count);
  return found <= kMaxItemsPerCall
             ? absl::OkStatus()
             : Beyond(field, found, "entries", kMaxItemsPerCall, "kMaxItemsPerCall");
}

absl::Status CheckNamedOnce(absl::string_view field, const std::vector<std::string>& names) {
  std::vector<absl::string_view> sorted(names.begin(), names.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice == sorted.end()) return absl::OkStatus();
  return InvalidArgument("field ", field, " names \"", *twice,
                         "\" twice; each variable is named once at most: leave out the repeat");
}

absl::Status CheckAtLeast(absl::string_view field, int64_t found, int64_t least) {
  if (found >= least) return absl::OkStatus();
  return InvalidArgument("field ", field, " is ", found, "; the least is ", least);
}

absl::Status CheckRange(absl::string_view field, int64_t found, int64_t least, int64_t most,
                        absl::string_view limit_name) {
  if (found >= least && found <= most) return absl::OkStatus();
  return InvalidArgument("field ", field, " is ", found, "; ", least, " to ", most, " (",
                         limit_name, ") are allowed");
}

absl::Status CheckIncarnation(absl::string_view field, int64_t found, int64_t least) {
  return CheckRange(field, found, least, kMaxIncarnation, "kMaxIncarnation");
}

absl::Status CheckRows(absl::string_view field, int64_t found, int64_t least) {
  return CheckRange(field, found, least, kMaxContributionRows, "kMaxContributionRows");
}

// Checks a step, a sequence, or a count of steps or rows with which servers calculate.
absl::Status CheckStep(absl::string_view field, int64_t found, int64_t least) {
  return CheckRange(field, found, least, kMaxStep, "kMaxStep");
}

// The bytes of a name: letters, digits and the characters in `marks`.
class NameBytes {
 public:
  explicit constexpr NameBytes(absl::string_view marks) : marks_(marks) {
    for (int c = '0'; c <= '9'; ++c) allowed_[c] = true;
    for (int c = 'A'; c <= 'Z'; ++c) allowed_[c] = allowed_[c - 'A' + 'a'] = true;
    for (const char c : marks) allowed_[static_cast<uint8_t>(c)] = true;
  }
  constexpr bool Allow(char c) const { return allowed_[static_cast<uint8_t>(c)]; }
  constexpr absl::string_view marks() const { return marks_; }

 private:
  absl::string_view marks_;
  std::array<bool, 256> allowed_ = {};
};

constexpr NameBytes kJobNameBytes("_.-");
constexpr NameBytes kVariableNameBytes("_./-");

absl::Status CheckName(absl::string_view field, const std::string& name, int64_t limit,
                       absl::string_view limit_name, const NameBytes& bytes) {
  RETURN_IF_ERROR(CheckLength(field, name, limit, limit_name));
  if (name.empty()) return InvalidArgument("field ", field, " is empty");
  for (const char c : name) {
    if (bytes.Allow(c)) continue;
    return InvalidArgument("field ", field, " has the byte ",
                           static_cast<int>(static_cast<uint8_t>(c)), "; letters, digits and ",
                           bytes.marks(), " are allowed");
  }
  return absl::OkStatus();
}

absl::Status CheckJob(absl::string_view field, const std::string& job) {
  return CheckName(field, job, kMaxJobNameBytes, "kMaxJobNameBytes", kJobNameBytes);
}

absl::Status CheckVariable(absl::string_view field, const std::string& name) {
  return CheckName(field, name, kMaxVariableNameBytes, "kMaxVariableNameBytes", kVariableNameBytes);
}

// Checks the fields that items of a push, an assign and a pull share. Adds the number of the item's
// ids to `total_ids`.
template <typename Item>
absl::Status CheckTarget(const Item& item, int64_t& total_ids) {
  RETURN_IF_ERROR(CheckVariable("variable", item.variable));
  RETURN_IF_ERROR(CheckAtLeast("shard", item.shard, 0));
  const auto selection = static_cast<int32_t>(item.selection);
  if (selection < wire::Selection::WHOLE || selection > wire::Selection::KEYS) {
    return InvalidArgument("field selection is ", selection,
                           "; it is 1 (WHOLE), 2 (ROWS) or 3 (KEYS)");
  }
  if (selection == wire::Selection::WHOLE && !item.ids.empty()) {
    return InvalidArgument("field ids has ", item.ids.size(),
                           " bytes; with selection WHOLE there are none");
  }
  if (item.ids.size() % sizeof(int64_t) != 0) {
    return InvalidArgument("field ids has ", item.ids.size(),
                           " bytes, no multiple of 8: ids are int64");
  }
  total_ids += static_cast<int64_t>(item.ids.size() / sizeof(int64_t));
  if (total_ids > kMaxIdsPerCall) {
    return Beyond("ids", total_ids, "entries, items together", kMaxIdsPerCall, "kMaxIdsPerCall");
  }
  return absl::OkStatus();
}

template <typename Item>
absl::Status CheckDType(const Item& item) {
  const auto dtype = static_cast<int32_t>(item.dtype);
  if (dtype >= wire::DType::FLOAT32 && dtype <= wire::DType::INT64) return absl::OkStatus();
  return InvalidArgument("field dtype is ", dtype, "; dtypes are 1 (float32) … 6 (int64)");
}

absl::Status CheckItem(const wire::PushItem& item, int64_t& total_ids) {
  RETURN_IF_ERROR(CheckTarget(item, total_ids));
  return CheckDType(item);
}

absl::Status CheckSlot(const std::string& slot) {
  return CheckText("slot", slot, kMaxSlotNameBytes, "kMaxSlotNameBytes");
}

absl::Status CheckItem(const wire::AssignItem& item, int64_t& total_ids) {
  RETURN_IF_ERROR(CheckTarget(item, total_ids));
  RETURN_IF_ERROR(CheckDType(item));
  if (item.__isset.updates) RETURN_IF_ERROR(CheckStep("updates", item.updates, 0));
  return CheckSlot(item.slot);
}

absl::Status CheckItem(const wire::PullItem& item, int64_t& total_ids) {
  RETURN_IF_ERROR(CheckTarget(item, total_ids));
  RETURN_IF_ERROR(CheckSlot(item.slot));
  if (!item.__isset.held) return absl::OkStatus();
  RETURN_IF_ERROR(CheckAtLeast("held.boot_id", item.held.boot_id, 0));
  RETURN_IF_ERROR(CheckAtLeast("held.mark", item.held.mark, 0));
  if (item.selection == wire::Selection::WHOLE && item.slot.empty()) return absl::OkStatus();
  return InvalidArgument("field held is for selection WHOLE (1) of the value, found ",
                         item.slot.empty()
                             ? absl::StrCat("selection ", static_cast<int32_t>(item.selection))
                             : absl::StrCat("slot \"", item.slot, "\""),
                         ": leave it out");
}

template <typename Item>
absl::Status CheckItems(const std::vector<Item>& items) {
  RETURN_IF_ERROR(CheckItemCount("items", items.size()));
  int64_t total_ids = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const absl::Status status = CheckItem(items[i], total_ids);
    if (!status.ok()) return Annotate(status, absl::StrCat("items[", i, "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const wire::AssignRequest& request) {
  if (request.caller.worker < 0) {
    return absl::InvalidArgumentError(
        "field together is for workers, whose updates have a sequence; this caller has none");
  }
  for (size_t i = 0; i < request.items.size(); ++i) {
    const auto selection = static_cast<int32_t>(request.items[i].selection);
    if (selection == wire::Selection::WHOLE) continue;
    return InvalidArgument("items[", i, "]: field selection is ", selection,
                           "; with together it is 1 (WHOLE): assign rows by another call");
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const wire::Sequence& sequence) {
  RETURN_IF_ERROR(CheckStep("sequence.sequence", sequence.sequence, 0));
  RETURN_IF_ERROR(CheckStep("sequence.after", sequence.after, 0));
  return CheckLength("sequence.position", sequence.position, kMaxPositionBytes,
                     "kMaxPositionBytes");
}

absl::Status CheckDecisions(const std::vector<wire::StepDecision>& decisions) {
  const auto count = static_cast<int64_t>(decisions.size());
  if (count > kMaxDecisionsPerCall) {
    return Beyond("decisions", count, "entries", kMaxDecisionsPerCall, "kMaxDecisionsPerCall");
  }
  int64_t contributions = 0, before = 0;
  for (const wire::StepDecision& decision : decisions) {
    RETURN_IF_ERROR(CheckStep("decisions.step", decision.step, 1));
    if (decision.step <= before) {
      return InvalidArgument("field decisions.step is ", decision.step, " after ", before,
                             "; steps ascend");
    }
    before = decision.step;
    contributions += static_cast<int64_t>(decision.contributions.size());
    for (const wire::Contribution& named : decision.contributions) {
      RETURN_IF_ERROR(CheckAtLeast("contributions.worker", named.worker, 0));
      RETURN_IF_ERROR(CheckIncarnation("contributions.incarnation", named.incarnation, 1));
      RETURN_IF_ERROR(CheckStep("contributions.sequence", named.sequence, 1));
      RETURN_IF_ERROR(CheckRows("contributions.rows", named.rows, 1));
    }
  }
  if (contributions <= kMaxContributionsPerCall) return absl::OkStatus();
  return Beyond("decisions", contributions, "contributions", kMaxContributionsPerCall,
                "kMaxContributionsPerCall");
}

}  // namespace

absl::Status CheckRequest(const wire::HelloRequest& request) {
  RETURN_IF_ERROR(CheckJob("job", request.job));
  RETURN_IF_ERROR(
      CheckText("task_type", request.task_type, kMaxTaskTypeBytes, "kMaxTaskTypeBytes"));
  RETURN_IF_ERROR(CheckText("origin", request.origin, kMaxOriginBytes, "kMaxOriginBytes"));
  RETURN_IF_ERROR(CheckText("host_id", request.host_id, kMaxOriginBytes, "kMaxOriginBytes"));
  RETURN_IF_ERROR(CheckAtLeast("worker", request.worker, -1));
  RETURN_IF_ERROR(CheckIncarnation("incarnation", request.incarnation, 0));
  RETURN_IF_ERROR(CheckStep("step", request.step, -1));
  RETURN_IF_ERROR(CheckStep("begins_after_step", request.begins_after_step, 0));
  return CheckAtLeast("expected_workers", request.expected_workers, 0);
}

absl::Status CheckRequest(const wire::Caller& caller) {
  RETURN_IF_ERROR(CheckJob("caller.job", caller.job));
  RETURN_IF_ERROR(CheckAtLeast("caller.worker", caller.worker, -1));
  RETURN_IF_ERROR(CheckIncarnation("caller.incarnation", caller.incarnation, 0));
  RETURN_IF_ERROR(CheckAtLeast("caller.boot_id", caller.boot_id, 0));
  RETURN_IF_ERROR(CheckStep("caller.through", caller.through, 0));
  if (!caller.__isset.vitals) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckText("vitals.task", caller.vitals.task, kMaxTaskTypeBytes, "kMaxTaskTypeBytes"));
  RETURN_IF_ERROR(CheckStep("vitals.steps", caller.vitals.steps, 0));
  RETURN_IF_ERROR(CheckStep("vitals.examples", caller.vitals.examples, 0));
  for (const auto& [name, servers] :
       {std::pair("vitals.servers_gone", &caller.vitals.servers_gone),
        std::pair("vitals.servers_replaced", &caller.vitals.servers_replaced)}) {
    const auto count = static_cast<int64_t>(servers->size());
    if (count <= kMaxGoneServers) continue;
    return Beyond(name, count, "entries", kMaxGoneServers, "kMaxGoneServers");
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const std::vector<wire::VariableSpec>& specs) {
  RETURN_IF_ERROR(CheckItemCount("specs", specs.size()));
  for (size_t i = 0; i < specs.size(); ++i) {
    RETURN_IF_ERROR(CheckVariable(absl::StrCat("specs[", i, "].name"), specs[i].name));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const wire::PushRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckSequence(request.sequence));
  RETURN_IF_ERROR(CheckStep("step", request.step, 0));
  RETURN_IF_ERROR(CheckRows("rows", request.rows, request.step > 0 ? 1 : 0));
  RETURN_IF_ERROR(CheckDecisions(request.decisions));
  return CheckItems(request.items);
}

absl::Status CheckRequest(const wire::AssignRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckSequence(request.sequence));
  RETURN_IF_ERROR(CheckItems(request.items));
  return request.together ? CheckTogether(request) : absl::OkStatus();
}

absl::Status CheckRequest(const wire::PullRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckStep("step", request.step, -1));
  if (!(request.wait_seconds > 0 && request.wait_seconds <= kMaxWaitSeconds)) {
    return InvalidArgument("field wait_seconds is ", request.wait_seconds,
                           "; it is above 0 and at most ", kMaxWaitSeconds, " (kMaxWaitSeconds)");
  }
  RETURN_IF_ERROR(CheckStep("decisions_after", request.decisions_after, -1));
  RETURN_IF_ERROR(CheckStep("all_durable_step", request.all_durable_step, 0));
  RETURN_IF_ERROR(CheckDecisions(request.decisions));
  return CheckItems(request.items);
}

absl::Status CheckRequest(const wire::StepRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.push));
  return CheckRequest(request.pull);
}

absl::Status CheckRequest(const wire::DescribeRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckItemCount("variables", request.variables.size()));
  for (const std::string& name : request.variables) {
    RETURN_IF_ERROR(CheckVariable("variables", name));
  }
  return CheckNamedOnce("variables", request.variables);
}

absl::Status CheckRequest(const wire::ScanRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckVariable("variable", request.variable));
  RETURN_IF_ERROR(CheckSlot(request.slot));
  RETURN_IF_ERROR(CheckAtLeast("max_rows", request.max_rows, 1));
  if (request.max_rows <= kMaxScanRows) return absl::OkStatus();
  return Beyond("max_rows", request.max_rows, "rows", kMaxScanRows, "kMaxScanRows");
}

absl::Status CheckRequest(const wire::CheckpointRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckText("directory", request.directory, kMaxPathBytes, "kMaxPathBytes"));
  return CheckName("name", request.name, kMaxCheckpointNameBytes, "kMaxCheckpointNameBytes",
                   kJobNameBytes);
}

absl::Status CheckRequest(const wire::RestoreRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckItemCount("folders", request.folders.size()));
  for (const wire::RestoreFolder& folder : request.folders) {
    RETURN_IF_ERROR(CheckText("path", folder.path, kMaxPathBytes, "kMaxPathBytes"));
    for (const wire::CheckpointFile& file : folder.files) {
      RETURN_IF_ERROR(CheckText("files.name", file.name, kMaxPathBytes, "kMaxPathBytes"));
      RETURN_IF_ERROR(CheckAtLeast("files.bytes", file.bytes, 0));
    }
  }
  for (const wire::CheckpointWorker& worker : request.workers) {
    RETURN_IF_ERROR(
        CheckLength("position", worker.position, kMaxPositionBytes, "kMaxPositionBytes"));
    RETURN_IF_ERROR(CheckAtLeast("worker", worker.worker, 0));
    RETURN_IF_ERROR(CheckIncarnation("workers.incarnation", worker.incarnation, 0));
    RETURN_IF_ERROR(CheckStep("workers.sequence", worker.sequence, 0));
  }
  if (!request.from_job.empty()) return CheckJob("from_job", request.from_job);
  return absl::OkStatus();
}

absl::Status CheckRequest(const wire::MoveRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  RETURN_IF_ERROR(CheckVariable("variable", request.variable));
  const auto action = static_cast<int32_t>(request.action);
  if (action < wire::MoveAction::PREPARE || action > wire::MoveAction::DECIDED) {
    return InvalidArgument("field action is ", action, "; it is 1 (PREPARE) … 8 (DECIDED)");
  }
  RETURN_IF_ERROR(CheckAtLeast("map_version", request.map_version, 2));
  RETURN_IF_ERROR(CheckAtLeast("source", request.source, 0));
  RETURN_IF_ERROR(CheckAtLeast("target", request.target, 0));
  RETURN_IF_ERROR(CheckItemCount("shards", request.shards.size()));
  RETURN_IF_ERROR(CheckStep("step", request.step, 0));
  RETURN_IF_ERROR(CheckAtLeast("max_bytes", request.max_bytes, 1));  // PeerService requires more
  if (request.max_bytes > kMaxMoveBytes) {
    return Beyond("max_bytes", request.max_bytes, "bytes", kMaxMoveBytes, "kMaxMoveBytes");
  }
  if (request.hold_seconds > 0 && request.hold_seconds <= kMaxHoldSeconds) return absl::OkStatus();
  return InvalidArgument("field hold_seconds is ", request.hold_seconds,
                         "; it is above 0 and at most ", kMaxHoldSeconds, " (kMaxHoldSeconds)");
}

absl::Status CheckRequest(const wire::ChangeMembersRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request.caller));
  const auto action = static_cast<int32_t>(request.action);
  if (action < wire::MembersAction::ADD || action > wire::MembersAction::REMOVE) {
    return InvalidArgument("field action is ", action, "; it is 1 (ADD) … 3 (REMOVE)");
  }
  RETURN_IF_ERROR(CheckAtLeast("index", request.index, 0));
  if (request.index >= kMaxServers) {
    return Beyond("index", request.index, "servers", kMaxServers - 1, "kMaxServers - 1");
  }
  for (const wire::LastWord& word : request.last_words) {
    RETURN_IF_ERROR(CheckIncarnation("last_words.incarnation", word.incarnation, 0));
    RETURN_IF_ERROR(CheckStep("last_words.applied", word.applied, 0));
  }
  return CheckText("address", request.address, kMaxAddressBytes, "kMaxAddressBytes");
}

}  // namespace cairn
