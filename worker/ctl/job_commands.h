// The commands for the state, variables and checkpoints of a job (command_job.cc declares their
// flags).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/server_view.h"
#include "worker/ctl/target.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"

namespace cairn {

struct StatusOptions {
  TargetOptions target;
  double watch_seconds = 0;  // 0: print once
};

// The servers' counters at one time, for rates. Thread safety: a value.
struct StatusSample {
  absl::Duration at;                      // on the monotonic clock
  std::map<std::string, int64_t> pushes;  // by the server's name
  std::map<int32_t, int64_t> steps;       // by worker
};

// The answer from `servers`, asked at `now` on the monotonic clock; with rates since `before`
// unless it is null. Sets `sample` to the state that the next call compares with.
Answer StatusAnswer(const Target& target, const std::vector<ServerView>& servers,
                    absl::Duration now, const StatusSample* before, StatusSample* sample);

// Prints once, or every watch_seconds until the process is interrupted or stdout is closed. While
// it watches, each answer is written at once, with `json` on one line.
absl::StatusOr<Answer> RunStatus(const StatusOptions& options, bool json);

// Lists the calls that wait inside the servers, the longest first; what is wrong with the workers
// that they wait for; and the servers that do not answer, which also make workers wait.
Answer WhyAnswer(const Target& target, const std::vector<ServerView>& servers);

absl::StatusOr<Answer> RunWhy(const TargetOptions& options);

struct InspectOptions {
  TargetOptions target;
  std::string data_directory;          // if not empty: read this directory instead of asking
                                       // servers
  std::vector<std::string> variables;  // patterns with '*'; empty: all
};

absl::StatusOr<Answer> RunInspect(const InspectOptions& options);

// If exactly one variable is named, the text lists its shards too.
Answer InspectAnswer(const Target& target, const std::vector<ServerView>& servers,
                     const std::vector<std::string>& patterns);

struct GetOptions {
  TargetOptions target;
  std::string variable;
  std::vector<std::string> keys;         // rows of a dense variable, keys of a table; empty: the
                                         // whole variable
  std::string slot;                      // a slot of the optimizer; empty: the value
  std::string local_transport = "auto";  // to the servers
};

// Reads without a lease, so the job does not change.
absl::StatusOr<Answer> RunGet(const GetOptions& options);

struct CheckpointListOptions {
  std::string directory;  // empty: checkpoint.directory of the job file
  std::string job;        // a name or a job file; empty: every job's
};
// Lists the finished checkpoints, oldest first, then the unfinished and corrupt ones.
absl::StatusOr<Answer> ListCheckpointsOf(const CheckpointListOptions& options);

// Compares every file of a checkpoint (or of all finished ones in a directory) with the checksums
// in its manifest. The answer's problem is kDataLoss if a file is corrupt or missing.
absl::StatusOr<Answer> VerifyCheckpoints(const std::string& folder);

struct CheckpointCreateOptions {
  TargetOptions target;
  std::string directory;  // on every server's host; empty: checkpoint.directory of the job file
};
// Makes a checkpoint while the job trains. Its name, JOB.kept-TIME-…, keeps it out of the job's own
// retention. Under sync no step may close in the meantime: a few attempts are made, then kAborted.
// kNotFound: the servers hold nothing of the job.
absl::StatusOr<Answer> CreateCheckpoint(const CheckpointCreateOptions& options);

// What CreateCheckpoint does once `client` is connected and `directory` exists. After an error the
// parts are deleted, or the message names the directory to delete.
absl::StatusOr<CheckpointManifest> MakeCheckpoint(PsClient& client, const std::string& job,
                                                  const std::string& directory);

struct CheckpointRestoreOptions {
  TargetOptions target;  // an empty job name: the checkpoint's
  std::string folder;
  bool replace = false;  // drop the servers' state of the job first
};
// kFailedPrecondition: workers of the job are live. kAlreadyExists: the servers hold the job, and
// `replace` is not set.
absl::StatusOr<Answer> RestoreCheckpoint(const CheckpointRestoreOptions& options);

struct ExportOptions {
  std::string file;  // .npz or .safetensors
  TargetOptions target;
  std::string checkpoint;                // if not empty: export this checkpoint instead of the
                                         // servers' state
  std::string local_transport = "auto";  // for live servers
  std::string scratch;  // for a checkpoint: the parent of its temporary directory; empty: TMPDIR
};

// While the job trains, the variables of live servers are read at slightly different times. The
// variables of a checkpoint are consistent.
absl::StatusOr<Answer> RunExport(const ExportOptions& options);

struct RebalanceOptions {
  TargetOptions target;
  bool plan_only = false;
  std::vector<std::string> emptied;  // "ps:2", "2": servers that must end without rows
  std::string by = "memory";         // the quantity to balance: "memory", "load"
  double watch_seconds = 10;         // how long to measure the load
  double tolerance = 0.05;           // allowed excess over the mean
  double busy_fraction = 0.5;        // at most this share of the time is spent copying
  double wait_seconds = 600;         // for one move
};

// Prints the plan with its cost, then makes the moves one after the other, each for one (variable,
// source, target). First finishes the moves of an earlier run that died. A failed move ends the
// run; finished moves stay. By load it first measures the servers; if no worker pulls or pushes
// in the meantime, it moves nothing and returns kFailedPrecondition.
absl::StatusOr<Answer> RunRebalance(const RebalanceOptions& options);

}  // namespace cairn
