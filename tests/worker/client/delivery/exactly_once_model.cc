#include "tests/worker/client/delivery/exactly_once_steps.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ps_server/jobs/order_rules.h"
#include "ps_server/rows/stripe.h"
#include "tests/worker/client/delivery/exactly_once_objects.h"

namespace cairn::test {

ModelState Model::Start() const {
  ModelState state;
  std::memset(static_cast<void*>(&state), 0, sizeof state);
  state.next = 1;
  state.server_crashes = Small(options_.server_crashes);
  state.worker_crashes = Small(options_.worker_crashes);
  for (ModelServer& server : state.servers) server.boot = 1;
  return state;
}

// --- server ---

// The session's order lock is free: the session judges the push, and its application begins if
// allowed.
void Model::Deliver(ModelServer* server, const ModelMessage& message) const {
  const Mutations& without = options_.mutations;
  ModelReply& reply = server->reply;
  reply = {.answer = Answer::kOk,
           .sequence = message.sequence,
           .incarnation = message.incarnation,
           .asked_boot = message.boot,
           .boot = server->boot,
           .replay = message.replay};
  LiveSession session(*server, work_);
  const IncarnationState standing = IncarnationStateOf(message.incarnation, session->incarnation());
  if (options_.names_boot && !without.no_boot_check &&
      ExpectsAnotherBoot(message.boot, server->boot)) {
    reply.answer = Answer::kAnotherBoot;
  } else if (standing == IncarnationState::kUnknown) {
    reply.answer = Answer::kAnotherBoot;
  } else if (standing == IncarnationState::kFenced && !without.no_fence) {
    reply.answer = Answer::kFenced;
  } else {
    if (standing == IncarnationState::kFenced) {
      fault_ = absl::StrCat("push ", message.sequence, " of incarnation ", message.incarnation,
                            " is applied after incarnation ", server->incarnation, " was answered");
    }
    if (options_.names_boot) session->Through(message.through);
    if (ComesTooEarly(message.after, session->applied()) && !without.no_after) {
      reply.answer = Answer::kTooEarly;
    }
    session.PutBack(server);
  }
  if (reply.answer != Answer::kOk) return;
  reply.answer = Answer::kNone;  // the answer follows when all stripes have applied the push
  server->applying = message;
  server->next_stripe = 0;
}

namespace {

int NextStripe(unsigned stripes, int from) {
  while (from < kModelStripes && !(stripes >> from & 1)) ++from;
  return from;
}

}  // namespace

void Model::ApplyOne(ModelServer* server, int s) const {
  const int64_t sequence = server->applying.sequence;
  const int i = NextStripe(work_.Stripes(s, sequence), server->next_stripe);
  ModelStripe& stripe = server->stripes[i];
  Watermarks marks;
  const Watermark mark{.worker = kWorker, .sequence = stripe.watermark};
  if (stripe.watermark > 0) marks.Reset({&mark, 1});
  const Mutations& without = options_.mutations;
  LiveSession before(*server, work_);
  const Origin origin{
      .worker = kWorker,
      .sequence = sequence,
      .applied = IsApplied(sequence, before->applied()) && !without.no_known_numbers};
  if (!marks.Has(origin) || without.no_watermarks) {
    uint8_t& counted = stripe.counted[sequence - 1];
    counted = std::min<uint8_t>(counted + 1, 2);
    marks.Raise(origin);
    stripe.watermark = Small(marks.marks()[0].sequence);
    if (!(server->dirty >> i & 1)) server->queued |= Small(1u << i);
    server->dirty |= Small(1u << i);
  }
  server->next_stripe = Small(i + 1);
  if (NextStripe(work_.Stripes(s, sequence), i + 1) < kModelStripes) return;
  LiveSession session(*server, work_);
  session->Applied(sequence, work_.position(sequence));
  session.PutBack(server);
  const ModelMessage& message = server->applying;
  server->reply = {.answer = Answer::kOk,
                   .sequence = message.sequence,
                   .incarnation = message.incarnation,
                   .asked_boot = message.boot,
                   .boot = server->boot,
                   .durable = server->durable.sequence,
                   .applied = Small(session->applied()),
                   .replay = message.replay};
  server->applying = {};
  server->next_stripe = 0;
}

void Model::StepServer(const ModelState& state, int s, Next next) const {
  const ModelServer& server = state.servers[s];
  if (server.applying.sequence != 0) {
    ModelState after = state;
    ApplyOne(&after.servers[s], s);
    next(after, [&] {
      return absl::StrCat("ps:", s, " applies push ", server.applying.sequence, " to a stripe");
    });
  } else {
    for (int m = 0; m < kInFlight; ++m) {
      const ModelMessage& message = server.incoming[m];
      if (message.sequence == 0) continue;
      ModelState after = state;
      std::swap(after.servers[s].incoming[m], after.servers[s].incoming[kInFlight - 1]);
      after.servers[s].incoming[kInFlight - 1] = {};
      Deliver(&after.servers[s], message);
      next(after, [&] {
        return absl::StrCat("ps:", s, " gets push ", message.sequence, " of incarnation ",
                            message.incarnation, message.replay ? " again" : "");
      });
    }
  }
  if (state.server_crashes == 0) return;
  const int writes = server.write_count + server.record_written;
  for (int kept = 0; kept <= writes; ++kept) {
    ModelState after = state;
    --after.server_crashes;
    Crash(&after.servers[s], kept);
    next(after,
         [&] { return absl::StrCat("ps:", s, " crashes and keeps ", kept, " unsynced writes"); });
  }
}

// Returns from the disk, with another boot; messages in flight to the server are lost with its
// connections.
void Model::Crash(ModelServer* server, int kept_writes) const {
  ModelDisk disk = server->synced;
  for (int i = 0; i < std::min<int>(kept_writes, server->write_count); ++i) {
    disk.stripes[server->written_stripe[i]] = server->written[i];
  }
  if (kept_writes > server->write_count) disk.record = server->noted;
  const ModelReply reply = server->reply;  // the reply may already be in the worker's socket
  const uint8_t boot = server->boot;
  std::memset(static_cast<void*>(server), 0, sizeof *server);
  server->boot = boot + 1;
  server->reply = reply;
  server->synced = disk;
  server->durable = disk.record;
  server->incarnation = disk.record.incarnation;
  server->applied = server->through = disk.record.sequence;
  server->position = disk.record.position;
  std::copy(std::begin(disk.stripes), std::end(disk.stripes), server->stripes);
}

// --- epochs: note, take, write stripe by stripe, write the record, sync, publish ---

namespace {

bool NoteInto(ModelServer* server, const Workload& work) {
  LiveSession session(*server, work);
  WorkerRecord record;
  server->has_note = session->Note(record);
  if (server->has_note) server->noted = Narrow(record, work);
  return server->has_note;
}

void PublishNote(ModelServer* server, const Workload& work) {
  if (!server->has_note) return;
  LiveSession session(*server, work);
  session->Published(Wide(server->noted, work));
  session.PutBack(server);
}

// Acts as if another worker had caused everything to be written again, at the first moment at which
// that may make the server forget a watermark. This worker may even be connected.
void Forget(ModelServer* server) {
  const Watermark durable{.worker = kWorker, .sequence = server->durable.sequence};
  for (ModelStripe* stripes : {server->stripes, server->synced.stripes}) {
    for (int i = 0; i < kModelStripes; ++i) {
      if (stripes[i].watermark == 0) continue;
      Watermarks marks;
      const Watermark mark{.worker = kWorker, .sequence = stripes[i].watermark};
      marks.Reset({&mark, 1});
      marks.Forget({&durable, 1});
      if (marks.marks().empty()) stripes[i].watermark = 0;
    }
  }
}

void EndEpoch(ModelServer* server, const Workload& work) {
  for (int i = 0; i < server->write_count; ++i) {
    server->synced.stripes[server->written_stripe[i]] = server->written[i];
  }
  if (server->record_written) server->synced.record = server->noted;
  PublishNote(server, work);
  Forget(server);
  server->phase = EpochPhase::kIdle;
  server->has_note = server->taken = server->write_count = server->record_written = 0;
  server->noted = {};
  std::memset(server->written_stripe, 0, sizeof server->written_stripe);
  std::memset(static_cast<void*>(server->written), 0, sizeof server->written);
}

void WriteStripe(ModelServer* server, int i) {
  server->taken &= Small(~(1u << i));
  server->dirty &= Small(~(1u << i));
  server->written_stripe[server->write_count] = Small(i);
  server->written[server->write_count++] = server->stripes[i];
}

}  // namespace

void Model::StepEpoch(const ModelState& state, int s, Next next) const {
  const bool late = options_.mutations.notes_late;
  const auto change = [&](const char* event, auto&& body) {
    ModelState after = state;
    body(&after.servers[s]);
    next(after, [&] { return absl::StrCat("ps:", s, event); });
  };
  const ModelServer& server = state.servers[s];
  switch (server.phase) {
    case EpochPhase::kIdle: {
      ModelServer probe = server;
      if (!NoteInto(&probe, work_) && server.queued == 0) return;
      change(" begins an epoch", [&](ModelServer* changed) {
        if (late) {
          changed->taken = changed->queued;
          changed->queued = 0;
        } else {
          NoteInto(changed, work_);
        }
        changed->phase = EpochPhase::kTaken;
      });
      return;
    }
    case EpochPhase::kTaken:
      change(" takes its dirty stripes", [&](ModelServer* changed) {
        if (late) {
          NoteInto(changed, work_);
        } else {
          changed->taken = changed->queued;
          changed->queued = 0;
        }
        changed->phase = EpochPhase::kWriting;
      });
      return;
    case EpochPhase::kWriting:
      for (int i = 0; i < kModelStripes; ++i) {
        if (!(server.taken >> i & 1)) continue;
        change(" writes stripe", [&](ModelServer* changed) { WriteStripe(changed, i); });
      }
      if (server.taken != 0) return;
      change(" writes the epoch's record", [&](ModelServer* changed) {
        changed->record_written = changed->has_note;
        changed->phase = EpochPhase::kWritten;
        if (options_.mutations.publishes_unsynced) PublishNote(changed, work_);
      });
      return;
    case EpochPhase::kWritten:
      change(" syncs and publishes", [&](ModelServer* changed) { EndEpoch(changed, work_); });
      return;
  }
}

void Model::WholeEpoch(ModelServer* server) const {
  NoteInto(server, work_);
  server->taken = server->queued;
  server->queued = 0;
  for (int i = 0; i < kModelStripes; ++i) {
    if (server->taken >> i & 1) WriteStripe(server, i);
  }
  server->record_written = server->has_note;
  EndEpoch(server, work_);
}

// --- worker: first hellos ---

// The coordinator grants the incarnation; every server makes its state durable, then answers.
void Model::Greet(ModelState* state, int s) const {
  ModelServer& server = state->servers[s];
  if (s == 0) state->incarnation = Small(server.incarnation + 1);
  LiveSession session(server, work_);
  session->Admit(state->incarnation, "");
  session.PutBack(&server);
  if (!options_.mutations.no_epoch_at_hello) WholeEpoch(&server);
  ModelLink& link = state->links[s];
  link.greeted = 1;
  link.greeted_boot = server.boot;
  link.greeted_durable =
      options_.mutations.no_epoch_at_hello ? server.applied : server.durable.sequence;
  link.greeted_position =
      options_.mutations.no_epoch_at_hello ? server.position : server.durable.position;
  if (std::all_of(std::begin(state->links), std::end(state->links),
                  [](const ModelLink& l) { return l.greeted; })) {
    Resume(state);
  }
}

void Model::Resume(ModelState* state) const {
  std::vector<ResumeAnswer> answers;
  for (const ModelLink& link : state->links) {
    answers.push_back({link.greeted_durable, work_.position(link.greeted_position)});
  }
  const ResumePoint point = ChooseResumePoint(answers);
  for (int s = 0; s < kModelServers; ++s) {
    ModelLink& link = state->links[s];
    PushLedger ledger;
    ledger.Begin(link.greeted_boot, point.last_part[s], point.sequence);
    link = {};
    PutBack(ledger, &link);
  }
  state->running = 1;
  state->next = Small(point.sequence + 1);
}

// --- worker: pushes ---

bool Model::Send(ModelState* state, int s, int64_t sequence, bool replay) const {
  const PushLedger ledger = LedgerOf(state->links[s]);
  ModelMessage message{.sequence = Small(sequence),
                       .incarnation = state->incarnation,
                       .boot = replay ? state->links[s].new_boot : Small(ledger.boot_id()),
                       .after = Small(ledger.last_part()),
                       .through = Small(ledger.through()),
                       .replay = replay};
  if (replay) {
    message.after = Small(work_.LastPart(s, sequence - 1));
    message.through = Small(PushLedger::ThroughOf({.sequence = sequence}));
  }
  for (int m = 0; m < options_.in_flight; ++m) {
    ModelMessage& slot = state->servers[s].incoming[m];
    if (slot.sequence == 0) {
      slot = message;
      return true;
    }
    if (std::memcmp(&slot, &message, sizeof slot) == 0) return false;
  }
  return false;
}

void Model::Learn(ModelLink* link, uint8_t boot, uint8_t durable) const {
  PushLedger ledger = LedgerOf(*link);
  if (boot != ledger.boot_id()) return;
  ledger.TakeDurable(durable);
  PutBack(ledger, link);
}

void Model::Hear(ModelState* state, int s) const {
  const ModelReply reply = state->servers[s].reply;
  state->servers[s].reply = {};
  ModelLink& link = state->links[s];
  if (reply.incarnation != state->incarnation || !state->running) return;  // to an earlier start
  if (reply.answer == Answer::kFenced) {
    fault_ = "the only start of the worker is fenced";
    return;
  }
  if (reply.replay) return HearReplay(state, s, reply);
  if (reply.sequence != state->next || link.acknowledged) return;
  PushLedger ledger = LedgerOf(link);
  if (reply.answer != Answer::kOk || (!options_.names_boot && reply.boot != ledger.boot_id())) {
    if (reply.asked_boot == ledger.boot_id() && !ledger.renewing()) {
      link.renewal = Renewal::kHello;
    }
    return;
  }
  // An answer counts only for the boot that was asked; a caller that names no boot learns it from
  // the answer.
  if (!ledger.Counts(reply.boot) && !options_.mutations.counts_every_answer) return;
  const uint8_t durable = options_.mutations.frees_applied ? reply.applied : reply.durable;
  ledger.TakeDurable(durable);
  if (durable < reply.sequence) {
    ledger.Acknowledged({.sequence = reply.sequence});
  } else {
    ledger.AcknowledgedUnretained(reply.sequence);
  }
  PutBack(ledger, &link);
  link.acknowledged = 1;
  Settle(state);
}

void Model::Settle(ModelState* state) const {
  for (int s = 0; s < kModelServers; ++s) {
    if (work_.HasPart(s, state->next) && !state->links[s].acknowledged) return;
  }
  for (ModelLink& link : state->links) {
    PushLedger ledger = LedgerOf(link);
    ledger.NoPart(state->next);
    PutBack(ledger, &link);
    link.acknowledged = 0;
  }
  ++state->next;
}

// --- worker: renewal ---

void Model::RenewHello(ModelState* state, int s) const {
  ModelServer& server = state->servers[s];
  ModelLink& link = state->links[s];
  LiveSession session(server, work_);
  switch (IncarnationStateOf(state->incarnation, session->incarnation())) {
    case IncarnationState::kFenced:
      fault_ = "the only start of the worker is fenced at hello";
      return;
    case IncarnationState::kUnknown:
      fault_ = "a server forgot an incarnation that it was told";
      return;
    case IncarnationState::kCurrent: break;
  }
  const ReplayPlan plan = LedgerOf(link).PlanReplay(server.boot, session->applied());
  if (plan.first_lost > 0) {
    fault_ =
        absl::StrCat("pushes ", plan.first_lost, " to ", plan.last_lost, " are lost on ps:", s);
    return;
  }
  link.renewal = Renewal::kReplay;
  link.new_boot = server.boot;
  link.hello_durable = server.durable.sequence;
  link.to_replay = 0;
  for (const RetainedPart& part : plan.parts) link.to_replay |= Small(1u << part.sequence);
  EndRenewalIfDone(&link);
}

void Model::EndRenewalIfDone(ModelLink* link) const {
  if (link->to_replay != 0) return;
  PushLedger ledger = LedgerOf(*link);
  ledger.EndRenewal(link->new_boot);
  ledger.TakeDurable(link->hello_durable);
  PutBack(ledger, link);
  link->new_boot = link->hello_durable = 0;
}

void Model::HearReplay(ModelState* state, int s, const ModelReply& reply) const {
  ModelLink& link = state->links[s];
  if (link.renewal != Renewal::kReplay || reply.asked_boot != link.new_boot) return;
  if (reply.answer != Answer::kOk || reply.boot != link.new_boot) {
    link.renewal = Renewal::kHello;
    link.new_boot = link.to_replay = link.hello_durable = 0;
    return;
  }
  const unsigned first = link.to_replay & -link.to_replay;
  if (first != 1u << reply.sequence) return;
  link.to_replay &= Small(~first);
  EndRenewalIfDone(&link);
}

void Model::StepRenewal(const ModelState& state, int s, Next next) const {
  const ModelServer& server = state.servers[s];
  const ModelLink& link = state.links[s];
  ModelState after = state;
  if (link.renewal == Renewal::kHello) {
    if (server.applying.sequence != 0) return;  // hello waits for the order lock
    RenewHello(&after, s);
    next(after, [&] { return absl::StrCat("the worker says hello to ps:", s, " again"); });
    return;
  }
  int64_t first = 1;
  while (!(link.to_replay >> first & 1)) ++first;
  if (Send(&after, s, first, /*replay=*/true)) {
    next(after,
         [&] { return absl::StrCat("the worker sends push ", first, " to ps:", s, " again"); });
  }
  if (server.boot == link.new_boot) return;
  after = state;  // the connection breaks
  after.links[s].renewal = Renewal::kHello;
  after.links[s].new_boot = after.links[s].to_replay = after.links[s].hello_durable = 0;
  next(after,
       [&] { return absl::StrCat("the worker finds ps:", s, " down in the middle of a replay"); });
}

void Model::StepLink(const ModelState& state, int s, Next next) const {
  const ModelServer& server = state.servers[s];
  const ModelLink& link = state.links[s];
  ModelState after = state;
  if (server.reply.answer != Answer::kNone) {
    Hear(&after, s);
    next(after, [&] {
      return absl::StrCat("the worker receives ps:", s, "'s reply to push ", server.reply.sequence);
    });
    after = state;
    after.servers[s].reply = {};
    next(after, [&] { return absl::StrCat("an answer of ps:", s, " is lost"); });
  }
  if (link.renewal != Renewal::kNone) return StepRenewal(state, s, next);
  after = state;
  if (state.next <= work_.count() && work_.HasPart(s, state.next) && !link.acknowledged &&
      Send(&after, s, state.next, /*replay=*/false)) {
    next(after, [&] { return absl::StrCat("the worker sends push ", state.next, " to ps:", s); });
  }
  // A pull or a heartbeat.
  after = state;
  if (server.boot != link.boot) {
    after.links[s].renewal = Renewal::kHello;
    next(after, [&] { return absl::StrCat("a pull finds ps:", s, " restarted"); });
    return;
  }
  if (server.applying.sequence == 0 && options_.names_boot) {
    LiveSession session(server, work_);
    session->Through(link.through);
    session.PutBack(&after.servers[s]);
  }
  Learn(&after.links[s], server.boot,
        options_.mutations.frees_applied ? after.servers[s].applied : server.durable.sequence);
  if (!(after == state)) next(after, [&] { return absl::StrCat("a pull from ps:", s); });
}

void Model::Step(const ModelState& state, Next next) const {
  for (int s = 0; s < kModelServers; ++s) {
    StepServer(state, s, next);
    StepEpoch(state, s, next);
    if (state.running) {
      StepLink(state, s, next);
      continue;
    }
    const ModelServer& server = state.servers[s];
    // Hello waits for the order lock and for a running epoch.
    const bool turn = s == 0 ? !state.links[0].greeted : state.links[0].greeted != 0;
    if (!turn || state.links[s].greeted || server.applying.sequence != 0 ||
        server.phase != EpochPhase::kIdle) {
      continue;
    }
    ModelState after = state;
    Greet(&after, s);
    next(after, [&] { return absl::StrCat("a start of the worker says hello to ps:", s); });
  }
  if (state.worker_crashes == 0) return;
  ModelState after = state;
  --after.worker_crashes;
  after.running = 0;
  after.next = 1;
  std::memset(static_cast<void*>(after.links), 0, sizeof after.links);
  next(after, [&] { return std::string("the worker crashes; what it sent is on its way"); });
}

bool Model::Complete(const ModelState& state) const {
  if (!state.running || state.next <= work_.count()) return false;
  return std::all_of(std::begin(state.links), std::end(state.links),
                     [](const ModelLink& link) { return link.retained == 0; });
}

std::string Model::Wrong(const ModelState& state) const {
  if (!fault_.empty()) return fault_;
  const bool complete = Complete(state);
  for (int s = 0; s < kModelServers; ++s) {
    const ModelServer& server = state.servers[s];
    for (int i = 0; i < kModelStripes; ++i) {
      for (int64_t q = 1; q <= work_.count(); ++q) {
        const int memory = server.stripes[i].counted[q - 1];
        const int disk = server.synced.stripes[i].counted[q - 1];
        const int most = static_cast<int>(work_.Stripes(s, q) >> i & 1);
        const auto where = [&] { return absl::StrCat("push ", q, " on stripe ", i, " of ps:", s); };
        if (memory > most || disk > most) return "doubled: " + where();
        if (complete && (memory < most || disk < most)) return "lost: " + where();
      }
    }
  }
  return "";
}

}  // namespace cairn::test
