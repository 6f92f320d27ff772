// The commands for programs, servers and machines.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/ctl/certs.h"
#include "worker/ctl/cluster_commands.h"
#include "worker/ctl/doctor.h"
#include "worker/ctl/tree.h"

namespace cairn {
namespace {

// Adds the flags for failing and ending tasks, and for the servers' own flags.
void AddLaunchEnds(CLI::App* command, const std::shared_ptr<LaunchOptions>& options) {
  command
      ->add_option_function<std::string>(
          "--restart",
          [options](const std::string& policy) {
            options->restart_on_failure = policy == "on-failure";
          },
          "after a task fails: never (default) ends the others, on-failure restarts it")
      ->type_name("POLICY")
      ->check([](const std::string& policy) {
        return policy == "never" || policy == "on-failure"
                   ? std::string()
                   : absl::StrCat("'", policy, "'; there are never and on-failure");
      });
  Flags(*command)
      .Add("max_restarts", "N", options->max_restarts, "restarts of each task; default 3")
      .Add("grace_seconds", "S", options->grace_seconds,
           "how long a task may take to end before it is killed; default 30")
      .Add("progress_seconds", "S", options->progress_seconds,
           "time between lines of the job's progress; default 10; 0: no lines")
      .Add("ps_flag", "--FLAG=VALUE", options->server_flags,
           "a flag for every cairn-ps, as in --ps_flag=--durability=log; repeatable");
}

}  // namespace

void Tree::AddLaunch() {
  const auto [command, options] = AddCommand(
      &app_, "launch", "Starts servers and workers on this machine and waits for the job",
      "cairnctl launch --ps 2 --worker 2 --job examples/a9a.yaml --data_root examples/data",
      Launch);
  Flags(*command)
      .Add("job", "FILE", options->job_file, "job file of the workers")
      .Add("cluster", "FILE", options->cluster_file,
           "cluster file of tasks on this machine; port 0 is one that is free")
      .Add("ps", "N", options->servers, "servers, on free ports; default 2");
  command->get_option("--ps")->excludes(command->get_option("--cluster"));
  Flags(*command).Add("worker", "N", options->workers,
                      "workers; default 2; 0: only servers, until Ctrl-C");
  command->get_option("--worker")->excludes(command->get_option("--cluster"));
  Flags(*command)
      .Add("data_root", "DIR", options->data_root, "where the job's relative data paths start")
      .Add("state", "DIR", options->state,
           "directory of the servers' data, from which a later launch continues; default: a "
           "temporary one")
      .Add("log_directory", "DIR", options->log_directory,
           "directory of the tasks' logs; default: logs in --state, else a temporary one")
      .Add("wait", "", options->wait,
           "returns once every server accepts calls and every worker has joined; the "
           "launch continues in the background until the job ends or cairnctl stop")
      .Add("tls_directory", "DIR", options->tls_directory,
           "TLS between the tasks, with the certificates that cairnctl certs made in this "
           "directory; created if missing")
      .Add("set", "SET", options->sets, "KEY.PATH=VALUE overrides the job file; repeatable");
  AddLaunchEnds(command, options);
  Flags(*command)
      .Add("cairn_ps", "FILE", options->cairn_ps, "the server's program; default: beside cairnctl")
      .Add("cairn_worker", "FILE", options->cairn_worker, "likewise the worker's");
  AddWord(command, "worker_flags", "FLAG", options->worker_flags,
          "after --: flags of every cairn-worker");
}

void Tree::AddLogs() {
  const auto options = std::make_shared<LogsOptions>();
  CLI::App* const command =
      Add(&app_, "logs", "Prints the last lines of the log of each task of a launch",
          "cairnctl logs worker:0 --follow\n"
          "  cairnctl logs --directory /tmp/state/logs --lines 100",
          [options, json = &invocation_.json] { return RunLogs(*options, *json); });
  Flags(*command)
      .Add("directory", "DIR", options->directory,
           "the launch's --log_directory; default: that of the running launch on this machine")
      .Add("launch", "PID", options->launch, "process id of the launch, if several run")
      .Add("lines", "N", options->lines, "lines of each task; default 20");
  command->add_flag("--follow,-f", options->follow,
                    "prints new lines as they come, until the launch ends or Ctrl-C");
  AddWord(command, "tasks", "TASK", options->tasks,
          "only these tasks, as in worker:0; launch: the launch itself");
}

void Tree::AddStop() {
  const auto [command, options] =
      AddCommand(&app_, "stop", "Stops a cluster: workers first, then servers; nothing is lost",
                 "cairnctl stop\n"
                 "  cairnctl stop --cluster cluster.yaml",
                 RunStop);
  AddServers(command, &options->target);
  Flags(*command)
      .Add("launch", "PID", options->launch,
           "process id of the launch, if several run here and no servers are named")
      .Add("wait_seconds", "S", options->wait_seconds,
           "how long everything may take to end; default 120");
  command->footer(
      "Stops the launch of this machine, or the one that started the servers named.\n"
      "Other servers are drained; their workers are not stopped.\n"
      "Example:\n  cairnctl stop\n  cairnctl stop --cluster cluster.yaml");
}

void Tree::AddDrain() {
  const auto [command, options] = AddCommand(
      &app_, "drain", "Servers write everything, refuse further calls and exit with status 0",
      "cairnctl drain --cluster cluster.yaml ps:1\n"
      "  cairnctl drain --cluster cluster.yaml --all",
      RunDrain);
  AddServers(command, &options->target);
  Flags(*command)
      .Add("wait_seconds", "S", options->wait_seconds,
           "how long a server may take to write everything and exit; default 120")
      .Add("all", "", options->all, "every server of the cluster");
  AddWord(command, "servers", "ps:N", options->tasks, "or these, by their tasks");
}

void Tree::AddServersCommands() {
  CLI::App* const group =
      Add(&app_, "servers", "Adds servers to a running cluster and removes them", "", nullptr);
  const auto [list, listed] =
      AddCommand(group, "list", "Lists the servers, and those that have left",
                 "cairnctl servers list --cluster cluster.yaml", RunServersList);
  AddServers(list, &listed->target);
  const auto [add, added] = AddCommand(
      group, "add", "Adds a running server to the cluster",
      "cairnctl servers add --cluster cluster.yaml ps:2 --address 10.0.0.7:7001", RunServersAdd);
  AddServers(add, &added->target);
  Flags(*add).Add("address", "HOST:PORT", added->address,
                  "where every worker reaches it; default: the cluster file's");
  AddWord(add, "server", "ps:N", added->task, "its task, as it was started")->required();
  const auto [remove, removed] =
      AddCommand(group, "remove", "Removes a server that has no rows",
                 "cairnctl servers remove --cluster cluster.yaml ps:2", RunServersRemove);
  AddServers(remove, &removed->target);
  AddWord(remove, "server", "ps:N", removed->task,
          "its task; cairnctl rebalance --empty took its rows")
      ->required();
}

void Tree::AddDoctor() {
  const auto [command, options] = AddCommand(
      &app_, "doctor", "Checks this machine and its network, and names a fix for each finding",
      "cairnctl doctor --data_dir /var/lib/cairn --cluster cluster.yaml", RunDoctor);
  Flags(*command)
      .Add("data_dir", "DIR", options->directory,
           "where a server's data would be: measures its disk with a temporary file of 64 MiB; "
           "default: the working directory")
      .Add("cluster", "FILE", options->cluster_file, "cluster file whose ps tasks are checked")
      .Add("timeout_seconds", "S", options->timeout_seconds,
           "how long a server may take to answer; default 3");
  AddSecurity(command, &options->security);
}

void Tree::AddCerts() {
  const auto [command, options] = AddCommand(
      &app_, "certs", "Makes a CA and certificates for a cluster's tasks (thrift/SECURITY.md)",
      "cairnctl certs /etc/cairn/tls --cluster cluster.yaml --days 90\n"
      "  cairnctl certs /etc/cairn/tls --issue grafana=reader",
      MakeCerts);
  AddWord(command, "directory", "DIR", options->directory,
          "directory of the files; an existing CA in it signs them, else a new one")
      ->required();
  Flags(*command)
      .Add("cluster", "FILE", options->cluster_file,
           "servers, workers, an admin and a reader of this cluster")
      .Add("issue", "WHOM", options->issue,
           "NAME=ROLE[,ROLE] (reader, worker, admin) or NAME=server:HOST[,HOST]; several "
           "times")
      .Add("days", "N", options->days, "how long they are valid; default 30");
}

void Tree::AddBench() {
  const auto [command, options] =
      AddCommand(&app_, "bench", "Measures the network to the servers: round trips, push, pull",
                 "cairnctl bench --cluster cluster.yaml --mib 16", RunBench);
  AddServers(command, &options->target);
  Flags(*command)
      .Add("mib", "MIB", options->mib, "MiB per push and pull; default 4")
      .Add("seconds", "S", options->seconds,
           "for each measurement; default 1. Uses a temporary job; servers that train meanwhile "
           "slow it down, and it slows them down");
}

}  // namespace cairn
