// What lets a caller in by the local transport: numbers that hello gave out.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
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
  // Whose a connection with the ticket is.
  struct Bearer {
    PeerGuard guard;   // as it was when the ticket was given
    std::string peer;  // how messages name it
  };

  // A ticket is good for `life`, the last `most` of them.
  TicketTable(size_t most, absl::Duration life) : most_(most), life_(life) {}

  // kLocalTicketBytes drawn at random. kUnavailable: the system has none.
  absl::StatusOr<std::string> Issue(Bearer bearer);
  // Once. nullopt: it was never given, was used, or is too old.
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
  std::list<Ticket> tickets_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  absl::flat_hash_map<std::string, std::list<Ticket>::iterator> by_number_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
