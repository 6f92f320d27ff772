#include "ps_server/core/admission.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/timeline.h"
#include "ps_server/jobs/order_rules.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

std::shared_ptr<const VariableMap> NoVariables() {
  static const auto* const none = new std::shared_ptr<const VariableMap>(new VariableMap());
  return *none;
}

}  // namespace

absl::StatusOr<Admitted> Admission::Admit(const wire::Caller& caller) {
  if (ExpectsAnotherBoot(caller.boot_id, info_.boot_id)) {
    return WithReason(
        FailedPrecondition(info_.name, " has boot id ", info_.boot_id, ", the caller expects ",
                           caller.boot_id, ": it was restarted, say hello again"),
        wire::ErrorReason::REBOOTED);
  }
  Admitted admitted{.job = registry_.Find(caller.job)};
  admitted.variables = admitted.job == nullptr ? NoVariables() : admitted.job->variables();
  if (caller.worker < 0) {
    admitted.timeline = caller.timeline;
    return admitted;
  }
  if (admitted.job != nullptr) admitted.session = admitted.job->FindSession(caller.worker);
  if (admitted.session == nullptr) {
    return WithReason(FailedPrecondition(info_.name, " knows no worker ", caller.worker, " of job ",
                                         caller.job, ": say hello first"),
                      wire::ErrorReason::REBOOTED);
  }
  RETURN_IF_ERROR(CheckIncarnation(*admitted.session, caller.incarnation));
  // Its hello came after the job had been dropped, and before the present timeline began here.
  if (admitted.job->IsOfEarlierTimeline(caller.incarnation)) {
    order_.counters.Add("fenced");
    return WithReason(
        FailedPrecondition(info_.name, ": worker ", caller.worker, " of job ", caller.job,
                           " has trained the job before it was dropped or restored, and began "
                           "again at ",
                           TimelineText(std::abs(admitted.job->timeline())),
                           ": this process must stop"),
        wire::ErrorReason::FENCED);
  }
  if (admitted.session->stopped()) {
    const absl::Status status = admitted.job->cohort().Check(*admitted.session);
    if (!status.ok()) return Annotate(status, info_.name);
  }
  if (caller.__isset.vitals) {
    admitted.session->Beat(info_.options.lease, caller.vitals);
  } else {
    admitted.session->Renew(info_.options.lease);
  }
  return admitted;
}

absl::Status Admission::CheckLife(const Job& job, const wire::HelloRequest& request) {
  const int64_t held = std::abs(job.timeline());
  if (held == 0 || request.incarnation == 0) return absl::OkStatus();
  const int64_t known =
      info_.index() == 0 && request.timeline > 0 ? request.timeline : request.known_timeline;
  // Older clients do not name the timeline where they return. A worker that is new to this server
  // names it.
  const bool returns = request.timeline == 0 && job.FindSession(request.worker) == nullptr;
  const bool belongs =
      known != 0 ? known == held : !returns || request.incarnation >= FirstIncarnation(held);
  if (belongs) return absl::OkStatus();
  order_.counters.Add("fenced");
  return WithReason(
      FailedPrecondition("hello to ", info_.name, ": it holds job ", job.name(), " as it began at ",
                         TimelineText(held), ", worker ", request.worker, " (", request.origin,
                         ") trains it as it began ",
                         known != 0 ? absl::StrCat("at ", TimelineText(known)) : "before",
                         ": the job was dropped or restored, or a server was started on another "
                         "directory: this process must stop"),
      wire::ErrorReason::FENCED);
}

absl::Status Admission::CheckIncarnation(const Session& session, int64_t incarnation) {
  return cairn::CheckIncarnation(order_, session, incarnation);
}

void Admission::AwaitUpdates(const Job& job) {
  {
    const TracedLock unsequenced(&order_.unsequenced, &order_.waits, "order",
                                 "updates before a move");
  }
  for (const auto& session : job.sessions()) {
    const TracedLock order = LockOrder(*session, "updates before a move");
  }
}

// Whether `session` still belongs to a job: the job may have been dropped in the meantime.
bool Admission::IsCurrent(const Session& session) const {
  const std::shared_ptr<Job> job = registry_.Find(session.job());
  if (job == nullptr) return false;
  switch (session.worker()) {
    case kStepWorker: return job->steps().session().get() == &session;
    case kTimelineWorker: return job->timeline_record().get() == &session;
    default: return job->FindSession(session.worker()).get() == &session;
  }
}

// The records keep the durable sequences: one ahead of its stripes would lose pushes in a crash.
// Not while an epoch runs, which would write earlier incarnations.
absl::Status Admission::WriteIncarnations(absl::Span<const std::shared_ptr<Session>> sessions) {
  Flusher& flusher = order_.flusher;
  return flusher.Exclusively([&] {
    std::vector<Session*> current;
    std::vector<WorkerRecord> records;
    for (const std::shared_ptr<Session>& session : sessions) {
      if (!IsCurrent(*session)) continue;
      current.push_back(session.get());
      records.push_back(session->NoteIncarnation());
    }
    if (records.empty()) return absl::OkStatus();
    absl::Status written = store_.WriteEpoch({}, records);
    if (written.ok()) written = store_.Sync();
    if (!written.ok()) return flusher.Refuse(written);
    for (size_t i = 0; i < current.size(); ++i) current[i]->Published(records[i]);
    return absl::OkStatus();
  });
}

absl::Status Admission::StoreFences(std::vector<std::shared_ptr<Session>> sessions) {
  std::erase_if(sessions, [](const std::shared_ptr<Session>& session) {
    return session->durable_incarnation() >= session->incarnation();
  });
  return sessions.empty() ? absl::OkStatus() : WriteIncarnations(sessions);
}

absl::Status Admission::StoreIncarnation(const std::shared_ptr<Session>& session) {
  // Moving rows may raise the incarnation once more in the meantime.
  const int64_t incarnation = session->incarnation();
  if (info_.applied_is_durable()) {
    // Only the incarnation is stored: the stripes on disk are older than the applied updates.
    RETURN_IF_ERROR(WriteIncarnations({&session, 1}));
  } else {
    RETURN_IF_ERROR(order_.flusher.Flush(Flusher::Reach::kSynced));
  }
  if (session->durable_incarnation() >= incarnation) return absl::OkStatus();
  return Aborted("hello to ", info_.name, ": job ", session->job(),
                 " was dropped meanwhile: say hello again");
}

void Admission::FillState(Job* job, const Session* session, wire::ServerState& state) const {
  state.boot_id = info_.boot_id;
  if (const int64_t version = members_.version(); version > 0) {
    state.__set_members_version(version);
  }
  if (job != nullptr) job->steps().Fill(state);
  if (session != nullptr) session->Fill(state);
}

}  // namespace cairn
