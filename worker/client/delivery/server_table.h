// The servers that a client knows, by their indices. Some may come while calls run, and some go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "worker/client/delivery/server_session.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once. Sessions live as long as
// the table.
class ServerTable {
 public:
  explicit ServerTable(std::vector<std::unique_ptr<ServerSession>> sessions);

  // One above the highest index; only rises.
  size_t size() const { return size_.load(std::memory_order_acquire); }
  // index < size().
  ServerSession& operator[](size_t index) const {
    return *slots_[index].load(std::memory_order_acquire);
  }
  // Calls body(session) for those that have not left, from index 0 on.
  template <typename Body>
  void ForEachLive(Body body) const {
    const size_t count = size();
    for (size_t s = 0; s < count; ++s) {
      if (ServerSession& session = (*this)[s]; !session.left()) body(session);
    }
  }
  // Their indices.
  std::vector<int32_t> Live() const;

  // The next one: its index is size().
  void Put(std::unique_ptr<ServerSession> session);
  // Waits until there are more than `known`, the waits have ended, or `deadline` has passed.
  void WaitForMore(size_t known, Deadline deadline);
  // Ends the waits, and all later ones.
  void EndWaits();

 private:
  std::vector<std::atomic<ServerSession*>> slots_;
  std::atomic<size_t> size_;
  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool waits_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<ServerSession>> all_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
