// How the servers of the cluster differ from the cluster file: servers that have joined or left
// (MEMBERS.md). ps:0 keeps the list; every server knows whether it has left itself.
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

// Thread safety: every method may be called from several threads at once, except Load.
class Members {
 public:
  // For server `server_index`; its cluster file lists `server_count` servers.
  Members(int32_t server_index, int32_t server_count);

  // Called before all other methods: loads the stored list.
  absl::Status Load(const StripeStore& store);

  // 0: the servers are those of the cluster file.
  int64_t version() const { return version_.load(std::memory_order_acquire); }
  // The list for `worker` of `job`; -1: for any caller.
  wire::Members Tell(absl::string_view job, int32_t worker) const;

  // At ps:0. Durable when OK is returned; does nothing if the server is listed already.
  // kFailedPrecondition: another index is next.
  absl::Status Add(int32_t index, const std::string& address, StripeStore& store);
  // `words`: the last words of the server, its final report of how far each worker's pushes were
  // applied there.
  absl::Status Remove(int32_t index, const std::vector<wire::LastWord>& words, StripeStore& store);

  // The servers that have left. Empty except at ps:0.
  std::vector<int32_t> Departed() const;
  // The last words of a server that has left.
  std::vector<wire::LastWord> LastWords(int32_t index) const;

  // From now on, durably, this server accepts no rows.
  absl::Status Leave(StripeStore& store);
  // kFailedPrecondition: this server has left.
  absl::Status CheckStays() const;

 private:
  using Words = std::vector<wire::LastWord>;
  int32_t CountLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes `next`, with the last words of `index`, durable, then visible to callers.
  absl::Status Publish(wire::Members next, int32_t index, StripeStore& store)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int32_t server_index_;
  const int32_t server_count_;
  std::atomic<int64_t> version_{0};
  std::atomic<bool> left_{false};
  mutable absl::Mutex mutex_;  // held during writes to the store, which are rare
  wire::Members members_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<int32_t, Words> last_words_ ABSL_GUARDED_BY(mutex_);  // by server
};

}  // namespace cairn
