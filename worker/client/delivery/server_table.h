// The servers that a client knows, by index. Servers may join and leave while calls run.
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
  // Calls body(session) for each server that has not left, in ascending order.
  template <typename Body>
  void ForEachLive(Body body) const {
    const size_t count = size();
    for (size_t s = 0; s < count; ++s) {
      if (ServerSession& session = (*this)[s]; !session.departed()) body(session);
    }
  }
  // Indices of the servers that have not left.
  std::vector<int32_t> Live() const;

  // Appends a server; its index is size().
  void Put(std::unique_ptr<ServerSession> session);
  // Waits until the table has more than `known` servers, EndWaits is called, or `deadline` passes.
  void WaitForMore(size_t known, Deadline deadline);
  // Ends all current and later waits.
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
