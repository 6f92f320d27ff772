"""An operator's tasks with cairnctl: a running job is watched, a stopped worker is explained, a
lost server is shown, checkpoints are listed, made, verified and restored, variables are exported
and inspected. Every answer is read from --json, as a script would."""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

WAIT = 60


def refused(*arguments, code=1):
    return processes.ctl(*arguments, code=code)[0]["error"]


class OperatorTest(scene.FolderTest):
    def setUp(self):
        super().setUp()
        self.checkpoints = os.path.join(self.folder, "checkpoints")

    def write_job(self, every_steps=1000, **strategy):
        rows = os.path.join(self.folder, "rows.libsvm")
        scene.write_comparisons(rows, 2000)
        path = os.path.join(self.folder, "job.yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"name": "story", "model": {"type": "linear"},
                       "data": {"format": "libsvm", "features": 4, "train": [rows],
                                "batch_size": 50, "epochs": 1000000},
                       "optimizer": {"type": "adagrad", "learning_rate": 0.5},
                       "strategy": strategy,
                       "checkpoint": {"directory": self.checkpoints, "every_steps": every_steps}}, f)
        return path

    @contextlib.contextmanager
    def launched(self, *flags):
        """A running launch; yields its process and the flags that name its servers."""
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as err:
            process = subprocess.Popen(
                [processes.CTL, "launch", "--cairn_ps", processes.PS, "--cairn_worker", processes.WORKER,
                 *flags], stdout=subprocess.DEVNULL, stderr=err)

        def cluster():
            with open(log, encoding="utf-8") as f:
                text = f.read()
            self.assertIsNone(process.poll(), text)
            found = re.search(r"watch it: .*--cluster (\S+)", text)
            return found and found.group(1)
        try:
            yield process, ["--cluster", processes.wait_for(cluster, WAIT, "the launch to run")]
            process.send_signal(signal.SIGINT)
            process.wait(WAIT)
        finally:
            processes.end(process)

    def stopped(self, process, program, index):
        """Stops a task until the test ends; returns its pid."""
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as f:
            pids = []
            for pid in map(int, f.read().split()):
                with open(f"/proc/{pid}/cmdline", "rb") as c:
                    words = c.read().decode().split("\0")
                if os.path.basename(words[0]) == program:
                    pids.append(pid)
        os.kill(pids[index], signal.SIGSTOP)
        return pids[index]

    def step_of(self, target, worker, at_least):
        def reached():
            for one in processes.ctl("status", *target)[0]["workers"]:
                if one["worker"] == worker and one["step"] >= at_least:
                    return one["step"]
            return None
        return processes.wait_for(reached, WAIT, f"step {at_least} of {worker}")

    def test_a_running_job_is_watched_and_a_stopped_worker_explained(self):
        job = self.write_job(consistency="ssp", staleness_bound_steps=2)
        with self.launched("--job", job) as (process, cluster):
            target = [*cluster, "--job", job]
            self.step_of(target, "worker:1", 5)
            status, _ = processes.ctl("status", *target)
            self.assertEqual([s["state"] for s in status["servers"]], ["ok", "ok"])
            self.assertEqual([w["state"] for w in status["workers"]], ["live", "live"])
            self.assertGreater(status["servers"][0]["counters"]["pushes"], 0)

            watch = subprocess.Popen([processes.CTL, "status", *target, "--json", "--watch", "0.2"],
                                     stdout=subprocess.PIPE, text=True)
            try:
                samples = [json.loads(processes.read_line(watch, watch.stdout))]
                # A sample covers 0.2 s: on a loaded machine some contain no step.
                while not samples[-1]["workers"][0].get("steps_per_second"):
                    self.assertLess(len(samples), WAIT / 0.2, samples[-3:])
                    samples.append(json.loads(processes.read_line(watch, watch.stdout)))
            finally:
                watch.kill()
                watch.communicate(timeout=WAIT)
            self.assertGreater(samples[-1]["workers"][0]["step"], samples[0]["workers"][0]["step"])

            pid = self.stopped(process, "cairn-worker", 1)

            def explained():
                why, _ = processes.ctl("why", *cluster, "--job", "story")
                causes = [c for c in why["causes"] if c["waited_for_by"] > 0
                          and c["seconds_since_seen"] > 2]
                return (why, causes) if causes else None
            why, causes = processes.wait_for(explained, WAIT, "why to name the stopped worker")
            self.assertEqual([c["worker"] for c in causes], ["worker:1"])
            self.assertTrue(causes[0]["origin"].endswith(f"/{pid}"), causes)
            self.assertIn("silent", causes[0]["advice"])
            self.assertEqual(why["waiting"][0]["waiter"], "worker:0")
            self.assertEqual(why["waiting"][0]["missing"], ["worker:1"])
            os.kill(pid, signal.SIGCONT)

    def test_a_lost_server_is_shown_with_the_reason_beside_the_others(self):
        with self.launched("--job", self.write_job()) as (process, cluster):
            target = [*cluster, "--job", "story", "--timeout_seconds", "1"]
            self.step_of(target, "worker:0", 5)
            pid = self.stopped(process, "cairn-ps", 1)
            status, err = processes.ctl("status", *target, code=1)
            self.assertEqual([s["state"] for s in status["servers"]], ["ok", "no answer"])
            self.assertIn("deadline", status["servers"][1]["error"])
            self.assertIn("ps:1", err)
            why, _ = processes.ctl("why", *target, code=1)
            self.assertTrue(why["servers_without_answer"][0]["server"].startswith("ps:1"))
            doctor, _ = processes.ctl("doctor", *cluster, "--timeout_seconds", "1", "--data_dir", self.folder,
                            code=1)
            servers = [f for f in doctor["findings"] if f["what"].startswith("ps:")]
            self.assertEqual([f["level"] for f in servers], ["ok", "bad"])
            self.assertIn("does not respond", servers[1]["found"])
            self.assertTrue(servers[1]["fix"])
            os.kill(pid, signal.SIGCONT)

    def test_a_checkpoint_of_a_synchronous_job_is_made_only_while_no_step_closes(self):
        # Steps would not close either while the job makes a checkpoint of its own.
        job = self.write_job(every_steps=10**9, consistency="sync")
        with self.launched("--job", job) as (process, cluster):
            target = [*cluster, "--job", "story"]
            self.step_of(target, "worker:0", 5)
            folder = os.path.join(self.folder, "kept")
            self.assertIn("is synchronous and closed steps",
                          refused("checkpoint", "create", *target, folder))
            self.assertEqual(os.listdir(folder), [])
            pid = self.stopped(process, "cairn-worker", 1)
            made, _ = processes.ctl("checkpoint", "create", *target, folder)
            self.assertTrue(processes.ctl("checkpoint", "verify", made["folder"])[0]["ok"])
            os.kill(pid, signal.SIGCONT)

    def test_the_wire_is_measured_and_nothing_stays_behind(self):
        with processes.Cluster(self.folder, 2) as cluster:
            target = ["--cluster", cluster.worker_file(1)]
            found, _ = processes.ctl("bench", *target, "--mib", "1", "--seconds", "0.05")
            self.assertEqual([s["server"] for s in found["servers"]], ["ps:0", "ps:1"])
            for rates in [*found["servers"], found["together"]]:
                self.assertGreater(rates["push_bytes_per_second"], 0)
                self.assertGreater(rates["pull_bytes_per_second"], 0)
            trips = found["servers"][0]["round_trip_seconds"]
            self.assertLess(0, trips["median"])
            self.assertLessEqual(trips["median"], trips["p99"])
            status, _ = processes.ctl("status", *target, "--job", "any")
            self.assertEqual([s["jobs"] for s in status["servers"]], [[], []])
            self.assertIn("1 to 256", refused("bench", *target, "--mib", "0", code=2))

    def flip(self, path):
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 1]))

    def test_checkpoints_are_made_listed_verified_exported_and_restored(self):
        job = self.write_job()
        state = os.path.join(self.folder, "state")
        with self.launched("--job", job, "--state", state) as (_, cluster):
            self.step_of([*cluster, "--job", job], "worker:0", 1000)
            made, _ = processes.ctl("checkpoint", "create", *cluster, "--job", job)
            self.assertEqual(made["servers"], 2)
            self.assertGreaterEqual(made["step"], 1000)
            live = os.path.join(self.folder, "live.npz")
            processes.ctl("export", live, *cluster, "--job", "story")
            with numpy.load(live) as arrays:
                self.assertEqual({n: a.shape for n, a in arrays.items()},
                                 {"kernel": (4, 1), "bias": (1,)})
                self.assertGreater(arrays["kernel"][0, 0], 0)
                self.assertLess(arrays["kernel"][1, 0], 0)
            # Files of a running server are not read; nor is the job taken from its workers.
            self.assertIn("in use by process",
                          refused("inspect", "--data_dir", os.path.join(state, "ps0")))
            self.assertIn("is live at step",
                          refused("checkpoint", "restore", made["folder"], *cluster))
        listed, _ = processes.ctl("checkpoint", "list", "--job", job)
        kept = [c for c in listed["checkpoints"] if c["kept_by_operator"]]
        self.assertEqual([c["folder"] for c in kept], [made["folder"]])
        self.assertGreater(len(listed["checkpoints"]), 1, "the job makes its own")
        self.assertEqual(listed["corrupt"], [])
        self.assertEqual(listed["damaged"], listed["corrupt"])  # the earlier name of the key

        whole, _ = processes.ctl("checkpoint", "verify", made["folder"])
        self.assertTrue(whole["ok"])
        self.assertGreater(whole["checkpoints"][0]["files"], 4)
        values = os.path.join(self.folder, "values.npz")
        processes.ctl("export", values, "--checkpoint", made["folder"])
        with numpy.load(values) as arrays:
            before = {name: array.copy() for name, array in arrays.items()}
        self.assertEqual(set(before), {"kernel", "bias"})
        self.check_files(state, made)
        self.restore_to_three(made, before)

        table = next(os.path.join(made["folder"], "ps-1", "db", name)
                     for name in os.listdir(os.path.join(made["folder"], "ps-1", "db"))
                     if name.endswith(".sst"))
        self.flip(table)
        damaged, err = processes.ctl("checkpoint", "verify", made["folder"], code=1)
        self.assertFalse(damaged["ok"])
        self.assertEqual(len(damaged["checkpoints"][0]["wrong"]), 1)
        self.assertIn(os.path.basename(table), damaged["checkpoints"][0]["wrong"][0])
        self.assertIn("1 file is corrupt", err)
        text = subprocess.run([processes.CTL, "checkpoint", "verify", made["folder"]], check=False,
                              capture_output=True, text=True, timeout=60).stdout
        self.assertIn(f"{made['folder']}: CORRUPT, step {made['step']}, ", text)
        # Reports each checkpoint of a directory; a table may belong to several, by hard links.
        several, _ = processes.ctl("checkpoint", "verify", self.checkpoints, code=1)
        self.assertEqual(len(several["checkpoints"]), len(listed["checkpoints"]))
        self.assertIn(made["folder"], [c["folder"] for c in several["checkpoints"] if not c["ok"]])

    def check_files(self, state, made):
        """inspect on files that no server uses: of a data directory and of a checkpoint's part."""
        for folder in (os.path.join(state, "ps0"), os.path.join(made["folder"], "ps-0")):
            found, _ = processes.ctl("inspect", "--data_dir", folder)
            self.assertEqual(found["server"], "ps:0")
            names = {v["name"]: v for v in found["variables"]}
            self.assertEqual(names["cairn/workers"]["rows"], 2)
            self.assertEqual([w["ordinal"] for w in found["workers"]], [0, 1])
            self.assertGreaterEqual(found["workers"][0]["sequence"], made["step"])
            self.assertGreater(sum(v["bytes"] for v in found["variables"]), 0)

    def restore_to_three(self, made, before):
        """The checkpoint of two servers on three, with the same values."""
        with self.launched("--ps", "3", "--worker", "0") as (_, cluster):
            done, _ = processes.ctl("checkpoint", "restore", made["folder"], *cluster)
            self.assertEqual((done["job"], done["step"]), ("story", made["step"]))
            self.assertIn("--replace", refused("checkpoint", "restore", made["folder"], *cluster))
            processes.ctl("checkpoint", "restore", made["folder"], *cluster, "--replace")
            again = os.path.join(self.folder, "again.npz")
            processes.ctl("export", again, *cluster, "--job", "story")
            with numpy.load(again) as arrays:
                for name, array in before.items():
                    numpy.testing.assert_array_equal(array, arrays[name])
            kernel, _ = processes.ctl("inspect", *cluster, "--job", "story", "kernel")
            self.assertEqual(kernel["variables"][0]["rows"], 4)
            self.assertEqual(kernel["variables"][0]["slots"], ["accumulator"])

    def test_invalid_requests_are_refused_with_the_next_step(self):
        self.assertIn("cairnctl launch says", refused("status", "--job", "x", code=2))
        self.assertIn("--job", refused("rebalance", "--servers", "[::1]:1", code=2))
        self.assertIn("x.yaml", refused("why", "--cluster", "x.yaml", "--job", "x", code=2))
        self.assertIn("no finished checkpoint", refused("checkpoint", "verify", self.folder, code=2))
        self.assertIn("MANIFEST.json", refused("export", "a.npz", "--checkpoint", self.folder,
                                               code=2))
        self.assertIn(".safetensors", refused("export", "a.csv", "--checkpoint", self.folder,
                                              code=2))
        self.assertIn("not the data directory", refused("inspect", "--data_dir", self.folder))
        for words in (("checkpoint", "create", "s3://bucket/x"), ("launch", "--state=s3://bucket/x"),
                      ("export", "s3://bucket/x.npz")):
            self.assertIn("a URL; expected a path", refused(*words, code=2))


if __name__ == "__main__":
    tap.main()
