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

// Which part of a variable a pull, push or assign names.
enum class Part {
  kWhole,  // every row of a dense variable; no ids
  kRows,   // dense rows by global row number
  kKeys,   // embedding rows by key
};

// One variable's part of a Pull.
struct PullTarget {
  absl::string_view variable = {};
  Part part = Part::kWhole;
  absl::Span<const int64_t> ids = {};  // kRows, kKeys: any order, repeats allowed
  // [rows, width] or [ids.size(), width] of the variable's dtype, memory the caller owns.
  // Unspecified unless OK is returned.
  absl::Span<std::byte> out = {};
  absl::string_view slot = {};  // empty: the value; else an optimizer slot by Keras' name
  // How the values travel: in fewer bytes they come rounded. Of float32 values; not kTopK.
  ValueFormat format = ValueFormat::kPlain;
  // Of kWhole and the value: `out` has what the last pull with this `held` put there, and nobody
  // has written to it since: rows that have not changed stay as they are. Of a pull that fails
  // `out` keeps what it may, and `held` knows what. Null: every row comes.
  HeldValues* held = nullptr;
  // Of kKeys: each distinct key travels once. Pays where many keys repeat.
  bool combine_repeats = false;
};

// One variable's part of a Push (gradients) or Assign (values).
struct PushSource {
  absl::string_view variable = {};
  Part part = Part::kWhole;
  absl::Span<const int64_t> ids = {};       // push: repeats are summed first; assign: no repeats
  absl::Span<const std::byte> values = {};  // shaped as in PullTarget; read only during the call
  absl::string_view slot = {};              // assign only
  // Pushes of float32 variables: how the gradients travel, rounded where that takes fewer bytes.
  ValueFormat format = ValueFormat::kPlain;
  double kept_fraction = 0.01;  // kTopK, which is for kWhole: of the values of each shard
  // Error feedback, for kWhole and formats but kPlain; empty: none. One float a value, 0 before the
  // first push: added to the gradients; what rounding leaves out of their sum is put there for the
  // next push. Written where the push fails, too.
  absl::Span<float> residual = {};
  // Of kKeys. Pushes: the client sums the gradients of repeats, in their order, before they are
  // rounded, and each distinct key travels once. Pays where many keys repeat.
  bool combine_repeats = false;
};

// How stale this client's pushes were: by how many updates of others each shard had changed between
// the pull and the push, counted once for each shard pushed.
struct StalenessSummary {
  struct Bucket {
    int64_t up_to = 0;  // 0, 1, 2, 4, 8, …; above the bucket before
    int64_t pushes = 0;
    bool operator==(const Bucket&) const = default;
  };

  double mean = 0;
  int64_t p99 = 0;
  int64_t max = 0;
  std::vector<Bucket> histogram = {};  // up to the last with a push
};

struct ClientCounters {
  int64_t bytes_pushed = 0;  // payload bytes of gradients and ids
  int64_t bytes_pulled = 0;  // payload bytes of values, and of the list of rows that changed
  int64_t retries = 0;
  int64_t pushes_dropped = 0;  // for NaN or infinity (skip_not_finite)
  int64_t pushes_late = 0;     // under sync: their step closed without them

  // Pushes kept until servers have them durably, counted once a server: memory now, and at most so
  // far. Parts sent again to servers that had been restarted, their payload bytes, and the time
  // that took.
  int64_t retained_bytes = 0;
  int64_t retained_bytes_max = 0;
  int64_t replayed_pushes = 0;
  int64_t replayed_bytes = 0;
  double replay_seconds = 0;
};

// How far a worker's training is, for the servers' status pages.
struct TrainingVitals {
  int64_t steps = 0;     // finished since this process began to train
  int64_t examples = 0;  // rows of input, likewise
  std::optional<double> loss = {};
  std::optional<double> share_done = {};    // of the run, 0 to 1
  std::optional<double> seconds_left = {};  // estimated, until the run is done
};

struct ClientOptions {
  std::string job = {};       // see Caller.job in thrift/cairn.thrift
  int32_t worker = -1;        // ordinal among the job's training tasks; -1: unsequenced tool
  std::string task = "tool";  // "worker:0", for messages
  std::vector<std::string> servers = {};  // "host:port" of ps:0, ps:1, …
  // How long a call keeps trying while a server is gone. The first failure is logged at once, with
  // the server and since when.
  absl::Duration ps_wait = absl::Seconds(60);
  // Bound of one attempt of one RPC.
  absl::Duration rpc_timeout = absl::Seconds(30);
  int64_t max_message_bytes = int64_t{1} << 30;
  // TLS, and the token sent to servers; its files are read again when they change.
  SecurityOptions security = {};
  // How servers of this host are reached: past TCP, and so past whatever stands before their port
  // there (a proxy, a port that is forwarded), unless it is kOff (thrift/LOCAL.md).
  LocalTransport local_transport = LocalTransport::kSameUser;
  // How a worker keeps together with the others; the same for all that are live.
  Consistency consistency = {};
  // How many workers the job is started with: under sync those are waited for; 0: not known.
  int32_t expected_workers = 0;
  // Where Create puts dense variables that name no shards; null: round robin. Used by this client
  // alone.
  std::shared_ptr<Placement> placement = {};
  // True: a push with NaN or infinity in a gradient is dropped whole, counted, and returns OK (a
  // PushPull still pulls). False: it fails.
  bool skip_not_finite = false;
  // Memory a sequenced client takes for pushes that servers have not made durable, to send them
  // again to one that is restarted. Half full, it asks for early epochs, and pushes wait a
  // little each (200 ms at most) so as not to fill it; full, they wait for them. 0: nothing is kept
  // (for servers that cannot end without this process), and a server that comes back without a push
  // is an error.
  int64_t retained_bytes = int64_t{1} << 30;
  // Told to the servers with each heartbeat; called from other threads, several at once. Null:
  // their pages know the steps alone that calls announce.
  std::function<TrainingVitals()> vitals = {};
};

// Thread safety: every method may be called from several threads at once. Each of them takes its
// connections from a pool; pushes of one client are numbered and sent one after the other.
//
// Errors of every call, besides its own: kUnavailable: a server was gone for ps_wait or until the
// deadline (the message says which server, since when and the last error); kDeadlineExceeded;
// kFailedPrecondition: fenced by a newer start of this worker, or a server came back without pushes
// that cannot be sent again (another directory, durability off, the job dropped). kAborted: see
// Step and Scan.
//
// A server that is restarted is sent the pushes that it does not have, in order, by the call that
// meets it first; the others wait for that. A push counts once on every stripe it touches.
class PsClient {
 public:
  virtual ~PsClient() = default;

  // Says hello to every server at once.
  static absl::StatusOr<std::unique_ptr<PsClient>> Connect(const ClientOptions& options,
                                                           Deadline deadline);
  // The same over direct calls into servers of this process; `servers` outlive the client.
  static absl::StatusOr<std::unique_ptr<PsClient>> ConnectInProcess(
      const ClientOptions& options, std::vector<wire::ParameterServerIf*> servers,
      Deadline deadline);

  // Indices of the servers there are, ascending from 0; the cluster file's, without those that have
  // left, and with those that have joined since (ps_server/MEMBERS.md).
  virtual std::vector<int32_t> servers() const = 0;
  int32_t server_count() const { return static_cast<int32_t>(servers().size()); }
  // Resume position of this worker's last push that every server had when this client connected;
  // empty: none. The next push has the number after that push's: steps that some servers have
  // beyond it are computed again, and dropped there.
  virtual const std::string& position() const = 0;

  // Idempotent; with empty `shards` / `bucket_ps` the variable is placed by this client (whole on
  // one server by round robin in the order of calls, buckets dealt out in turn). All later calls
  // name variables created (or described) through this client.
  // kAlreadyExists: exists with another spec; the message shows both.
  virtual absl::Status Create(absl::Span<const VariableSpec> specs, Deadline deadline) = 0;
  // Every variable of the job. kDataLoss: the servers do not hold one life of the job; names the
  // server that holds nothing of it, or another life.
  virtual absl::StatusOr<std::vector<VariableSpec>> Describe(Deadline deadline) = 0;
  // What each server holds of the job, also where they disagree.
  virtual absl::StatusOr<JobHoldings> Examine(Deadline deadline) = 0;

  // kNotFound: no such variable. kInvalidArgument: wrong out.size(), an id out of range, a part
  // the variable does not have.
  virtual absl::Status Pull(absl::Span<const PullTarget> targets, Deadline deadline) = 0;
  // Applied once by every server when OK is returned. `position` (<= 512 bytes) is stored with it.
  // kInvalidArgument as Pull, for a variable named twice, and for NaN or infinity, found before the
  // push is numbered. kResourceExhausted: one server's part is larger than a message.
  // Where retained_bytes are used up it waits for an early epoch; kUnavailable or kDeadlineExceeded
  // name the server that holds the most then, and nothing of the push was sent.
  // After kUnavailable or kDeadlineExceeded of the push itself a sequenced client cannot know which
  // servers have the push: its later pushes fail with kFailedPrecondition, and a new start resumes
  // exactly.
  virtual absl::Status Push(absl::Span<const PushSource> sources, absl::string_view position,
                            Deadline deadline) = 0;
  // A push, and a pull that sees it, in one round trip a server.
  virtual absl::Status PushPull(absl::Span<const PushSource> sources, absl::string_view position,
                                absl::Span<const PullTarget> targets, Deadline deadline) = 0;
  // Begins the worker's next training step: as PushPull with the gradients of the step before (none
  // before the first), and before the pull waits for other workers as far as the job's consistency
  // asks; a PushPull, Push or Pull never does. Each server that has a part of `targets` is told
  // that the worker has finished every step before, under ssp each server. Servers that end the
  // wait while others are behind are asked again until `deadline`. One thread calls.
  // kDeadlineExceeded: names the waiter, the step, who is missing and when it was last seen.
  // kAborted: a worker was lost, and on_worker_loss is fail; this process must stop.
  //
  // Under sync the push is a contribution to the step that the last Step began. When the
  // others have contributed, the mean of all is applied once: what this pulls has it. It is
  // weighted by `rows` (> 0: of input, that the gradient is the mean of). A contribution that comes
  // after its step is dropped and counted (pushes_late).
  virtual absl::Status Step(absl::Span<const PushSource> sources, absl::string_view position,
                            absl::Span<const PullTarget> targets, Deadline deadline,
                            int64_t rows = 1) = 0;
  // The last step's push: as Push; under sync as Step, without a pull.
  virtual absl::Status EndStep(absl::Span<const PushSource> sources, absl::string_view position,
                               int64_t rows, Deadline deadline) = 0;
  // Takes no more steps: nobody waits for this worker. Another Step takes it back.
  virtual absl::Status EndSteps(Deadline deadline) = 0;
  // How many steps this worker was ahead of the slowest other one at most, when a Step of it ended;
  // at the server where that is most, since that server's start.
  virtual absl::StatusOr<int64_t> LargestStepGap(Deadline deadline) = 0;
  virtual absl::Status Assign(absl::Span<const PushSource> sources, Deadline deadline) = 0;

  // Calls `row(key, values)` for every stored row of an embedding table; values are [dim] of its
  // dtype, valid during the call. kAborted: rows moved between servers meanwhile, so that some were
  // missed, or came twice: scan again.
  virtual absl::Status Scan(
      absl::string_view variable,
      const std::function<void(int64_t key, absl::Span<const std::byte> values)>& row,
      Deadline deadline) = 0;

  // Everything pushed so far is durable when OK is returned.
  virtual absl::Status Flush(Deadline deadline) = 0;
  // Flush, then give up the lease. No calls afterwards.
  virtual absl::Status Leave(Deadline deadline) = 0;
  // Forgets the job on every server and says hello again. No other call at the same time.
  virtual absl::Status DropJob(Deadline deadline) = 0;

  // Every server writes what it has applied to `directory`/`name`/ps-<index>, an absolute path on
  // its own host; pushes go on meanwhile. `name` is one attempt's: repeating it answers what is
  // there. In the order of servers. kResourceExhausted: a disk is full.
  virtual absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view directory,
                                                                   absl::string_view name,
                                                                   Deadline deadline) = 0;
  // Every server deletes what it wrote for `name`; nothing where there is nothing.
  virtual absl::Status DropCheckpoint(absl::string_view directory, absl::string_view name,
                                      Deadline deadline) = 0;
  // Makes this client's job from a checkpoint, dealt to the servers there are; ps:0, which comes
  // last, tells whether it is done. Every worker resumes after the last sequence that all servers
  // of the checkpoint had. For an unsequenced client, while the job has no variables.
  // kAlreadyExists: it has. kDataLoss names the damaged file. kNotFound: a server cannot reach a
  // folder; names both.
  virtual absl::Status Restore(const RestoreSource& source, Deadline deadline) = 0;

  virtual StalenessSummary staleness() const = 0;
  virtual ClientCounters counters() const = 0;
};

// A typed view as the bytes that PushSource and PullTarget take.
template <typename T>
absl::Span<const std::byte> AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
absl::Span<std::byte> AsWritableBytes(absl::Span<T> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace cairn
