"""A disk that fails, stalls, loses a sync, cannot be read, or is removed under a running server
(tests/faults/fault_shim.cc): the server refuses with an error that names the cause and keeps
refusing, workers wait and report that error, no acknowledged update is lost, and once the disk
works and the server is restarted totals are exact."""
import json
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402
from faults import FAILS, READS_FAIL, STALLS, SYNC_FAILS_ONCE, WELL, Environment, Faults  # noqa: E402
from harness import PUSHERS, SECONDS, PushersCase, ServersCase  # noqa: E402

CALLER = os.environ.get("CAIRN_CALLER")
VICTIM = 1


class Disk(PushersCase):
    def setUp(self):
        super().setUp()
        self.faults = Faults(self.path("faults"))

    def spawn_on_faulty_disk(self, index=VICTIM):
        with Environment(self.faults.environment(self.cluster.path(f"ps{index}"))):
            self.cluster.spawn(index, self.cluster.addresses[index])
        self.cluster.wait_until_ready(index)

    def open_pushing(self, durability):
        """Three servers, of which ps:1 has a disk with faults, and pushing workers."""
        with self.open_cluster(3, "--durability", durability, "--snapshot_interval_seconds",
                               "0.05") as cluster:
            cluster.stop(VICTIM)
            self.spawn_on_faulty_disk()
            for worker in range(PUSHERS):
                self.start_pusher(worker)
            self.until_all_got_on(20)
            yield cluster

    def await_refusal(self, *texts):
        """ps:1 reports that it refuses, and why; so do the workers that wait for it."""
        folder = self.cluster.path(f"ps{VICTIM}")
        texts = (f"ps:{VICTIM} cannot write to {folder}", "restart this server", *texts)
        processes.wait_for(lambda: texts[0] in self.cluster.log(VICTIM), SECONDS,
                           f"ps:{VICTIM} to refuse:\n{self.cluster.log(VICTIM)}")
        for text in texts:
            self.assertIn(text, self.cluster.log(VICTIM))
        for worker in range(PUSHERS):
            processes.wait_for(lambda: texts[0] in self.log(f"worker{worker}"), SECONDS,
                               f"worker {worker} to say so:\n{self.logs()}")

    def expect_standstill(self):
        """Checks that refused pushes stay refused. One answer for each worker may already be on its
        way."""
        before = self.progress()
        for _ in range(20):
            processes.wait_for(lambda: True, 1, "")
        self.assertTrue(all(a - b <= 2 for a, b in zip(self.progress(), before)))
        for worker in range(PUSHERS):
            self.assertIsNone(self.tasks[f"worker{worker}"].poll(), self.logs())
        self.assertIsNone(self.cluster.processes[VICTIM].poll(), "ps:1 ended by itself")

    def run_failure(self, durability, state, how):
        for cluster in self.open_pushing(durability):
            self.faults.disk(state)
            self.await_refusal("Input/output error")
            self.expect_standstill()
            self.faults.disk(WELL)  # writes would succeed again, but memory is ahead of the disk
            self.expect_standstill()
            self.assertGreater(self.faults.count(), 0)
            status = cluster.stop(VICTIM, how)
            if how == signal.SIGTERM:
                self.assertEqual(status, 1)
                self.assertIn("Input/output error", cluster.log(VICTIM).splitlines()[-1])
            self.respawn(VICTIM)
            self.until_all_got_on(10)
            self.finish()

    def test_writes_fail_under_snapshot(self):
        self.run_failure("snapshot", FAILS, signal.SIGKILL)

    def test_writes_fail_under_log(self):
        self.run_failure("log", FAILS, signal.SIGTERM)

    def test_writes_fail_under_log_sync(self):
        self.run_failure("log_sync", FAILS, signal.SIGKILL)

    # The kernel reports a failed sync only once, and has dropped the pages by then.
    def test_one_sync_fails_under_snapshot(self):
        self.run_failure("snapshot", SYNC_FAILS_ONCE, signal.SIGTERM)

    def test_one_sync_fails_under_log_sync(self):
        self.run_failure("log_sync", SYNC_FAILS_ONCE, signal.SIGKILL)

    def test_waits_for_a_stalled_disk_name_it_and_everything_continues(self):
        for cluster in self.open_pushing("log_sync"):
            self.faults.disk(STALLS)
            for worker in range(PUSHERS):
                processes.wait_for(
                    lambda: f"ps:{VICTIM} ({cluster.addresses[VICTIM]}) has not answered since"
                    in self.log(f"worker{worker}"), SECONDS, f"worker {worker} to name ps:1")
            self.expect_standstill()
            self.faults.disk(WELL)
            self.until_all_got_on(10)
            # Also while the workers leave; calls may stall before the workers are told to leave.
            held = self.faults.count()
            self.faults.disk(STALLS)
            self.stop()
            processes.wait_for(lambda: self.faults.count() > held, SECONDS, "a call to be held up")
            self.faults.disk(WELL)
            self.finish()

    def test_a_removed_folder_is_named_while_the_server_runs(self):
        for cluster in self.open_pushing("snapshot"):
            shutil.rmtree(cluster.path(f"ps{VICTIM}"))
            self.await_refusal("is gone (No such file or directory) while this server runs on it")
            self.expect_standstill()
            # The next start finds an empty directory. No worker can resend the durable updates.
            cluster.stop(VICTIM)
            self.respawn(VICTIM)
            for worker in range(PUSHERS):
                status = self.tasks[f"worker{worker}"].wait(SECONDS)
                self.assertEqual(status, 1, self.logs())
                last = self.log(f"worker{worker}").splitlines()[-1]
                # Durable updates are lost; if nothing was durable, the variables do not exist.
                self.assertRegex(last, "came back without acknowledged push|"
                                       "was restarted without push .* the job has 0 variables")
                self.assertIn(f"ps:{VICTIM} ", last)

    def test_a_disk_that_cannot_be_read_ends_the_start_and_names_the_file(self):
        for cluster in self.open_pushing("snapshot"):
            cluster.stop(VICTIM)
            self.faults.disk(READS_FAIL)
            with Environment(self.faults.environment(cluster.path(f"ps{VICTIM}"))):
                cluster.spawn(VICTIM, cluster.addresses[VICTIM])
            self.assertEqual(cluster.processes[VICTIM].wait(SECONDS), 1)
            last = cluster.log(VICTIM).splitlines()[-1]
            self.assertIn("Input/output error", last)
            self.assertIn(cluster.path(f"ps{VICTIM}"), last)
            self.respawn(VICTIM)
            self.until_all_got_on(10)
            self.finish()


class Calls(ServersCase):
    """All calls except plain pushing, on a disk that fails from their first write."""

    def test_a_worker_waits_for_the_restart_of_a_server_that_cannot_write(self):
        faults = Faults(self.path("faults"))
        with self.open_cluster(2) as cluster:
            cluster.stop(VICTIM)
            with Environment(faults.environment(cluster.path(f"ps{VICTIM}"))):
                cluster.spawn(VICTIM, cluster.addresses[VICTIM])
            cluster.wait_until_ready(VICTIM)
            faults.disk(FAILS)
            self.start("caller", [CALLER, ",".join(cluster.addresses)])
            processes.wait_for(lambda: f"ps:{VICTIM} cannot write to" in self.log("caller"),
                               SECONDS, "the caller to say so")
            cluster.stop(VICTIM)
            self.respawn(VICTIM)
            self.result("caller")


class Sync(ServersCase):
    """ps:0 cannot write its decisions."""

    def test_steps_wait_and_continue_as_undisturbed(self):
        rows = self.path("rows.libsvm")
        with open(rows, "w", encoding="ascii") as f:
            for i in range(12000):
                f.write(f"{i % 2} {1 + i % 17}:{(1 + i % 11) / 10} {18 + i % 13}:1\n")
        job = self.path("job.yaml")
        with open(job, "w", encoding="ascii") as f:
            json.dump({"name": "job", "model": {"type": "linear"},
                       "data": {"format": "libsvm", "features": 40, "train": [rows],
                                "batch_size": 10},
                       "optimizer": {"type": "adagrad", "learning_rate": 0.1},
                       "strategy": {"consistency": "sync"}}, f)
        exports = []
        for name in ("calm", "faulty"):
            faults = Faults(self.path("faults"))
            with self.open_cluster(2, "--durability", "log", name=name) as cluster:
                if name == "faulty":
                    cluster.stop(0)
                    with Environment(faults.environment(cluster.path("ps0"))):
                        cluster.spawn(0, cluster.addresses[0])
                    cluster.wait_until_ready(0)
                file = cluster.worker_file(2)
                metrics = self.path(f"{name}.jsonl")
                for index in range(2):
                    flags = ["--metrics_file", metrics] if index == 0 else []
                    self.start(f"worker{index}", processes.worker_command(
                        job, file, index, ["--export", self.path(f"{index}.npz"), *flags]))
                if name == "faulty":
                    processes.wait_for(lambda: os.path.exists(metrics)
                                       and os.path.getsize(metrics) > 2000, SECONDS, "some steps")
                    faults.disk(FAILS)
                    for index in range(2):
                        processes.wait_for(
                            lambda: f"ps:0 cannot write to {cluster.path('ps0')}"
                            in self.log(f"worker{index}"), SECONDS, f"worker {index} to say so")
                    cluster.stop(0)
                    self.respawn(0)
                for index in range(2):
                    self.assertEqual(self.result(f"worker{index}")["steps"], 600)
                with open(self.path("0.npz"), "rb") as f:
                    exports.append(f.read())
        self.assertTrue(exports[0] == exports[1], "another end than undisturbed")


if __name__ == "__main__":
    tap.main()
