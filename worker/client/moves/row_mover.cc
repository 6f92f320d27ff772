#include "worker/client/moves/row_mover.h"

#include <algorithm>
#include <utility>

#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/monotonic_sleep.h"
#include "common/start_number.h"
#include "common/status.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(100);
// Attempts to move rows that change faster than they are copied.
constexpr int kMostHolds = 3;
// How long a server may take to free memory for a step.
constexpr absl::Duration kRoomPatience = absl::Seconds(30);
// Interval at which a source that waits for open steps is asked again.
constexpr absl::Duration kDrainPause = absl::Milliseconds(5);
// How long COMMIT is retried on a source that does not answer.
constexpr absl::Duration kCommitPatience = absl::Seconds(30);

// Start number of a mover's first attempt. A mover that begins later has a higher one, however many
// attempts this one makes.
int64_t FirstStart() {
  constexpr int64_t kTries = 16;
  static_assert(kMostHolds < kTries);
  return TimedStartNumber() * kTries;
}

wire::MoveRequest RequestOf(const std::string& job, const VariableSpec& map, int32_t source,
                            int32_t target) {
  const wire::VariableSpec spec = ToWire(map);
  wire::MoveRequest request;
  request.caller.job = job;
  request.variable = map.name;
  request.map_version = map.map_version;
  request.bucket_ps = spec.bucket_ps;
  request.shards = spec.shards;
  request.source = source;
  request.target = target;
  return request;
}

class Mover {
 public:
  Mover(const RowMove& move, const RowMoveOptions& options, MoveServers& servers, Deadline deadline)
      : move_(move),
        options_(options),
        servers_(servers),
        deadline_(deadline),
        request_(RequestOf(move.job, move.next, move.source, move.target)) {
    request_.start = FirstStart();
    request_.max_bytes = options.piece_bytes;
    request_.hold_seconds = absl::ToDoubleSeconds(options.hold);
  }

  absl::StatusOr<RowMoveOutcome> Run() {
    const absl::Duration begin = MonotonicNow();
    for (int hold = 1;; ++hold) {
      absl::Status status = Copy();
      if (status.ok()) status = GiveAway();
      if (status.ok()) break;
      if (unknown_) return status;
      if (absl::IsFailedPrecondition(status) && hold < kMostHolds && !deadline_.Expired()) {
        LOG(INFO) << status.message() << "; retrying";
        continue;
      }
      GiveUp().IgnoreError();  // on failure the next move of the variable gives up this one
      return status;
    }
    CAIRN_CRASH_POINT("mover: the source has given the rows away");
    RETURN_IF_ERROR(FinishMove(move_.job, move_.next, move_.servers, servers_));
    outcome_.took = MonotonicNow() - begin;
    outcome_.map = move_.next;
    return outcome_;
  }

  // Aborts the move on every server, because an earlier mover may have used other rows or another
  // target. Servers are addressed as sources first: if a delayed COMMIT has just given the rows
  // away, the source refuses, and the target keeps them.
  absl::Status GiveUp() {
    const auto abort = [this](int32_t source, int32_t target, int32_t server) {
      request_.source = source;
      request_.target = target;
      const absl::Status status = Step(server, wire::MoveAction::ABORT).status();
      // the server holds no rows of it
      return absl::IsNotFound(status) ? absl::OkStatus() : status;
    };
    absl::Status status;
    for (const int32_t server : move_.servers)
      status.Update(abort(server, OtherThan(server), server));
    for (const int32_t server : move_.servers) {
      if (status.ok()) status = abort(OtherThan(server), server, server);
    }
    request_.source = move_.source;
    request_.target = move_.target;
    return status;
  }

 private:
  absl::StatusOr<wire::MoveReply> Step(int32_t server, wire::MoveAction::type action) {
    request_.action = action;
    return servers_.Move(server, request_);
  }

  int32_t OtherThan(int32_t server) const {
    return server == move_.source ? move_.target : move_.source;
  }

  absl::Status CheckTime() const {
    if (!deadline_.Expired()) return absl::OkStatus();
    return DeadlineExceeded("no time left to copy \"", move_.next.name,
                            "\": its rows change as fast as they are copied, or "
                            "the deadline is too short; nothing has moved");
  }

  // Copies the rows that the source changed since the last pass. `gently`: rests between pieces.
  // *bytes is the number of bytes copied.
  absl::Status Pass(bool gently, int64_t* bytes) {
    *bytes = 0;
    while (true) {
      RETURN_IF_ERROR(CheckTime());
      const absl::Duration begin = MonotonicNow();
      ASSIGN_OR_RETURN(wire::MoveReply read, StepWithRoom(move_.source, wire::MoveAction::READ));
      *bytes += static_cast<int64_t>(read.data.size());
      outcome_.bytes += static_cast<int64_t>(read.data.size());
      request_.data = std::move(read.data);
      const absl::Status written = StepWithRoom(move_.target, wire::MoveAction::WRITE).status();
      request_.data = Payload();
      RETURN_IF_ERROR(written);
      CAIRN_CRASH_POINT("mover: a piece is copied");
      if (read.bytes_left == 0) return absl::OkStatus();
      if (gently) Rest(MonotonicNow() - begin);
    }
  }

  // Retries while the server's memory is full: it evicts rows in the meantime
  // (ps_server/COLD_ROWS.md). Not if the reply to a READ found no memory here, or was too long: the
  // READ has taken the changes in its reply, so a repeated READ would leave them out.
  absl::StatusOr<wire::MoveReply> StepWithRoom(int32_t server, wire::MoveAction::type action) {
    const Deadline patience = Deadline::Earlier(deadline_, Deadline::In(kRoomPatience));
    while (true) {
      absl::StatusOr<wire::MoveReply> reply = Step(server, action);
      const bool lost = action == wire::MoveAction::READ &&
                        ReasonOf(reply.status()) != wire::ErrorReason::MEMORY_BUDGET;
      if (!absl::IsResourceExhausted(reply.status()) || lost || patience.Expired()) return reply;
      MonotonicSleep(kRetryPause);
    }
  }

  void Rest(absl::Duration busy) {
    const double fraction = std::clamp(options_.busy_fraction, 0.01, 1.0);
    MonotonicSleep(std::min(busy * (1 / fraction - 1), absl::Seconds(1)));
  }

  // Prepares both servers, then copies until the rows that are left fit in a last pass, which
  // GiveAway makes.
  absl::Status Copy() {
    RETURN_IF_ERROR(servers_.Create(move_.target, move_.job, move_.now));
    ++request_.start;
    RETURN_IF_ERROR(GiveUp());  // aborts the moves of movers that died
    RETURN_IF_ERROR(Step(move_.target, wire::MoveAction::PREPARE).status());
    ASSIGN_OR_RETURN(const wire::MoveReply begun, Step(move_.source, wire::MoveAction::PREPARE));
    outcome_.stripes = begun.stripes;
    outcome_.rows = begun.rows;
    int64_t before = 0;
    while (outcome_.passes < options_.most_passes) {
      int64_t bytes = 0;
      RETURN_IF_ERROR(Pass(/*gently=*/true, &bytes));
      ++outcome_.passes;
      const bool shrinks = before == 0 || bytes < before - before / 4;
      if (bytes <= options_.last_pass_bytes || !shrinks) break;
      before = bytes;
    }
    return absl::OkStatus();
  }

  // Waits until the source rejects updates. *begin: when it began to.
  absl::Status Hold(absl::Duration* begin) {
    while (true) {
      *begin = MonotonicNow();
      const absl::StatusOr<wire::MoveReply> held = Step(move_.source, wire::MoveAction::HOLD);
      if (held.ok() && !held->draining) return absl::OkStatus();
      // BUSY: workers must first replay the pushes that the source lost in a restart.
      if (!held.ok() && ReasonOf(held.status()) != wire::ErrorReason::BUSY) return held.status();
      if (deadline_.Expired()) {
        return held.ok() ? DeadlineExceeded(
                               "ps:", move_.source, " waits for contributions to steps up to ",
                               request_.step, ": see `cairnctl why`; nothing has moved")
                         : held.status();
      }
      MonotonicSleep(held.ok() ? kDrainPause : RetryAfterOf(held.status()));
      if (!held.ok()) continue;
      ASSIGN_OR_RETURN(const wire::MoveReply decided, Step(0, wire::MoveAction::DECIDED));
      request_.step = decided.step;
    }
  }

  // Makes the last pass while the source rejects updates, then commits: the point of no return.
  absl::Status GiveAway() {
    absl::Duration begin;
    RETURN_IF_ERROR(Hold(&begin));
    int64_t bytes = 0;
    RETURN_IF_ERROR(Pass(/*gently=*/false, &bytes));
    RETURN_IF_ERROR(Step(move_.target, wire::MoveAction::READY).status());
    CAIRN_CRASH_POINT("mover: before the point of no return");
    // COMMIT may be repeated: a source that has committed answers OK again.
    absl::Status status;
    const Deadline end = Deadline::In(kCommitPatience);
    do {
      status = Step(move_.source, wire::MoveAction::COMMIT).status();
      unknown_ = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
      if (unknown_) MonotonicSleep(kRetryPause);
    } while (unknown_ && !end.Expired());
    const absl::Duration held = MonotonicNow() - begin;
    outcome_.held += held;
    outcome_.longest_hold = std::max(outcome_.longest_hold, held);
    return status;
  }

  const RowMove& move_;
  const RowMoveOptions& options_;
  MoveServers& servers_;
  const Deadline deadline_;
  wire::MoveRequest request_;
  RowMoveOutcome outcome_;
  bool unknown_ = false;  // a COMMIT went unanswered: the source may have given the rows away
};

}  // namespace

absl::StatusOr<RowMoveOutcome> MoveRows(const RowMove& move, const RowMoveOptions& options,
                                        MoveServers& servers, Deadline deadline) {
  return Mover(move, options, servers, deadline).Run();
}

absl::StatusOr<RowMoveOutcome> MoveRowsInBatches(const RowMove& move, int64_t bytes,
                                                 const RowMoveOptions& options,
                                                 MoveServers& servers, Deadline deadline) {
  const VariableSpec& goal = move.next;
  std::vector<int32_t*> places;  // entries of `all.map` that change
  RowMoveOutcome all;
  all.map = move.now;
  for (size_t i = 0; i < all.map.bucket_ps.size(); ++i) {
    if (all.map.bucket_ps[i] != goal.bucket_ps[i]) places.push_back(&all.map.bucket_ps[i]);
  }
  for (size_t i = 0; i < all.map.shards.size(); ++i) {
    if (all.map.shards[i].ps != goal.shards[i].ps) places.push_back(&all.map.shards[i].ps);
  }
  const auto count = static_cast<int64_t>(places.size());
  const int64_t batches = std::clamp<int64_t>(bytes / std::max<int64_t>(1, options.batch_bytes), 1,
                                              std::max<int64_t>(1, count));
  for (int64_t b = 0; b < batches; ++b) {
    RowMove batch = move;
    batch.now = all.map;
    for (int64_t i = b * count / batches; i < (b + 1) * count / batches; ++i) {
      *places[static_cast<size_t>(i)] = move.target;
    }
    ++all.map.map_version;
    batch.next = all.map;
    ASSIGN_OR_RETURN(const RowMoveOutcome one, MoveRows(batch, options, servers, deadline));
    all.stripes += one.stripes;
    all.rows += one.rows;
    all.bytes += one.bytes;
    all.passes += one.passes;
    all.held += one.held;
    all.longest_hold = std::max(all.longest_hold, one.longest_hold);
    all.took += one.took;
  }
  return all;
}

absl::Status FinishMove(const std::string& job, const VariableSpec& newest,
                        absl::Span<const int32_t> servers, MoveServers& calls) {
  absl::Status first;
  if (newest.map_version == 1) return first;
  for (const int32_t server : servers) {
    wire::MoveRequest request = RequestOf(job, newest, server, server == 0 ? 1 : 0);
    request.action = wire::MoveAction::COMMIT;
    const absl::Status installed = calls.Move(server, request).status();
    // A server that does not know the variable does not need its map.
    if (first.ok() && !installed.ok() && !absl::IsNotFound(installed)) first = installed;
  }
  return first;
}

absl::Status GiveUpMoves(const std::string& job, const VariableSpec& newest,
                         const std::vector<int32_t>& servers, MoveServers& calls) {
  if (servers.size() < 2) return absl::OkStatus();
  RowMove none{.job = job,
               .now = newest,
               .next = newest,
               .source = servers[0],
               .target = servers[1],
               .servers = servers};
  ++none.next.map_version;
  return Mover(none, {}, calls, Deadline::In(absl::ZeroDuration())).GiveUp();
}

}  // namespace cairn
