// Makes the program's own objects from a state of the model, and stores them back.
#pragma once

#include <cstdint>

#include "ps_server/jobs/session.h"
#include "tests/worker/client/delivery/exactly_once_steps.h"
#include "worker/client/delivery/push_ledger.h"

namespace cairn::test {

inline constexpr int32_t kWorker = 0;

inline uint8_t Small(int64_t value) { return static_cast<uint8_t>(value); }

inline WorkerRecord Wide(const ModelRecord& record, const Workload& work) {
  return {.job = "job",
          .worker = kWorker,
          .incarnation = record.incarnation,
          .sequence = record.sequence,
          .position = work.position(record.position)};
}

inline ModelRecord Narrow(const WorkerRecord& record, const Workload& work) {
  return {.incarnation = Small(record.incarnation),
          .sequence = Small(record.sequence),
          .position = Small(work.SequenceOf(record.position))};
}

class LiveSession {
 public:
  LiveSession(const ModelServer& server, const Workload& work)
      : work_(work), session_(Wide(server.durable, work), /*applied_is_durable=*/false) {
    session_.Admit(server.incarnation, "");
    session_.Applied(server.applied, work.position(server.position));
    session_.Through(server.through);
  }
  Session* operator->() { return &session_; }
  Session& operator*() { return session_; }
  void PutBack(ModelServer* server) const {
    WorkerRecord record = Wide(server->durable, work_);
    wire::ServerState state;
    session_.Fill(state);
    server->durable = {.incarnation = Small(session_.durable_incarnation()),
                       .sequence = Small(state.durable),
                       .position = Small(work_.SequenceOf(session_.position()))};
    record = Wide(server->durable, work_);
    session_.Note(record);  // false: nothing differs from the durable state
    server->incarnation = Small(session_.incarnation());
    server->applied = Small(record.sequence);
    server->position = Small(work_.SequenceOf(record.position));
    server->through = Small(state.applied);
  }

 private:
  const Workload& work_;
  Session session_;
};

inline PushLedger LedgerOf(const ModelLink& link) {
  PushLedger ledger;
  ledger.Begin(link.boot, link.released, link.released);
  for (int64_t q = 1; q <= kModelPushes; ++q) {
    if (link.retained >> q & 1) ledger.Acknowledged({.sequence = q});
  }
  ledger.NoPart(link.through);
  if (link.renewal != Renewal::kNone) ledger.BeginRenewal();
  return ledger;
}

inline void PutBack(const PushLedger& ledger, ModelLink* link) {
  link->boot = Small(ledger.boot_id());
  link->released = Small(ledger.released());
  link->through = Small(ledger.through());
  link->retained = 0;
  // A boot without state is sent all retained pushes.
  for (const RetainedPart& part : ledger.PlanReplay(-1, ledger.released()).parts) {
    link->retained |= Small(1u << part.sequence);
  }
  if (!ledger.renewing()) link->renewal = Renewal::kNone;
}

}  // namespace cairn::test
