/**
 * The protocol between workers and parameter servers: TBinaryProtocol (strict) over a plain byte
 * stream (Thrift's buffered, unframed transport), so that any stock Thrift client works.
 *
 * Conventions
 * - Payloads (`TensorData`) are row-major, little-endian, without padding. The struct that contains
 *   a payload gives its dtype and shape.
 * - thrift/limits.h has the limits (message bytes, items per call, name lengths). A call that
 *   exceeds a limit is refused before memory is allocated, with an error that names the limit.
 * - Every failed call throws ServerError. Field ids are never reused.
 * - Steps and sequences in requests are at most 2^62 (kMaxStep of thrift/number_limits.h), so that
 *   the ones after them exist; a larger one is refused with INVALID_ARGUMENT.
 * - Keys of embedding tables are signed 64-bit integers. Key k is in hash bucket
 *   (mix(k) >> 48) * N >> 16 of the table's N (VariableSpec.bucket_ps), where, on unsigned 64-bit words,
 *     mix(x): x += 0x9e3779b97f4a7c15; x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
 *             x = (x ^ (x >> 27)) * 0x94d049bb133111eb; return x ^ (x >> 31)
 *   mix(0) is 0xe220a8397b1dcdaf; with 16 buckets, key 0 is in bucket 14 and key 17 in bucket 8.
 *   examples/USE_ELSEWHERE.md specifies the keys of tokens and the initial values of rows, with
 *   more test vectors.
 */
namespace cpp cairn.wire
namespace py cairn_wire

cpp_include "thrift/payload.h"

typedef binary (cpp.type = "cairn::Payload") TensorData

/** Sent in `hello`; a server refuses versions that it does not speak. */
const i32 PROTOCOL_VERSION = 1

enum DType { FLOAT32 = 1, FLOAT64 = 2, FLOAT16 = 3, BFLOAT16 = 4, INT32 = 5, INT64 = 6 }

enum VariableKind { DENSE = 1, EMBEDDING = 2 }

/** Which rows a row-sparse push changes. ALL: rows that are not pushed get a zero gradient. */
enum TouchedRows { ALL = 1, PUSHED = 2 }

/** Which rows an item names. */
enum Selection {
  /** The whole dense shard, in row order; no ids. */
  WHOLE = 1,
  /** Rows of a dense shard: ids are global row numbers inside that shard. */
  ROWS = 2,
  /** Keys of an embedding table whose rows are on this server. */
  KEYS = 3
}

/** Wire formats of float32 values; common/value_format.h specifies the bytes of each. */
enum ValueFormat {
  PLAIN = 0,
  /** 2 bytes a value, rounded to nearest; larger values are clamped to the largest finite one. */
  FLOAT16 = 1,
  BFLOAT16 = 2,
  /** First the float32 scales s, one a row (a row of fewer than 8 values shares its scale with the
      next rows, up to 64 values); then a signed byte b for each value, which is b * s. */
  INT8 = 3,
  /** Only pushes with selection WHOLE: uint32 indices into the shard's values, ascending, then as
      many float32; the other values are 0. */
  TOP_K = 4
}

/** The numbers of absl::StatusCode. */
enum ErrorCode {
  CANCELLED = 1, UNKNOWN = 2, INVALID_ARGUMENT = 3, DEADLINE_EXCEEDED = 4, NOT_FOUND = 5,
  ALREADY_EXISTS = 6, PERMISSION_DENIED = 7, RESOURCE_EXHAUSTED = 8, FAILED_PRECONDITION = 9,
  ABORTED = 10, OUT_OF_RANGE = 11, UNIMPLEMENTED = 12, INTERNAL = 13, UNAVAILABLE = 14,
  DATA_LOSS = 15, UNAUTHENTICATED = 16
}

/** What the client must do about an error, if the code alone does not say so. */
enum ErrorReason {
  NONE = 0,
  /** `after` is ahead of the sequence that this server has applied: send every push above
      `replay_after` again. */
  REPLAY = 1,
  /** A newer incarnation of this worker is known: this process must stop. */
  FENCED = 2,
  /** The server's boot id differs from the one that the caller expects: say hello again. */
  REBOOTED = 3,
  /** The variable exists with another spec; the message shows the difference. */
  SPEC_CONFLICT = 4,
  /** The memory budget is exhausted: nothing was applied, except a step's push before its pull. */
  MEMORY_BUDGET = 5,
  /** A limit of thrift/limits.h was exceeded. */
  LIMIT = 6,
  /** A gradient has NaN or infinity: nothing was applied; the sequence is recorded as void. */
  NOT_FINITE = 7,
  /** The server is shutting down, or its disk failed. */
  STOPPING = 8,
  /** Other workers (named in the message) have been behind for longer than the call may wait. A
      push in the call has been applied. Retry the call. */
  WAIT_EXPIRED = 9,
  /** The worker was silent for longer than its lease, and the job continues without it: say hello
      again with the same incarnation. */
  LEASE_ENDED = 10,
  /** Another worker was lost, and the job's `on_worker_loss` is FAIL: this process must stop. */
  WORKER_LOST = 11,
  /** Live workers of the job use another Consistency; the message shows both. */
  CONSISTENCY_CONFLICT = 12,
  /** The server's queue of calls is full; this call was not processed. Send the same call again
      after `retry_after_ms`. */
  BUSY = 13,
  /** Rows that the call names have moved to another server, or have not arrived here yet. `moved`
      has this server's current maps. No part of an update was applied, and its sequence is not
      recorded: split the update by the newer map and send each server its part, as `late` to
      servers that had it already. */
  MOVED = 14,
  /** The job was dropped or restored since the caller described it, so the caller's maps are void:
      describe it again. Sent only to callers that name a timeline. */
  TIMELINE_ENDED = 15
}

enum ConsistencyMode { ASYNC = 1, SSP = 2, SYNC = 3 }

/** The weights for the mean of a step's contributions (SYNC). */
enum SyncMean { ROWS = 1, CONTRIBUTORS = 2 }

/** How the expiry of a worker's lease affects the other workers. */
enum WorkerLoss {
  /** The lost worker no longer counts in clocks and quorums. */
  CONTINUE = 1,
  /** Every further call of the live workers fails with WORKER_LOST. */
  FAIL = 2
}

/** How the workers of a job stay in step. All live workers of a job must use the same settings. */
struct Consistency {
  1: ConsistencyMode mode = ConsistencyMode.ASYNC
  /** SSP: s >= 0. A pull for step t waits until every other live worker has finished step
      t - s - 1, that is, has announced step t - s. */
  2: i64 staleness_bound_steps = 0
  /** SYNC: 0: every worker. */
  3: i32 replicas_to_aggregate = 0
  4: SyncMean sync_mean = SyncMean.ROWS
  5: WorkerLoss on_worker_loss = WorkerLoss.CONTINUE
}

/** The state of a server as seen by one worker. Part of every reply to a worker. */
struct ServerState {
  /** Different for every start of the server; > 0. */
  1: i64 boot_id
  /** Highest sequence of this worker that is applied here; 0: none. SYNC, in hello's reply of ps:0:
      applied, or named in a decision. */
  2: i64 applied
  /** Highest sequence of this worker that survives a crash of the server; <= applied. */
  3: i64 durable
  /** SYNC: the last step whose mean is applied here, and the last that survives a crash. */
  4: i64 closed_step = 0
  5: i64 durable_step = 0
  /** From ps:0 if its Members have a version other than 0: that version. */
  6: optional i64 members_version
}

/** A worker's training statistics, for status pages and tools; nothing else depends on them. */
struct WorkerVitals {
  /** "worker:0"; at most 64 bytes. */
  1: optional string task
  /** Steps and input rows that this start of the worker has finished; at most 2^62. */
  2: optional i64 steps
  3: optional i64 examples
  /** Mean over the last 100 steps. */
  4: optional double loss
  /** Staleness of this start's pushes, mean and maximum: updates by others between pull and
      push. */
  5: optional double staleness_mean
  6: optional i64 staleness_max
  /** Memory of pushes that the worker keeps for a replay. */
  7: optional i64 retained_bytes
  /** Indexes of servers that do not answer the worker, at most the first 64. */
  8: optional list<i32> servers_gone
  /** Finished share of the run, earlier starts included, 0 to 1. */
  9: optional double share_done
  /** Estimated time until the run is finished. */
  10: optional double seconds_left
  /** Those of servers_gone at whose addresses another server answers. */
  11: optional list<i32> servers_replaced
}

/** Identifies the caller. A caller that has not said hello leaves worker at -1; its calls are not
    sequenced. */
struct Caller {
  /** Name of the job that owns the variables and sequences. 1 … 256 bytes of [A-Za-z0-9_.-]. */
  1: string job
  /** Ordinal among the job's training tasks, from 0: the chief, if there is one, then the workers.
      -1: not sequenced. */
  2: i32 worker = -1
  /** Granted by hello on ps:0; > 0. */
  3: i64 incarnation = 0
  /** Boot id that the caller last saw here; 0: any. If it differs from the server's, the call is
      answered REBOOTED at once. */
  4: i64 boot_id = 0
  /** Boot `boot_id` lacks none of this worker's sequences up to this one. 0: not given. Ignored if
      boot_id is 0. */
  5: i64 through = 0
  /** Sent with a heartbeat several times a second. */
  6: optional WorkerVitals vitals
  /** Of a caller with worker -1: the job's timeline by the description (DescribeReply.timeline,
      without its sign) from which the caller has its maps. If the server has another one by now, a
      pull, push, assign or scan that fails is answered TIMELINE_ENDED. */
  7: optional i64 timeline
}

/** Position of a push or assign in its worker's order. Ignored if caller.worker is -1. */
struct Sequence {
  /** This call's number: 1, 2, …; a call has the same number on every server that it reaches. */
  1: i64 sequence = 0
  /** The previous number on this server. It must be applied or within Caller.through, else
      REPLAY. */
  2: i64 after = 0
  /** Opaque resume position (<= 6 KiB), stored with the sequence. */
  3: binary position
}

struct Schedule {
  /** constant, exponential_decay, inverse_time_decay, polynomial_decay, piecewise_constant_decay,
      cosine_decay, cosine_decay_restarts. */
  1: string type = "constant"
  /** Keras' arguments by name, booleans as 0 and 1. For constant: learning_rate. */
  2: map<string, double> arguments
  3: list<double> boundaries
  4: list<double> values
}

struct Optimizer {
  /** sgd adagrad adadelta rmsprop adam adamw adamax nadam lazy_adam ftrl lion; none: refuses
      pushes. */
  1: string type = "sgd"
  2: Schedule learning_rate
  /** Keras' arguments by name, booleans as 0 and 1; omitted arguments have Keras' defaults. */
  3: map<string, double> arguments
  /** 0: none. At most one of the three. */
  4: double clipvalue = 0
  5: double clipnorm = 0
  6: double global_clipnorm = 0
}

struct Initializer {
  /** zeros ones constant uniform normal glorot_uniform wave (common/variables/initializer.h). */
  1: string type = "zeros"
  2: map<string, double> arguments
  3: i64 seed = 0
}

/** Rows [first_row, first_row + rows) of a dense variable, on server `ps` (0-based). */
struct DenseShard {
  1: i64 first_row
  2: i64 rows
  3: i32 ps
}

/** Which rows an embedding table keeps. */
struct RowRules {
  /** A key gets a row at its n-th push; earlier pushes are not applied. 1 … 255. */
  1: i32 admit_after_pushes = 1
  /** Rows that have not been pushed for this long are deleted some time later; 0: never. */
  2: i64 expire_after_seconds = 0
  /** Limit for the whole table, divided among its buckets. Above it, the rows that have gone
      longest without a push are deleted. 0: no limit. */
  3: i64 max_rows = 0
}

/** The stored format of a row's numbers. */
enum RowFormat {
  FLOAT32 = 0,
  FLOAT16 = 1,
  BFLOAT16 = 2,
  /** Only for values, not for slots: a signed byte each, and a float32 scale a row. */
  INT8 = 3
}

/** How servers store the rows of an embedding table. Calls use float32 in any case. */
struct RowStorage {
  1: RowFormat values = RowFormat.FLOAT32
  2: RowFormat slots = RowFormat.FLOAT32
}

struct VariableSpec {
  /** 1 … 512 bytes of [A-Za-z0-9_./-]. */
  1: string name
  2: VariableKind kind = VariableKind.DENSE
  3: DType dtype = DType.FLOAT32
  /** DENSE: the whole variable's shape. EMBEDDING: [dim]. */
  4: list<i64> shape
  5: Optimizer optimizer
  6: Initializer initializer
  7: TouchedRows touched_rows = TouchedRows.ALL
  /** DENSE: in order, covering all rows. Empty: one shard on this server. */
  8: list<DenseShard> shards
  /** EMBEDDING: the server of each hash bucket; the size is a power of two, 1 … 65536. Empty: 16
      buckets on this server. */
  9: list<i32> bucket_ps
  10: i64 map_version = 1
  /** EMBEDDING. */
  11: optional RowRules row_rules
  /** EMBEDDING. */
  12: optional RowStorage row_storage
}

exception ServerError {
  1: ErrorCode code
  2: ErrorReason reason
  /** One line: who, what, found, allowed, next step. */
  3: string message
  /** With REPLAY: the last sequence that this server has applied; replay the sequences above it. */
  4: i64 replay_after = 0
  5: optional ServerState state
  /** With BUSY: milliseconds after which the server expects to have capacity for the call. */
  6: optional i32 retry_after_ms
  /** With MOVED: the variables whose rows have moved. */
  7: optional list<VariableSpec> moved
}

/** SYNC: one worker's push for a step. */
struct Contribution {
  1: i32 worker
  2: i64 incarnation
  3: i64 sequence
  /** Its weight under SyncMean.ROWS. */
  4: i64 rows
}

/** SYNC: the contributions that make up the mean of a step. ps:0 makes it durable, and the workers
    send it to the other servers. */
struct StepDecision {
  /** The job's step: 1, 2, … */
  1: i64 step
  /** Ordered by worker and sequence. Empty: the step closes without an update. */
  2: list<Contribution> contributions
}

/** One variable's part of a push. */
struct PushItem {
  1: string variable
  /** DENSE: index into spec.shards. EMBEDDING: 0. */
  2: i32 shard = 0
  3: Selection selection = Selection.WHOLE
  /** ROWS, KEYS: int64 [n]; gradients of repeated ids are summed first. */
  4: TensorData ids
  /** Must be the variable's dtype. */
  5: DType dtype = DType.FLOAT32
  /** Gradient: WHOLE [rows, width]; ROWS, KEYS [n, width]. */
  6: TensorData values
  /** PulledItem.version from which the gradient was computed; -1: unknown. */
  7: i64 pulled_version = -1
  /** Of `values`. */
  8: ValueFormat format = ValueFormat.PLAIN
  /** VariableSpec.map_version of the map that assigned the rows to this server; 0: not given. */
  9: i64 map_version = 0
}

struct PushRequest {
  1: Caller caller
  2: Sequence sequence
  3: list<PushItem> items
  /** SYNC: the step to which this push contributes. The server keeps the push until the step
      closes. Sent to every server, also without items. 0: apply now. */
  4: i64 step = 0
  /** With a step: the number of input rows over which the gradient is the mean; > 0. */
  5: i64 rows = 0
  /** SYNC: decisions that this server may lack, ordered by step. */
  6: list<StepDecision> decisions
  /** Part of a sequence that this server may already have applied, for rows that have moved here
      since. Each stripe decides by its own watermark. Durable when the reply is sent. */
  7: bool late = false
  /** SYNC: replaces the contribution that this server has under the same sequence, because rows
      that this server now owns have been added. */
  8: bool replaces = false
}

/** The result of one PushItem. */
struct PushedItem {
  /** Number of updates of this shard, including this one. */
  1: i64 version
  /** Updates by others between pulled_version and this push; -1: unknown. */
  2: i64 staleness
}

struct PushReply {
  1: ServerState state
  /** One per item, in order. */
  2: list<PushedItem> items
  /** True if this sequence had been applied before, so nothing was applied now. */
  3: bool repeated = false
  /** SYNC: the step had closed, or had been decided, without this contribution, which therefore has
      no effect. */
  4: bool dropped = false
}

/** Sets values instead of applying gradients. Sequenced like a push. */
struct AssignItem {
  1: string variable
  2: i32 shard = 0
  3: Selection selection = Selection.WHOLE
  /** ROWS, KEYS: int64 [n], without repeats. */
  4: TensorData ids
  5: DType dtype = DType.FLOAT32
  6: TensorData values
  /** Empty: the value. Otherwise an optimizer slot, by Keras' name. */
  7: string slot
  /** As PushItem.map_version. */
  8: i64 map_version = 0
  /** The number of updates that led to these values: it becomes the shard's number of updates
      (PulledItem.version). Not set: the number stays. */
  9: optional i64 updates
}

struct AssignRequest {
  1: Caller caller
  2: Sequence sequence
  3: list<AssignItem> items
  /** As PushRequest.late. */
  4: bool late = false
  /** Only from a worker, with selection WHOLE. The server stores all items, the sequence and its
      position in one write, during which it makes no other snapshot: after a crash it has all of
      them or none. Durable when the reply is sent. */
  5: optional bool together
}

/** Describes the copy of a whole dense shard that a caller holds from an earlier pull. */
struct HeldCopy {
  /** ServerState.boot_id and PulledItem.mark of that pull's reply; 0: the caller has no copy and
      asks for a mark. */
  1: i64 boot_id = 0
  2: i64 mark = 0
}

struct PullItem {
  1: string variable
  2: i32 shard = 0
  3: Selection selection = Selection.WHOLE
  /** ROWS, KEYS: int64 [n], any order, repeats allowed. */
  4: TensorData ids
  /** Empty: the value. Otherwise an optimizer slot, by Keras' name. */
  5: string slot
  /** Format of `values` in the reply; slots are always PLAIN. */
  6: ValueFormat format = ValueFormat.PLAIN
  /** As PushItem.map_version. */
  7: i64 map_version = 0
  /** Only for the value, with WHOLE: the server may send only rows that have changed since. */
  8: optional HeldCopy held
}

struct PullRequest {
  1: Caller caller
  2: list<PullItem> items
  /** The training step that this pull begins, counted from HelloReply.step. It announces to every
      server that the caller has finished all earlier steps. 0: begins no step. -1: the caller takes
      no more steps, so others must not wait for it. */
  3: i64 step = 0
  /** How long this call may wait for other workers before it fails with WAIT_EXPIRED: above 0, at
      most 60. */
  4: double wait_seconds = 10
  /** SYNC. The caller first sends the pull for `step` to ps:0, after every server has accepted its
      contributions to earlier steps; ps:0 waits until those steps are decided. Then the caller
      sends it to the other servers with PullReply.step of ps:0's reply; they wait until the
      earlier steps are closed there.
      `decisions`: those that this server may lack, ordered by step. */
  5: list<StepDecision> decisions
  /** ps:0 includes decisions of steps above this one in its reply. -1: none. */
  6: i64 decisions_after = -1
  /** All servers have at least this ServerState.durable_step and cannot restart with an earlier
      one, so ps:0 forgets the decisions up to here. */
  7: i64 all_durable_step = 0
  /** Members.version on which all_durable_step is based; if it is outdated, ps:0 forgets
      nothing. */
  8: i64 members_version = 0
}

struct PulledItem {
  1: DType dtype
  /** WHOLE [rows, width]; ROWS, KEYS [n, width]: row i is the row of ids[i]. A key without a row
      yields its initial value and is not stored. */
  2: TensorData values
  /** Number of updates of this shard when it was read. Rows are never torn; different rows may be
      read at slightly different versions, of which this is the lowest. */
  3: i64 version
  /** Format of `values`, as requested. */
  4: ValueFormat format = ValueFormat.PLAIN
  /** Set if the request had `held`: identifies the copy that the caller holds after this reply. */
  5: optional i64 mark
  /** If set, `values` holds only these rows, [sum of counts, width]: pairs of a first row and a
      count, ascending, without overlap. Rows are numbered within the variable, not within the
      shard. If not set, `values` holds every row. */
  6: optional list<i64> changed
}

struct PullReply {
  1: ServerState state
  /** One per item, in order. */
  2: list<PulledItem> items
  /** SYNC, for a pull with a step: the open step, to which the caller contributes next. The items
      have the values from the beginning of that step. If they are newer, the step has closed, and
      contributions to it are dropped. */
  3: i64 step = 0
  /** Decisions above decisions_after, as many as fit into one reply, ordered by step. */
  4: list<StepDecision> decisions
}

/** A push, then a pull that sees it: one round trip a training step. */
struct StepRequest {
  1: PushRequest push
  2: PullRequest pull
}

struct StepReply {
  1: PushReply push
  2: PullReply pull
}

struct HelloRequest {
  1: i32 protocol_version
  2: string job
  /** "worker", "chief", "evaluator", or any word for a tool; used in messages. */
  3: string task_type
  /** Ordinal as in Caller.worker; -1: only asks for information and takes no incarnation. */
  4: i32 worker = -1
  /** 0: a new start, to which only ps:0 grants an incarnation, which is higher than all that it has
      granted to the worker, also before the job was dropped. Otherwise the incarnation that ps:0
      granted, sent to the other servers. */
  5: i64 incarnation = 0
  /** Host and process, used in messages: "host/1234". */
  6: string origin
  /** Not set: the caller uses the setting of the other workers, which do not wait for it before it
      announces a step. */
  7: optional Consistency consistency
  /** The last step that this worker announced on any server; 0: none. -1: it takes no more
      steps. */
  8: i64 step = 0
  /** SYNC: the number of training workers with which the job is started; 0: unknown. */
  9: i32 expected_workers = 0
  /** With incarnation 0: a nonzero number, unique to this start of the worker. If ps:0 granted this
      start the worker's latest incarnation, it answers with the same one, so that a repeated hello
      fences no start; if one of the next eight starts has been granted an incarnation since, it
      answers FENCED. 0: always grants a new incarnation. ps:0 keeps the numbers in memory only. */
  10: i64 start = 0
  /** Identifies the caller's host and network namespace; empty: not given. */
  11: string host_id
  /** SYNC, for a server that has joined: if it knows none of the job's steps, it begins after this
      one, which is decided. */
  12: i64 begins_after_step = 0
  /** For a server that joined while the worker takes steps: the worker is at `step`, whatever the
      other workers' steps, and ignores HelloReply.step. */
  13: bool keeps_step = false
  /** The timeline in the reply of ps:0; for ps:0 itself, a timeline that it may begin; 0: unknown.
      A server without a timeline adopts this one. A server other than ps:0 that has a different
      timeline refuses the call, or drops that timeline if it has no variables. */
  14: i64 timeline = 0
  /** Of a worker that returns to this server with its incarnation: the timeline in the server's
      reply to the worker's first hello. A server with another timeline answers FENCED, because the
      job was dropped or restored meanwhile; a server without one does not adopt this one. */
  15: optional i64 known_timeline
}

/** A server that is not in the cluster file, or that no longer serves. */
struct Member {
  1: i32 index
  /** "host:port". */
  2: string address
  /** It has no rows and is no longer called. */
  3: bool left = false
  /** If left: the caller's highest sequence applied there, and the incarnation under which that
      server knew the caller. Lower incarnations were fenced there. */
  4: i64 applied = 0
  5: i64 incarnation = 0
}

/** The differences from the cluster file. Stored by ps:0. */
struct Members {
  /** Increases with each change; 0: no differences. */
  1: i64 version
  /** Number of server indexes, in the cluster file and beyond. */
  2: i32 server_count
  /** Ordered by index. */
  3: list<Member> members
}

/** The last state of a worker on a server that leaves. */
struct LastWord {
  1: string job
  2: i32 worker
  3: i64 applied
  4: i64 incarnation
}

enum MembersAction {
  /** Adds the server at `index`, which must be the next index or a server that has left. */
  ADD = 1,
  /** Sent to the leaving server: it accepts no more updates and replies with its last words. */
  CLOSE = 2,
  /** Removes the server at `index`. ps:0 cannot leave. */
  REMOVE = 3
}

/** Only for role ADMIN; sent to ps:0 unless the action says otherwise. Each may be repeated. */
struct ChangeMembersRequest {
  1: Caller caller
  2: MembersAction action
  3: i32 index
  /** ADD: "host:port", at which every worker can reach the server. */
  4: string address
  /** REMOVE: the reply to CLOSE. */
  5: list<LastWord> last_words
}

struct ChangeMembersReply {
  1: ServerState state
  /** The list of ps:0. */
  2: Members members
  /** CLOSE: for the workers of every job. */
  3: list<LastWord> last_words
}

/** A local endpoint of the server for callers on the same host. */
struct LocalEndpoint {
  /** Path of a Unix-domain socket; begins with a zero byte if the socket is abstract. */
  1: binary path
  /** Sent first on that socket; it gives the connection the identity of the caller that received
      it. Valid once. */
  2: binary ticket
}

struct HelloReply {
  1: i32 protocol_version
  2: ServerState state
  /** Granted (by ps:0) or accepted. 0 if worker is -1. */
  3: i64 incarnation
  /** Position stored with sequence state.durable; empty: none. */
  4: binary position
  /** This server's index in the cluster file, and the number of servers that it knows. */
  5: i32 server_index
  6: i32 server_count
  /** off, snapshot, log, log_sync. */
  7: string durability
  /** The lease expires this long after the worker's last call or heartbeat. */
  8: double lease_seconds
  /** Largest message that this server accepts. */
  9: i64 max_message_bytes
  /** The worker's clock on this server. The next step that the worker announces is one above the
      highest clock of all servers. A worker that is new, or that returns after its lease, gets the
      clock of the slowest live worker, or 0 if there is none. SYNC: the open step. */
  10: i64 step
  /** Set if host_id equals the server's own and the server has a local endpoint. */
  11: optional LocalEndpoint local
  /** Set by ps:0 if their version is not 0. */
  12: optional Members members
  /** The job's timeline, from its creation or restore until drop_job: > 0, the same on all its
      servers; 0: none here. The low 16 bits count the servers, from ps:0 on, that had it before any
      variable was created. */
  13: i64 timeline = 0
}

/** Statistics of the rows of an embedding table since the server's start. */
struct RowFigures {
  /** Keys of pulls and pushes whose row was in memory, only on disk, or nowhere. */
  1: i64 found
  2: i64 loaded
  3: i64 absent
  /** Rows that were evicted from memory to disk. */
  4: i64 evicted
  /** Pushes of keys that do not have a row yet (RowRules.admit_after_pushes). */
  5: i64 not_admitted
  /** Rows deleted because of their age, or because of the table's size. */
  6: i64 expired
  7: i64 crowded_out
}

/** Rows whose measure is at least `least` and below `least` of the next range. */
struct RowRange {
  1: i64 least
  2: i64 rows
}

/** Estimates, from a sample, of the distribution of an embedding table's rows in memory. The counts
    add up to all rows. */
struct RowCensus {
  /** By age: the number of updates of a row's bucket since the row's last update. */
  1: list<RowRange> by_age
  /** By use: the number of eviction rounds, 0 to 7, that a row survives if it is no longer used. A
      round in which the row was used adds two, a round in which it was not subtracts one. */
  2: list<RowRange> by_use
}

struct ShardInfo {
  1: i32 shard
  2: i64 first_row
  /** DENSE: rows of the shard; EMBEDDING: rows stored. */
  3: i64 rows
  4: i64 stripes
  /** Number of updates so far. */
  5: i64 version
  /** Values, slots and row metadata in memory. */
  6: i64 memory_bytes
  /** EMBEDDING: rows whose values are in memory; the others are only on disk. -1: not given. */
  7: i64 rows_in_memory = -1
  8: optional RowFigures row_figures
  /** EMBEDDING: refreshed at most once a second. */
  9: optional RowCensus row_census
  /** How often pulls and pushes have named rows here, since the start or since the rows came from
      another server. EMBEDDING: one count for each hash bucket, 0 for buckets of other servers;
      DENSE: one number. Empty unless DescribeRequest.with_uses. */
  10: list<i64> uses
}

struct VariableInfo {
  1: VariableSpec spec
  /** The shards on this server. */
  2: list<ShardInfo> shards
  /** Slot names, in order. */
  3: list<string> slots
}

struct DescribeRequest {
  1: Caller caller
  /** Without repeats. Empty: every variable of the job. */
  2: list<string> variables
  /** Whether the reply has the fields about the whole server, 9 to 13. They require a pass over all
      jobs and files. */
  3: bool with_server = false
  /** Whether ShardInfo.uses is filled. */
  4: bool with_uses = false
}

/** Updates by others between pull and push, counted once for each pushed shard. */
struct Staleness {
  1: i64 pushes
  2: double mean
  /** 99th percentile, as an upper bound: 0, 1, 2, 4, 8, … */
  3: i64 p99
  4: i64 max
}

struct DescribeReply {
  1: ServerState state
  2: list<VariableInfo> variables
  3: i32 server_index
  4: string durability
  5: i64 memory_used_bytes
  6: i64 memory_budget_bytes
  7: double uptime_seconds
  /** Counters since the start, by name: pushes, pulls, pushes_refused, not_finite, … */
  8: map<string, i64> counters
  /** Bytes of the server's files, including its log and tables that will be deleted. */
  9: i64 disk_bytes = -1
  /** Time since the last snapshot ended; -1: none since the start. */
  10: double seconds_since_epoch = -1
  /** Stripes, of all jobs, that the next snapshot will write. */
  11: i64 dirty_stripes = 0
  /** For pushes to any job since the start. */
  12: optional Staleness staleness
  /** The jobs on this server, at most 1024. */
  13: list<string> jobs
  /** As HelloReply.timeline; negative: begun by a restore, and no worker has said hello since. */
  14: i64 timeline = 0
  /** Time since the last checkpoint of the job on this server ended; -1: none since the server's
      start. */
  15: double seconds_since_checkpoint = -1
  /** With with_server: URL of the server's status page; empty: the server has none. */
  16: string status_page
}

struct ScanRequest {
  1: Caller caller
  2: string variable
  /** Cursor of the last reply; empty: from the start. */
  3: binary cursor
  /** Most rows to return, 1 … 65536. */
  4: i32 max_rows = 4096
  /** Empty: the value. Otherwise a slot. */
  5: string slot
  /** As PushItem.map_version. A server with another map answers BUSY or MOVED: during a move,
      neither the server that gave rows away nor the one that receives them might return them. */
  6: i64 map_version = 0
}

/** Stored rows of an embedding table; every row exactly once if no pushes run meanwhile. */
struct ScanReply {
  1: ServerState state
  /** int64 [n]. */
  2: TensorData keys
  /** [n, dim] of the variable's dtype. */
  3: TensorData values
  /** Empty: no more rows. */
  4: binary cursor
}

/** One file of a checkpoint, named by its path inside the checkpoint's folder. */
struct CheckpointFile {
  1: string name
  2: i64 bytes
  /** XXH3, 64 bits, seed 0, of the file's bytes. */
  3: i64 checksum
}

/** The state of a worker on one server. */
struct CheckpointWorker {
  /** 2147483647: `sequence` is the last closed step (SYNC); 2147483646: `incarnation` is the
      timeline. */
  1: i32 worker
  2: i64 incarnation
  /** The highest applied sequence. */
  3: i64 sequence
  /** Stored with the sequence; empty: none. */
  4: binary position
}

struct CheckpointRequest {
  1: Caller caller
  /** Absolute path on the server's host. Created if absent; its parent must exist. */
  2: string directory
  /** Identifies one attempt: 1 … 200 bytes of [A-Za-z0-9_.-]. The server writes to
      `directory/name/ps-<its index>`. If that exists already under this name, the server answers
      with it again. */
  3: string name
}

struct CheckpointReply {
  1: ServerState state
  2: i32 server_index
  /** Absolute path of the files that this server wrote, on `host`. */
  3: string folder
  4: string host
  5: list<CheckpointFile> files
  /** The job's workers, variables and shards as they are in the checkpoint. */
  6: list<CheckpointWorker> workers
  7: list<VariableInfo> variables
  /** Duration of the checkpoint. */
  8: double seconds
}

/** The files that one server of the checkpoint wrote. */
struct RestoreFolder {
  /** Absolute path on the host of the server that receives the request. */
  1: string path
  2: list<CheckpointFile> files
}

struct RestoreRequest {
  /** The job to create: every variable with its values, slots, update counts and watermarks,
      partitioned over the current servers. */
  1: Caller caller
  /** The folders of all servers of the checkpoint, in their order. */
  2: list<RestoreFolder> folders
  /** The job in the checkpoint; empty: caller.job. */
  3: string from_job
  /** The initial states of the workers here; the incarnations are lower bounds. */
  4: list<CheckpointWorker> workers
  /** As HelloReply.timeline: the timeline that the restore begins, the same on every server. */
  5: i64 timeline = 0
  /** Only verifies that this server can read all that it would restore, and every checksum. The
      server may hold the job, and keeps it. A server that does not know this field restores the
      job, or refuses with ALREADY_EXISTS where it holds the job. */
  6: optional bool verify_only
}

struct RestoreReply {
  1: ServerState state
  2: i64 variables
  3: i64 stripes
  /** Bytes of values and slots that this server loaded. */
  4: i64 bytes
  5: double seconds
  /** The answer to verify_only: the server has restored nothing. */
  6: optional bool verified
}

/** The state of a worker of the job on this server. */
struct WorkerStanding {
  1: i32 worker
  /** Host and process. */
  2: string origin
  /** live; finished: takes no more steps; left; lost; returning: known from before this server's
      start and not seen since; joining: waits until the returning workers are; expected: SYNC waits
      for its hello. */
  3: string state
  /** Its clock: the last step announced. */
  4: i64 step
  5: double seconds_since_seen
  /** Peak, since its hello, of its lead in steps over the slowest other live worker when one of its
      pulls was answered. */
  6: i64 largest_step_gap
  /** The last vitals that it sent, and their age. */
  7: optional WorkerVitals vitals
  8: double seconds_since_vitals = -1
  /** Its highest sequence applied here, and the highest that survives a crash of this server. */
  9: i64 applied = 0
  10: i64 durable = 0
}

/** A call that waits inside this server. */
struct WaitingCall {
  /** -1: a tool's call, this server's own, or a call whose caller is not known yet (it waits for
      memory to read the message into). */
  1: i32 worker
  /** step: other workers. order: an earlier call of the worker. epoch: the disk. memory: memory of
      other calls. create, checkpoint: an earlier call of that kind. move: another step of a move of
      the same rows. contribution: a lost contribution that must be sent again. */
  2: string waits_for
  3: double seconds
  /** One line: the waiting call, its cause, at most 16 of the missing workers and when each was last
      seen. */
  4: string text
  /** If waits_for is step or contribution: the workers that the call waits for, by ordinal. Some of
      them where a reply would otherwise name more than 4096 in all its calls together. */
  5: list<WorkerStanding> missing
  /** How many workers the call waits for besides `missing`. */
  6: optional i32 more_missing
}

struct WhyReply {
  1: ServerState state
  /** Calls of the job and calls of no job, longest wait first. Of more than 256 calls that wait for
      other workers, the 256 longest waits. */
  2: list<WaitingCall> waiting
  /** Every worker of the job that this server knows, by ordinal. */
  3: list<WorkerStanding> workers
  /** Maximum over all workers since this server's start. */
  4: i64 largest_step_gap
  /** How many calls wait for other workers besides those in `waiting`. */
  5: optional i64 more_waiting
}

/** The steps of a move, in order. */
enum MoveAction {
  /** To the target, then to the source: prepares for the move. */
  PREPARE = 1,
  /** To the source: returns the next stripes that have changed since they were last read. */
  READ = 2,
  /** To the target: stores the data of a READ reply. */
  WRITE = 3,
  /** To the source: refuses updates of the variable (BUSY) until COMMIT or ABORT, or until
      hold_seconds have passed, which then counts as ABORT. SYNC: waits until the steps that have
      begun there are closed; while MoveReply.draining, repeat it with the step of a later
      DECIDED. */
  HOLD = 4,
  /** To the target: confirms that it has all data, durably. */
  READY = 5,
  /** To the source, the point of no return: durably gives the rows away. Then to the target, which
      takes ownership, and to the other servers, which update their maps. Idempotent. */
  COMMIT = 6,
  /** To every server, first as a source and then as a target: undoes a PREPARE; also sent before
      each PREPARE. From the first ABORT on, the server rejects movers with a lower `start` for this
      map version. FAILED_PRECONDITION: the source has committed, or the mover is rejected. */
  ABORT = 7,
  /** SYNC, to ps:0: MoveReply.step. */
  DECIDED = 8
}

/** Moves hash buckets of one table, or whole shards of one dense variable, from one server to
    another while both serve. Only for role ADMIN. */
struct MoveRequest {
  1: Caller caller
  2: MoveAction action
  3: string variable
  /** The map after the move: its version is the present one plus one, and its bucket_ps or shards
      differ from the present ones in the pieces that move from `source` to `target`. */
  4: i64 map_version
  5: list<i32> bucket_ps
  6: list<DenseShard> shards
  7: i32 source
  8: i32 target
  /** READ: approximate size of the reply, 64 KiB … 64 MiB. */
  9: i64 max_bytes = 4194304
  /** WRITE. */
  10: TensorData data
  /** HOLD: above 0, at most 60. */
  11: double hold_seconds = 5
  /** Higher than that of every attempt that began earlier, by any mover. The same for all calls of
      an attempt, from its ABORT on; delayed calls of other attempts are refused. */
  12: i64 start = 0
  /** HOLD, SYNC: MoveReply.step of a DECIDED. */
  13: i64 step = 0
}

struct MoveReply {
  1: ServerState state
  /** READ: stripes in the form that WRITE accepts. Empty: nothing has changed since it was read. */
  2: TensorData data
  /** READ: approximate bytes that remain to be read. PREPARE at the source: bytes of the whole
      move. */
  3: i64 bytes_left
  /** Stripes and rows that move; some of them may be only on disk. */
  4: i64 stripes
  5: i64 rows
  /** HOLD: some steps that have begun are not closed yet. */
  6: bool draining = false
  /** DECIDED: the last decided step, whose contributions are named; 0: none. */
  7: i64 step = 0
}

/** The identity that the server assigns to the connection's caller. */
struct Identity {
  /** reader, worker, admin: the allowed calls (thrift/security/roles.h). */
  1: list<string> roles
  /** The name from the certificate or token, used in messages. */
  2: string name
}

/** Used on the same connection as ParameterServer, before its first call. If a server accepts
    tokens and neither a certificate nor a token has identified the caller, it answers only this
    call and closes the connection on any other. A connection has handshake_seconds to
    authenticate. */
service Authentication {
  /** UNAUTHENTICATED: the token is unknown or was revoked; the connection is closed. */
  Identity authenticate(1: string token) throws (1: ServerError error)
}

/** Errors of every call. PERMISSION_DENIED: none of the caller's roles may make it; nothing is
    done. UNAUTHENTICATED: the caller's token has been revoked. */
service ParameterServer {
  HelloReply hello(1: HelloRequest request) throws (1: ServerError error)

  /** Renews the lease; returns the state at once. */
  ServerState heartbeat(1: Caller caller) throws (1: ServerError error)

  /** Waits until everything that this worker pushed is durable, then ends its lease. */
  ServerState leave(1: Caller caller) throws (1: ServerError error)

  /** Idempotent. SPEC_CONFLICT if a variable exists with another spec; then none of the list is
      created. */
  ServerState create_variables(1: Caller caller, 2: list<VariableSpec> specs)
      throws (1: ServerError error)

  /** The whole call is validated before anything is applied. */
  PushReply push(1: PushRequest request) throws (1: ServerError error)
  PushReply assign(1: AssignRequest request) throws (1: ServerError error)
  PullReply pull(1: PullRequest request) throws (1: ServerError error)

  /** `push`, then `pull`. If the push is refused, nothing is pulled. If the pull is refused, the
      push is applied, and the error does not say so: send the push again, under its sequence. */
  StepReply step(1: StepRequest request) throws (1: ServerError error)

  DescribeReply describe(1: DescribeRequest request) throws (1: ServerError error)
  ScanReply scan(1: ScanRequest request) throws (1: ServerError error)

  /** Makes everything applied so far durable and returns the new state. */
  ServerState flush(1: Caller caller) throws (1: ServerError error)

  /** Lists the calls that wait on this server, for what and since when. Returns at once. */
  WhyReply why(1: Caller caller) throws (1: ServerError error)

  /** Forgets the job: its variables and sequences, in memory and on disk. Its workers are FENCED once
      the job is created again. FENCED: the caller's worker has a newer incarnation. */
  ServerState drop_job(1: Caller caller) throws (1: ServerError error)

  /** Makes everything applied so far durable and copies it to a separate folder, by hard links
      where the file system allows. The copy has the variables of every job of the server. Pushes
      continue meanwhile. */
  CheckpointReply checkpoint(1: CheckpointRequest request) throws (1: ServerError error)

  /** Deletes what `checkpoint` wrote here under this name, if anything. ps:0 also deletes the parts
      of servers that have left, where it finds them in its directory. */
  ServerState drop_checkpoint(1: CheckpointRequest request) throws (1: ServerError error)

  /** Loads this server's part of a checkpoint, completely or not at all, and verifies it.
      ALREADY_EXISTS: the server has variables of the job. */
  RestoreReply restore(1: RestoreRequest request) throws (1: ServerError error)

  /** One step of a move. */
  MoveReply move(1: MoveRequest request) throws (1: ServerError error)

  /** The servers that were added to, or removed from, those of the cluster file. Sent to ps:0. */
  Members members(1: Caller caller) throws (1: ServerError error)
  ChangeMembersReply change_members(1: ChangeMembersRequest request) throws (1: ServerError error)

  /** Refuses all other calls from now on (STOPPING; the message says that the server drains), waits
      for running calls, makes everything durable and answers. Then the program ends with exit
      status 0. `caller.job` may be any name. Idempotent. UNIMPLEMENTED in a worker's process. */
  ServerState drain(1: Caller caller) throws (1: ServerError error)
}
