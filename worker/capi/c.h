/* The C interface of Cairn's client: variables and embedding tables on parameter servers.
 *
 * Calls return CAIRN_OK or the code of an error; cairn_last_error_message() then says who failed,
 * why, and what to do next. No call throws, and none ends the program because of its arguments.
 *
 * Handles are opaque numbers in the form of pointers and are never reused: a call with a handle
 * that is null, closed, or from before a fork fails with an error.
 *
 * Thread safety: every function may be called from several threads at once, also for one client;
 * at most one thread at a time calls cairn_step, cairn_end_step and cairn_end_steps of a client.
 *
 * Timeouts are in seconds and above 0; 0 means the client's own: ps_wait_seconds and two attempts
 * of a call (by default 120 s). No call waits longer than its timeout. Calls that read input files
 * have none.
 *
 * Descriptions are YAML or JSON texts with the keys of Cairn's cluster and job files. The library
 * copies what it is given; it keeps no pointer after a call returns. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes: those of absl::StatusCode and gRPC. */
enum cairn_code {
  CAIRN_OK = 0,
  CAIRN_CANCELLED = 1, /* the interrupt check ended the wait */
  CAIRN_UNKNOWN = 2,
  CAIRN_INVALID_ARGUMENT = 3,
  CAIRN_DEADLINE_EXCEEDED = 4,
  CAIRN_NOT_FOUND = 5,
  CAIRN_ALREADY_EXISTS = 6,
  CAIRN_PERMISSION_DENIED = 7,
  CAIRN_RESOURCE_EXHAUSTED = 8,
  CAIRN_FAILED_PRECONDITION = 9, /* also: a closed handle, a handle from before a fork */
  CAIRN_ABORTED = 10,
  CAIRN_OUT_OF_RANGE = 11,
  CAIRN_UNIMPLEMENTED = 12,
  CAIRN_INTERNAL = 13,
  CAIRN_UNAVAILABLE = 14, /* a server was gone for ps_wait_seconds or until the timeout */
  CAIRN_DATA_LOSS = 15,
  CAIRN_UNAUTHENTICATED = 16
};

/* Element types. */
enum cairn_dtype {
  CAIRN_FLOAT32 = 1,
  CAIRN_FLOAT64 = 2,
  CAIRN_FLOAT16 = 3,
  CAIRN_BFLOAT16 = 4,
  CAIRN_INT32 = 5,
  CAIRN_INT64 = 6
};

/* The part of a variable that an item names. */
enum cairn_part {
  CAIRN_WHOLE = 0, /* every row of a dense variable; no ids */
  CAIRN_ROWS = 1,  /* rows of a dense variable by number, any order, repeats allowed */
  CAIRN_KEYS = 2,  /* rows of an embedding table by key, any order, repeats allowed */
  /* As CAIRN_KEYS, for calls in which many keys repeat. Each distinct key is sent once; a push
   * first sums the gradients of repeated keys, in their order. An assign rejects repeats, as
   * always. */
  CAIRN_REPEATED_KEYS = 3
};

/* How float32 values are sent. Formats other than plain round values to fewer bytes. */
enum cairn_format {
  CAIRN_PLAIN = 0,
  CAIRN_AS_FLOAT16 = 1,
  CAIRN_AS_BFLOAT16 = 2,
  CAIRN_AS_INT8 = 3,
  CAIRN_TOP_K = 4 /* pushes of whole variables only: the values of largest magnitude */
};

typedef struct cairn_client cairn_client;
typedef struct cairn_scan cairn_scan;
typedef struct cairn_servers cairn_servers;
typedef struct cairn_reader cairn_reader;
typedef struct cairn_record_reader cairn_record_reader;

/* One variable's part of a pull (data is written), push or assign (data is read). Memory belongs to
 * the caller, is contiguous and row-major, and is used only during the call. Set unused fields to
 * 0. The shape is that of the variable for CAIRN_WHOLE, else [id_count, …] with the variable's
 * extents after the first; it and the dtype must match the variable's. */
typedef struct cairn_item {
  const char* variable; /* NUL-terminated */
  const char* slot;     /* pull, assign: an optimizer slot by Keras' name; null: the value */
  const int64_t* ids;   /* row numbers or keys; CAIRN_WHOLE: null. Assign: no repeats */
  uint64_t id_count;
  void* data;
  const int64_t* shape; /* [rank] */
  int32_t rank;
  int32_t dtype;        /* enum cairn_dtype */
  int32_t part;         /* enum cairn_part */
  int32_t format;       /* enum cairn_format */
  double kept_fraction; /* CAIRN_TOP_K: the fraction of values to send; 0: 0.01 */
  float* residual;      /* push of a whole variable in a rounding format: the rounding error of
                         * each value, which the next push adds; null: errors are dropped */
  uint64_t residual_count;
  const void* reserved[2]; /* null */
} cairn_item;

typedef struct cairn_counters_t {
  int64_t bytes_pushed, bytes_pulled; /* payload bytes */
  int64_t retries;
  int64_t pushes_dropped; /* because of NaN or infinity, with not_finite: skip */
  int64_t pushes_late;    /* sync: the step had closed without the push */
  int64_t retained_bytes, retained_bytes_max; /* of pushes kept until they are durable */
  int64_t replayed_pushes, replayed_bytes;    /* sent again to restarted servers */
  double replay_seconds;
} cairn_counters_t;

/* Staleness of this client's pushes: the number of updates that other workers made to a shard
 * between this client's pull and push. */
typedef struct cairn_staleness_t {
  double mean;
  int64_t p99, max;
} cairn_staleness_t;

/* Rows of input. Pointers are valid until the reader's next call; parts that the format does not
 * have are null. */
typedef struct cairn_batch_t {
  int64_t rows;        /* 0: the end */
  const float* labels; /* [rows] */
  /* Sparse rows: row r has entries row_offsets[r] to row_offsets[r + 1] - 1. */
  const int64_t* row_offsets; /* [rows + 1] */
  const int32_t* columns;     /* [entries] */
  const float* values;        /* [entries] */
  const float* dense;         /* [rows, dense_columns] */
  const int64_t* keys;        /* [rows, key_columns] */
  int64_t sparse_columns, dense_columns, key_columns;
  int64_t epoch, next_row; /* where a reader continues after this batch */
} cairn_batch_t;

/* Records of TFRecord files, valid until the reader's next call. */
typedef struct cairn_records_t {
  int64_t count;              /* 0: the end */
  const char* bytes;          /* the records, one after the other */
  const int64_t* offsets;     /* [count + 1]: record i is bytes offsets[i] to offsets[i + 1] - 1 */
  int64_t epoch, next_record; /* where a reader continues after them */
} cairn_records_t;

enum cairn_log_level { CAIRN_LOG_INFO = 0, CAIRN_LOG_WARNING = 1, CAIRN_LOG_ERROR = 2 };
typedef void (*cairn_log_function)(void* context, int level, const char* file, int line,
                                   const char* message);
/* Returns nonzero to end the wait of the thread that calls it. */
typedef int (*cairn_interrupt_function)(void* context);

/* --- the library --- */

const char* cairn_version(void); /* "0.2.0" */
int cairn_abi_version(void);     /* increases when functions are added; none is removed */
int cairn_last_error_code(void); /* of this thread's last call that failed */
const char* cairn_last_error_message(void); /* valid until this thread's next call that fails */
const char* cairn_code_name(int code);      /* "Not found"; valid for ever; not freed */
void cairn_free_text(char* text);           /* frees a text that a call returned; null is allowed */
/* Sends messages of `lowest` (enum cairn_log_level) and above to `function`, on any thread, one at
 * a time; null discards them. The function must not call the library. Returns when no call of the
 * previous function runs. */
void cairn_set_log(cairn_log_function function, void* context, int lowest);
/* `function` is called by every thread that waits in a call, every 100 ms and where a server fails
 * to answer; with a nonzero `this_thread_only`, only by the thread that makes this call. When it
 * returns nonzero, that call ends with CAIRN_CANCELLED, unless it succeeds nevertheless; after an
 * interrupted push the client must be closed and connected again. Null: calls wait until their
 * timeouts. */
void cairn_set_interrupt_check(cairn_interrupt_function function, void* context,
                               int this_thread_only);

/* --- connections --- */

/* Says hello to every server and stores a handle in *client. The keys of `description`:
 *   servers: [host:port, …], cluster_file: PATH, or cluster: {ps: […]}; else TF_CONFIG
 *   job: NAME, required: the name under which the servers keep the variables
 *   worker: N, auto or none (default). N is the ordinal among the training tasks: the chief, if the
 *     cluster has one, then the workers; so with a chief the task worker:0 has the ordinal 1. auto:
 *     the ordinal of the cluster's task. none: not a training worker
 *   workers: N, with which the job starts; default: the cluster's training tasks
 *   strategy: {consistency, staleness_bound_steps, replicas_to_aggregate, sync_mean,
 *     on_worker_loss, ps_wait_seconds, partitioner}, as in a job file; consistency ssp and sync
 *     need worker, sync with `servers` also workers or replicas_to_aggregate
 *   not_finite: reject (default): a push with NaN or infinity is CAIRN_INVALID_ARGUMENT; or skip:
 *     it is dropped and counted, and the call succeeds
 *   rpc_timeout_seconds: seconds above 0, of one attempt of a call; default 30
 *   retained_bytes: bytes of pushes that a worker keeps until they are durable; later pushes wait;
 *     default 1 GiB; 0: none are kept, and a server that restarts without a push is an error
 *   local_transport: shared memory to servers on this host: auto (default): if they run as the
 *     same user; any_user; off: TCP
 *   security: {tls_certificate, tls_key, tls_ca, token_file: PATHs, allow_plaintext: false} */
int cairn_connect(const char* description, double timeout, cairn_client** client);
/* Closes the handle. Calls that run on other threads finish; the last one closes the connections.
 */
int cairn_close(cairn_client* client);
/* Waits until everything pushed so far is durable on the servers. */
int cairn_flush(cairn_client* client, double timeout);
/* Flushes and gives up this worker's lease; close the client afterwards. */
int cairn_leave(cairn_client* client, double timeout);
/* Deletes the job on every server. No other call of the client may run at the same time. */
int cairn_drop_job(cairn_client* client, double timeout);
int cairn_server_count(cairn_client* client, int32_t* count);
/* Stores this worker's ordinal among the training tasks, as `worker` of cairn_connect, or -1 if the
 * client is not a training worker. */
int cairn_worker(cairn_client* client, int32_t* worker);
/* Copies the position that was stored with this worker's last push that every server had when the
 * client connected: at most `capacity` bytes to `position`, the full size to *size (0: none). */
int cairn_position(cairn_client* client, char* position, uint64_t capacity, uint64_t* size);

/* --- variables --- */

/* Creates the described variables, or checks that they exist as described (a later call of another
 * client finds them). `description` is one description or a list of them:
 *   {name, shape, dtype, optimizer, initializer, touched_rows, shards}   a dense variable
 *   {name, dim, optimizer, initializer, admit_after_pushes, expire_after_seconds, max_rows,
 *     row_storage}                                                       an embedding table
 * name, shape ([extent, …]) and dim (float32 values in a row) are required. The others:
 *   dtype: float32 (default), float64, float16, bfloat16, int32 or int64
 *   optimizer: as section optimizer of a job file; default none, which allows no pushes
 *   initializer: as model.init of a job file; default zeros
 *   touched_rows: all (default): a push of some rows gives the others a zero gradient; or pushed:
 *     the others do not change
 *   shards: 1 to 65536, on the servers in turn; default: strategy.partitioner decides
 *   admit_after_pushes: 1 (default) to 255: a key gets its row with this push of it
 *   expire_after_seconds: rows not pushed for so long are deleted; default 0: never
 *   max_rows: beyond it the least recently pushed rows are deleted; default 0: no limit
 *   row_storage: {values, slots}, as model.embedding.row_storage of a job file
 * A dense variable that exists keeps its shards unless the description gives another number.
 * CAIRN_ALREADY_EXISTS: exists with another description. */
int cairn_create(cairn_client* client, const char* description, double timeout);
/* Stores a JSON list of the job's variables, described as above, with `kind` (dense or embedding)
 * and `servers` (the indices of servers that hold a part), which cairn_create does not accept; free
 * it by cairn_free_text. Other calls accept only variables that were created or described through
 * this client. */
int cairn_describe(cairn_client* client, double timeout, char** json);

/* --- data --- */

/* Fills the items' data, which is unspecified unless CAIRN_OK is returned. */
int cairn_pull(cairn_client* client, const cairn_item* targets, uint64_t target_count,
               double timeout);
/* Applies gradients: each server's optimizer sees every gradient once. Repeated ids are summed
 * first; a push names a variable at most once. `position` (position_size <= 512 bytes) is stored
 * with a worker's push; null or of size 0: the stored position stays.
 *
 * After CAIRN_UNAVAILABLE, CAIRN_DEADLINE_EXCEEDED or CAIRN_CANCELLED it may be unknown which
 * servers have applied the push. Every later push, step and assign of this worker then fails with
 * CAIRN_FAILED_PRECONDITION. Do not push the gradients again through this client: close it, connect
 * as the same worker, and resume after cairn_position. Servers skip the repeated pushes that they
 * have applied.
 *
 * With {worker: none} pushes have no sequence numbers, and are not applied exactly once: a server
 * may have applied a push that failed, and loses a push that was not yet durable when it was
 * killed. */
int cairn_push(cairn_client* client, const cairn_item* sources, uint64_t source_count,
               const char* position, uint64_t position_size, double timeout);
/* A push and a pull that sees it, in one round trip to each server. Errors: as cairn_push; "the
 * push is applied" in the message: only the pull failed. */
int cairn_push_pull(cairn_client* client, const cairn_item* sources, uint64_t source_count,
                    const char* position, uint64_t position_size, const cairn_item* targets,
                    uint64_t target_count, double timeout);
/* A worker's next training step: pushes the gradients of the step before (none at first), waits for
 * the other workers as far as the consistency asks, and pulls. With sync the push is a contribution
 * weighted by `rows` (> 0) of input, and the mean of all contributions is applied once. Errors: as
 * cairn_push_pull; CAIRN_ABORTED: a worker was lost and on_worker_loss is fail. */
int cairn_step(cairn_client* client, const cairn_item* sources, uint64_t source_count,
               const char* position, uint64_t position_size, const cairn_item* targets,
               uint64_t target_count, int64_t rows, double timeout);
/* Pushes the gradients of the last step, after which no cairn_step follows. */
int cairn_end_step(cairn_client* client, const cairn_item* sources, uint64_t source_count,
                   const char* position, uint64_t position_size, int64_t rows, double timeout);
/* Announces that this worker takes no more steps, so that other workers do not wait for it. */
int cairn_end_steps(cairn_client* client, double timeout);
/* Stores the largest number of steps by which this worker was ahead of the slowest other worker. */
int cairn_largest_step_gap(cairn_client* client, double timeout, int64_t* steps);
/* Overwrites values or slots. */
int cairn_assign(cairn_client* client, const cairn_item* sources, uint64_t source_count,
                 double timeout);

/* Reads all stored rows of an embedding table into memory that the scan owns. CAIRN_ABORTED: rows
 * moved between servers meanwhile; repeat. */
int cairn_scan_table(cairn_client* client, const char* variable, double timeout, cairn_scan** scan);
/* Stores the scan's rows: keys [*rows] and float32 values [*rows, *dim], valid until the scan is
 * freed. */
int cairn_scan_rows(cairn_scan* scan, uint64_t* rows, int64_t* dim, const int64_t** keys,
                    const float** values);
int cairn_scan_free(cairn_scan* scan);

/* --- checkpoints and statistics --- */

/* Makes a checkpoint of the job below `directory`, an absolute path that is valid on every
 * server's host, and deletes the older checkpoints there except the newest `keep` (0: keeps all).
 * Stores the checkpoint's directory; free the text by cairn_free_text. `step` becomes part of its
 * name. cairn-worker and cairnctl can read the checkpoint too. Takes at most 10 minutes.
 *
 * With consistency sync, worker 0 makes checkpoints, between two of its steps: no step can close
 * meanwhile. Parts during which a step closed are made again. CAIRN_ABORTED: steps closed during
 * each of several attempts. */
int cairn_checkpoint(cairn_client* client, const char* directory, int64_t step, int64_t keep,
                     char** checkpoint);
/* Replaces the job's state by the checkpoint in `directory`, once the servers have verified it. The
 * client must not be a training worker. Workers that were connected before are fenced. */
int cairn_restore(cairn_client* client, const char* directory);
int cairn_counters(cairn_client* client, cairn_counters_t* counters);
int cairn_staleness(cairn_client* client, cairn_staleness_t* staleness);

/* --- input files --- */

/* Opens the files of `job`, a text with the sections model and data of a job file: data.train, or
 * with a nonzero `evaluate` data.eval in order. Relative paths start at `data_root`. Of `workers`
 * readers this is number `worker`; it begins at row `row` of its rows in epoch `epoch`. */
int cairn_open_reader(const char* job, const char* data_root, int evaluate, int32_t worker,
                      int32_t workers, int64_t epoch, int64_t row, cairn_reader** reader);
/* Reads the next batch; one thread at a time. CAIRN_INVALID_ARGUMENT names file, line and column.
 * Lasts as long as reading the files does, which threads of the reader do. CAIRN_CANCELLED: the
 * interrupt check ended the wait, and the next call continues. */
int cairn_read_batch(cairn_reader* reader, cairn_batch_t* batch);
/* Waits for the reader's threads, unless its last read was interrupted. */
int cairn_close_reader(cairn_reader* reader);

/* Opens TFRecord files; those whose names end in ".gz" are gzip. Of `workers` readers this is
 * number `worker`, which reads every workers-th file, or where there are fewer files every
 * workers-th record. It begins at record `record` of its records in epoch `epoch` of
 * `epochs` (>= 1). */
int cairn_open_records(const char* const* files, uint64_t file_count, int32_t worker,
                       int32_t workers, int64_t epochs, int64_t epoch, int64_t record,
                       cairn_record_reader** reader);
/* Reads up to `most` records, fewer only at the end; one thread at a time. CAIRN_DATA_LOSS names
 * the file and the offset of a corrupt record; the call then returns none of the records before it,
 * which a reader from the last position returns again. The call itself reads the files, so it lasts
 * as long as that, and nothing interrupts it. */
int cairn_read_records(cairn_record_reader* reader, int64_t most, cairn_records_t* records);
int cairn_close_records(cairn_record_reader* reader);

/* --- servers in this process, for programs without a cluster --- */

/* Loads libcairn_server.so.0, which lies beside this library or on the loader's path, and starts
 * servers on free ports of 127.0.0.1. The keys of `description`:
 *   servers: a number, default 1
 *   directory: PATH, of the servers' state; required
 *   durability: off, snapshot (default), log or log_sync
 *   memory_budget_bytes: of each server; default 4 GiB, or three quarters of the memory of the
 *     machine or container if that is less
 *   keep_all_rows: true keeps rows that their tables' expire_after_seconds and max_rows would
 *     delete, for servers that only read a checkpoint; default false */
int cairn_launch(const char* description, cairn_servers** servers);
/* Stores the servers' addresses, "host:port,host:port"; free the text by cairn_free_text. */
int cairn_launched_addresses(cairn_servers* servers, char** addresses);
/* Writes the servers' state and stops them. */
int cairn_stop_servers(cairn_servers* servers);

#ifdef __cplusplus
} /* extern "C" */
#endif
