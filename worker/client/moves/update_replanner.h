// Cuts calls that are under way anew, after rows in them have moved to other servers
// (ps_server/MOVES.md). Plans only: sends nothing.
#pragma once

#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Thread safety: belongs to the thread whose turn it is (PushOrder); CutLate to any.
class UpdateReplanner {
 public:
  // All outlive this.
  UpdateReplanner(const ServerTable& sessions, PushOrder& order, const ClientVariableMap& variables)
      : sessions_(sessions), order_(order), variables_(variables) {}

  // Appends to *late what of `items`, those of `exchange`, other servers have by now, one call
  // each; the rest is left in them. Item: wire::PushItem or wire::AssignItem. `numbered`: the calls
  // are late parts of the exchange's number.
  template <typename Item>
  absl::Status CutLate(const Exchange& exchange, std::vector<Item>& items, bool numbered,
                       std::vector<Exchange>* late) const;

  // Of a contribution: adds what has come to a server to what it has of it. *all: its calls; to
  // them come those to servers that have rows of it since, which are in *joined. *again: those that
  // are to be sent again.
  absl::Status Repartition(std::vector<Exchange*>* all, std::deque<Exchange>* joined,
                           std::vector<Exchange*>* again);

 private:
  const ServerTable& sessions_;
  PushOrder& order_;
  const ClientVariableMap& variables_;
};

}  // namespace cairn
