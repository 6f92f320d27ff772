// Reads and updates sharded variables on the parameter servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/local_transport.h"
#include "common/config/partitioner.h"
#include "common/config/security_options.h"
#include "common/consistency.h"
#include "common/deadline.h"
#include "common/value_format.h"
#include "common/variables/variable_spec.h"
#include "worker/client/checkpoint_part.h"
#include "worker/client/held_values.h"
#include "worker/client/job_holdings.h"

namespace cairn {

namespace wire {
class ParameterServerIf;
}

// The part of a variable that a pull, push or assign names.
enum class Part {
  kWhole,  // every row of a dense variable; no ids
  kRows,   // dense rows by global row number
  kKeys,   // embedding rows by key
};

// Destination of one variable's rows in a Pull.
struct PullTarget {
  absl::string_view variable = {};
  Part part = Part::kWhole;
  // kRows, kKeys: any order, repeats allowed; valid during the call
  absl::Span<const int64_t> ids = {};
  // [rows, width] for kWhole, else [ids.size(), width], of the variable's dtype, row-major; memory
  // that the caller owns. Unspecified unless OK is returned.
  absl::Span<std::byte> out = {};
  absl::string_view slot = {};  // empty: the value; else an optimizer slot by its Keras name
  // Wire format of the values; compact formats round them. Formats other than kPlain: float32
  // values only. Not kTopK.
  ValueFormat format = ValueFormat::kPlain;
  // Not null: transfers only the rows that changed since the last pull with this `held`. Requires
  // kWhole, an empty `slot`, and an `out` that still holds that pull's result, unmodified. A failed
  // pull leaves `out` partly updated, and `held` records which parts are valid. Null: transfers
  // every row.
  HeldValues* held = nullptr;
  // Of kKeys: each distinct key travels once. Pays where many keys repeat.
  bool combine_repeats = false;
  // Not null, for kWhole: receives the number of updates of the variable; if it has several shards,
  // the lowest.
  int64_t* updates = nullptr;
};

// One variable's rows in a Push (gradients) or an Assign (values).
struct PushSource {
  absl::string_view variable = {};
  Part part = Part::kWhole;
  absl::Span<const int64_t> ids = {};       // push: repeats are summed; assign: no repeats
  absl::Span<const std::byte> values = {};  // shape as in PullTarget; read during the call
  absl::string_view slot = {};              // Assign only
  // Push of float32 variables: wire format of the gradients; compact formats round them.
  ValueFormat format = ValueFormat::kPlain;
  double kept_fraction = 0.01;  // kTopK (kWhole only): fraction of each shard's values
  // Error feedback for compact formats and kWhole; empty: none. One float for each value, zero
  // before the first push. The push adds it to the gradients, and stores the rounding error of the
  // sum in it for the next push. Also written if the push fails.
  absl::Span<float> residual = {};
  // Of kKeys. Pushes: the client sums the gradients of repeats, in their order, before they are
  // rounded, and each distinct key travels once. Pays where many keys repeat. Assigns never
  // combine: the server rejects repeats.
  bool combine_repeats = false;
  // AssignTogether only: not below 0: becomes the variable's number of updates, from which the next
  // push continues.
  int64_t updates = -1;
};

// Staleness of this client's pushes: for each pushed shard, the number of updates by others between
// the pull and the push.
struct StalenessSummary {
  struct Bucket {
    int64_t up_to = 0;  // 0, 1, 2, 4, 8, …; inclusive
    int64_t pushes = 0;
    bool operator==(const Bucket&) const = default;
  };

  double mean = 0;
  int64_t p99 = 0;
  int64_t max = 0;
  std::vector<Bucket> histogram = {};  // without empty buckets at the end
};

struct ClientCounters {
  int64_t bytes_pushed = 0;  // payload bytes of gradients and ids
  int64_t bytes_pulled = 0;  // payload bytes of values and lists of changed rows
  int64_t retries = 0;
  int64_t pushes_dropped = 0;  // because of NaN or infinity (skip_not_finite)
  int64_t pushes_late = 0;     // sync: the step had closed without them

  // Bytes of pushes retained until they are durable, counted for each server: now, and the maximum
  // so far. Then the parts replayed to restarted servers: their number, payload bytes and total
  // time.
  int64_t retained_bytes = 0;
  int64_t retained_bytes_max = 0;
  int64_t replayed_pushes = 0;
  int64_t replayed_bytes = 0;
  double replay_seconds = 0;
};

// A worker's training progress, for the servers' status pages.
struct TrainingVitals {
  int64_t steps = 0;     // finished by this process
  int64_t examples = 0;  // input rows used by this process
  std::optional<double> loss = {};
  std::optional<double> share_done = {};    // fraction of the run, 0 to 1
  std::optional<double> seconds_left = {};  // estimated time until the run ends
};

struct ClientOptions {
  std::string job = {};  // see Caller.job in thrift/cairn.thrift
  // index among the job's training tasks; -1: a tool, whose updates have no sequence numbers
  int32_t worker = -1;
  std::string task = "tool";              // "worker:0", for messages
  std::vector<std::string> servers = {};  // "host:port" of ps:0, ps:1, …
  // How long a call retries while a server is down. The first failure is logged at once, with the
  // server and the time.
  absl::Duration ps_wait = absl::Seconds(60);
  // Time limit of one attempt of an RPC.
  absl::Duration rpc_timeout = absl::Seconds(30);
  int64_t max_message_bytes = int64_t{1} << 30;
  // TLS, and the token sent to servers. The files are read again when they change.
  SecurityOptions security = {};
  // Transport to servers on this host. Unless kOff, calls use shared memory instead of TCP, and so
  // bypass a proxy or a forwarded port in front of the server (thrift/LOCAL.md).
  LocalTransport local_transport = LocalTransport::kSameUser;
  // How far workers may run ahead of each other; must be the same for all live workers.
  Consistency consistency = {};
  // Number of workers that the job starts with; sync waits for them. 0: unknown.
  int32_t expected_workers = 0;
  // Places dense variables without `shards` in Create; null: round robin. Used by this client only.
  std::shared_ptr<Placement> placement = {};
  // True: a push with NaN or infinity in any gradient is dropped as a whole, counted, and returns
  // OK (a PushPull still pulls). False: it fails with kInvalidArgument.
  bool skip_not_finite = false;
  // Limit in bytes of pushes that a worker retains for replay until servers have made them durable.
  // Above half of it, the client asks servers for early snapshots and delays each push by up to 200
  // ms; at the limit, pushes wait for a snapshot. 0: retains nothing (for servers in the same
  // process), and a server that restarts without a push is an error.
  int64_t retained_bytes = int64_t{1} << 30;
  // Returns the progress that heartbeats report; called from several threads at once. Null: status
  // pages show only the steps that calls announce.
  std::function<TrainingVitals()> vitals = {};
};

// Reads and updates the variables of one job. A worker (ClientOptions::worker >= 0) numbers its
// pushes and assigns, and servers apply each one exactly once, even when servers or the worker
// restart.
//
// Thread safety: every method may be called from several threads at once, except as noted.
// Connections come from a pool; the pushes of one client are sent one after the other.
//
// Errors of every call, besides those listed with it:
//   kUnavailable         a server was down for ps_wait or until the deadline; the message names the
//                        server, the time since when, and the last error
//   kDeadlineExceeded    the deadline passed
//   kFailedPrecondition  a newer start of this worker has fenced this one, or a server came back
//                        without pushes that cannot be replayed (another directory, durability off,
//                        the job was dropped)
//   kAborted             see Step and Scan
//
// The first call that finds a server restarted replays the pushes that the server lacks, in order;
// other calls to that server wait in the meantime.
class PsClient {
 public:
  virtual ~PsClient() = default;

  // Connects to the servers in `options` and says hello to all of them. Fails where one cannot be
  // reached before `deadline`. kResourceExhausted: the system refuses a worker the threads of its
  // heartbeats.
  static absl::StatusOr<std::unique_ptr<PsClient>> Connect(const ClientOptions& options,
                                                           Deadline deadline);
  // Like Connect, with direct calls into servers of this process. `servers` outlive the client.
  static absl::StatusOr<std::unique_ptr<PsClient>> ConnectInProcess(
      const ClientOptions& options, std::vector<wire::ParameterServerIf*> servers,
      Deadline deadline);

  // Indices of the current servers, ascending from 0: those of the cluster file and those that
  // joined since, without those that have left (ps_server/MEMBERS.md).
  virtual std::vector<int32_t> servers() const = 0;
  int32_t server_count() const { return static_cast<int32_t>(servers().size()); }
  // Number of servers in the cluster file (or ConnectInProcess's list), whoever has joined or left.
  virtual int32_t listed_servers() const = 0;
  // Resume position stored with this worker's last push that every server had when this client
  // connected; empty: none. The next push gets the number after that push. Servers that already
  // have later pushes skip their recomputed versions.
  virtual const std::string& position() const = 0;

  // Creates variables; idempotent. The client places a variable without `shards` or `bucket_ps`: a
  // dense variable on one server, round robin in the order of calls; the buckets of a table over
  // all servers in turn. Later calls may name only variables that this client has created or
  // described.
  // kAlreadyExists: the variable exists with another spec; the message shows the difference.
  // kUnavailable: also a part of a new variable was to be on a server that has left the cluster.
  // kDeadlineExceeded: also after a wait for another Create of this client, which the message
  // names.
  virtual absl::Status Create(absl::Span<const VariableSpec> specs, Deadline deadline) = 0;
  // Every variable of the job, sorted by name. kDataLoss: the servers do not hold the same timeline
  // of the job; the message names the server that holds nothing or another timeline.
  virtual absl::StatusOr<std::vector<VariableSpec>> Describe(Deadline deadline) = 0;
  // What each server holds of the job, even if servers disagree.
  virtual absl::StatusOr<JobHoldings> Examine(Deadline deadline) = 0;

  // Copies rows into the `out` of each target.
  // kNotFound: no such variable. kInvalidArgument: wrong out.size(), an id out of range, or a part
  // that the variable does not have.
  virtual absl::Status Pull(absl::Span<const PullTarget> targets, Deadline deadline) = 0;
  // Applies gradients by the optimizer of each variable. When OK is returned every server has
  // applied its part, exactly once. `position` (at most 512 bytes) is stored with the push; see
  // position(). An empty one leaves the stored position as it is.
  // kInvalidArgument: as Pull; a variable is named twice; a gradient has NaN or infinity (checked
  // before the push is numbered). kResourceExhausted: one server's part is larger than a message.
  // If retained_bytes are used up, the push waits for an early snapshot. kUnavailable and
  // kDeadlineExceeded from this wait name the server with the most retained bytes; nothing of the
  // push was sent then.
  // After kUnavailable or kDeadlineExceeded of the push itself, a worker cannot know which servers
  // have applied it. All its later pushes fail with kFailedPrecondition; a restarted worker resumes
  // exactly.
  virtual absl::Status Push(absl::Span<const PushSource> sources, absl::string_view position,
                            Deadline deadline) = 0;
  // A push and a pull that sees it, in one round trip per server. Where the push is applied and a
  // pull is refused or fails, the error says "the push is applied": pull again, do not push.
  virtual absl::Status PushPull(absl::Span<const PushSource> sources, absl::string_view position,
                                absl::Span<const PullTarget> targets, Deadline deadline) = 0;
  // Begins the worker's next training step: a PushPull with the gradients of the previous step
  // (none in the first step). Before the pull, it waits for other workers as the job's consistency
  // requires; Pull, Push and PushPull never wait. It announces that the worker has finished all
  // earlier steps to each server with a part of `targets`, and under ssp to every server. A wait
  // that a server ends is repeated until `deadline`. Call it from one thread.
  // kDeadlineExceeded: names the waiting worker, the step, the missing workers and when each was
  // last seen. kAborted: a worker was lost and on_worker_loss is fail; this process must stop.
  //
  // Under sync the push is a contribution to the step that the previous Step began. Once all
  // workers have contributed, the servers apply the weighted mean as one update, which this call's
  // pull sees. `rows` (> 0) is the weight: the number of input rows that the gradient is the mean
  // of. A contribution that arrives after its step has closed is dropped and counted (pushes_late).
  virtual absl::Status Step(absl::Span<const PushSource> sources, absl::string_view position,
                            absl::Span<const PullTarget> targets, Deadline deadline,
                            int64_t rows = 1) = 0;
  // Pushes the gradients of the last step: as Push; under sync as Step without a pull.
  virtual absl::Status EndStep(absl::Span<const PushSource> sources, absl::string_view position,
                               int64_t rows, Deadline deadline) = 0;
  // Announces that this worker takes no more steps, so that no other worker waits for it. A later
  // Step resumes.
  virtual absl::Status EndSteps(Deadline deadline) = 0;
  // The largest number of steps by which this worker was ahead of the slowest other worker at the
  // end of a Step: the maximum over servers, each since its start.
  virtual absl::StatusOr<int64_t> LargestStepGap(Deadline deadline) = 0;
  // Sets values or optimizer slots. Applied exactly once, like a push. Errors as Push.
  virtual absl::Status Assign(absl::Span<const PushSource> sources, Deadline deadline) = 0;
  // For workers. Like Assign, of whole variables, and stores `position` like Push; durable when OK
  // is returned. A crash of a server leaves all of its part or none, so variables that only fit
  // each other never come back from different times.
  virtual absl::Status AssignTogether(absl::Span<const PushSource> sources,
                                      absl::string_view position, Deadline deadline) = 0;

  // Calls `row(key, values)` for every stored row of an embedding table. `values`: [dim] of the
  // table's dtype, valid during the call. kAborted: rows moved between servers during the scan, so
  // that rows may have been missed or repeated: scan again.
  virtual absl::Status Scan(
      absl::string_view variable,
      const std::function<void(int64_t key, absl::Span<const std::byte> values)>& row,
      Deadline deadline) = 0;

  // When OK is returned all pushes so far are durable.
  virtual absl::Status Flush(Deadline deadline) = 0;
  // Flushes, then gives up the worker's lease. No call may follow.
  virtual absl::Status Leave(Deadline deadline) = 0;
  // Deletes the job on every server and says hello again. No other call may run at the same time.
  virtual absl::Status DropJob(Deadline deadline) = 0;

  // Every server writes its part of the job to `directory`/`name`/ps-<index>, an absolute path on
  // its own host, while pushes continue. `name` identifies one checkpoint: a repeated call returns
  // the existing parts. Returns one part for each server, by index. All parts of a synchronous job
  // have the same steps: parts during which a step closed are made again. kAborted: steps closed
  // during each of several attempts. kResourceExhausted: a disk is full.
  virtual absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view directory,
                                                                   absl::string_view name,
                                                                   Deadline deadline) = 0;
  // Every server deletes its part of checkpoint `name`, and ps:0 the parts of servers that have
  // left; OK if there is none.
  virtual absl::Status DropCheckpoint(absl::string_view directory, absl::string_view name,
                                      Deadline deadline) = 0;
  // Creates this client's job from a checkpoint, with rows distributed over the current servers.
  // ps:0 restores last; the restore is complete once ps:0 has the job. Each worker then resumes
  // after its last sequence that all servers of the checkpoint had. Requires a client that is not a
  // worker, and a job without variables.
  // kAlreadyExists: the job has variables. kDataLoss: names the corrupt file. kNotFound: names a
  // server and the folder that it cannot read.
  virtual absl::Status Restore(const RestoreSource& source, Deadline deadline) = 0;
  // Checks that Restore could read all files of `source`, and their checksums, before the job is
  // dropped for it; changes nothing. Servers of earlier versions that hold the job check nothing.
  // Errors as Restore, except kAlreadyExists.
  virtual absl::Status VerifyRestore(const RestoreSource& source, Deadline deadline) = 0;

  virtual StalenessSummary staleness() const = 0;
  virtual ClientCounters counters() const = 0;
};

// Views typed values as the bytes that PushSource and PullTarget take.
template <typename T>
absl::Span<const std::byte> AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
absl::Span<std::byte> AsWritableBytes(absl::Span<T> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace cairn
