// Gloo's connections between the ranks of a group, for gloo_group.cc. Turns Gloo's exceptions into
// GlooFailure, which names the rank that a transfer waited for.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"

namespace cairn {

// A failed transfer. The rank that it waited for is not necessarily the rank at fault.
class GlooFailure : public std::exception {
 public:
  GlooFailure(int rank, std::string what) : rank_(rank), what_(std::move(what)) {}
  int rank() const { return rank_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  int rank_;
  std::string what_;
};

// Thread safety: one thread transfers; any thread may call Close, Interrupt,
// wait and InterruptIfStill.
class GlooLink {
 public:
  // Opens a listening socket for each other rank at `host`.
  static absl::StatusOr<std::unique_ptr<GlooLink>> Open(const std::string& host, int rank, int size,
                                                        Deadline deadline);
  // The addresses of the sockets, one for each other rank, which they need to connect.
  std::vector<std::string> Addresses() const;
  // Connects to every rank: addresses[r] is the address that rank r has opened for this one.
  void Connect(const std::vector<std::string>& addresses);  // throws GlooFailure
  // Closes every connection at once, if they are not closed yet. The other ranks' transfers fail,
  // even those whose data this rank has sent.
  void Close();

  int rank() const { return context_->rank; }
  int size() const { return context_->size; }
  // Deadline of later transfers.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  // Makes the running wait, and all later ones, throw.
  void Interrupt();
  // A wait in progress: its number, and the rank that it waits for; -1: none.
  struct Wait {
    uint64_t number;
    int rank;
  };
  Wait wait() const;
  // Interrupt, if this wait is still in progress.
  void InterruptIfStill(const Wait& wait);
  // At least `bytes` of memory, reused between calls: fresh pages cost as much as a transfer.
  char* Scratch(size_t bytes);

 private:
  friend class GlooBuffer;
  GlooLink() = default;

  // Calls `wait_for(milliseconds)`, which returns whether the transfer is complete.
  template <typename WaitFor>
  void Await(int rank, gloo::transport::UnboundBuffer* buffer, const char* what, WaitFor wait_for);
  void AbortWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  Deadline deadline_ = Deadline::In(absl::ZeroDuration());
  std::unique_ptr<char[]> scratch_;
  size_t scratch_bytes_ = 0;
  std::atomic<bool> closed_ = false;
  mutable absl::Mutex mutex_;
  uint64_t waits_ ABSL_GUARDED_BY(mutex_) = 0;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  gloo::transport::UnboundBuffer* waiting_on_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int waiting_for_ ABSL_GUARDED_BY(mutex_) = -1;  // the rank; -1: there is no wait
};

// Memory for sending and receiving. Messages between two ranks with one tag arrive in send order,
// in the memory posted for them in that order; a message must not be longer than the memory posted
// for it. A failure of one transfer fails the other transfers of its buffer, even complete ones.
// All methods but Post throw GlooFailure.
class GlooBuffer {
 public:
  GlooBuffer(GlooLink& link, void* data, size_t bytes)
      : link_(link), buffer_(link.context_->createUnboundBuffer(data, bytes)) {}

  // A failure is thrown by the next AwaitReceived: memory posted for a later call does not fail the
  // running one, which a rank that has left since may have completed.
  void Post(int from, uint64_t tag, size_t offset, size_t bytes);
  void AwaitReceived(int from);
  void Send(int to, uint64_t tag, size_t offset, size_t bytes);
  // Waits for the oldest send from this buffer that was not awaited yet.
  void AwaitOneSent();
  // Waits for all sends from this buffer.
  void AwaitSent();

 private:
  GlooLink& link_;
  const std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  std::deque<int> sent_to_;  // not awaited yet
  std::optional<GlooFailure> not_posted_;
};

}  // namespace cairn
