// Keeps what a client retains of pushes that are not durable yet within its limit: pushes wait.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/early_epochs.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/delivery/retention.h"
#include "worker/client/delivery/retention_pace.h"
#include "worker/client/delivery/server_calls.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/delivery/server_table.h"

namespace cairn {

// Thread safety: MakeRoom belongs to the thread whose turn it is (PushOrder); the rest may be
// called from several threads at once.
class RetentionGate {
 public:
  // All outlive this.
  RetentionGate(const ClientIdentity& identity, const Retention& retention,
                const ServerTable& sessions, PushOrder& order, ServerCalls& calls)
      : identity_(identity),
        retention_(retention),
        sessions_(sessions),
        order_(order),
        calls_(calls),
        early_epochs_(sessions, calls) {}

  // Waits until the updates of `exchanges` fit in what may be retained.
  absl::Status MakeRoom(absl::Span<Exchange* const> exchanges, Deadline deadline);
  // After a push: asks for early epochs where half of the limit is used.
  void AskForEpochs() {
    if (retention_.bytes() > retention_.limit_bytes() / 2) early_epochs_.Ask();
  }
  // Asks for no more epochs, and waits for those that are under way.
  void Stop() { early_epochs_.Stop(); }

 private:
  absl::Status WaitForEpochs(int64_t needed, Deadline deadline);

  const ClientIdentity& identity_;
  const Retention& retention_;
  const ServerTable& sessions_;
  PushOrder& order_;
  ServerCalls& calls_;
  RetentionPace pace_{retention_.limit_bytes()};
  EarlyEpochs early_epochs_;
};

}  // namespace cairn
