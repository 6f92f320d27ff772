// Divides the calls of an update again after rows in them have moved to other servers
// (ps_server/MOVES.md). Only plans: it sends nothing.
#pragma once

#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Thread safety: ExtractMovedItems may be called from several threads at once; Repartition belongs
// to the thread that holds the PushOrder.
class UpdateReplanner {
 public:
  // All arguments outlive the replanner.
  UpdateReplanner(const ServerTable& sessions, PushOrder& order, const ClientVariableMap& variables)
      : sessions_(sessions), order_(order), variables_(variables) {}

  // Moves the items whose rows are on other servers by now from `items`, the items of `exchange`,
  // to calls in *late, one call a server. Item: wire::PushItem or wire::AssignItem. `numbered`: the
  // calls are late parts under the exchange's sequence.
  template <typename Item>
  absl::Status ExtractMovedItems(const Exchange& exchange, std::vector<Item>& items, bool numbered,
                                 std::vector<Exchange>* late) const;

  // Divides a contribution to a synchronous step again by the newest maps.
  //   *all     its calls; calls for servers that gained rows are appended
  //   *joined  owns the appended calls
  //   *again   set to the calls that must be sent again
  absl::Status Repartition(std::vector<Exchange*>* all, std::deque<Exchange>* joined,
                           std::vector<Exchange*>* again);

 private:
  const ServerTable& sessions_;
  PushOrder& order_;
  const ClientVariableMap& variables_;
};

}  // namespace cairn
