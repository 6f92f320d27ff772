"""cairn-worker under ssp with real processes: the gap to a stopped worker is exactly the bound;
uneven data ends cleanly; a worker that is killed, paused past its lease, late or started with other
settings affects the others as on_worker_loss and the messages say."""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

ROWS, BATCH = 40000, 5
STEPS = ROWS // BATCH // 2  # of each of the two workers in one epoch
LEASE_SECONDS = 3


class Worker:
    """One cairn-worker under ssp. Its metrics file has a line for every finished step."""

    def __init__(self, test, cluster_file, index, bound, flags=()):
        self.metrics = os.path.join(test.folder, f"metrics{index}.jsonl")
        self.log = os.path.join(test.folder, f"worker{index}.log")
        settings = ["--set", "strategy.consistency=ssp",
                    "--set", f"strategy.staleness_bound_steps={bound}",
                    "--metrics_file", self.metrics, *flags]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                processes.worker_command(test.job, cluster_file, index, settings),
                stdout=subprocess.PIPE, stderr=log, text=True)
        test.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)

    def steps(self):
        if not os.path.exists(self.metrics):
            return 0
        with open(self.metrics, "rb") as f:
            return f.read().count(b"\n")

    def wait_for_steps(self, count):
        processes.wait_for(lambda: self.steps() >= count or self.process.poll() is not None, 60,
                           f"{count} steps")

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def signal(self, number):
        self.process.send_signal(number)

    def report(self, test, code=0):
        out, _ = self.process.communicate(timeout=120)
        test.assertEqual(self.process.returncode, code, self.read_log()[-4000:])
        return json.loads(out.splitlines()[-1]) if code == 0 else None


class Consistency(scene.FolderTest):
    def setUp(self):
        super().setUp()
        rows = os.path.join(self.folder, "rows.libsvm")
        with open(rows, "w", encoding="ascii") as f:
            for i in range(ROWS):
                f.write(f"{i % 2} {1 + i % 2}:1 {3 + i % 7}:0.5\n")
        self.job = os.path.join(self.folder, "job.yaml")
        with open(self.job, "w", encoding="ascii") as f:
            json.dump({"name": "job", "model": {"type": "linear"},
                       "data": {"format": "libsvm", "features": 10, "train": [rows],
                                "batch_size": BATCH},
                       "optimizer": {"type": "sgd", "learning_rate": 0.1},
                       "strategy": {"ps_wait_seconds": 20}}, f)

    def servers(self, lease_seconds=LEASE_SECONDS):
        return processes.Cluster(self.folder, 2, [f"--lease_seconds={lease_seconds}"])

    def wait_until_stalled(self, cluster, job, waiter, missing):
        """Waits until the servers say that a step of worker `waiter` waits for worker `missing`."""
        def stalled():
            why, _ = processes.ctl("why", "--servers", ",".join(cluster.addresses), "--job", job)
            return any(call["waits_for"] == "step" and call["waiter"] == f"worker {waiter}" and
                       call["missing"] == [f"worker {missing}"] for call in why["waiting"])
        processes.wait_for(stalled, 60, "a worker that waits")

    def test_the_largest_gap_is_exactly_the_bound(self):
        for bound in (0, 3):
            with self.servers(60) as cluster:
                file = cluster.worker_file(2)
                workers = [Worker(self, file, i, bound, ["--set", f"name=bound{bound}"])
                           for i in range(2)]
                workers[1].wait_for_steps(20)
                workers[1].signal(signal.SIGSTOP)
                self.wait_until_stalled(cluster, f"bound{bound}", 0, 1)
                workers[1].signal(signal.SIGCONT)
                reports = [worker.report(self) for worker in workers]
                for report in reports:
                    self.assertEqual(report["consistency"], "ssp")
                    self.assertEqual(report["steps"], STEPS)
                self.assertEqual(reports[0]["largest_step_gap"], bound)
                self.assertLessEqual(reports[1]["largest_step_gap"], bound)
                for worker in workers:
                    os.unlink(worker.metrics)

    def test_uneven_data_ends_cleanly(self):
        with self.servers(60) as cluster:
            file = cluster.worker_file(2)
            for short in range(2):
                workers = [Worker(self, file, i, 1,
                                  ["--set", f"name=short{short}", "--max_steps",
                                   "30" if i == short else "200"])
                           for i in range(2)]
                reports = [worker.report(self) for worker in workers]
                self.assertEqual(reports[short]["steps"], 30)
                self.assertEqual(reports[1 - short]["steps"], 200)

    def test_a_killed_worker_is_left_behind(self):
        with self.servers() as cluster:
            file = cluster.worker_file(2)
            stays, killed = (Worker(self, file, i, 2, ["--set", "strategy.ps_wait_seconds=1"])
                             for i in range(2))
            killed.wait_for_steps(20)
            killed.signal(signal.SIGKILL)
            report = stays.report(self)
            self.assertEqual(report["steps"], STEPS)
            self.assertIn("worker 1 of job job", cluster.log(0))
            self.assertIn("its lease has ended", cluster.log(0))

    def test_a_killed_worker_ends_the_job_under_fail(self):
        with self.servers() as cluster:
            file = cluster.worker_file(2)
            fail = ["--set", "strategy.on_worker_loss=fail"]
            stays, killed = (Worker(self, file, i, 2, fail) for i in range(2))
            killed.wait_for_steps(20)
            killed.signal(signal.SIGKILL)
            stays.report(self, code=1)
            last = stays.read_log().splitlines()[-1]
            for part in ("worker 1 of job job (", "is lost: last seen at", "on_worker_loss is fail",
                         "start all workers of the job again"):
                self.assertIn(part, last)
            # All workers again: they resume.
            reports = [worker.report(self) for worker in
                       [Worker(self, file, i, 2, fail) for i in range(2)]]
            for report in reports:
                self.assertEqual(report["total_steps"], STEPS)

    def test_a_paused_worker_comes_back_after_its_lease(self):
        with self.servers() as cluster:
            file = cluster.worker_file(2)
            stays, paused = (Worker(self, file, i, 1, ["--set", "data.epochs=3"])
                             for i in range(2))
            paused.wait_for_steps(20)
            paused.signal(signal.SIGSTOP)
            before = stays.steps()
            # The bound allows a few steps without it, its lost lease the others.
            processes.wait_for(lambda: stays.steps() > before + 50, 60, "steps without it")
            processes.wait_for(lambda: all("its lease has ended" in cluster.log(s)
                                           for s in range(2)), 60, "the end of the lease")
            paused.signal(signal.SIGCONT)
            reports = [worker.report(self) for worker in (stays, paused)]
            for report in reports:
                self.assertEqual(report["steps"], 3 * STEPS)
            self.assertIn("say hello again", paused.read_log())
            self.assertIn("has taken this worker back", paused.read_log())

    def test_a_paused_worker_of_a_failed_job_stops(self):
        with self.servers() as cluster:
            file = cluster.worker_file(2)
            stays, paused = (Worker(self, file, i, 1, ["--set", "strategy.on_worker_loss=fail"])
                             for i in range(2))
            paused.wait_for_steps(20)
            paused.signal(signal.SIGSTOP)
            stays.report(self, code=1)
            paused.signal(signal.SIGCONT)
            paused.report(self, code=1)
            self.assertIn("worker 1 of job job", paused.read_log().splitlines()[-1])

    def test_a_worker_joins_while_another_trains(self):
        with self.servers(60) as cluster:
            file = cluster.worker_file(2)
            early = Worker(self, file, 0, 0, ["--set", "data.epochs=100"])
            early.wait_for_steps(50)
            late = Worker(self, file, 1, 0, ["--max_steps", "20"])
            self.assertEqual(late.report(self)["largest_step_gap"], 0)
            before = early.steps()
            early.wait_for_steps(before + 50)
            early.signal(signal.SIGTERM)
            early.process.communicate(timeout=60)
            self.assertEqual(early.process.returncode, 143)

    def test_a_server_restarts_while_workers_keep_step(self):
        with self.servers(60) as cluster:
            file = cluster.worker_file(2)
            workers = [Worker(self, file, i, 2) for i in range(2)]
            workers[1].wait_for_steps(50)
            cluster.restart(1)
            for worker in workers:
                self.assertEqual(worker.report(self)["steps"], STEPS)

    def test_another_server_at_the_address_of_a_server_is_the_reason_of_the_stall(self):
        with self.servers(60) as cluster:
            file = cluster.worker_file(2)
            patient = ["--set", "strategy.ps_wait_seconds=100", "--set", "data.epochs=1000"]
            workers = [Worker(self, file, i, 0, patient) for i in range(2)]
            for worker in workers:
                worker.wait_for_steps(20)
            cluster.stop(1)
            os.mkdir(self.path("other"))
            with processes.Cluster(self.path("other"), 0) as other:
                other.reach(0)
                other.spawn(0, cluster.addresses[1])
                other.wait_until_ready(0)

                def sentence():
                    why, _ = processes.ctl("why", "--servers", cluster.addresses[0], "--job", "job")
                    return why["sentence"]
                processes.wait_for(
                    lambda: "ps:1 does not answer worker:0, worker:1 (another server answers at its "
                            "address)" in sentence(), 60, "the reason of the stall")
                # Once, although the workers ask again and again.
                warning = (f"ps:1 ({cluster.addresses[1]}): another server answers there, which "
                           "says that it is ps:0 of 1")
                for worker in workers:
                    processes.wait_for(lambda: warning in worker.read_log(), 60, warning)
                    self.assertEqual(worker.read_log().count(warning), 1, worker.read_log())
            cluster.spawn(1, cluster.addresses[1])
            cluster.wait_until_ready(1)
            processes.wait_for(lambda: "does not answer" not in sentence(), 60, "the job to go on")
            for worker in workers:
                worker.wait_for_steps(worker.steps() + 50)
                worker.signal(signal.SIGTERM)
            for worker in workers:
                worker.process.communicate(timeout=60)
                self.assertEqual(worker.process.returncode, 143, worker.read_log()[-4000:])

    def test_settings_that_differ_from_live_workers_are_refused(self):
        with self.servers(60) as cluster:
            file = cluster.worker_file(2)
            first = Worker(self, file, 0, 4, ["--set", "data.epochs=100"])
            first.wait_for_steps(5)
            other = Worker(self, file, 1, 5)
            other.report(self, code=1)
            last = other.read_log().splitlines()[-1]
            self.assertIn("staleness_bound_steps 5", last)
            self.assertIn("worker 0 (", last)
            self.assertIn("staleness_bound_steps 4", last)


if __name__ == "__main__":
    tap.main()
