/**
 * The wire between workers and parameter servers. Spoken as TBinaryProtocol (strict) over a plain
 * byte stream (what Thrift calls a buffered, unframed transport), so any stock Thrift client works.
 *
 * Conventions
 * - Payloads (`TensorData`) are row-major, little-endian, without padding; the struct that holds
 *   one names its dtype and shape.
 * - Limits (bytes of a message, items of a call, length of a name) are those of thrift/limits.h;
 *   beyond one, the call is refused before memory is allocated, with an error that names the limit.
 * - Every failed call throws ServerError. Field ids are never reused.
 * - Keys of embedding tables are signed 64-bit integers. Key k is in hash bucket
 *   (mix(k) >> 48) * N >> 16 of the table's N (VariableSpec.bucket_ps), where, on unsigned 64-bit words,
 *     mix(x): x += 0x9e3779b97f4a7c15; x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
 *             x = (x ^ (x >> 27)) * 0x94d049bb133111eb; return x ^ (x >> 31)
 *   mix(0) is 0xe220a8397b1dcdaf, and of 16 buckets key 0 is in 14, key 17 in 8.
 *   examples/USE_ELSEWHERE.md has the keys of tokens and the initial values of rows, with more test
 *   vectors.
 */
namespace cpp cairn.wire
namespace py cairn_wire

cpp_include "thrift/payload.h"

typedef binary (cpp.type = "cairn::Payload") TensorData

/** Sent in `hello`; a server refuses a version it does not speak. */
const i32 PROTOCOL_VERSION = 1

enum DType { FLOAT32 = 1, FLOAT64 = 2, FLOAT16 = 3, BFLOAT16 = 4, INT32 = 5, INT64 = 6 }

enum VariableKind { DENSE = 1, EMBEDDING = 2 }

/** Which rows a row-sparse push moves: ALL gives rows not pushed a zero gradient. */
enum TouchedRows { ALL = 1, PUSHED = 2 }

/** Which rows an item names. */
enum Selection {
  /** The whole dense shard, in row order; no ids. */
  WHOLE = 1,
  /** Rows of a dense shard: ids are global row numbers inside that shard. */
  ROWS = 2,
  /** Keys of an embedding table that live on this server. */
  KEYS = 3
}

/** How float32 values travel; common/value_format.h has the bytes of each. */
enum ValueFormat {
  PLAIN = 0,
  /** 2 bytes a value, to the nearest; beyond the largest there is it is that one. */
  FLOAT16 = 1,
  BFLOAT16 = 2,
  /** A float32 scale s a row (a row of fewer than 8 values shares it with the next ones, up to 64
      values), all of them first; then a signed byte b a value, which is b * s. */
  INT8 = 3,
  /** Pushes, WHOLE: uint32 indices into the shard's values, ascending, then as many float32; the
      others are 0. */
  TOP_K = 4
}

/** The numbers of absl::StatusCode. */
enum ErrorCode {
  CANCELLED = 1, UNKNOWN = 2, INVALID_ARGUMENT = 3, DEADLINE_EXCEEDED = 4, NOT_FOUND = 5,
  ALREADY_EXISTS = 6, PERMISSION_DENIED = 7, RESOURCE_EXHAUSTED = 8, FAILED_PRECONDITION = 9,
  ABORTED = 10, OUT_OF_RANGE = 11, UNIMPLEMENTED = 12, INTERNAL = 13, UNAVAILABLE = 14,
  DATA_LOSS = 15, UNAUTHENTICATED = 16
}

/** What a program does about an error, where the code alone does not say. */
enum ErrorReason {
  NONE = 0,
  /** `after` is ahead of what this server has applied: send every push above `replay_after`. */
  REPLAY = 1,
  /** A newer incarnation of this worker is known: this process must stop. */
  FENCED = 2,
  /** The server's boot id is not the one the caller expects: say hello again. */
  REBOOTED = 3,
  /** The variable exists with another spec; the message shows both. */
  SPEC_CONFLICT = 4,
  /** Memory budget spent: nothing was applied. */
  MEMORY_BUDGET = 5,
  /** A limit of thrift/limits.h. */
  LIMIT = 6,
  /** A gradient holds NaN or infinity: nothing was applied, the sequence is recorded as void. */
  NOT_FINITE = 7,
  /** The server is shutting down, or its disk failed. */
  STOPPING = 8,
  /** Others are behind for longer than the call may wait (the message names them): a push in the
      call is applied. Ask again. */
  WAIT_EXPIRED = 9,
  /** The worker was not heard of for a lease, and the job goes on without it: say hello again, with
      the same incarnation. */
  LEASE_ENDED = 10,
  /** Another worker was lost, and the job's `on_worker_loss` is FAIL: this process must stop. */
  WORKER_LOST = 11,
  /** Live workers of the job keep together by another Consistency; the message shows both. */
  CONSISTENCY_CONFLICT = 12,
  /** More calls wait to be served than the server lets queue up: this one was not looked at. Send
      the same call again after `retry_after_ms`. */
  BUSY = 13,
  /** Rows that the call names have moved to another server, or are not here yet. `moved` has the
      maps as they are known here. Of an update nothing was applied, and its sequence is not
      recorded: send each server its part by the newer map, those that had it already as `late`. */
  MOVED = 14
}

enum ConsistencyMode { ASYNC = 1, SSP = 2, SYNC = 3 }

/** What the mean of a step's contributions is weighted by (SYNC). */
enum SyncMean { ROWS = 1, CONTRIBUTORS = 2 }

/** What the end of a worker's lease means to the others. */
enum WorkerLoss {
  /** It leaves clocks and quorums. */
  CONTINUE = 1,
  /** Every call of those that are live then fails with WORKER_LOST. */
  FAIL = 2
}

/** How a job's workers keep together. The same for all of them that live at a time. */
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

/** Where a server stands, as seen by one worker. In every reply to a worker. */
struct ServerState {
  /** Differs after every start of the server; > 0. */
  1: i64 boot_id
  /** Highest sequence of this worker applied (SYNC, ps:0's hello: or named) here; 0: none. */
  2: i64 applied
  /** Highest sequence of this worker that survives a crash of the server; <= applied. */
  3: i64 durable
  /** SYNC: the last step whose mean is applied here, and the last that survives a crash. */
  4: i64 closed_step = 0
  5: i64 durable_step = 0
  /** ps:0, where its Members are not version 0: their version. */
  6: optional i64 members_version
}

/** What a worker says of its training, for status pages and tools; nothing else depends on it. */
struct WorkerVitals {
  /** "worker:0"; at most 64 bytes. */
  1: optional string task
  /** Steps, and rows of input, that this start of the worker has finished. */
  2: optional i64 steps
  3: optional i64 examples
  /** Mean over the last 100 steps. */
  4: optional double loss
  /** Of this start's pushes: updates by others between pull and push, the mean and the largest. */
  5: optional double staleness_mean
  6: optional i64 staleness_max
  /** Memory of pushes that are kept to be sent again. */
  7: optional i64 retained_bytes
  /** Indexes of servers that do not answer it, the first 64. */
  8: optional list<i32> servers_gone
  /** Share of the run that is done, earlier starts included, 0 to 1. */
  9: optional double share_done
  /** Estimated time until the run is done. */
  10: optional double seconds_left
}

/** Who calls. A caller that never said hello leaves worker at -1: its calls are not sequenced. */
struct Caller {
  /** Name of the job: variables and sequences belong to it. 1 … 256 bytes of [A-Za-z0-9_.-]. */
  1: string job
  /** Ordinal among the job's training tasks: chief, else worker 0, is 0. -1: not sequenced. */
  2: i32 worker = -1
  /** Granted by hello on ps:0; > 0. */
  3: i64 incarnation = 0
  /** Boot id the caller last saw here; 0: any. A different one is answered REBOOTED at once. */
  4: i64 boot_id = 0
  /** Up to it, boot `boot_id` lacks nothing from this worker. 0: not said. Ignored if boot_id is 0. */
  5: i64 through = 0
  /** Carried by a heartbeat several times a second. */
  6: optional WorkerVitals vitals
}

/** Place of a push or assign in its worker's order. Ignored where caller.worker is -1. */
struct Sequence {
  /** This call's number: 1, 2, …; one call is one number on every server it reaches. */
  1: i64 sequence = 0
  /** The number before it on this server: applied, or within Caller.through, else REPLAY. */
  2: i64 after = 0
  /** Opaque resume position (<= 1 KiB), stored with the sequence. */
  3: binary position
}

struct Schedule {
  /** constant, exponential_decay, inverse_time_decay, polynomial_decay, piecewise_constant_decay,
      cosine_decay, cosine_decay_restarts. */
  1: string type = "constant"
  /** Keras' arguments by name, booleans as 0 and 1; constant: learning_rate. */
  2: map<string, double> arguments
  3: list<double> boundaries
  4: list<double> values
}

struct Optimizer {
  /** sgd adagrad adadelta rmsprop adam adamw adamax nadam lazy_adam ftrl lion; none: no pushes. */
  1: string type = "sgd"
  2: Schedule learning_rate
  /** Keras' arguments by name, booleans as 0 and 1; those left out have Keras' defaults. */
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
  /** A key gets a row with its n-th push; the pushes before do not move it. 1 … 255. */
  1: i32 admit_after_pushes = 1
  /** Rows not pushed for so long are deleted, some time later; 0: never. */
  2: i64 expire_after_seconds = 0
  /** Of the whole table, shared among its buckets: beyond it, rows not pushed for longest are
      deleted. 0: no limit. */
  3: i64 max_rows = 0
}

/** How a number of a row is kept. */
enum RowFormat {
  FLOAT32 = 0,
  FLOAT16 = 1,
  BFLOAT16 = 2,
  /** Values alone: a signed byte each, and a float32 scale a row. */
  INT8 = 3
}

/** How servers keep the rows of an embedding table; calls bring and take float32 all the same. */
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
  /** DENSE: in order, together all rows. Empty: one shard on this server. */
  8: list<DenseShard> shards
  /** EMBEDDING: server of each hash bucket; a power of two, 1 … 65536. Empty: 16 buckets here. */
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
  /** With REPLAY: the sequence this server has applied; replay starts above it. */
  4: i64 replay_after = 0
  5: optional ServerState state
  /** With BUSY: milliseconds until the server expects to have room for the call. */
  6: optional i32 retry_after_ms
  /** With MOVED: the variables concerned. */
  7: optional list<VariableSpec> moved
}

/** SYNC: one worker's push for a step. */
struct Contribution {
  1: i32 worker
  2: i64 incarnation
  3: i64 sequence
  /** What it weighs under SyncMean.ROWS. */
  4: i64 rows
}

/** SYNC: whose contributions make the mean of a step. Made durable by ps:0 and told to the other
    servers by the workers. */
struct StepDecision {
  /** 1, 2, …: of the job. */
  1: i64 step
  /** By worker and sequence. Empty: the step closes without an update. */
  2: list<Contribution> contributions
}

/** One variable's part of a push. */
struct PushItem {
  1: string variable
  /** DENSE: index into spec.shards. EMBEDDING: 0. */
  2: i32 shard = 0
  3: Selection selection = Selection.WHOLE
  /** ROWS, KEYS: int64 [n]; repeats are summed first. */
  4: TensorData ids
  /** Must be the variable's dtype. */
  5: DType dtype = DType.FLOAT32
  /** Gradient: WHOLE [rows, width]; ROWS, KEYS [n, width]. */
  6: TensorData values
  /** Version (PulledItem.version) the gradient was computed from; -1: not known. */
  7: i64 pulled_version = -1
  /** Of `values`. */
  8: ValueFormat format = ValueFormat.PLAIN
  /** VariableSpec.map_version of the map that the item was cut by; 0: not told. */
  9: i64 map_version = 0
}

struct PushRequest {
  1: Caller caller
  2: Sequence sequence
  3: list<PushItem> items
  /** SYNC: the step this is a contribution to: kept until the step closes, and sent to every
      server, also where it has no items. 0: applied now. */
  4: i64 step = 0
  /** With a step: how many rows of input the gradient is the mean of; > 0. */
  5: i64 rows = 0
  /** SYNC: decisions that this server may lack, by step. */
  6: list<StepDecision> decisions
  /** A part of a sequence that this server may have applied, of rows that have moved here since:
      each stripe is asked. Durable when it is answered. */
  7: bool late = false
  /** SYNC: takes the place of the contribution that this server has under the same sequence: rows
      that are its now have been added. */
  8: bool replaces = false
}

/** What became of one PushItem. */
struct PushedItem {
  /** Updates of this shard, this one included. */
  1: i64 version
  /** Updates by others between pulled_version and this push; -1: not known. */
  2: i64 staleness
}

struct PushReply {
  1: ServerState state
  /** One per item, in order. */
  2: list<PushedItem> items
  /** True where nothing was applied because this sequence already was. */
  3: bool repeated = false
  /** SYNC: the step had closed, or was decided, without this contribution: it does not count. */
  4: bool dropped = false
}

/** Sets values instead of moving them. Sequenced like a push. */
struct AssignItem {
  1: string variable
  2: i32 shard = 0
  3: Selection selection = Selection.WHOLE
  /** ROWS, KEYS: int64 [n], without repeats. */
  4: TensorData ids
  5: DType dtype = DType.FLOAT32
  6: TensorData values
  /** Empty: the value. Else one of the optimizer's slots, by Keras' name. */
  7: string slot
  /** As PushItem.map_version. */
  8: i64 map_version = 0
}

struct AssignRequest {
  1: Caller caller
  2: Sequence sequence
  3: list<AssignItem> items
  /** As PushRequest.late. */
  4: bool late = false
}

/** What a caller has of a whole dense shard from an earlier pull. */
struct HeldCopy {
  /** ServerState.boot_id and PulledItem.mark of that pull's reply; 0: has none, wants a mark. */
  1: i64 boot_id = 0
  2: i64 mark = 0
}

struct PullItem {
  1: string variable
  2: i32 shard = 0
  3: Selection selection = Selection.WHOLE
  /** ROWS, KEYS: int64 [n], any order, repeats allowed. */
  4: TensorData ids
  /** Empty: the value. Else one of the optimizer's slots, by Keras' name. */
  5: string slot
  /** Of the answer's `values`; slots travel PLAIN. */
  6: ValueFormat format = ValueFormat.PLAIN
  /** As PushItem.map_version. */
  7: i64 map_version = 0
  /** WHOLE, of the value: the rows that changed since are enough. */
  8: optional HeldCopy held
}

struct PullRequest {
  1: Caller caller
  2: list<PullItem> items
  /** The training step that this pull begins, as counted from HelloReply.step: the caller has
      finished every step below it, and every server is told so. 0: begins none. -1: the caller
      takes no more steps, nobody is to wait for it. */
  3: i64 step = 0
  /** How long this call may wait for other workers before WAIT_EXPIRED: above 0, at most 60. */
  4: double wait_seconds = 10
  /** SYNC. The call for `step` goes to ps:0 first, when every server has accepted what the caller
      contributes to the steps below, and waits there until those are decided. To the others it
      goes with PullReply.step of that answer, and waits until the steps below are closed there.
      Decisions that this server may lack, by step. */
  5: list<StepDecision> decisions
  /** ps:0 answers with decisions above this one. -1: with none. */
  6: i64 decisions_after = -1
  /** No server can come back with an earlier ServerState.durable_step: ps:0 forgets the decisions
      up to here. */
  7: i64 all_durable_step = 0
  /** Members.version that all_durable_step goes by: with an older one ps:0 forgets nothing. */
  8: i64 members_version = 0
}

struct PulledItem {
  1: DType dtype
  /** WHOLE [rows, width]; ROWS, KEYS [n, width]: row i is that of ids[i]. A key nobody has pushed
      yields its initial value and is not stored. */
  2: TensorData values
  /** Updates of this shard when it was read. Rows are never torn; different rows may be read at
      slightly different versions, this being the lowest. */
  3: i64 version
  /** Of `values`: the one asked for. */
  4: ValueFormat format = ValueFormat.PLAIN
  /** Where `held` was asked: stands for the copy that the caller has after this reply. */
  5: optional i64 mark
  /** Set: `values` holds only these rows, [sum of counts, width]: pairs of a first row and a count,
      ascending, without overlap. Rows are numbered as in the variable, not from the beginning of
      the shard. Not set: `values` holds every row. */
  6: optional list<i64> changed
}

struct PullReply {
  1: ServerState state
  /** One per item, in order. */
  2: list<PulledItem> items
  /** SYNC, to a pull with a step: the open step, to which the caller contributes next. The items
      are as of its beginning; where they are newer the step has closed, and contributions to it
      are dropped. */
  3: i64 step = 0
  /** As many as decisions_after asks for and one answer may hold, by step. */
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
  /** "worker", "chief", "evaluator", or any word for a tool; for messages. */
  3: string task_type
  /** Ordinal as in Caller.worker; -1: only asks, takes no incarnation. */
  4: i32 worker = -1
  /** 0: a new start; only ps:0 grants one. Else the one ps:0 granted, told to the other servers. */
  5: i64 incarnation = 0
  /** Host and process, for messages: "host/1234". */
  6: string origin
  /** Not set: the caller follows what others set, and nobody waits for it before it announces a
      step. */
  7: optional Consistency consistency
  /** The last step this worker announced, on any server; 0: none. -1: it takes no more steps. */
  8: i64 step = 0
  /** SYNC: how many training workers the job is started with; 0: not known. */
  9: i32 expected_workers = 0
  /** With incarnation 0: a number, not 0, that this start of the worker alone has. ps:0 answers it
      with the incarnation that it last granted it, if no other start has come since, so that a
      hello that is sent again fences nobody. 0: grants a new one. Forgotten when ps:0 ends. */
  10: i64 start = 0
  /** Names the caller's host and network namespace; empty: not told. */
  11: string host_id
  /** SYNC, to a server that has joined: one that knows nothing of the job's steps begins after this
      one, which is decided. */
  12: i64 begins_after_step = 0
  /** To a server that has joined while the worker takes steps: it is at `step`, wherever others are,
      and does not go by HelloReply.step. */
  13: bool keeps_step = false
  /** That ps:0 answered; to ps:0 one that it may begin; 0: not known. A server without one takes it
      over. One with another, but ps:0, refuses the call, or forgets a life without variables. */
  14: i64 timeline = 0
}

/** A server that the cluster file does not have, or that is not one any more. */
struct Member {
  1: i32 index
  /** "host:port". */
  2: string address
  /** Has no rows, and is not called any more. */
  3: bool left = false
  /** Where left: the caller's highest sequence applied there, and the incarnation that it was known
      by. A lower one has been fenced there. */
  4: i64 applied = 0
  5: i64 incarnation = 0
}

/** What differs from the cluster file. Kept by ps:0. */
struct Members {
  /** Rises with each change; 0: nothing differs. */
  1: i64 version
  /** How many indexes there are, of the cluster file and beyond. */
  2: i32 server_count
  /** By index. */
  3: list<Member> members
}

/** How far a worker was on a server that leaves. */
struct LastWord {
  1: string job
  2: i32 worker
  3: i64 applied
  4: i64 incarnation
}

enum MembersAction {
  /** The server at `index`, which is the next one or has left, is one. */
  ADD = 1,
  /** The server takes no updates any more, and answers with its last words. To that server. */
  CLOSE = 2,
  /** The server at `index` is not one any more. ps:0 cannot leave. */
  REMOVE = 3
}

/** ADMIN alone; to ps:0, unless the action says otherwise. Each may be repeated. */
struct ChangeMembersRequest {
  1: Caller caller
  2: MembersAction action
  3: i32 index
  /** ADD: "host:port", as every worker can reach it. */
  4: string address
  /** REMOVE: what CLOSE has answered. */
  5: list<LastWord> last_words
}

struct ChangeMembersReply {
  1: ServerState state
  /** Of ps:0. */
  2: Members members
  /** CLOSE: of every job's workers. */
  3: list<LastWord> last_words
}

/** A way into the server for callers on its own host. */
struct LocalEndpoint {
  /** Of a Unix-domain socket; begins with a zero byte where it is an abstract one. */
  1: binary path
  /** Shown first on that socket: the connection then is the caller's who got it. Used once. */
  2: binary ticket
}

struct HelloReply {
  1: i32 protocol_version
  2: ServerState state
  /** Granted (ps:0) or accepted. 0 where worker is -1. */
  3: i64 incarnation
  /** Position stored with state.durable; empty: none. */
  4: binary position
  /** This server's index in the cluster file, and how many it knows. */
  5: i32 server_index
  6: i32 server_count
  /** off, snapshot, log, log_sync. */
  7: string durability
  /** A lease lasts this long past the worker's last call or heartbeat. */
  8: double lease_seconds
  /** Largest message this server reads. */
  9: i64 max_message_bytes
  /** The worker's clock here: the next step it announces is one above the highest of these, of all
      servers. One that is new, or comes back after its lease, gets the clock of the slowest live
      worker; 0: there is none. SYNC: the open step. */
  10: i64 step
  /** Where host_id is the server's own, and it has one. */
  11: optional LocalEndpoint local
  /** ps:0, where their version is not 0. */
  12: optional Members members
  /** One life of a job, from its creation or restore until drop_job: > 0, the same on its servers;
      0: none here. The low 16 bits count those, from ps:0 on, that have it before any variable. */
  13: i64 timeline = 0
}

/** What became of the rows of an embedding table, since the server's start. */
struct RowFigures {
  /** Keys of pulls and pushes that had their row in memory, on disk alone, nowhere. */
  1: i64 found
  2: i64 loaded
  3: i64 absent
  /** Rows that left memory for the disk. */
  4: i64 evicted
  /** Pushes of keys that have no row yet (RowRules.admit_after_pushes). */
  5: i64 not_admitted
  /** Rows deleted: for their age, for the table's size. */
  6: i64 expired
  7: i64 crowded_out
}

/** Rows from `least` of something on, below the next one's `least`. */
struct RowRange {
  1: i64 least
  2: i64 rows
}

/** Of an embedding table's rows in memory, by a sample: estimates, which add up to all of them. */
struct RowCensus {
  /** By age: updates of a row's bucket since the row's last. */
  1: list<RowRange> by_age
  /** By use: for how many rounds of eviction a row stays that is not used any more, 0 to 7. A round
      in which it was used adds two, one in which it was not takes one. */
  2: list<RowRange> by_use
}

struct ShardInfo {
  1: i32 shard
  2: i64 first_row
  /** DENSE: rows of the shard; EMBEDDING: rows stored. */
  3: i64 rows
  4: i64 stripes
  /** Updates so far. */
  5: i64 version
  /** Values, slots and row metadata in memory. */
  6: i64 memory_bytes
  /** EMBEDDING: rows whose values are in memory; the others are on disk alone. -1: not told. */
  7: i64 rows_in_memory = -1
  8: optional RowFigures row_figures
  /** EMBEDDING: taken once a second at most. */
  9: optional RowCensus row_census
  /** Rows that pulls and pushes have named here, each time, since the start or since they came from
      another server. EMBEDDING: by hash bucket, 0 of those of other servers; DENSE: one number.
      Empty unless DescribeRequest.with_uses. */
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
  /** Empty: every variable of the job. */
  2: list<string> variables
  /** Whether the reply has what is of the whole server, its fields 9 to 13: costs a look at every
      job and file. */
  3: bool with_server = false
  /** Whether ShardInfo.uses is filled. */
  4: bool with_uses = false
}

/** How many updates of others lay between pull and push, counted once for each shard pushed. */
struct Staleness {
  1: i64 pushes
  2: double mean
  /** 99 % of the pushes do not exceed it: 0, 1, 2, 4, 8, … */
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
  /** The server's files, those of its log and of tables that are going included. */
  9: i64 disk_bytes = -1
  /** Since the last epoch ended; -1: there was none since the start. */
  10: double seconds_since_epoch = -1
  /** Stripes that the next epoch is to write, of every job. */
  11: i64 dirty_stripes = 0
  /** Of pushes to any job since the start. */
  12: optional Staleness staleness
  /** Every job there is here, at most 1024. */
  13: list<string> jobs
  /** As HelloReply.timeline; negative: a restore began it, and no worker has said hello since. */
  14: i64 timeline = 0
  /** Since the last checkpoint of the job on this server ended; -1: none since the server's start. */
  15: double seconds_since_checkpoint = -1
  /** With with_server: URL of the server's status page; empty: the server has none. */
  16: string status_page
}

struct ScanRequest {
  1: Caller caller
  2: string variable
  /** Where the last reply ended; empty: from the start. */
  3: binary cursor
  /** Rows wanted at most, 1 … 65536. */
  4: i32 max_rows = 4096
  /** Empty: the value. Else a slot. */
  5: string slot
  /** As PushItem.map_version: a server that has another map answers BUSY or MOVED, since one that
      gave rows away and the one that they go to could both be without them. */
  6: i64 map_version = 0
}

/** Stored rows of an embedding table, every row once if nothing is pushed meanwhile. */
struct ScanReply {
  1: ServerState state
  /** int64 [n]. */
  2: TensorData keys
  /** [n, dim] of the variable's dtype. */
  3: TensorData values
  /** Empty: no more rows. */
  4: binary cursor
}

/** One file of a checkpoint, by its path inside the checkpoint's folder. */
struct CheckpointFile {
  1: string name
  2: i64 bytes
  /** XXH3, 64 bits, seed 0, of the file's bytes. */
  3: i64 checksum
}

/** How far a worker was on one server. */
struct CheckpointWorker {
  /** 2147483647: sequence is the last closed step (SYNC); 2147483646: incarnation the timeline. */
  1: i32 worker
  2: i64 incarnation
  /** Applied. */
  3: i64 sequence
  /** Stored with the sequence; empty: none. */
  4: binary position
}

struct CheckpointRequest {
  1: Caller caller
  /** Absolute path on the server's host; made if absent, its parent must exist. */
  2: string directory
  /** Names one attempt: 1 … 200 bytes of [A-Za-z0-9_.-]. The server writes to
      `directory/name/ps-<its index>`; what is there already under that name is answered again. */
  3: string name
}

struct CheckpointReply {
  1: ServerState state
  2: i32 server_index
  /** Absolute path of what this server wrote, on `host`. */
  3: string folder
  4: string host
  5: list<CheckpointFile> files
  /** The job's workers, variables and shards as the checkpoint has them. */
  6: list<CheckpointWorker> workers
  7: list<VariableInfo> variables
  /** How long it took. */
  8: double seconds
}

/** What one server of the checkpoint wrote. */
struct RestoreFolder {
  /** Absolute path on the host of the server that is asked. */
  1: string path
  2: list<CheckpointFile> files
}

struct RestoreRequest {
  /** The job to make: every variable with its values, slots, update counts and watermarks, dealt to
      the servers there are now. */
  1: Caller caller
  /** Of every server of the checkpoint, in their order. */
  2: list<RestoreFolder> folders
  /** The job that the checkpoint is of; empty: caller.job. */
  3: string from_job
  /** The workers as they are to be known here: the incarnation is a floor. */
  4: list<CheckpointWorker> workers
  /** As HelloReply.timeline: the timeline that the restore begins, the same for every server. */
  5: i64 timeline = 0
}

struct RestoreReply {
  1: ServerState state
  2: i64 variables
  3: i64 stripes
  /** Values and slots that this server took over. */
  4: i64 bytes
  5: double seconds
}

/** A worker of the job as this server sees it. */
struct WorkerStanding {
  1: i32 worker
  /** Host and process. */
  2: string origin
  /** live; finished: takes no steps now; left; lost; returning: known from before this server's
      start, not heard of since; joining: until those are; expected: SYNC waits for its hello. */
  3: string state
  /** Its clock: the last step announced. */
  4: i64 step
  5: double seconds_since_seen
  /** How many steps it was ahead of the slowest other live worker's clock when a pull of it was
      answered, at most so far since its hello. */
  6: i64 largest_step_gap
  /** As it said last, and so long ago. */
  7: optional WorkerVitals vitals
  8: double seconds_since_vitals = -1
  /** Its highest sequence applied here, and the highest that survives a crash of this server. */
  9: i64 applied = 0
  10: i64 durable = 0
}

/** A call that waits inside this server. */
struct WaitingCall {
  /** -1: a tool's, this server's own, or one whose caller is not known yet (it waits for memory to
      be read into). */
  1: i32 worker
  /** step: other workers. order: the worker's earlier call. epoch: the disk. memory: that of other
      calls. create, checkpoint: one before it. contribution: one lost here, to be sent again. */
  2: string waits_for
  3: double seconds
  /** One line: who waits, for what, who is missing and when each was last seen. */
  4: string text
  /** waits_for step: those it waits for. */
  5: list<WorkerStanding> missing
}

struct WhyReply {
  1: ServerState state
  /** Of the job, longest first; and those of no job. */
  2: list<WaitingCall> waiting
  /** Every worker of the job known here, by ordinal. */
  3: list<WorkerStanding> workers
  /** The largest of any worker since this server's start. */
  4: i64 largest_step_gap
}

/** The steps of a move, in their order. */
enum MoveAction {
  /** To the target, then to the source: makes ready for it. */
  PREPARE = 1,
  /** To the source: the next of the stripes that changed since they were last read. */
  READ = 2,
  /** To the target: what READ has answered. */
  WRITE = 3,
  /** To the source: turns updates of the variable away (BUSY) until COMMIT or ABORT, or until
      hold_seconds have passed; then ABORT has happened. SYNC: until the steps that have begun there
      are closed, MoveReply.draining: to be repeated, with the step of a later DECIDED. */
  HOLD = 4,
  /** To the target: has everything, durably. */
  READY = 5,
  /** To the source, the point of no return: durably gives the rows away. Then to the target, which
      owns them, and to the other servers, for their maps. Idempotent. */
  COMMIT = 6,
  /** To every server, as a source first and then as a target: as if there had been no PREPARE, and
      before each. From the first on the server hears no mover with a lower `start` any more, for
      this version of the map. FAILED_PRECONDITION after COMMIT at the source, and to a mover that
      is not heard. */
  ABORT = 7,
  /** SYNC, to ps:0: MoveReply.step. */
  DECIDED = 8
}

/** Gives hash buckets of one table, or whole shards of one dense variable, from one server to
    another while both serve. ADMIN alone. */
struct MoveRequest {
  1: Caller caller
  2: MoveAction action
  3: string variable
  /** The map with which the move ends: version one above the present one, and bucket_ps or shards
      that differ from it in what goes from `source` to `target`. */
  4: i64 map_version
  5: list<i32> bucket_ps
  6: list<DenseShard> shards
  7: i32 source
  8: i32 target
  /** READ: about how much to answer, 64 KiB … 64 MiB. */
  9: i64 max_bytes = 4194304
  /** WRITE. */
  10: TensorData data
  /** HOLD: above 0, at most 60. */
  11: double hold_seconds = 5
  /** Above that of every try that began before, whoever's; the same from ABORT on in the steps of a
      try: what others still have on their way is refused. */
  12: i64 start = 0
  /** HOLD, SYNC: MoveReply.step of a DECIDED. */
  13: i64 step = 0
}

struct MoveReply {
  1: ServerState state
  /** READ: stripes, as WRITE takes them. Empty: nothing has changed since it was read. */
  2: TensorData data
  /** READ: about what is left to be read now. PREPARE at the source: of the whole move. */
  3: i64 bytes_left
  /** Stripes and rows that the move is about; of these some may be on disk alone. */
  4: i64 stripes
  5: i64 rows
  /** HOLD: not all steps that have begun are closed. */
  6: bool draining = false
  /** DECIDED: the last step whose contributions are named; 0: none. */
  7: i64 step = 0
}

/** Who the server takes the connection's caller for. */
struct Identity {
  /** reader, worker, admin: what it may call (thrift/security/roles.h). */
  1: list<string> roles
  /** The certificate's or the token's name; for messages. */
  2: string name
}

/** Spoken on the same connection as ParameterServer, before its first call. A server that accepts
    tokens answers nothing else to a caller that neither a certificate nor a token has named, and
    closes the connection; a connection has handshake_seconds to get this far. */
service Authentication {
  /** UNAUTHENTICATED: no such token, or not any more; the connection is closed. */
  Identity authenticate(1: string token) throws (1: ServerError error)
}

/** Every call: PERMISSION_DENIED where no role of the caller may make it; nothing is done then.
    UNAUTHENTICATED: its token has been revoked since. */
service ParameterServer {
  HelloReply hello(1: HelloRequest request) throws (1: ServerError error)

  /** Keeps the lease alive; answers with the state at once. */
  ServerState heartbeat(1: Caller caller) throws (1: ServerError error)

  /** Waits until everything this worker pushed is durable, then ends its lease. */
  ServerState leave(1: Caller caller) throws (1: ServerError error)

  /** Idempotent. SPEC_CONFLICT if one exists with another spec; then none of the list is made. */
  ServerState create_variables(1: Caller caller, 2: list<VariableSpec> specs)
      throws (1: ServerError error)

  /** Validated whole before anything is applied. */
  PushReply push(1: PushRequest request) throws (1: ServerError error)
  PushReply assign(1: AssignRequest request) throws (1: ServerError error)
  PullReply pull(1: PullRequest request) throws (1: ServerError error)

  /** `push`, then `pull`. If the push is refused nothing is pulled. */
  StepReply step(1: StepRequest request) throws (1: ServerError error)

  DescribeReply describe(1: DescribeRequest request) throws (1: ServerError error)
  ScanReply scan(1: ScanRequest request) throws (1: ServerError error)

  /** Makes everything applied so far durable and answers with the new state. */
  ServerState flush(1: Caller caller) throws (1: ServerError error)

  /** Who waits here, for what and since when. Answered at once. */
  WhyReply why(1: Caller caller) throws (1: ServerError error)

  /** Forgets the job: its variables, sequences and incarnations, in memory and on disk. */
  ServerState drop_job(1: Caller caller) throws (1: ServerError error)

  /** Makes everything applied so far durable and copies it to a folder of its own, by hard links
      where the file system allows. Holds the variables of every job of the server. Pushes go on. */
  CheckpointReply checkpoint(1: CheckpointRequest request) throws (1: ServerError error)

  /** Deletes what `checkpoint` made here for this name; nothing where it made nothing. */
  ServerState drop_checkpoint(1: CheckpointRequest request) throws (1: ServerError error)

  /** Takes over this server's part of a checkpoint, whole or not at all, verified. ALREADY_EXISTS:
      the server holds variables of the job. */
  RestoreReply restore(1: RestoreRequest request) throws (1: ServerError error)

  /** One step of a move. */
  MoveReply move(1: MoveRequest request) throws (1: ServerError error)

  /** Which servers there are, beyond and less than the cluster file. To ps:0. */
  Members members(1: Caller caller) throws (1: ServerError error)
  ChangeMembersReply change_members(1: ChangeMembersRequest request) throws (1: ServerError error)

  /** Turns every other call away from now on (STOPPING, the message says that the server drains),
      waits for those that run, makes everything durable and answers; then the program ends with exit
      status 0. `caller.job` may be any name. Idempotent. UNIMPLEMENTED in a worker's process. */
  ServerState drain(1: Caller caller) throws (1: ServerError error)
}
