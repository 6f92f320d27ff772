#include "ps_server/calls/calls.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/consistency.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"
#include "thrift/cairn_constants.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

absl::Status CheckHello(JobCatalog& catalog, const wire::HelloRequest& request) {
  const std::string& server = catalog.info().name;
  const int32_t version = wire::g_cairn_constants.PROTOCOL_VERSION;
  if (request.protocol_version != version) {
    return FailedPrecondition(server, " speaks protocol version ", version, ", the caller ",
                              request.protocol_version, ": run the same release on both sides");
  }
  if (request.worker >= kTimelineWorker) {
    return InvalidArgument("hello to ", server, ": worker ", request.worker, "; allowed are -1 to ",
                           kTimelineWorker - 1);
  }
  if (const int64_t most = catalog.registry().max_workers_of_job();
      request.expected_workers > most) {
    return WithReason(
        InvalidArgument("hello to ", server, ": expected_workers is ", request.expected_workers,
                        "; at most ", most, " are allowed in one job (--max_workers)"),
        wire::ErrorReason::LIMIT);
  }
  return absl::OkStatus();
}

// Finds or creates the job, and the worker's session in it.
absl::Status FindSession(JobCatalog& catalog, const wire::HelloRequest& request,
                         std::shared_ptr<Job>& job, std::shared_ptr<Session>& session) {
  Registry& registry = catalog.registry();
  job = registry.Find(request.job);
  if (job != nullptr) session = job->FindSession(request.worker);
  if (session != nullptr) return absl::OkStatus();
  if (registry.full()) {
    ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot,
                     catalog.TakeSlot(absl::StrCat("hello of job ", request.job)));
    RETURN_IF_ERROR(catalog.DropIdleJobs());
  }
  ASSIGN_OR_RETURN(job, registry.FindOrMake(request.job, Quota::For::kCaller));
  auto made =
      std::make_shared<Session>(request.job, request.worker, catalog.info().applied_is_durable());
  ASSIGN_OR_RETURN(session, job->AddSession(std::move(made), Quota::For::kCaller));
  return absl::OkStatus();
}

// The timeline that the job has after this call: ps:0 begins one for the first worker, and the
// other servers adopt it. 0: none.
int64_t TimelineToJoin(JobCatalog& catalog, const Job& job, const wire::HelloRequest& request) {
  const int64_t held = std::abs(job.timeline());
  if (held != 0) return held;
  if (catalog.info().index() != 0) return std::max<int64_t>(request.timeline, 0);
  if (request.incarnation != 0) return 0;
  const absl::Time now = catalog.info().options.wall_clock();
  int64_t timeline = request.timeline > 0 ? request.timeline : NewTimeline(/*servers=*/1, 0, now);
  // The caller's clock may be behind, or the job may have been dropped within this second.
  const int64_t erased = catalog.registry().LastErased(job.name());
  if (FirstIncarnation(timeline) <= FirstIncarnation(erased)) {
    timeline = NewTimeline(ServersOfTimeline(timeline), erased, now);
  }
  // The job was created by a release without timelines, so other servers may have nothing of it.
  return job.variables()->empty() ? timeline : WithServers(timeline, 1);
}

// The incarnation that this call requests: a new one, which only ps:0 grants, or the one that it
// names. A new one is higher than all that ps:0 has granted to the worker before, also before the
// job was dropped, and than those with which servers that gave rows away have fenced it meanwhile.
absl::StatusOr<int64_t> Incarnation(JobCatalog& catalog, Admission& admission,
                                    const Session& session, int64_t timeline,
                                    const wire::HelloRequest& request) {
  const ServerInfo& info = catalog.info();
  const int64_t known = session.incarnation();
  if (request.incarnation == 0) {
    const bool is_again = request.start != 0 && request.start == session.start();
    if (info.index() == 0) {
      if (is_again) return known;
      // A late or repeated hello of a replaced start: a new incarnation would fence its successor.
      if (session.WasReplaced(request.start)) return admission.CheckIncarnation(session, 0);
      const int64_t erased = catalog.registry().LastErased(request.job);
      const int64_t now = NewTimeline(/*servers=*/1, erased, info.options.wall_clock());
      const int64_t next = NextIncarnation(known, std::max(timeline, now));
      if (next <= kMaxIncarnation) return next;
      return ResourceExhausted(info.name, ": worker ", request.worker, " of job ", request.job,
                               " has incarnation ", known,
                               ", the highest possible one: drop the job (drop_job)");
    }
    return FailedPrecondition(
        info.name,
        " grants no incarnations: say hello to ps:0 first, and send the incarnation that it "
        "grants to the other servers. If the worker takes this server for ps:0, their "
        "cluster files differ: give all tasks the same file");
  }
  if (request.incarnation < known) {
    RETURN_IF_ERROR(admission.CheckIncarnation(session, request.incarnation));
  }
  return request.incarnation;
}

absl::StatusOr<Cohort::Hello> CohortHello(const wire::HelloRequest& request) {
  Cohort::Hello hello{.step = request.step,
                      .expected_workers = request.expected_workers,
                      .keeps_step = request.keeps_step};
  if (!request.__isset.consistency) return hello;
  ASSIGN_OR_RETURN(hello.consistency, FromWire(request.consistency));
  return hello;
}

// Returns the record of the job's timeline, which it begins if the job has none here. nullptr: the
// job has no timeline here.
std::shared_ptr<Session> JoinTimeline(const ServerInfo& info, Job& job, int64_t timeline) {
  std::shared_ptr<Session> record = job.timeline_record();
  if (record == nullptr && timeline != 0) {
    auto made = std::make_shared<Session>(job.name(), kTimelineWorker, info.applied_is_durable());
    made->Admit(timeline, "timeline");
    record = job.AddTimelineRecord(std::move(made));
  }
  if (record != nullptr) record->SetLeft(false);
  return record;
}

absl::Status Join(JobCatalog& catalog, Admission& admission, const wire::HelloRequest& request,
                  wire::HelloReply& reply) {
  const ServerInfo& info = catalog.info();
  ASSIGN_OR_RETURN(Cohort::Hello hello, CohortHello(request));
  if (info.index() != 0 && request.timeline > 0) {
    RETURN_IF_ERROR(catalog.DropOtherTimeline(request.job, request.timeline));
    RETURN_IF_ERROR(catalog.DropEarlierWorkers(request.job, request.timeline));
  }
  // ps:0 has granted no incarnation to a worker of a job without a timeline.
  if (info.index() == 0 && request.incarnation == 0) {
    RETURN_IF_ERROR(catalog.DropEarlierWorkers(request.job, kMaxIncarnation));
  }
  std::shared_ptr<Job> job = catalog.registry().Find(request.job);
  if (job != nullptr) RETURN_IF_ERROR(admission.CheckLife(*job, request));
  std::shared_ptr<Session> session;
  RETURN_IF_ERROR(FindSession(catalog, request, job, session));
  // Pushes of the earlier incarnation have ended, or they run later and are fenced.
  const TracedLock order = admission.LockOrder(*session, "an earlier call of the worker");
  const int64_t timeline = TimelineToJoin(catalog, *job, request);
  ASSIGN_OR_RETURN(const int64_t incarnation,
                   Incarnation(catalog, admission, *session, timeline, request));
  if (hello.consistency) {
    RETURN_IF_ERROR(job->cohort().Agree(*hello.consistency, request.worker));
  }
  // Also if an earlier hello was admitted and then failed, or if a move of rows has raised the
  // incarnation before this start could say hello.
  const bool is_new = incarnation > session->incarnation() || session->awaits_hello() ||
                      session->durable_incarnation() < incarnation;
  std::shared_ptr<Session> steps;
  if (hello.consistency && hello.consistency->mode == ConsistencyMode::kSync) {
    steps = job->steps().Begin(request.begins_after_step);
  }
  const std::shared_ptr<Session> record = JoinTimeline(info, *job, timeline);
  session->Admit(incarnation, request.origin, request.start);
  CAIRN_CRASH_POINT("hello: admitted");
  if (is_new) {
    RETURN_IF_ERROR(admission.StoreIncarnation(session));
    CAIRN_CRASH_POINT("hello: durable");
    LOG(INFO) << info.name << ": " << request.task_type << " (worker " << request.worker
              << " of job " << request.job << ", " << request.origin << ") joined as incarnation "
              << incarnation;
  }
  if (record != nullptr && record->durable_incarnation() < record->incarnation()) {
    RETURN_IF_ERROR(admission.StoreIncarnation(record));
  }
  if (steps != nullptr && steps->durable_incarnation() < steps->incarnation()) {
    RETURN_IF_ERROR(admission.StoreIncarnation(steps));
  }
  session->Renew(info.options.lease);
  hello.fresh = is_new;
  ASSIGN_OR_RETURN(reply.step, job->cohort().Join(session, hello));
  // Also if this start was granted its incarnation before, and the reply was lost.
  int64_t named = 0;
  if (is_new || request.incarnation == 0) {
    // Not before Join: the step that its earlier start announced would let a step be decided
    // without it.
    const TracedLock deciding = admission.LockDecisions(job->steps());
    if (is_new) job->steps().Restart(request.worker);
    named = job->steps().LastNamed(request.worker);
  }
  if (job->cohort().settings().mode == ConsistencyMode::kSync) reply.step = job->steps().open();
  reply.incarnation = incarnation;
  reply.timeline = job->timeline();
  reply.position = session->position();
  admission.FillState(job.get(), session.get(), reply.state);
  // A contribution that a decision names counts, even if it still waits for its step or must be
  // computed again.
  reply.state.applied = std::max(reply.state.applied, named);
  return absl::OkStatus();
}

}  // namespace

absl::Status Hello(JobCatalog& catalog, Admission& admission, const Members& members,
                   const wire::HelloRequest& request, wire::HelloReply& reply) {
  RETURN_IF_ERROR(CheckHello(catalog, request));
  const EngineOptions& options = catalog.info().options;
  reply.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  reply.server_index = options.server_index;
  reply.server_count = options.server_count;
  reply.durability = std::string(DurabilityName(options.durability));
  reply.lease_seconds = absl::ToDoubleSeconds(options.lease);
  reply.max_message_bytes = options.max_message_bytes;
  if (members.version() > 0) {
    reply.__set_members(members.Tell(request.job, request.worker));
  }
  if (request.worker < 0) {
    admission.FillState(nullptr, nullptr, reply.state);
    const std::shared_ptr<Job> job = catalog.registry().Find(request.job);
    if (job != nullptr) reply.timeline = job->timeline();
    return absl::OkStatus();
  }
  return Join(catalog, admission, request, reply);
}

absl::Status Leave(const ServerInfo& info, Admission& admission, Flusher& flusher,
                   const Admitted& admitted, int64_t incarnation) {
  Session* const session = admitted.session.get();
  // Stores whether the worker has left. False: a newer start of the worker now uses the session.
  const auto set_left = [&](bool left) {
    const TracedLock order = admission.LockOrder(*session, "an earlier call of the worker");
    if (session->incarnation() != incarnation) return false;
    session->SetLeft(left);
    return true;
  };
  if (session != nullptr && !set_left(true)) return absl::OkStatus();
  CAIRN_CRASH_POINT("leave: begun");
  if (!info.applied_is_durable()) {
    const absl::Status status = flusher.Flush(Flusher::Reach::kSynced);
    if (!status.ok()) {
      if (session != nullptr) set_left(false);
      return status;
    }
  }
  if (session == nullptr) return absl::OkStatus();
  const TracedLock order = admission.LockOrder(*session, "an earlier call of the worker");
  if (session->incarnation() != incarnation) return absl::OkStatus();
  session->EndLease();
  admitted.job->cohort().Leave(session->worker());
  CAIRN_CRASH_POINT("leave: before the answer");
  return absl::OkStatus();
}

}  // namespace cairn
