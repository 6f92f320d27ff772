// What this client knows of one server: its link, its boot id, how far pushes are there, and since
// when it is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "thrift/cairn_types.h"
#include "worker/client/server_link.h"

namespace cairn {

// Who this client is; equal for all servers.
struct ClientIdentity {
  std::string job;
  std::string task;    // "worker:0", for messages
  std::string origin;  // "host/1234"
  int32_t worker = -1;
  int32_t server_count = 0;
  absl::Duration ps_wait;

  bool sequenced() const { return worker >= 0; }
};

// What a caller does with the outcome of an attempt.
enum class Verdict {
  kDone,
  kAgain,       // at once: the session has been renewed
  kAgainLater,  // after a pause, while there is time
  kFail,        // outcome.status says why
};

// Thread safety: every method may be called from several threads at once, but for Begin,
// PushAnswered, NoPart and ForgetPushes, which the thread that holds the client's push lock calls.
class ServerSession {
 public:
  // `identity` outlives the session. `name` is "ps:1 (127.0.0.1:7002)".
  ServerSession(int32_t index, std::string name, std::unique_ptr<ServerLink> link,
                const ClientIdentity* identity);

  int32_t index() const { return index_; }
  const std::string& name() const { return name_; }
  ServerLink& link() { return *link_; }

  // One attempt of hello, which checks version and place of the server. `incarnation` 0 asks ps:0
  // for a new one.
  Outcome Hello(int64_t incarnation, Deadline deadline, wire::HelloReply* reply);
  // After the first hello: what later calls carry.
  void Begin(const wire::HelloReply& reply, int64_t incarnation, int64_t last_part,
             int64_t through);

  // Sets all fields of `caller`; returns the boot id in it.
  int64_t FillCaller(wire::Caller* caller) const;

  // Pushes, as seen by this server.
  int64_t last_part() const { return last_part_.load(std::memory_order_relaxed); }
  // The server of boot `boot_id` has applied its part of `sequence`. False where the session has
  // been renewed since: that answer came from a boot whose memory is gone, so send the part again.
  bool PushAnswered(int64_t sequence, int64_t boot_id);
  void NoPart(int64_t sequence);  // had none, or the server refused it: through covers it
  // Before the job is dropped: a server that has forgotten it has lost nothing.
  void ForgetPushes();

  // Decides about an attempt that carried `boot_id`. `repeatable`: running it twice does no harm.
  // Logs a server's going and coming back; says hello again to one that was restarted.
  Verdict Judge(Outcome* outcome, bool repeatable, int64_t boot_id, Deadline deadline);
  // The error of a call that waited in vain for this server, after its last attempt's `outcome`.
  absl::Status GaveUp(const Outcome& outcome, bool deadline_passed) const;

  absl::Duration SinceLastAnswer() const;

 private:
  void NoteAnswer();
  void NoteGone(const absl::Status& error);
  Verdict Renew(Outcome* outcome, int64_t stale_boot_id, Deadline deadline);
  absl::Status CheckHello(const wire::HelloReply& reply) const;
  absl::Status Fenced(const absl::Status& error) const;
  absl::Status PushesLost(int64_t applied, absl::string_view durability) const;

  const int32_t index_;
  const std::string name_;
  const std::unique_ptr<ServerLink> link_;
  const ClientIdentity& identity_;

  std::atomic<int64_t> incarnation_{0};
  std::atomic<int64_t> boot_id_{0};
  std::atomic<int64_t> last_part_{0};  // highest sequence with a part here that was acknowledged
  std::atomic<int64_t> through_{0};    // every sequence in (last_part_, through_] has no part here
  std::atomic<int64_t> last_answer_ns_{0};
  std::atomic<bool> gone_{false};

  absl::Mutex renew_mutex_;  // one hello at a time; orders it with acknowledgements
  mutable absl::Mutex mutex_;
  absl::Time gone_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
