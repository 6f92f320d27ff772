// Tickets, given out in hello replies, that admit callers to the local transport.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "thrift/security/peer_guard.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class TicketTable {
 public:
  // The caller whose connection uses the ticket.
  struct Bearer {
    PeerGuard guard;   // as it was when the ticket was issued
    std::string peer;  // the caller's name in messages
  };

  // A ticket is valid for `life`, while it is among the last `most` issued.
  TicketTable(size_t most, absl::Duration life) : most_(most), life_(life) {}

  // Returns kLocalTicketBytes random bytes. kUnavailable: the system has no random numbers.
  absl::StatusOr<std::string> Issue(Bearer bearer);
  // A ticket can be redeemed once. nullopt: it was never issued, was redeemed before, or is too
  // old.
  std::optional<Bearer> Redeem(absl::string_view ticket);

 private:
  struct Ticket {
    std::string number;
    Deadline end;
    Bearer bearer;
  };

  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_;
  const absl::Duration life_;
  absl::Mutex mutex_;
  std::list<Ticket> tickets_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // Not a table of Abseil's, which is unusable after an insertion for which there is no memory.
  std::map<std::string, std::list<Ticket>::iterator, std::less<>> by_number_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
