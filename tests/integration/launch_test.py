"""cairnctl launch with real processes: a job from start to reports, killed tasks that are restarted
or end the run, Ctrl-C, a launcher that is itself killed. Nothing stays behind."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

CTL = os.environ["CAIRNCTL"]
WAIT = 180
PROGRAMS = ["--cairn_ps", processes.PS, "--cairn_worker", processes.WORKER]


def write_job(folder, epochs):
    rows = os.path.join(folder, "rows.libsvm")
    scene.write_comparisons(rows, 2000)
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="ascii") as f:
        json.dump({"name": "launched", "model": {"type": "linear"},
                   "data": {"format": "libsvm", "features": 4, "train": [rows], "eval": [rows],
                            "batch_size": 50, "epochs": epochs},
                   "optimizer": {"type": "adagrad", "learning_rate": 0.5}}, f)
    return path


def children(pid):
    """{pid: program} of the processes that `pid` started."""
    found = {}
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            for child in f.read().split():
                with open(f"/proc/{child}/cmdline", "rb") as c:
                    found[int(child)] = os.path.basename(c.read().split(b"\0")[0].decode())
    except FileNotFoundError:
        pass
    return found


class LaunchTest(scene.FolderTest):
    def setUp(self):
        super().setUp()
        # The launch creates its directory here.
        self.temporary = os.path.join(self.folder, "tmp")
        os.mkdir(self.temporary)
        self.environment = {**os.environ, "TMPDIR": self.temporary}

    def launch(self, *flags, epochs=1):
        """A started launch, with its stderr in a file."""
        log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [CTL, "launch", *([] if "--cairn_worker" in flags else PROGRAMS),
             *(["--job", write_job(self.folder, epochs)] if epochs else []), *flags],
            stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment)
        self.addCleanup(processes.end, process)
        return process

    def script(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as f:
            return f.read()

    def wait_for_log(self, pattern):
        return processes.wait_for(lambda: re.search(pattern, self.log()), WAIT, pattern)

    def wait_until_both_train(self):
        # A worker that is stopped before its first step has no report.
        for worker in (0, 1):
            self.wait_for_log(f"worker:{worker} .*starts run 1")

    def pids(self, process, program, count):
        def found():
            pids = [p for p, name in children(process.pid).items() if name == program]
            return pids if len(pids) == count else None
        return processes.wait_for(found, WAIT, f"{count} {program}")

    def finish(self, process):
        out, _ = process.communicate(timeout=WAIT)
        self.assertEqual(os.listdir(self.temporary), [], "its folder stays behind")
        return process.returncode, out

    def test_a_job_runs_to_its_end_and_its_reports_are_stdout(self):
        status, out = self.finish(self.launch("--ps", "2", "--worker", "2"))
        self.assertEqual(status, 0, self.log())
        reports = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([r["task"] for r in reports], ["worker:0", "worker:1"])
        self.assertEqual({r["status"] for r in reports}, {"completed"})
        self.assertGreater(reports[0]["eval"]["auc"], 0.95)
        names = {re.match(r"(\S+) +\| ", line).group(1) for line in self.log().splitlines()}
        self.assertEqual(names, {"ps:0", "ps:1", "worker:0", "worker:1", "launch"})
        self.assertNotIn("\033", self.log())

    def test_with_a_folder_for_certificates_the_tasks_speak_tls(self):
        tls = os.path.join(self.folder, "tls")
        status, out = self.finish(self.launch("--ps", "2", "--worker", "1", "--tls_directory", tls))
        self.assertEqual(status, 0, self.log())
        self.assertEqual(json.loads(out)["status"], "completed")
        self.assertIn(f"--job launched --tls_certificate {tls}/reader.crt", self.log())
        # The servers' side: a worker without certificates is refused.
        status, _ = self.finish(self.launch("--ps", "1", "--worker", "1", *(
            word for kind, file in (("certificate", "ps-0.crt"), ("key", "ps-0.key"),
                                    ("ca", "ca.crt"))
            for word in ("--ps_flag", f"--tls_{kind}={tls}/{file}"))))
        self.assertEqual(status, 1, self.log())
        self.assertIn("accepts only TLS", self.log())

    def test_with_json_stdout_is_one_object(self):
        status, out = self.finish(self.launch("--ps", "1", "--worker", "1", "--json", "--",
                                              "--max_steps", "3"))
        self.assertEqual(status, 0, self.log())
        answer = json.loads(out)
        self.assertEqual(answer["status"], "completed")
        self.assertEqual(answer["job"], "launched")
        self.assertEqual(answer["reports"][0]["steps"], 3)
        self.assertEqual([t["task"] for t in answer["tasks"]], ["ps:0", "worker:0"])
        self.assertEqual([t["exit_status"] for t in answer["tasks"]], [0, 0])

    def test_state_is_kept_for_a_later_launch(self):
        state = os.path.join(self.folder, "state")
        for total, flags in ((40, ()), (40, ()), (80, ("--", "--continue"))):
            status, out = self.finish(self.launch("--worker", "1", "--state", state, *flags))
            self.assertEqual(status, 0, self.log())
            self.assertEqual(json.loads(out)["total_steps"], total)

    def test_a_killed_worker_ends_the_run_by_name(self):
        process = self.launch(epochs=1000000)
        self.wait_until_both_train()
        started = children(process.pid)
        os.kill(self.pids(process, "cairn-worker", 2)[1], signal.SIGKILL)
        status, out = self.finish(process)
        self.assertEqual(status, 137, self.log())
        last = self.log().splitlines()[-1]
        self.assertIn("cairnctl launch: worker:1 was ended by signal 9 (Killed)", last)
        self.assertIn("--restart on-failure", last)
        self.assertEqual(json.loads(out)["status"], "interrupted")
        self.assertTrue(all(map(processes.gone, started)))

    def test_killed_tasks_are_restarted_and_the_job_ends_as_undisturbed(self):
        tasks = {"ps": addresses.own_addresses(2), "worker": addresses.own_addresses(2)}
        with open(self.path("cluster.json"), "w", encoding="ascii") as f:
            json.dump({"cluster": tasks}, f)
        process = self.launch("--restart", "on-failure", "--json", "--cluster",
                              self.path("cluster.json"), epochs=2000)
        self.wait_for_log("worker:0 .*starts run 1")
        os.kill(self.pids(process, "cairn-worker", 2)[0], signal.SIGKILL)
        self.wait_for_log("worker:0 was ended by signal 9 .*restarts in")
        os.kill(self.pids(process, "cairn-ps", 2)[1], signal.SIGKILL)
        status, out = self.finish(process)
        self.assertEqual(status, 0, self.log())
        answer = json.loads(out)
        self.assertEqual({t["task"]: t["restarts"] for t in answer["tasks"]},
                         {"ps:0": 0, "ps:1": 1, "worker:0": 1, "worker:1": 0})
        self.assertEqual([r["total_steps"] for r in answer["reports"]], [40000, 40000])

    def test_a_restarted_worker_does_not_start_the_job_over_again(self):
        process = self.launch("--restart", "on-failure", "--worker", "1", "--", "--fresh",
                              epochs=1000000)
        self.wait_for_log("worker:0 .*starts run 1")
        os.kill(self.pids(process, "cairn-worker", 1)[0], signal.SIGKILL)
        self.wait_for_log("worker:0 was ended by signal 9 .*restarts in")
        self.wait_for_log("(?s)starts run 1.*restarts in.*worker:0 .* (continues|starts) run 1")
        self.assertEqual(self.log().count("--fresh deletes its state"), 1, self.log())
        process.send_signal(signal.SIGINT)
        self.finish(process)

    def test_a_worker_that_fails_at_its_start_obeys_its_flags_when_it_is_restarted(self):
        state = os.path.join(self.folder, "state")
        status, _ = self.finish(self.launch("--worker", "1", "--state", state))
        self.assertEqual(status, 0, self.log())
        fails_once = self.script("fails_once", f"mkdir {self.path('failed')} && exit 1\n"
                                               f"exec {processes.WORKER} \"$@\"\n")
        for flag, total in (("--continue", 80), ("--fresh", 40)):
            status, out = self.finish(self.launch(
                "--worker", "1", "--state", state, "--restart", "on-failure", "--cairn_ps",
                processes.PS, "--cairn_worker", fails_once, "--", flag))
            self.assertEqual(status, 0, self.log())
            self.assertIn("restarts in", self.log())
            report = json.loads(out)
            self.assertEqual((report["steps"], report["total_steps"]), (40, total), self.log())
            os.rmdir(self.path("failed"))

    def test_lines_of_progress_and_the_users_own_cluster_file_are_printed(self):
        file = self.path("cluster.json")
        with open(file, "w", encoding="ascii") as f:
            json.dump({"cluster": {"ps": addresses.own_addresses(2),
                                   "worker": addresses.own_addresses(2)}}, f)
        process = self.launch("--cluster", file, "--progress_seconds", "0.1", epochs=1000000)
        line = r"(?m)^launch +\| Training: step (\d+)\b.*; (\d+) rows/s, loss [\d.]+$"

        def rising():
            lines = [tuple(map(int, found)) for found in re.findall(line, self.log())]
            # On a loaded machine there may be no step between two lines.
            return [step for step, rate in lines if rate > 0 and step > lines[0][0]]

        processes.wait_for(rising, WAIT, "two lines of progress")
        watch, = re.findall(r"watch it: cairnctl (status .*)$", self.log(), re.M)
        self.assertIn(f"--cluster {file}", watch)
        status, _ = processes.ctl(*watch.split())
        self.assertEqual(status["job"], "launched")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process)[0], 130, self.log())
        quiet = self.launch("--progress_seconds", "0")
        self.assertEqual(self.finish(quiet)[0], 0, self.log())
        refused = self.launch("--progress_seconds=-1")
        self.assertEqual(self.finish(refused)[0], 2, self.log())
        self.assertIn("--progress_seconds are numbers of at least 0", self.log())

    def test_restarts_are_bounded(self):
        process = self.launch("--restart", "on-failure", "--max_restarts", "2", "--ps", "1",
                              "--worker", "1", "--cairn_worker", "/bin/false")
        status, _ = self.finish(process)
        self.assertEqual(status, 1, self.log())
        self.assertEqual(self.log().count("restarts in"), 2, self.log())
        self.assertIn("worker:0 ended with status 1 after 2 restarts", self.log())

    def test_a_task_with_bad_flags_is_not_restarted(self):
        process = self.launch("--restart", "on-failure", "--", "--no_such_flag")
        status, _ = self.finish(process)
        self.assertEqual(status, 2, self.log())
        self.assertNotIn("restarts in", self.log())
        # Nor does the message advise a restart, which would not help.
        process = self.launch("--", "--no_such_flag")
        self.assertEqual(self.finish(process)[0], 2, self.log())
        self.assertNotIn("--restart on-failure", self.log())

    def test_one_interrupt_ends_all_cleanly(self):
        process = self.launch(epochs=1000000)
        self.wait_until_both_train()
        started = children(process.pid)
        process.send_signal(signal.SIGINT)
        status, out = self.finish(process)
        self.assertEqual(status, 130, self.log())
        self.assertEqual(len(re.findall("ps:. .*writing everything, then ending", self.log())), 2)
        self.assertEqual([json.loads(line)["status"] for line in out.splitlines()],
                         ["interrupted"] * 2)
        self.assertEqual(len(started), 4)
        self.assertTrue(all(map(processes.gone, started)))

    def test_a_task_that_does_not_end_is_killed_after_the_grace(self):
        stubborn = self.script("stubborn",
                               "trap '' TERM\necho deaf >&2\nwhile :; do sleep 1; done\n")
        for flags, interrupts in ((["--grace_seconds", "0.2"], 1), (["--grace_seconds", "600"], 2)):
            process = self.launch("--ps", "1", "--worker", "1", "--cairn_worker", stubborn, *flags)
            self.wait_for_log(r"worker:0 +\| deaf")
            for i in range(interrupts):
                process.send_signal(signal.SIGINT)
                self.wait_for_log(("ending workers, then servers", "killing the remaining")[i])
            status, _ = self.finish(process)
            self.assertEqual(status, 130, self.log())
            self.assertEqual("worker:0 still runs after 0.2 s: killed" in self.log(),
                             interrupts == 1, self.log())

    def test_tasks_end_with_a_killed_launcher(self):
        process = self.launch(epochs=1000000)
        self.wait_until_both_train()
        started = children(process.pid)
        self.assertEqual(len(started), 4)
        process.kill()
        process.wait(WAIT)
        processes.wait_for(lambda: all(map(processes.gone, started)), WAIT, "the tasks to end")

    def test_tasks_end_with_a_launcher_that_is_killed_before_it_is_ready(self):
        # The worker never joins, so the launch never moves to the background.
        silent = self.script("silent", "echo waits >&2\nwhile :; do sleep 1; done\n")
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            process = self.launch("--wait", "--ps", "1", "--worker", "1", "--log_directory",
                                  self.path("logs"), "--cairn_ps", processes.PS,
                                  "--cairn_worker", silent)
            self.wait_for_log(r"worker:0 +\| waits")
            background, = children(process.pid)
            self.addCleanup(lambda b=background: processes.gone(b) or os.kill(b, signal.SIGTERM))
            started = children(background)
            self.assertEqual(len(started), 2)
            process.send_signal(signal_number)
            process.wait(WAIT)
            processes.wait_for(lambda b=background, s=started: all(map(processes.gone, [b, *s])),
                               WAIT, "the launch to end")

    def test_a_server_that_fails_while_the_launch_ends_is_an_error(self):
        fails = self.script("fails", """
while [ $# -gt 0 ]; do
  [ "$1" = --port_file ] && file=$2
  shift
done
trap 'exit 3' TERM
echo ready > "$file"
while :; do sleep 0.1; done
""")
        status, _ = self.finish(self.launch("--ps", "1", "--worker", "1", "--cairn_ps", fails,
                                            "--cairn_worker", "/bin/true"))
        self.assertEqual(status, 3, self.log())
        self.assertIn("ps:0 ended with status 3 while the launch ended", self.log())
        self.assertNotIn("--restart on-failure", self.log())

    def test_servers_without_workers_run_until_they_are_stopped(self):
        process = self.launch("--ps", "1", "--worker", "0", epochs=None)
        self.wait_for_log("servers accept calls")
        process.send_signal(signal.SIGTERM)
        status, _ = self.finish(process)
        self.assertEqual(status, 0, self.log())

    def test_a_terminal_gets_colours(self):
        master, slave = pty.openpty()
        environment = {**self.environment, "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        process = subprocess.Popen(
            [CTL, "launch", "--ps", "1", "--worker", "1", *PROGRAMS,
             "--job", write_job(self.folder, 1)],
            stdout=subprocess.DEVNULL, stderr=slave, env=environment)
        self.addCleanup(processes.end, process)
        os.close(slave)
        said = b""
        try:
            while select.select([master], [], [], WAIT)[0]:
                said += os.read(master, 65536)
        except OSError:  # the other end is closed
            pass
        os.close(master)
        self.assertEqual(process.wait(WAIT), 0, said)
        self.assertRegex(said, rb"\x1b\[3\dmps:0 +\| \x1b\[0m")


if __name__ == "__main__":
    tap.main()
