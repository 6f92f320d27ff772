// Row rules, checkpoints, members, moves and calls of tools.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "ps_server/calls/check_request.h"
#include "ps_server/engine/engine.h"
#include "tests/fuzz/player-inl.h"
#include "tests/fuzz/values.h"
#include "thrift/convert.h"
#include "thrift/limits.h"

namespace cairn::fuzz {
namespace {

// Ages are recorded sixteen times in each lifetime, in whole seconds.
int64_t NotedWithin(int64_t expire_after_seconds) { return expire_after_seconds / 16 + 2; }

}  // namespace

// Compares the rows that one scan of the row rules has left with the rows that it may and must
// delete.
Finding Player::CheckKept(VariableModel& variable) {
  const RowRules& rules = variable.spec.row_rules;
  const int64_t expire = rules.expire_after_seconds;
  const auto buckets = static_cast<uint32_t>(variable.spec.bucket_ps.size());
  std::map<uint32_t, int64_t> before, after;
  std::map<uint32_t, std::set<int64_t>> young;  // may not expire, by bucket
  for (auto& [key, row] : variable.rows) {
    const uint32_t bucket = BucketOfKey(key, buckets);
    ++before[bucket];
    if (expire == 0 || model_.now - row.pushed_at < expire) young[bucket].insert(key);
    if (row.noted_at == 0 && model_.now >= row.pushed_by + NotedWithin(expire)) {
      row.noted_at = model_.now;
    }
  }
  const std::map<int64_t, TableRow> were = variable.rows;
  variable.keys_known = false;
  FUZZ_RETURN_IF(Verify(variable.spec.name));
  for (const auto& [key, row] : variable.rows) {
    if (!were.contains(key)) return Fail("a look of the row rules made a row");
    ++after[BucketOfKey(key, buckets)];
    if (expire > 0 && row.noted_at > 0 && model_.now >= row.noted_at + expire + 2) {
      return Fail("a row outlives expire_after_seconds",
                  absl::StrCat("key ", key, ", pushed ", model_.now - row.pushed_by, " s ago"));
    }
  }
  const int64_t share = rules.max_rows / buckets;
  for (const auto& [bucket, keys] : young) {
    const bool crowded = rules.max_rows > 0 && before[bucket] > share;
    int64_t newest_gone = 0, oldest_kept = kMost64;
    for (const auto& [key, row] : were) {
      if (BucketOfKey(key, buckets) != bucket) continue;
      if (variable.rows.contains(key)) {
        if (row.order > 0) oldest_kept = std::min(oldest_kept, row.order);
      } else {
        newest_gone = std::max(newest_gone, row.order);
        if (!crowded && keys.contains(key)) {
          return Fail("a row was deleted that the rules keep", absl::StrCat("key ", key));
        }
      }
    }
    if (crowded && newest_gone > oldest_kept) {
      return Fail(
          "a newer row was crowded out first",
          absl::StrCat("bucket ", bucket, ": the newest that went is of update ", newest_gone,
                       ", the oldest that stayed of ", oldest_kept, "; now ", model_.ticks));
    }
    if (crowded && expire == 0 && after[bucket] != share - share / 16) {
      return Fail("max_rows leaves another number of rows",
                  absl::StrCat(after[bucket], " of ", before[bucket], ", share ", share));
    }
  }
  return {};
}

Finding Player::Rules(Choices& choices) {
  const int64_t seconds =
      choices.Of<int64_t>({0, 1, 10, 50, 99, 101, 120, 250, 1'000'000, 4'000'000'000});
  // All rows are verified first, so that deleted rows can be recognized.
  FUZZ_RETURN_IF(VerifyAll());
  if (target_.clock() < int64_t{1} << 40) target_.AdvanceClock(seconds);
  model_.now = target_.clock();
  if (trace_ != nullptr) trace_(absl::StrCat("row rules, ", seconds, " s later"));
  const absl::Status kept = target_.engine().KeepRowRules();
  if (!kept.ok()) return Fail("the row rules failed", kept.ToString());
  for (auto& [name, variable] : model_.variables) {
    if (variable.embedding()) FUZZ_RETURN_IF(CheckKept(variable));
  }
  return {};
}

Outcome Player::RestoreOfNothing(Choices& choices) {
  wire::RestoreRequest request;
  request.caller.job = absl::StrCat(job_, "-none");
  wire::RestoreFolder folder;
  folder.path = absl::StrCat(target_.folder(), "/", choices.Of({"none", "", ".."}));
  if (choices.OneIn(2)) request.folders.push_back(folder);
  request.timeline = AnyInt64(choices);
  Trace("restore", request);
  wire::RestoreReply reply;
  return Send("restore", reply, request, &Service::restore);
}

Finding Player::Tools(Choices& choices) {
  wire::Caller caller = Tool();
  if (choices.OneIn(4)) caller = AnyCaller(choices, true);
  wire::ServerState state;
  Outcome outcome;
  bool reaches = true;  // the call reaches the engine
  bool noted = true;    // the call is made as `caller`
  switch (choices.Below(6)) {
    case 0: {
      Trace("members", caller);
      wire::Members members;
      outcome = Send("members", members, caller, &Service::members);
      break;
    }
    case 1: {
      wire::ChangeMembersRequest request;
      request.caller = caller;
      request.action = choices.Of({wire::MembersAction::ADD, wire::MembersAction::REMOVE});
      request.index = choices.Of({1, 0, 2, 1023, 1024, -1});
      request.address = choices.Of({"127.1.1.1:1", "", "host:65536", ":", "127.1.1.1:0"});
      reaches = CheckRequest(request).ok();
      Trace("change_members", request);
      wire::ChangeMembersReply reply;
      outcome = Send("change_members", reply, request, &Service::change_members);
      break;
    }
    case 2: {
      Trace("drain", caller);
      noted = false;
      outcome = Send("drain", state, caller, &Service::drain);
      if (outcome.ok) return Fail("a server without a program drained");
      break;
    }
    case 3: {
      wire::CheckpointRequest request;
      request.caller = caller;
      request.directory = choices.Of({"/nonexistent-of-fuzz", "", "relative", "/"});
      request.name = choices.Of({"x", "", ".", "..", "a/b", "A.b-c_1"});
      reaches = CheckRequest(request).ok();
      Trace("drop_checkpoint", request);
      outcome = Send("drop_checkpoint", state, request, &Service::drop_checkpoint);
      break;
    }
    case 4: {
      noted = false;
      outcome = RestoreOfNothing(choices);
      break;
    }
    default: {
      wire::HelloRequest request;
      request.protocol_version = 1;
      request.job = job_;
      request.worker = -1;
      noted = false;
      Trace("hello", request);
      wire::HelloReply reply;
      outcome = Send("hello", reply, request, &Service::hello);
      if (!outcome.ok) return Fail("a valid call was refused", outcome.error.message);
      break;
    }
  }
  if (reaches && noted && Admits(caller)) NoteCall(caller);
  // Invalid files are not the server's bugs: unreadable files may be reported as lost data.
  if (outcome.Is(wire::ErrorCode::DATA_LOSS)) return {};
  return Insane(outcome);
}

// Begins a move to a server that does not exist, reads some of the rows, and cancels the move.
Finding Player::Moves(Choices& choices) {
  const std::string name = PickVariable(choices);
  const auto found = model_.variables.find(name);
  if (found == model_.variables.end()) return {};
  wire::MoveRequest request;
  request.caller = Tool();
  request.variable = name;
  const VariableSpec& spec = found->second.spec;
  request.map_version = spec.map_version < kMost64 ? spec.map_version + 1 : spec.map_version;
  request.bucket_ps = spec.bucket_ps;
  for (const DenseShard& from : spec.shards) {
    wire::DenseShard shard;
    shard.first_row = from.first_row;
    shard.rows = from.rows;
    shard.ps = from.ps;
    request.shards.push_back(shard);
  }
  request.source = 0;
  request.target = 1;
  request.start = ++moves_;
  for (int32_t& ps : request.bucket_ps) ps = choices.OneIn(2) ? 1 : ps;
  for (wire::DenseShard& shard : request.shards) shard.ps = choices.OneIn(2) ? 1 : shard.ps;
  if (choices.OneIn(5)) request.map_version = AnyInt64(choices);
  if (choices.OneIn(5)) request.max_bytes = choices.Of<int64_t>({kMinMoveBytes, kMaxMoveBytes, 0});
  if (choices.OneIn(8)) request.target = AnyInt32(choices);
  if (choices.OneIn(8)) request.bucket_ps.push_back(AnyInt32(choices));
  std::vector<wire::MoveAction::type> actions = {wire::MoveAction::ABORT,
                                                 wire::MoveAction::PREPARE};
  for (size_t i = choices.Below(4); i > 0; --i) actions.push_back(wire::MoveAction::READ);
  if (choices.OneIn(2)) actions.push_back(wire::MoveAction::HOLD);
  if (choices.OneIn(4)) actions.push_back(wire::MoveAction::READY);
  if (choices.OneIn(4)) actions.push_back(wire::MoveAction::DECIDED);
  if (choices.OneIn(4)) actions.push_back(wire::MoveAction::WRITE);
  actions.push_back(wire::MoveAction::ABORT);
  for (const wire::MoveAction::type action : actions) {
    request.action = action;
    request.hold_seconds = action == wire::MoveAction::HOLD ? 60 : 5;
    request.data = Payload();
    if (action == wire::MoveAction::WRITE) {
      const std::string bytes = AnyBytes(choices, 100);
      request.data = Payload::Copy(bytes.data(), bytes.size());
    }
    Trace("move", request);
    wire::MoveReply reply;
    const Outcome outcome = Send("move", reply, request, &Service::move);
    // Pieces without a sender are not the server's data.
    if (action == wire::MoveAction::WRITE && !outcome.ok) continue;
    FUZZ_RETURN_IF(Insane(outcome));
  }
  return Verify(name);
}

Finding Player::Checkpoint(Choices& choices) {
  FUZZ_RETURN_IF(VerifyAll());
  wire::CheckpointRequest request;
  request.caller = Tool();
  request.directory = absl::StrCat(target_.folder(), "/checkpoints");
  request.name = absl::StrCat(job_, "-", target_.NextNumber());
  Trace("checkpoint", request);
  wire::CheckpointReply reply;
  const Outcome outcome = Send("checkpoint", reply, request, &Service::checkpoint);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) return Fail("a checkpoint failed", outcome.error.message);
  std::set<std::string> names;
  for (const wire::VariableInfo& info : reply.variables) names.insert(info.spec.name);
  if (names.size() != model_.variables.size()) {
    return Fail("a checkpoint has other variables than the job",
                absl::StrCat(names.size(), ", not ", model_.variables.size()));
  }
  for (const wire::CheckpointWorker& worker : reply.workers) {
    const auto known = model_.workers.find(worker.worker);
    if (known == model_.workers.end() || mode_ == Mode::kSync || known->second.murky) continue;
    if (worker.sequence != known->second.applied) {
      return Fail("a checkpoint has another sequence than the one applied");
    }
  }
  // Parts of other servers, which do not exist, would be missing.
  const bool alone =
      std::all_of(model_.variables.begin(), model_.variables.end(), [](const auto& named) {
        const VariableSpec& spec = named.second.spec;
        return std::count(spec.bucket_ps.begin(), spec.bucket_ps.end(), 0) ==
                   std::ssize(spec.bucket_ps) &&
               named.second.shards.size() == spec.shards.size();
      });
  if (alone) FUZZ_RETURN_IF(RestoreFrom(reply));
  if (choices.OneIn(2)) return {};
  wire::ServerState state;
  Trace("drop_checkpoint", request);
  const Outcome dropped = Send("drop_checkpoint", state, request, &Service::drop_checkpoint);
  FUZZ_RETURN_IF(Insane(dropped));
  return dropped.ok ? Finding{} : Fail("a checkpoint cannot be dropped", dropped.error.message);
}

Finding Player::RestoreFrom(const wire::CheckpointReply& written) {
  wire::RestoreRequest request;
  request.caller.job = absl::StrCat(job_, "-restored");
  request.from_job = job_;
  wire::RestoreFolder folder;
  folder.path = written.folder;
  folder.files = written.files;
  request.folders.push_back(folder);
  request.workers = written.workers;
  request.timeline = target_.NextNumber();
  Trace("restore", request.caller);
  wire::RestoreReply reply;
  wire::RestoreRequest verify = request;
  verify.__set_verify_only(true);
  const Outcome verified = Send("restore", reply, verify, &Service::restore);
  FUZZ_RETURN_IF(Insane(verified));
  if (!verified.ok && !model_.variables.empty()) {
    return Fail("a checkpoint could not be verified", verified.error.message);
  }
  const Outcome outcome = Send("restore", reply, request, &Service::restore);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) {
    return model_.variables.empty() ? Finding{} : Fail("a restore failed", outcome.error.message);
  }
  Player restored(target_, request.caller.job, trace_, around_);
  restored.model_ = model_;
  restored.boot_id_ = boot_id_;
  if (Finding found = restored.VerifyAll(); found) {
    found.what = absl::StrCat("restored: ", found.what);
    return found;
  }
  return restored.Drop();
}

}  // namespace cairn::fuzz
