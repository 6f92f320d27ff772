#include "ps_server/calls/calls.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/variables/variable_map.h"
#include "ps_server/calls/map_changes.h"
#include "ps_server/core/reply_holds.h"
#include "ps_server/moves/arriving_rows.h"
#include "ps_server/moves/outgoing_rows.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

constexpr absl::Duration kCaughtUpRetry = absl::Milliseconds(50);
// A READ returns at most 1/kReadShare of the memory budget, or kMinReadBytes if that is more.
constexpr int64_t kReadShare = 32;
constexpr int64_t kMinReadBytes = 64 << 10;

class Moving {
 public:
  Moving(JobCatalog& catalog, Moves& moves, Admission& admission, const RowAccess& rows,
         const Admitted& admitted, const wire::MoveRequest& request)
      : catalog_(catalog),
        moves_(moves),
        admission_(admission),
        rows_(rows),
        admitted_(admitted),
        request_(request),
        here_(catalog.info().index()),
        text_(absl::StrCat("move of \"", request.variable, "\" of job ", request.caller.job,
                           " from ps:", request.source, " to ps:", request.target)) {}

  absl::Status Run(wire::MoveReply& reply);

 private:
  absl::Status CheckMap(const VariableSpec& map) const;
  absl::Status Prepare(wire::MoveReply& reply);
  absl::Status Read(wire::MoveReply& reply);
  absl::Status Write();
  absl::Status Hold(wire::MoveReply& reply);
  // Holds the variable between two steps of a synchronous job. False: steps that have begun here
  // have not all closed yet; contributions to later steps are rejected in the meantime. The caller
  // holds move.mutex.
  absl::StatusOr<bool> Drained(Move& move, absl::Duration until);
  // Whether the job is synchronous. A job that was synchronous and has no live workers counts too,
  // because its workers may return.
  bool synchronous() const {
    const Cohort& cohort = admitted_.job->cohort();
    return admitted_.job->steps().active() &&
           (cohort.settings().mode == ConsistencyMode::kSync || !cohort.any_live());
  }
  // BUSY names a worker that has not resent yet what this server lost in a restart.
  absl::Status CheckCaughtUp();
  absl::Status Ready();
  absl::Status Commit();
  absl::Status HandOver(Move& move);
  absl::Status Learn();
  absl::Status Abort();
  // Whether this mover is the newest (Moves::Claim). Superseded returns the error for a mover that
  // is not.
  bool HasClaim() const;
  absl::Status Superseded() const;
  absl::Status AbortArriving(Move& move);
  absl::Status Discard(Move& move);
  // Removes the rows of `move` from the disk; the variable keeps its map. FAILED_PRECONDITION: the
  // variable or the move has changed since this step looked at it.
  absl::Status RemoveArrived(const Move& move);
  // Whether the job's variable is variable_.
  bool IsCurrent() const;
  void Refresh();
  // kFailedPrecondition: the move's map is already installed here. Calls Refresh first.
  absl::Status CheckNotTaken();
  // Each worker's last sequence, and its incarnation in place of a sequence; by worker.
  std::vector<Watermark> Numbers() const;
  std::vector<Watermark> Incarnations() const;
  // Raises the workers' incarnations here to those of the source, so that workers fenced there are
  // fenced here too.
  absl::Status Fence(const std::vector<Watermark>& incarnations);
  // The move of this request; `outgoing`: on its source, else on its target. kFailedPrecondition:
  // this server has no such move.
  absl::StatusOr<std::shared_ptr<Move>> FindMove(bool outgoing) const;

  JobCatalog& catalog_;
  Moves& moves_;
  Admission& admission_;
  const RowAccess& rows_;
  const Admitted& admitted_;
  const wire::MoveRequest& request_;
  const int32_t here_;
  const std::string text_;
  std::shared_ptr<Variable> variable_;
  VariableSpec map_;
};

absl::Status Moving::CheckMap(const VariableSpec& map) const {
  const VariableSpec& now = variable_->spec();
  RETURN_IF_ERROR(ValidateSpec(map, catalog_.info().max_servers()));
  if (!SameButPlaces(now, map)) return absl::InvalidArgumentError("the map changes the pieces");
  if (map.map_version != now.map_version + 1) {
    return FailedPrecondition("its map has version ", now.map_version, " here, not ",
                              map.map_version - 1);
  }
  const std::vector<int32_t> before = PlacesOf(now), after = PlacesOf(map);
  int64_t moved = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    if (before[i] != request_.source || after[i] != request_.target) {
      return InvalidArgument("piece ", i, " goes from ps:", before[i], " to ps:", after[i],
                             ": all pieces of one move have the same source and target");
    }
    ++moved;
  }
  if (moved == 0) return absl::InvalidArgumentError("the map moves no piece");
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Move>> Moving::FindMove(bool outgoing) const {
  std::shared_ptr<Move> move = moves_.Find(request_.caller.job, request_.variable);
  if (move == nullptr || (move->outgoing != nullptr) != outgoing || !(move->map == map_) ||
      move->start != request_.start) {
    return FailedPrecondition("no such move has begun here (", rows_.server,
                              " may have been restarted since): begin with PREPARE");
  }
  moves_.RenewClaim(request_.caller.job, request_.variable, request_.start);
  return move;
}

absl::Status Moving::RemoveArrived(const Move& move) {
  bool current = true;
  const std::vector<StripeId> ids = move.arriving->ids();
  RETURN_IF_ERROR(catalog_.WriteRecord(*admitted_.job, [&]() -> absl::Status {
    current = IsCurrent() && moves_.Find(request_.caller.job, request_.variable).get() == &move;
    return current ? catalog_.store().PutMap(variable_->record(), {}, ids) : absl::OkStatus();
  }));
  return current ? absl::OkStatus() : Superseded();
}

bool Moving::IsCurrent() const {
  const auto variables = admitted_.job->variables();
  const auto found = variables->find(request_.variable);
  return found != variables->end() && found->second == variable_;
}

absl::Status Moving::Prepare(wire::MoveReply& reply) {
  RETURN_IF_ERROR(CheckMap(map_));
  if (!HasClaim()) return Superseded();
  const std::shared_ptr<Move> before = moves_.Find(request_.caller.job, request_.variable);
  if (before != nullptr) {
    const TracedLock lock = moves_.Lock(*before);
    if (before->ready && !before->ended) {
      return FailedPrecondition(
          "rows have arrived here by another move that has not ended: COMMIT it if its source has "
          "committed it, else ABORT it");
    }
    before->ended = true;
    before->FreePieces();
  }
  std::shared_ptr<Move> move;
  if (here_ == request_.target) RETURN_IF_ERROR(catalog_.CheckStays());
  if (here_ == request_.source) {
    if (before != nullptr && before->outgoing != nullptr) variable_->Hold(absl::ZeroDuration());
    auto rows = std::make_unique<OutgoingRows>(variable_, map_, request_.target);
    reply.stripes = rows->stripes();
    reply.rows = rows->rows();
    reply.bytes_left = rows->bytes();
    move = std::make_shared<Move>(map_, request_.start, std::move(rows), nullptr);
  } else {
    ASSIGN_OR_RETURN(std::unique_ptr<ArrivingRows> rows,
                     ArrivingRows::Make(*variable_, map_, here_, rows_.budget));
    reply.stripes = static_cast<int64_t>(rows->ids().size());
    move = std::make_shared<Move>(map_, request_.start, nullptr, std::move(rows));
  }
  if (!moves_.Put(request_.caller.job, request_.variable, move)) {
    return moves_.arrivals_closed()
               ? FailedPrecondition("this server is about to leave the cluster")
               : Superseded();
  }
  if (move->arriving == nullptr) return absl::OkStatus();
  // An earlier move may have left rows of these stripes on disk.
  const absl::Status removed = RemoveArrived(*move);
  if (removed.ok()) return removed;
  const TracedLock lock = moves_.Lock(*move);
  move->ended = true;
  if (moves_.Find(request_.caller.job, request_.variable) == move) {
    moves_.Erase(request_.caller.job, request_.variable);
  }
  return removed;
}

// Updates are rejected now and none is running, so every stripe here has all sequences up to these.
std::vector<Watermark> Moving::Numbers() const {
  std::vector<Watermark> numbers;
  for (const auto& session : admitted_.job->sessions()) {
    numbers.push_back({.worker = session->worker(), .sequence = session->reached()});
  }
  if (const std::shared_ptr<Session> steps = admitted_.job->steps().session()) {
    numbers.push_back({.worker = steps->worker(), .sequence = steps->applied()});
  }
  return numbers;
}

std::vector<Watermark> Moving::Incarnations() const {
  std::vector<Watermark> incarnations;
  for (const auto& session : admitted_.job->sessions()) {
    incarnations.push_back({.worker = session->worker(), .sequence = session->incarnation()});
  }
  return incarnations;
}

absl::Status Moving::Fence(const std::vector<Watermark>& incarnations) {
  std::vector<std::shared_ptr<Session>> fenced;
  for (const Watermark& at_source : incarnations) {
    std::shared_ptr<Session> session = admitted_.job->FindSession(at_source.worker);
    if (session == nullptr) {
      ASSIGN_OR_RETURN(session,
                       admitted_.job->AddSession(
                           std::make_shared<Session>(admitted_.job->name(), at_source.worker,
                                                     catalog_.info().applied_is_durable()),
                           Quota::For::kCaller));
    }
    // Updates of the fenced start have ended, or they run later and are rejected.
    const TracedLock order = admission_.LockOrder(*session, "an earlier call of the worker");
    session->Fence(at_source.sequence);
    fenced.push_back(std::move(session));
  }
  return admission_.StoreFences(std::move(fenced));
}

absl::Status Moving::Read(wire::MoveReply& reply) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Move> move, FindMove(/*outgoing=*/true));
  const TracedLock lock = moves_.Lock(*move);
  RETURN_IF_ERROR(move->CheckGoesOn());
  OutgoingRows& rows = *move->outgoing;
  const int64_t bytes = std::min(request_.max_bytes,
                                 std::max(kMinReadBytes, rows_.budget.limit_bytes() / kReadShare));
  // Of the pieces, and of their copy in the reply.
  const int64_t most = bytes + rows.largest_bytes();
  const int64_t charge = most + move->uncharged_bytes(most);
  RETURN_IF_ERROR(rows_.budget.Acquire(charge, "rows to be moved"));
  MemoryHold hold(rows_.budget, charge);
  move->ReservePieces(hold, most);
  std::string& pieces = move->pieces;
  move->lost_changes = true;        // until the reply is complete
  const absl::Cleanup free = [&] {  // after a pass, or if the move takes no further step
    if (move->lost_changes || reply.bytes_left == 0) move->FreePieces();
  };
  ASSIGN_OR_RETURN(reply.bytes_left, rows.Read(rows_.store, bytes, &pieces));
  if (rows.variable().Held() && reply.bytes_left == 0) {
    if (rows.AllRead()) {
      rows.AppendNumbers(Numbers(), Incarnations(), &pieces);
    } else {
      reply.bytes_left = 1;
    }
  }
  if (static_cast<int64_t>(pieces.size()) > kMaxPayloadBytes) {
    return ResourceExhausted("a stripe has ", rows.largest_bytes(),
                             " bytes; a payload has at most ", kMaxPayloadBytes,
                             ": create the table with more buckets");
  }
  reply.data = Payload::Copy(pieces.data(), pieces.size());
  reply.stripes = rows.stripes();
  ReplyHolds::HoldUntilSent(std::move(hold));
  move->lost_changes = false;
  return absl::OkStatus();
}

absl::Status Moving::Write() {
  ASSIGN_OR_RETURN(const std::shared_ptr<Move> move, FindMove(/*outgoing=*/false));
  const TracedLock lock = moves_.Lock(*move);
  if (move->ready || move->ended)
    return FailedPrecondition("all rows have arrived, or the move was aborted");
  RETURN_IF_ERROR(rows_.flusher.failure());
  const absl::string_view pieces(reinterpret_cast<const char*>(request_.data.data()),
                                 request_.data.size());
  return move->arriving->Write(pieces, catalog_.store());
}

absl::Status Moving::Hold(wire::MoveReply& reply) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Move> move, FindMove(/*outgoing=*/true));
  const TracedLock lock = moves_.Lock(*move);
  RETURN_IF_ERROR(move->CheckGoesOn());
  Variable& variable = move->outgoing->variable();
  const absl::Duration until = MonotonicNow() + absl::Seconds(request_.hold_seconds);
  absl::Status status;
  if (synchronous()) {
    const absl::StatusOr<bool> drained = Drained(*move, until);
    reply.draining = drained.ok() && !*drained;
    if (reply.draining) return absl::OkStatus();
    status = drained.status();
  }
  if (status.ok()) {
    variable.Hold(until);
    CAIRN_CRASH_POINT("move: updates are turned away");
    admission_.AwaitUpdates(*admitted_.job);
    status = CheckCaughtUp();
  }
  // The fences survive a crash of this server.
  if (status.ok()) status = admission_.StoreFences(admitted_.job->sessions());
  if (!status.ok()) variable.Hold(absl::ZeroDuration());
  return status;
}

// Returns true only if no contribution to an open step can have rows that move. Such a contribution
// was rejected here; or it arrived before and is pending here, so its step has begun; or this
// server lost it in a restart, and its worker has resent it; or its worker has left. In the last
// case a decision can name it only if it was made before the worker's new start said hello here,
// which is before `request_.step` was read.
absl::StatusOr<bool> Moving::Drained(Move& move, absl::Duration until) {
  Variable& variable = move.outgoing->variable();
  const JobSteps& steps = admitted_.job->steps();
  const bool drains = std::exchange(move.drains, false);
  int64_t through = std::max(request_.step, steps.LastBegun(request_.variable));
  variable.Hold(until, through);
  admission_.AwaitUpdates(*admitted_.job);
  RETURN_IF_ERROR(CheckCaughtUp());
  move.drains = true;
  through = std::max(through, steps.LastBegun(request_.variable));
  variable.Hold(until, through);
  return drains && steps.closed() >= through;
}

// Workers must resend what this server lost in a restart before the rows are handed over. Otherwise
// the rows' new server could apply a later push first, and take the resent ones for repeats. A
// worker that is away might still return with such pushes: it is fenced, so that it computes them
// again.
absl::Status Moving::CheckCaughtUp() {
  for (const auto& session : admitted_.job->sessions()) {
    if (session->caught_up()) continue;
    if (session->left()) {
      const TracedLock order = admission_.LockOrder(*session, "an earlier call of the worker");
      // It may have returned in the meantime.
      if (session->left()) session->Fence(session->incarnation() + 1);
    }
    if (session->caught_up()) continue;
    return BusyError(absl::StrCat("worker ", session->worker(), " of job ", request_.caller.job,
                                  " (", session->origin(),
                                  ") has not resent the updates that this server lost in a "
                                  "restart: the move waits until it has, or its lease ends"),
                     kCaughtUpRetry);
  }
  return absl::OkStatus();
}

absl::Status Moving::Ready() {
  ASSIGN_OR_RETURN(const std::shared_ptr<Move> move, FindMove(/*outgoing=*/false));
  const TracedLock lock = moves_.Lock(*move);
  if (move->ready) return absl::OkStatus();
  if (move->ended) return FailedPrecondition("the move was aborted");
  RETURN_IF_ERROR(move->arriving->CheckWhole());
  RETURN_IF_ERROR(Fence(move->arriving->incarnations()));
  CAIRN_CRASH_POINT("move: before it is ready");
  // Stores the shards' update counts only if the shards are new here: a table that has buckets here
  // already keeps its own count.
  std::vector<ShardRecord> shards = move->arriving->shards();
  if (variable_->table() != nullptr && !variable_->shards().empty()) shards.clear();
  bool current = true;
  RETURN_IF_ERROR(catalog_.WriteRecord(*admitted_.job, [&]() -> absl::Status {
    current = IsCurrent();
    return current ? catalog_.store().PutMap(variable_->record(&map_), shards, {})
                   : absl::OkStatus();
  }));
  if (!current) return Superseded();
  CAIRN_CRASH_POINT("move: ready");
  move->ready = true;
  return absl::OkStatus();
}

absl::Status Moving::HandOver(Move& move) {
  const TracedLock lock = moves_.Lock(move);
  RETURN_IF_ERROR(move.CheckGoesOn());
  OutgoingRows& rows = *move.outgoing;
  if (!rows.variable().Held()) {
    return FailedPrecondition(
        "updates are not held, or the hold has expired: HOLD, READ the rest, READY");
  }
  if (!rows.AllRead()) return FailedPrecondition("stripes have changed since they were read");
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, catalog_.TakeSlot(text_));
  // From here on, the hold cannot expire.
  if (!rows.variable().Held(/*for_good=*/true)) return FailedPrecondition("the hold has expired");
  // Also for the variable that will have replaced it.
  const absl::Cleanup end_hold = [&rows] { rows.variable().Hold(absl::ZeroDuration()); };
  CAIRN_CRASH_POINT("move: before the rows are given away");
  RETURN_IF_ERROR(TakeMap(catalog_, *admitted_.job, rows.variable(), map_, nullptr, &rows));
  move.ended = true;
  moves_.Erase(request_.caller.job, request_.variable);
  LOG(INFO) << rows_.server << ": " << text_ << ": " << rows.stripes() << " stripes handed over";
  return absl::OkStatus();
}

// COMMIT on a server that has no part in the move, or has installed the map already.
absl::Status Moving::Learn() {
  Refresh();
  const VariableSpec& now = variable_->spec();
  if (now.map_version >= map_.map_version) {
    // Whether a mover asks the source if its COMMIT arrived. FinishMove's calls have no start.
    const bool asks = here_ == request_.source && request_.start != 0;
    if (!asks || now == map_) return absl::OkStatus();
    return FailedPrecondition("map version ", now.map_version,
                              " was installed here by another mover");
  }
  RETURN_IF_ERROR(ValidateSpec(map_, catalog_.info().max_servers()));
  if (!SameButPlaces(now, map_)) return absl::InvalidArgumentError("the map changes the pieces");
  const std::vector<int32_t> before = PlacesOf(now), after = PlacesOf(map_);
  for (size_t i = 0; i < before.size(); ++i) {
    if ((before[i] == here_) == (after[i] == here_)) continue;
    return FailedPrecondition("the map moves piece ", i, " from ps:", before[i],
                              " to ps:", after[i], ", and no such move has ended here");
  }
  // Rows that have arrived here by another map of this version, or by an older one, will never
  // belong to this server.
  if (const std::shared_ptr<Move> move = moves_.Find(request_.caller.job, request_.variable);
      move != nullptr && move->arriving != nullptr) {
    const TracedLock lock = moves_.Lock(*move);
    if (!move->ended) RETURN_IF_ERROR(Discard(*move));
  }
  {
    ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, catalog_.TakeSlot(text_));
    const std::shared_ptr<Variable> seen = variable_;
    Refresh();
    if (seen == variable_) {
      return TakeMap(catalog_, *admitted_.job, *variable_, map_, nullptr, nullptr);
    }
  }
  return Learn();  // another call replaced the variable while this one waited
}

absl::Status Moving::Commit() {
  const std::shared_ptr<Move> move = moves_.Find(request_.caller.job, request_.variable);
  if (move == nullptr || !(move->map == map_)) return Learn();
  if (move->outgoing != nullptr) {
    if (move->start != request_.start)
      return FailedPrecondition("the move was started again since");
    return HandOver(*move);
  }
  {
    const TracedLock lock = moves_.Lock(*move);
    if (!move->ready) return FailedPrecondition("not all rows have arrived here: call READY first");
  }
  return TakeArrived(catalog_, moves_, *admitted_.job, request_.variable, map_.map_version);
}

// Deletes the rows that have arrived, in memory and on disk. The caller holds move.mutex.
absl::Status Moving::Discard(Move& move) {
  Refresh();
  RETURN_IF_ERROR(RemoveArrived(move));
  move.ended = true;
  moves_.Erase(request_.caller.job, request_.variable);
  return absl::OkStatus();
}

bool Moving::HasClaim() const {
  return moves_.HasClaim(request_.caller.job, request_.variable, map_.map_version, request_.start);
}

absl::Status Moving::Superseded() const {
  return FailedPrecondition(
      "another mover of the variable began later and replaced this one: run this one "
      "again when the other has ended, or two minutes after its last step if it was killed (or ",
      rows_.server, " was restarted since this one began)");
}

absl::Status Moving::Abort() {
  // Each server is asked to abort as a source first: from then on, no earlier mover can continue
  // there.
  const bool first = here_ == request_.source;
  if (first
          ? !moves_.Claim(request_.caller.job, request_.variable, map_.map_version, request_.start)
          : !HasClaim()) {
    return Superseded();
  }
  const std::shared_ptr<Move> move = moves_.Find(request_.caller.job, request_.variable);
  if (move == nullptr) return CheckNotTaken();
  const TracedLock lock = moves_.Lock(*move);
  if (move->arriving != nullptr && here_ == request_.target) {
    RETURN_IF_ERROR(AbortArriving(*move));
  }
  RETURN_IF_ERROR(CheckNotTaken());
  if (move->ended || move->outgoing == nullptr || move->map.map_version != map_.map_version) {
    return absl::OkStatus();
  }
  move->outgoing->variable().Hold(absl::ZeroDuration());
  move->ended = true;
  moves_.Erase(request_.caller.job, request_.variable);
  return absl::OkStatus();
}

// No server has installed this map version or will: each was asked to abort it as a source first.
absl::Status Moving::AbortArriving(Move& move) {
  if (move.ended) {
    moves_.Erase(request_.caller.job, request_.variable);
    return absl::OkStatus();
  }
  Refresh();
  const int64_t version = move.map.map_version;
  if (version != map_.map_version && version > variable_->spec().map_version) {
    return FailedPrecondition(
        "rows have arrived here by map version ", version,
        ", which their source may have committed: COMMIT it on every server first");
  }
  return Discard(move);
}

absl::Status Moving::CheckNotTaken() {
  Refresh();
  if (variable_->spec().map_version < map_.map_version) return absl::OkStatus();
  return FailedPrecondition("map version ", map_.map_version,
                            " is installed here already: COMMIT it on every server");
}

// Sets variable_ to the current variable: another step may have run since this call was admitted.
void Moving::Refresh() {
  const auto variables = admitted_.job->variables();
  const auto found = variables->find(request_.variable);
  if (found != variables->end()) variable_ = found->second;
}

absl::Status Moving::Run(wire::MoveReply& reply) {
  const int32_t count = catalog_.info().max_servers();
  if (request_.source >= count || request_.target >= count || request_.source == request_.target) {
    return InvalidArgument("from ps:", request_.source, " to ps:", request_.target,
                           ": name two different servers below ps:", count);
  }
  const bool both = request_.action == wire::MoveAction::PREPARE ||
                    request_.action == wire::MoveAction::COMMIT ||
                    request_.action == wire::MoveAction::ABORT;
  const bool of_target =
      request_.action == wire::MoveAction::WRITE || request_.action == wire::MoveAction::READY;
  const bool part = here_ == request_.source || here_ == request_.target;
  if (request_.action == wire::MoveAction::DECIDED) {
    if (here_ != 0) return absl::InvalidArgumentError("only ps:0 answers DECIDED");
    if (admitted_.job == nullptr) return absl::NotFoundError("this server has no such job");
    reply.step = admitted_.job->steps().decided();
    return absl::OkStatus();
  }
  if (both ? (!part && request_.action != wire::MoveAction::COMMIT)
           : here_ != (of_target ? request_.target : request_.source)) {
    return absl::InvalidArgumentError("this action is for another server");
  }
  const auto found = admitted_.variables->find(request_.variable);
  if (found == admitted_.variables->end()) {
    // A server without rows of the variable need not know the variable.
    if (request_.action == wire::MoveAction::COMMIT && !part) return absl::OkStatus();
    return absl::NotFoundError("the job has no such variable here: create it first");
  }
  variable_ = found->second;
  map_ = variable_->spec();
  map_.map_version = request_.map_version;
  map_.bucket_ps = request_.bucket_ps;
  map_.shards.clear();
  for (const wire::DenseShard& shard : request_.shards) {
    map_.shards.push_back({.first_row = shard.first_row, .rows = shard.rows, .ps = shard.ps});
  }
  switch (request_.action) {
    case wire::MoveAction::PREPARE: return Prepare(reply);
    case wire::MoveAction::READ: return Read(reply);
    case wire::MoveAction::WRITE: return Write();
    case wire::MoveAction::HOLD: return Hold(reply);
    case wire::MoveAction::READY: return Ready();
    case wire::MoveAction::COMMIT: return Commit();
    case wire::MoveAction::ABORT: return Abort();
    case wire::MoveAction::DECIDED: break;  // answered above
  }
  return absl::InvalidArgumentError("no such step");
}

}  // namespace

absl::Status MoveRows(JobCatalog& catalog, Moves& moves, Admission& admission,
                      const RowAccess& rows, const Admitted& admitted,
                      const wire::MoveRequest& request, wire::MoveReply& reply) {
  // Made before the step: a READ whose reply is complete must not fail for lack of memory.
  const std::string what =
      absl::StrCat(rows.server, ": move of \"", request.variable, "\" of job ", request.caller.job,
                   " from ps:", request.source, " to ps:", request.target);
  Moving moving(catalog, moves, admission, rows, admitted, request);
  return Annotate(moving.Run(reply), what);
}

}  // namespace cairn
