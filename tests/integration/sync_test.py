"""cairn-worker under sync with real processes: W workers with batch b train as one with batch W·b,
also with ragged batches, sparse rows and killed servers; a late worker's pushes are dropped and
counted; checkpoints have complete steps; uneven data, a killed worker and a continued run end
cleanly."""
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import npz  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

ROWS, FEATURES = 3010, 20


class Sync(scene.FolderTest):
    def write_job(self, name, batch, consistency="sync", optimizer="adagrad", model=None,
                  rows=ROWS, epochs=1, checkpoint=None, **strategy):
        data = self.path(f"rows{rows}.libsvm")
        if not os.path.exists(data):
            scene.write_sparse(data, rows, FEATURES)
        job = {"name": name, "model": model or {"type": "linear"},
               "data": {"format": "libsvm", "features": FEATURES, "train": [data],
                        "batch_size": batch, "epochs": epochs},
               "checkpoint": checkpoint or {},
               "optimizer": {"type": optimizer, "learning_rate": 0.1},
               "strategy": {"consistency": consistency, "ps_wait_seconds": 30,
                            "partitioner": {"type": "fixed_shards", "num_shards": 2},
                            **strategy}}
        path = self.path(f"{name}.yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump(job, f)
        return path

    def start(self, job, cluster, index, flags=()):
        log = open(self.path(f"worker{index}.log"), "ab")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            processes.worker_command(job, cluster, index,
                                     ["--export", self.path(f"{index}.npz"), *flags]),
            stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(processes.end, process)
        return process

    def report(self, process, index, code=0):
        out, _ = process.communicate(timeout=180)
        with open(self.path(f"worker{index}.log"), encoding="utf-8", errors="replace") as f:
            log = f.read()
        self.assertEqual(process.returncode, code, log[-4000:])
        return json.loads(out.splitlines()[-1]) if code == 0 else log.splitlines()[-1]

    def run_all(self, job, servers, workers, flags=(), meanwhile=None):
        """Reports of all workers, and the variables at the end."""
        cluster = servers.worker_file(workers)
        started = [self.start(job, cluster, i, flags) for i in range(workers)]
        if meanwhile is not None:
            meanwhile(started)
        reports = [self.report(process, i) for i, process in enumerate(started)]
        return reports, npz.read(self.path("0.npz"))

    def assert_close(self, got, want, tolerance=1e-6):
        self.assertEqual(set(got), set(want))
        for name, values in want.items():
            self.assertEqual(len(got[name]), len(values), name)
            worst = max(abs(a - b) for a, b in zip(got[name], values))
            self.assertLessEqual(worst, tolerance, name)

    def test_workers_together_train_as_one_with_all_rows(self):
        # 3,010 rows: the last step has 10 rows; two workers have 5 each, three have 4, 3 and 3.
        for model in ({"type": "linear"},
                      {"type": "fm", "factors": 4, "init": {"type": "wave", "scale": 0.1}}):
            with processes.Cluster(self.folder, 2) as servers:
                kind = model["type"]
                _, one = self.run_all(self.write_job(f"{kind}1", 120, "async", model=model),
                                      servers, 1)
                for workers in (2, 3):
                    job = self.write_job(f"{kind}{workers}", 120 // workers, model=model)
                    reports, several = self.run_all(job, servers, workers)
                    self.assert_close(several, one)
                    self.assertEqual({r["steps"] for r in reports}, {26})
                    self.assertEqual({r["pushes_late"] for r in reports}, {0})

    def test_killed_servers_do_not_change_the_result(self):
        with processes.Cluster(self.folder, 3) as servers:
            _, undisturbed = self.run_all(
                self.write_job("calm", 10, optimizer="adam", rows=6 * ROWS), servers, 2)

        def kill(started):
            draw = random.Random(1)
            for _ in range(10):
                time_out = draw.uniform(0.02, 0.15)
                try:
                    started[0].wait(time_out)
                    return
                except subprocess.TimeoutExpired:
                    victims = draw.sample(range(3), draw.choice((1, 1, 2, 3)))
                    for victim in victims:
                        servers.stop(victim)
                    for victim in victims:
                        servers.spawn(victim, servers.addresses[victim])
                    for victim in victims:
                        servers.wait_until_ready(victim)
                    kills.extend(victims)

        kills = []
        with processes.Cluster(self.folder, 3, ["--snapshot_interval_seconds=0.2"]) as servers:
            reports, disturbed = self.run_all(
                self.write_job("killed", 10, optimizer="adam", rows=6 * ROWS), servers, 2,
                meanwhile=kill)
        self.assertGreaterEqual(len(kills), 3)
        self.assertEqual({r["steps"] for r in reports}, {6 * ROWS // 20})
        self.assert_close(disturbed, undisturbed)

    def test_a_killed_worker_continues_where_it_was(self):
        with processes.Cluster(self.folder, 2) as servers:
            _, undisturbed = self.run_all(self.write_job("calm", 5), servers, 2)
            job = self.write_job("killed", 5)
            again = []

            def kill(started):
                metrics = self.path("metrics1.jsonl")
                processes.wait_for(lambda: os.path.exists(metrics)
                                   and os.path.getsize(metrics) > 1000, 60, "some steps")
                started[1].send_signal(signal.SIGKILL)
                started[1].communicate(timeout=60)
                started[1] = self.start(job, servers.path("cluster.yaml"), 1)
                again.append(started[1])

            cluster = servers.worker_file(2)
            started = [self.start(job, cluster, 0),
                       self.start(job, cluster, 1,
                                  ["--metrics_file", self.path("metrics1.jsonl")])]
            kill(started)
            reports = [self.report(process, i) for i, process in enumerate(started)]
            self.assertEqual(reports[0]["steps"], 301)
            self.assertLess(reports[1]["steps"], 301)
            self.assertEqual(reports[1]["total_steps"], 301)
            self.assert_close(npz.read(self.path("0.npz")), undisturbed)

    def test_a_job_killed_with_its_disks_continues_from_a_checkpoint(self):
        # 3010 rows on two workers are 301 steps; the last checkpoint may be of any step.
        with processes.Cluster(self.folder, 2) as servers:
            _, undisturbed = self.run_all(
                self.write_job("calm", 5, optimizer="adam", epochs=8), servers, 2)
        directory = self.path("checkpoints")
        job = self.write_job("killed", 5, optimizer="adam", epochs=8, checkpoint={
            "directory": directory, "every_steps": 100, "keep": 2})
        for run, count in enumerate((2, 3)):
            folder = self.path(f"servers{run}")
            os.mkdir(folder)
            wanted = self.newest_number(directory) + 3
            with processes.Cluster(folder, count) as servers:
                cluster = servers.worker_file(2)
                started = [self.start(job, cluster, i) for i in range(2)]
                processes.wait_for(
                    lambda: self.newest_number(directory) >= wanted
                    or started[0].poll() is not None, 120, "three checkpoints")
                for process in started:
                    processes.end(process)
        with open(self.path("worker0.log"), encoding="utf-8") as f:
            self.assertIn("on 2 servers, to 3", f.read())
        folder = self.path("servers_last")
        os.mkdir(folder)
        with processes.Cluster(folder, 1) as servers:
            reports, exported = self.run_all(job, servers, 2)
        self.assertEqual({r["total_steps"] for r in reports}, {8 * 301})
        self.assertLess(reports[0]["steps"], 8 * 301 - 500)
        self.assert_close(exported, undisturbed)

    @staticmethod
    def newest_number(directory):
        finished = processes.checkpoints(directory)
        return finished[-1][0]["number"] if finished else 0

    def test_uneven_data_ends_cleanly_and_a_second_run_waits_for_all_workers(self):
        with processes.Cluster(self.folder, 2) as servers:
            job, cluster = self.write_job("uneven", 10), servers.worker_file(2)
            for run in (1, 2):
                short = self.start(job, cluster, 1, ["--continue", "--max_steps", "20"])
                long = self.start(job, cluster, 0, ["--continue"])
                self.assertEqual(self.report(short, 1)["steps"], 20)
                self.assertEqual(self.report(long, 0)["steps"], 151, run)

    def test_the_late_pushes_of_a_slow_worker_are_dropped_and_counted(self):
        with processes.Cluster(self.folder, 2) as servers:
            job = self.write_job("backup", 5, rows=30100, replicas_to_aggregate=2)
            cluster = servers.worker_file(3)
            started = [self.start(job, cluster, i) for i in range(3)]
            deadline = time.monotonic() + 120
            while started[0].poll() is None and time.monotonic() < deadline:
                for number, seconds in ((signal.SIGSTOP, 0.08), (signal.SIGCONT, 0.02)):
                    if started[2].poll() is None:
                        started[2].send_signal(number)
                    try:
                        started[0].wait(seconds)
                    except subprocess.TimeoutExpired:
                        pass
            started[2].send_signal(signal.SIGCONT)
            reports = [self.report(process, i) for i, process in enumerate(started)]
            self.assertGreater(reports[2]["pushes_late"], 0)
            self.assertGreaterEqual(reports[2]["pushes_dropped"], reports[2]["pushes_late"])

    def test_a_missing_worker_is_named(self):
        with processes.Cluster(self.folder, 1) as servers:
            job = self.write_job("alone", 10, ps_wait_seconds=1)
            worker = self.start(job, servers.worker_file(2), 0)
            processes.wait_for(
                lambda: "worker 1, which has not said hello yet"
                in open(self.path("worker0.log"), encoding="utf-8").read(), 60, "the name")

    def test_invalid_settings_are_refused(self):
        with processes.Cluster(self.folder, 1) as servers:
            job = self.write_job("many", 10, replicas_to_aggregate=3)
            worker = self.start(job, servers.worker_file(2), 0)
            self.assertIn("replicas_to_aggregate is 3, but the job has 2 workers",
                          self.report(worker, 0, code=2))


if __name__ == "__main__":
    tap.main()
