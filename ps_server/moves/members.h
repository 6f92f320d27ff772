// Which servers there are beyond, and less than, those of the cluster file (MEMBERS.md). ps:0 keeps
// it; every server knows whether it has left itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once, but for Load.
class Members {
 public:
  // Of server `server_index`, whose cluster file has `server_count`.
  Members(int32_t server_index, int32_t server_count);

  // Before the first call: what the store has of it.
  absl::Status Load(const StripeStore& store);

  // 0: nothing differs from the cluster file.
  int64_t version() const { return version_.load(std::memory_order_acquire); }
  // As `worker` of `job` is to know it; -1: any caller.
  wire::Members Tell(absl::string_view job, int32_t worker) const;

  // At ps:0; durable when OK is returned, and nothing where it was so before.
  // kFailedPrecondition: another index is due.
  absl::Status Add(int32_t index, const std::string& address, StripeStore& store);
  // `words`: how far workers are there.
  absl::Status Remove(int32_t index, const std::vector<wire::LastWord>& words, StripeStore& store);

  // Of a server that has left.
  std::vector<wire::LastWord> LastWords(int32_t index) const;

  // This server gets no rows any more; durable.
  absl::Status Leave(StripeStore& store);
  // kFailedPrecondition: it has left.
  absl::Status CheckStays() const;

 private:
  using Words = std::vector<wire::LastWord>;
  int32_t CountLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `next`, with the words of `index`, durably and for callers.
  absl::Status Publish(wire::Members next, int32_t index, StripeStore& store)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int32_t server_index_;
  const int32_t server_count_;
  std::atomic<int64_t> version_{0};
  std::atomic<bool> left_{false};
  mutable absl::Mutex mutex_;  // held over writes to the store, which are rare
  wire::Members members_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<int32_t, Words> last_words_ ABSL_GUARDED_BY(mutex_);  // by server
};

}  // namespace cairn
