// Records which calls wait inside one server, for the RPC `why`.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/blocking.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once. A call that does not wait
// never touches the board.
class WaitBoard {
 private:
  struct Entry {
    std::string job;
    int32_t worker = -1;
    std::string waits_for;
    std::string text;
    absl::Duration since;  // on the monotonic clock
  };

 public:
  // While in scope, waits of this thread are attributed to `worker` of `job`. `job` must outlive
  // it.
  class Calling {
   public:
    Calling(absl::string_view job, int32_t worker);
    ~Calling();
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;

   private:
    const absl::string_view job_before_;
    const int32_t worker_before_;
  };

  // While in scope, this thread counts as waiting. `waits_for` is one word (WaitingCall.waits_for);
  // `what` completes the sentence "worker 1 of job j waits for …". Does nothing if `board` is null.
  class Waiting {
   public:
    Waiting(WaitBoard* board, absl::string_view waits_for, absl::string_view what);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    const Blocking blocking_;
    WaitBoard* const board_;
    std::list<Entry>::iterator entry_;
  };

  // Appends the waits of `job` and the waits that belong to no job.
  void List(absl::string_view job, std::vector<wire::WaitingCall>& waiting) const;
  // Adds to `counts`, by `waits_for`, how many calls wait, over all jobs and calls without a job.
  void Count(std::map<std::string, int64_t>& counts) const;

 private:
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// Holds `mutex`. While another thread holds it, `board` lists this call as waiting. Every holder
// must release `mutex` within a bounded time.
class ABSL_SCOPED_LOCKABLE TracedLock {
 public:
  TracedLock(absl::Mutex* mutex, WaitBoard* board, absl::string_view waits_for,
             absl::string_view what) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex);
  ~TracedLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  TracedLock(const TracedLock&) = delete;
  TracedLock& operator=(const TracedLock&) = delete;

 private:
  absl::Mutex* const mutex_;
};

// Like TracedLock, but shared.
class ABSL_SCOPED_LOCKABLE TracedReaderLock {
 public:
  TracedReaderLock(absl::Mutex* mutex, WaitBoard* board, absl::string_view waits_for,
                   absl::string_view what) ABSL_SHARED_LOCK_FUNCTION(mutex);
  ~TracedReaderLock() ABSL_UNLOCK_FUNCTION() { mutex_->ReaderUnlock(); }
  TracedReaderLock(const TracedReaderLock&) = delete;
  TracedReaderLock& operator=(const TracedReaderLock&) = delete;

 private:
  absl::Mutex* const mutex_;
};

}  // namespace cairn
