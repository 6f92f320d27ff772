// Asks the other servers of the cluster about a job, for the status page.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/config/security_options.h"
#include "common/monotonic_cond_var.h"
#include "thrift/cairn_types.h"
#include "thrift/member_list.h"

namespace cairn {

struct PeerAnswer {
  int32_t server = 0;
  std::string address;
  absl::Status status;  // not OK: why the server does not answer; the rest is empty then
  wire::DescribeReply described;
  wire::WhyReply why;
  std::optional<wire::Members> members;  // of ps:0
};

struct PeersOptions {
  std::vector<std::string> servers;  // addresses of the cluster file's servers, by index
  int32_t self = 0;                  // index of this server
  // Credentials of this server. A server that rejects them is shown as refusing.
  SecurityOptions security;
};

// A job is watched from a Get that names it until kWatchDuration after the last one. Meanwhile,
// threads of this object ask the other servers about the job, once every kInterval: the servers of
// the cluster file, and those that have joined, but not those that have left. A server must answer
// within kCallTimeout.
// Thread safety: every method may be called from several threads at once.
class Peers {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(1);
  static constexpr absl::Duration kWatchDuration = absl::Seconds(8);
  static constexpr absl::Duration kCallTimeout = absl::Seconds(1);

  explicit Peers(PeersOptions options);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // The latest answers about `job`, by server; empty if there are no other servers. Null: no
  // answers yet, because `job` was not watched until now, or because too many jobs are watched.
  // `own`: at ps:0, its list of the servers that have joined and left; other servers ask ps:0.
  std::shared_ptr<const std::vector<PeerAnswer>> Get(const std::string& job,
                                                     const wire::Members& own = {});

 private:
  using Answers = std::shared_ptr<const std::vector<PeerAnswer>>;
  class Peer;
  struct Watched {
    absl::Duration last;  // on the monotonic clock
    Answers answers;
  };

  void Run();
  // Asks about every watched job once.
  void AskAboutJobs();
  std::vector<std::string> WatchedJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<PeerAnswer> AskAll(const std::string& job);
  // The servers to ask.
  std::vector<int32_t> OthersLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes peers_ those of members_.
  void UpdatePeers();
  // Applies the list in the answer of ps:0, and removes the answers of servers that have left.
  void TakeMembers(std::vector<PeerAnswer>& answers);

  const PeersOptions options_;
  std::vector<std::shared_ptr<Peer>> peers_;  // used by thread_ and by threads that it starts
  absl::Mutex mutex_;
  MemberList members_ ABSL_GUARDED_BY(mutex_);
  MonotonicCondVar changed_;
  std::atomic<bool> stopped_ = false;  // set under mutex_; ends a round between two calls
  std::map<std::string, Watched> watched_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
