// What becomes of updates that meet rows which have moved to other servers: the client's part of
// ps_server/MOVES.md.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/variables/variable_spec.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/position.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Thread safety: LearnMaps may be called from several threads at once; what sends numbered calls
// belongs to the thread whose turn it is (PushOrder).
class MovedUpdates {
 public:
  // What it asks of its client.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether the client goes on; `what` is for the error.
    virtual absl::Status CheckOpen(absl::string_view what, Deadline deadline) const = 0;
    // Makes every server that has a part of it known.
    virtual absl::Status KnowServersOf(const VariableSpec& spec, Deadline deadline) = 0;
    virtual void CountRetries(int64_t retries) = 0;
  };
  // One attempt at the calls that it is given, as FanOut::Run makes it.
  using Attempt = absl::FunctionRef<absl::Status(absl::Span<Exchange* const>)>;

  // All outlive this.
  MovedUpdates(const ClientIdentity& identity, const ServerTable& sessions, PushOrder& order,
               FanOut& fan_out, ClientVariableMap& variables, Host& host)
      : identity_(identity),
        sessions_(sessions),
        order_(order),
        fan_out_(fan_out),
        variables_(variables),
        host_(host) {}

  // Where a server that a map names cannot be greeted the map is not learned: says so in the log,
  // and pauses, longer each time, since `moved` will be answered again.
  void LearnMaps(const absl::Status& moved, Deadline deadline);
  // False: none of them met rows that have moved.
  bool LearnMaps(absl::Span<Exchange* const> exchanges, Deadline deadline);

  // Why the last map was not learned; OK: it was.
  absl::Status failure() const;

  // A new start goes on at `point`, and its sessions have begun. Before the first turn, or in one.
  void Begin(const ResumePoint& point);

  // All calls of one push or assign, which have its number, in the order that keeps it from being
  // taken for everybody's too early. *moved: the updates are in, and the pulls are to be made anew,
  // for rows have moved, or no call could wait for other workers.
  absl::Status SendNumbered(absl::Span<Exchange* const> all, Attempt run, Deadline deadline,
                            bool* moved);
  // After an attempt in which updates met rows that have moved: sends every server what is its own.
  // `exchanges` have ended then as if none had.
  absl::Status Send(absl::Span<Exchange* const> exchanges, bool numbered, Deadline deadline);

 private:
  // A number that some server has of an earlier start.
  absl::Status SendKnown(absl::Span<Exchange* const> all, Attempt run, Deadline deadline,
                         bool* moved);
  void PauseAfter(const absl::Status& failure, Deadline deadline);
  bool IsUnasked(int32_t server, int64_t number) const;
  // Sends it as a late part what `exchange` will send again.
  absl::Status SendAhead(Exchange& exchange, Deadline deadline);
  absl::Status SendPartsOf(absl::Span<Exchange* const> exchanges, Attempt run, Deadline deadline,
                           bool* moved);
  // Of a contribution: what has come to a server is added to what it has of it.
  absl::Status ContributeAnew(absl::Span<Exchange* const> exchanges, Deadline deadline);
  // *all: its calls; to them come those to servers that have rows of it since, which are in
  // *joined. *again: those that are to be sent again.
  absl::Status Repartition(std::vector<Exchange*>* all, std::deque<Exchange>* joined,
                           std::vector<Exchange*>* again);
  absl::Status SendRest(Exchange& exchange, bool numbered, Deadline deadline);
  // What of `items` is for other servers by now; the rest is left in it.
  template <typename Item>
  absl::Status SendParts(Exchange& exchange, std::vector<Item>& items, bool numbered,
                         Deadline deadline);
  // `late` and what becomes of them, until all are where they belong.
  template <typename Item>
  absl::Status SendLate(std::vector<Exchange> late, bool numbered, Deadline deadline);
  template <typename Item>
  absl::Status CutParts(const Exchange& exchange, std::vector<Item>& items, bool numbered,
                        std::vector<Exchange>* late);
  absl::Status RunLate(Exchange& late, Deadline deadline);
  absl::Status RunExchange(Exchange& exchange, bool numbered, Deadline deadline);

  const ClientIdentity& identity_;
  const ServerTable& sessions_;
  PushOrder& order_;
  FanOut& fan_out_;
  ClientVariableMap& variables_;
  Host& host_;
  int64_t known_through_ = 0;  // up to which some server had pushes of an earlier start
  std::vector<std::vector<SequenceRange>> unasked_;  // ResumePoint::unasked

  mutable absl::Mutex failure_mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(failure_mutex_);
  absl::Duration next_pause_ ABSL_GUARDED_BY(failure_mutex_) = absl::Milliseconds(10);
};

}  // namespace cairn
