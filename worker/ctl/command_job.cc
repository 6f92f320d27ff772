// The commands for jobs and their contents.
#include <memory>
#include <string>

#include "common/config/local_transport.h"
#include "worker/ctl/job_commands.h"
#include "worker/ctl/jobs.h"
#include "worker/ctl/tree.h"

namespace cairn {

void Tree::AddJobs() {
  const auto target = std::make_shared<TargetOptions>();
  AddServers(
      Add(&app_, "jobs", "Lists the jobs on the servers: variables, rows, bytes, workers, state",
          "cairnctl jobs --cluster cluster.yaml", [target] { return RunJobs(*target); }),
      target.get());
}

void Tree::AddStatus() {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* const status =
      Add(&app_, "status", "State, servers, workers, memory and the last checkpoint of a job",
          "cairnctl status --cluster cluster.yaml --job examples/a9a.yaml --watch 2",
          [options, json = &invocation_.json] { return RunStatus(*options, *json); });
  AddTarget(status, &options->target);
  Flags(*status).Add(
      "watch", "SECONDS", options->watch_seconds,
      "repeat every SECONDS seconds and show rates, until Ctrl-C; with --json a line each");
  const auto why = std::make_shared<TargetOptions>();
  AddTarget(Add(&app_, "why", "Who waits for whom, since when, and what to do about it",
                "cairnctl why --cluster cluster.yaml --job a9a", [why] { return RunWhy(*why); }),
            why.get());
}

void Tree::AddGet() {
  const auto [command, options] = AddCommand(
      &app_, "get", "Prints values of a variable: of rows, of a table's keys, or all",
      "cairnctl get bias --cluster cluster.yaml --job ads\n"
      "  cairnctl get embedding/all C3:68fd1e64 --cluster cluster.yaml --slot accumulator",
      RunGet);
  AddWord(command, "variable", "VARIABLE", options->variable,
          "its name, as cairnctl inspect lists it")
      ->required();
  AddWord(command, "keys", "KEY", options->keys,
          "rows from 0 on, or keys of a table: numbers, or text that is hashed as readers "
          "of data do; a key without a row has its initial value");
  AddTarget(command, &options->target);
  Flags(*command)
      .Add("slot", "NAME", options->slot, "a slot of the optimizer, by Keras' name")
      .Add("local_transport", "auto|any_user|off", options->local_transport,
           std::string(kLocalTransportText));
}

void Tree::AddInspect() {
  const auto [command, options] =
      AddCommand(&app_, "inspect", "Variables, shards and stripes: on servers, or in files",
                 "cairnctl inspect --cluster cluster.yaml --job a9a kernel\n"
                 "  cairnctl inspect --data_dir /tmp/ps0",
                 RunInspect);
  AddTarget(command, &options->target);
  Flags(*command).Add("data_dir", "DIR", options->data_directory,
                      "a server's data directory that no server uses, or its part ps-N of a "
                      "checkpoint; read only");
  AddWord(command, "variables", "VARIABLE", options->variables,
          "names, '*' for any characters; for a single one also shows the shards");
}

void Tree::AddCheckpoint() {
  CLI::App* const checkpoint =
      Add(&app_, "checkpoint", "Lists, verifies, makes and restores checkpoints", "", nullptr);
  const auto [listing, list] =
      AddCommand(checkpoint, "list", "Checkpoints in a directory, the oldest first",
                 "cairnctl checkpoint list /shared/checkpoints", ListCheckpointsOf);
  AddWord(listing, "directory", "DIR", list->directory, "else checkpoint.directory of --job FILE");
  Flags(*listing).Add("job", "NAME|FILE", list->job, "only this job's; its name, or its job file");
  const auto folder = std::make_shared<std::string>();
  Add(checkpoint, "verify", "Reads every file and compares its checksum with the manifest's",
      "cairnctl checkpoint verify /shared/a9a.step-0000000512-1a2b3c4d",
      [folder] { return VerifyCheckpoints(*folder); })
      ->add_option("directory", *folder, "a checkpoint, or a directory of several")
      ->type_name("DIR")
      ->required();
  AddCheckpointCalls(checkpoint);
}

void Tree::AddCheckpointCalls(CLI::App* checkpoint) {
  const auto [creating, create] =
      AddCommand(checkpoint, "create",
                 "Makes a checkpoint while the job trains; the job's retention does not delete it",
                 "cairnctl checkpoint create --cluster cluster.yaml --job a9a /shared/checkpoints",
                 CreateCheckpoint);
  AddTarget(creating, &create->target);
  AddWord(creating, "directory", "DIR", create->directory,
          "on every server's host; else checkpoint.directory of --job FILE");
  const auto [restoring, restore] =
      AddCommand(checkpoint, "restore",
                 "Puts a checkpoint on the servers, any number of them, before the workers start",
                 "cairnctl checkpoint restore --cluster cluster.yaml "
                 "/shared/a9a.step-0000000512-1a2b3c4d",
                 RestoreCheckpoint);
  AddTarget(restoring, &restore->target);
  Flags(*restoring)
      .Add("replace", "", restore->replace, "first drops the servers' state of the job");
  AddWord(restoring, "directory", "DIR", restore->folder, "the checkpoint")->required();
}

void Tree::AddExport() {
  const auto [command, options] =
      AddCommand(&app_, "export", "Writes a job's variables for numpy (.npz) or as .safetensors",
                 "cairnctl export model.npz --cluster cluster.yaml --job a9a\n"
                 "  cairnctl export model.npz --checkpoint "
                 "/shared/a9a.step-0000000512-1a2b3c4d",
                 RunExport);
  AddWord(command, "file", "FILE", options->file, "the output file (.npz or .safetensors)")
      ->required();
  AddTarget(command, &options->target);
  Flags(*command)
      .Add("local_transport", "auto|any_user|off", options->local_transport,
           std::string(kLocalTransportText))
      .Add("checkpoint", "DIR", options->checkpoint,
           "exports this checkpoint instead of live servers")
      .Add("scratch", "DIR", options->scratch,
           "for --checkpoint: directory of temporary files; default: TMPDIR");
}

void Tree::AddRebalance() {
  const auto [command, options] =
      AddCommand(&app_, "rebalance",
                 "Moves rows between servers while the job trains, to balance memory or load",
                 "cairnctl rebalance --cluster cluster.yaml --job ads --plan\n"
                 "  cairnctl rebalance --cluster cluster.yaml --job ads --by load\n"
                 "  cairnctl rebalance --cluster cluster.yaml --job ads --empty ps:2",
                 RunRebalance);
  AddTarget(command, &options->target);
  Flags(*command)
      .Add("plan", "", options->plan_only, "shows the plan, and moves nothing")
      .Add("empty", "ps:N", options->emptied, "a server that must end without rows; repeatable")
      .Add("by", "WHAT", options->by,
           "what to balance: memory (default), or load: bytes of rows pulled and pushed per second")
      .Add("watch_seconds", "S", options->watch_seconds, "how long to measure the load; default 10")
      .Add("tolerance", "FRACTION", options->tolerance,
           "allowed excess of a server over the mean; default 0.05")
      .Add("busy_fraction", "FRACTION", options->busy_fraction,
           "share of the time spent copying; the rest is left to training; default 0.5")
      .Add("wait_seconds", "S", options->wait_seconds, "how long one move may take; default 600");
}

}  // namespace cairn
