// The moves of rows that have begun and not ended, of all jobs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/variables/variable_spec.h"

namespace cairn {

class ArrivingRows;
class OutgoingRows;

// How those that wait for Move::mutex are noted (NotedLock).
inline constexpr char kWaitsForMove[] = "move", kEarlierStep[] = "another step of the move";

// One side of a move.
struct Move {
  Move(VariableSpec to, int64_t begun_as, std::unique_ptr<OutgoingRows> out,
       std::unique_ptr<ArrivingRows> in);
  ~Move();

  const VariableSpec map;  // with which it ends
  const int64_t start;     // MoveRequest.start; 0: it is from before this server's start
  absl::Mutex mutex;       // held over each step, disk and all; guards what follows
  // One of the two.
  const std::unique_ptr<OutgoingRows> outgoing;
  const std::unique_ptr<ArrivingRows> arriving;
  bool ready = false;   // arriving: all of it is durable here
  bool drains = false;  // outgoing, of a synchronous job: workers had caught up when it was held
  bool ended = false;
};

// One a variable at most. Thread safety: every method may be called from several threads at once.
class Moves {
 public:
  // nullptr: none.
  std::shared_ptr<Move> Find(absl::string_view job, absl::string_view variable) const;
  // Of several movers towards one version of a variable's map the one whose number is the highest
  // may go on. False: that is not `start`.
  bool Claim(absl::string_view job, absl::string_view variable, int64_t version, int64_t start);
  bool HasClaim(absl::string_view job, absl::string_view variable, int64_t version,
                int64_t start) const;
  // Instead of the one there is. False, and nothing is done: its start has no claim (0 needs none,
  // where there is none), or rows are to come and arrivals are closed.
  bool Put(absl::string_view job, absl::string_view variable, std::shared_ptr<Move> move);
  // Where no rows are on their way here: true, and none can be from now on. Else *job and *variable
  // are whose rows they are.
  bool CloseArrivals(std::string* job, std::string* variable);
  void OpenArrivals();
  bool arrivals_closed() const;
  void Erase(absl::string_view job, absl::string_view variable);
  void EraseJob(absl::string_view job);

 private:
  using Key = std::pair<std::string, std::string>;
  struct Claimed {
    int64_t version = 0;
    int64_t start = 0;
  };
  static Key KeyOf(absl::string_view job, absl::string_view variable) {
    return {std::string(job), std::string(variable)};
  }

  int64_t StartOf(const Key& key, int64_t version) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<Key, std::shared_ptr<Move>> moves_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, Claimed> claims_ ABSL_GUARDED_BY(mutex_);
  bool arrivals_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
