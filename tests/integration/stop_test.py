"""How a server ends: on SIGTERM under load it writes everything; cairnctl drain removes one while a
job trains and nothing is lost; pushes of workers that are ended together with their servers still
become durable. systemd accepts the systemd unit."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

WAIT = 60
UNIT = os.path.join(processes.TOP, "examples", "systemd", "cairn-ps@.service")
BENCH = os.path.join(processes.TOP, "tests", "bench", "stop.py")
# Snapshots only on request.
NO_EPOCHS = ("--snapshot_interval_seconds", "3600")


class StopTest(scene.FolderTest):
    def worker(self, cluster, *flags):
        """A worker that trains forever, and its log."""
        job = scene.write_endless_job(self.folder, "endless", batch=10)
        log = open(self.path("worker.log"), "wb")
        self.addCleanup(log.close)
        steps = self.path("steps.jsonl")
        process = subprocess.Popen(
            processes.worker_command(job, cluster.worker_file(1), 0,
                                     ["--metrics_file", steps, *flags]),
            stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(processes.end, process)
        processes.wait_for(lambda: os.path.exists(steps) and os.path.getsize(steps) > 5000, WAIT,
                           "steps")
        return process

    def log(self):
        with open(self.path("worker.log"), encoding="utf-8") as f:
            return f.read()

    def test_a_server_is_drained_while_a_job_trains_and_restarts_with_everything(self):
        with processes.Cluster(self.folder, 2, NO_EPOCHS) as cluster:
            worker = self.worker(cluster)
            drained, _ = processes.ctl("drain", "--cluster", cluster.worker_file(1), "ps:1")
            self.assertEqual([(s["server"], s["drained"]) for s in drained["servers"]],
                             [("ps:1", True)])
            self.assertEqual(cluster.processes[1].wait(WAIT), 0)
            processes.wait_for(lambda: "ps:1" in self.log(), WAIT, "the worker to miss ps:1")
            cluster.spawn(1, cluster.addresses[1])
            cluster.wait_until_ready(1)
            processes.wait_for(lambda: "is back after" in self.log(), WAIT, "ps:1 to be back")
            worker.send_signal(signal.SIGTERM)
            out, _ = worker.communicate(timeout=WAIT)
            self.assertEqual(worker.returncode, 143, self.log())
            self.assertEqual(json.loads(out.splitlines()[-1])["replayed_pushes"], 0)
            # The drained server itself wrote the data that no snapshot had written.
            self.assertIn("ps:1 drains", cluster.log(1))

    def test_drain_of_all_ends_all(self):
        with processes.Cluster(self.folder, 2) as cluster:
            processes.ctl("drain", "--servers", ",".join(cluster.addresses), "--all")
            self.assertEqual([p.wait(WAIT) for p in cluster.processes], [0, 0])
            answer, _ = processes.ctl("drain", "--servers", ",".join(cluster.addresses), "--all", code=1)
            self.assertEqual([s["drained"] for s in answer["servers"]], [False, False])

    def test_drain_refuses_words_that_name_no_server(self):
        for words, why in [(["ps:2"], "'ps:2' is not a server of this cluster (ps:0 to ps:1)"),
                           ([], "name servers, as in ps:0 ps:1, or give --all"),
                           (["ps:0", "--all"], "not both")]:
            answer, _ = processes.ctl("drain", "--servers", "10.0.0.1:1,10.0.0.2:2", *words, code=2)
            self.assertIn(why, answer["error"])

    def test_a_worker_that_is_ended_with_its_server_still_leaves_in_order(self):
        flags = (*NO_EPOCHS, "--linger_seconds", "60")
        with processes.Cluster(self.folder, 1, flags) as cluster:
            worker = self.worker(cluster)
            cluster.processes[0].send_signal(signal.SIGTERM)
            processes.wait_for(lambda: "keeps serving for at most" in cluster.log(0), WAIT,
                               "the server to linger")
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=WAIT)
            self.assertEqual(worker.returncode, 143, self.log())
            self.assertNotIn("gave up", self.log())
            self.assertEqual(cluster.processes[0].wait(WAIT), 0)

    def test_a_terminal_that_closes_ends_both_in_order(self):
        # Under nohup, where the tests themselves may run, SIGHUP would be ignored.
        self.addCleanup(signal.signal, signal.SIGHUP,
                        signal.signal(signal.SIGHUP, signal.SIG_DFL))
        with processes.Cluster(self.folder, 1, NO_EPOCHS) as cluster:
            worker = self.worker(cluster)
            worker.send_signal(signal.SIGHUP)
            out, _ = worker.communicate(timeout=WAIT)
            self.assertEqual(worker.returncode, 129, self.log())
            self.assertEqual(json.loads(out.splitlines()[-1])["status"], "interrupted")
            cluster.processes[0].send_signal(signal.SIGHUP)
            self.assertEqual(cluster.processes[0].wait(WAIT), 0)
            self.assertIn("writing everything", cluster.log(0))

    def test_nohup_still_ignores_the_signal(self):
        with processes.Cluster(self.folder, 1) as cluster:
            command = ["nohup", *processes.worker_command(
                scene.write_endless_job(self.folder, "kept", batch=10), cluster.worker_file(1), 0,
                ["--max_steps", "200", "--metrics_file", self.path("m")])]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  stdin=subprocess.DEVNULL) as worker:
                processes.wait_for(lambda: os.path.exists(self.path("m")), WAIT, "training")
                worker.send_signal(signal.SIGHUP)
                worker.communicate(timeout=WAIT)
            self.assertEqual(worker.returncode, 0)

    def test_a_second_signal_ends_the_lingering(self):
        with processes.Cluster(self.folder, 1, ("--linger_seconds", "600")) as cluster:
            self.worker(cluster)
            cluster.processes[0].send_signal(signal.SIGTERM)
            processes.wait_for(lambda: "keeps serving for at most" in cluster.log(0), WAIT,
                               "the server to linger")
            cluster.processes[0].send_signal(signal.SIGTERM)
            self.assertEqual(cluster.processes[0].wait(WAIT), 0)

    def test_sigterm_under_load_writes_a_dirty_table_whole(self):
        done = subprocess.run([sys.executable, BENCH, "--mib", "8"], capture_output=True,
                              text=True, timeout=WAIT * 4, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertTrue(found["verified"], found)

    def test_systemd_accepts_the_unit_and_reports_low_exposure(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is missing: package systemd")
        # The paths of the program and its page in this build.
        with open(UNIT, encoding="ascii") as f:
            text = f.read().replace("ExecStart=/usr/bin/cairn-ps", "ExecStart=" + processes.PS)
        path = self.path("cairn-ps@0.service")
        with open(path, "w", encoding="ascii") as f:
            f.write(re.sub(r"Documentation=.*\n", "", text))
        done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True,
                              timeout=WAIT, check=False)
        about = [line for line in done.stderr.splitlines() if "cairn" in line]
        self.assertEqual((done.returncode, about), (0, []), done.stderr)
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                               "--threshold=20", path], capture_output=True, text=True,
                              timeout=WAIT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr)

    def test_flags_of_the_unit_are_flags_of_the_program(self):
        usage = subprocess.run([processes.PS, "--help"], capture_output=True, text=True,
                               timeout=WAIT, check=True).stdout
        with open(UNIT, encoding="ascii") as f:
            (command,) = re.findall(r"^ExecStart=.*", f.read(), re.M)
        flags = set(re.findall(r"(--[a-z_]+)", command))
        self.assertIn("--data_dir", flags)
        self.assertEqual([flag for flag in flags if flag not in usage], [])


if __name__ == "__main__":
    tap.main()
