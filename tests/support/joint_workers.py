"""cairn-worker processes that train as one (strategy.type multi_worker_mirrored)."""
import json
import os
import random
import signal
import subprocess
import time

import npz
import processes
import scene

ROWS, FEATURES, SECONDS = 3001, 20, 180
SPARSE = {"model": {"type": "fm", "factors": 4, "init": {"type": "wave", "scale": 0.1}}}


def write_ratings(path, rows):
    draw = random.Random(3)
    with open(path, "w", encoding="ascii") as f:
        for i in range(rows):
            f.write(f"{draw.randrange(300)}::{draw.randrange(200)}::{1 + i % 5}::0\n")


class JointWorkersTest(scene.FolderTest):
    """Jobs of several workers, and what their processes leave."""
    WORKER_FLAGS = staticmethod(lambda index: [])  # of every training worker

    def rows(self, count, write=scene.write_sparse):
        path = self.path(f"{write.__name__}{count}")
        if not os.path.exists(path):
            write(path, count)
        return path

    def write_job(self, name, batch, strategy=None, rows=ROWS, data=None, **sections):
        job = {"name": name, "model": {"type": "linear"},
               "data": data or {"format": "libsvm", "features": FEATURES,
                                "train": [self.rows(rows)]},
               "optimizer": {"type": "adam", "learning_rate": 0.01},
               "strategy": {"type": "multi_worker_mirrored",
                            "communication": {"timeout_seconds": 10,
                                              "connect_timeout_seconds": 60},
                            **(strategy or {})},
               "storage": {"directory": self.path("data")}}
        for key, value in sections.items():
            job[key] = {**job.get(key, {}), **value}
        job["data"] = {**job["data"], "batch_size": batch, **sections.get("data_more", {})}
        job.pop("data_more", None)
        path = self.path(f"{name}.yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump(job, f)
        return path

    def start(self, job, cluster, index, flags=()):
        log = open(self.path(f"worker{index}.log"), "wb")
        self.addCleanup(log.close)
        process = subprocess.Popen(processes.worker_command(
            job, cluster, index, [*self.WORKER_FLAGS(index), *flags]),
                                   stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(processes.end, process)
        return process

    def log(self, index):
        with open(self.path(f"worker{index}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def report(self, process, index, code=0):
        """The report, or the last line of the log if `code` is a failure's."""
        out, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, code, self.log(index)[-4000:])
        ended = code in (0, 128 + signal.SIGTERM)
        return json.loads(out.splitlines()[-1]) if ended else self.log(index).splitlines()[-1]

    def run_all(self, job, workers=2, flags=()):
        cluster = processes.workers_alone(self.folder, workers)
        started = [self.start(job, cluster, i, flags) for i in range(workers)]
        return [self.report(process, i) for i, process in enumerate(started)]

    def variables(self, job, index=0, workers=2):
        """The state that worker `index` keeps."""
        export = self.path("kept.npz")
        cluster = processes.workers_alone(self.folder, workers)
        processes.run_worker(job, cluster, index,
                             ["--mode", "evaluate", "--export", export,
                              "--set", f"data.eval=[{self.eval_of(job)}]"])
        return npz.read(export)

    @staticmethod
    def eval_of(job):
        with open(job, encoding="ascii") as f:
            return json.load(f)["data"]["train"][0]

    def check_same_bits(self, job, workers=2):
        first = self.variables(job, 0, workers)
        for index in range(1, workers):
            self.assertEqual(self.variables(job, index, workers), first, f"worker {index}")
        return first

    def assert_close(self, got, want, tolerance=1e-6):
        self.assertEqual(set(got), set(want))
        for name, values in npz.by_key(want).items():
            other = npz.by_key(got)[name]
            self.assertEqual(len(other), len(values), name)
            worst = max(abs(a - b) for a, b in zip(other, values))
            self.assertLessEqual(worst, tolerance, name)

    def alone(self, name, batch, **more):
        """The result of one process whose batches hold the rows of all workers."""
        job = self.write_job(name, batch, {"type": "mirrored", "devices": ["cpu:0"],
                                           "communication": {}}, **more)
        return processes.run_worker(job, flags=["--export", self.path("alone.npz")]), \
            npz.read(self.path("alone.npz"))

    def together(self, name, workers, batch, **more):
        report, one = self.alone(f"{name}-alone", workers * batch, **more)
        self.assertEqual(report["consistency"], "sync")
        job = self.write_job(name, batch, **more)
        reports = self.run_all(job, workers)
        self.assertEqual({r["steps"] for r in reports}, {report["steps"]})
        self.assertEqual(sum(r["examples"] for r in reports), report["examples"])
        for r in reports:
            self.assertAlmostEqual(r["train_loss"], report["train_loss"], delta=1e-6)
        self.assert_close(self.check_same_bits(job, workers), one)
        return reports

    def check_killed_worker_is_named(self, started, cluster):
        """Kills worker 1 of three: the others end, name it, and say what to do."""
        with open(cluster, encoding="ascii") as f:
            address = json.load(f)["cluster"]["worker"][1]
        started[1].kill()
        begin = time.monotonic()
        for index in (0, 2):
            line = self.report(started[index], index, code=1)
            self.assertIn(f"rank 1 ({address})", line)
            self.assertIn("restart every worker", line)
        self.assertLess(time.monotonic() - begin, 10)
        started[1].communicate(timeout=SECONDS)

    def check_hanging_worker_is_named(self, started, cluster):
        """Stops worker 1 of two: the other ends within the timeout, and names it."""
        with open(cluster, encoding="ascii") as f:
            address = json.load(f)["cluster"]["worker"][1]
        started[1].send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        self.assertIn(f"rank 1 ({address})", self.report(started[0], 0, code=1))
        self.assertLess(time.monotonic() - begin, 12)

    def start_long(self, name, workers=2, flags=(), **more):
        """Workers in the middle of a run that takes a few seconds, and their job."""
        job = self.write_job(name, 5, data_more={"epochs": 12}, **more)
        cluster = processes.workers_alone(self.folder, workers)
        metrics = self.path(f"{name}.jsonl")
        if os.path.exists(metrics):
            os.unlink(metrics)
        started = [self.start(job, cluster, i, ["--metrics_file", metrics, *flags])
                   for i in range(workers)]
        processes.wait_for(lambda: started[0].poll() is not None
                           or (os.path.exists(metrics) and os.path.getsize(metrics) > 4096),
                           60, "some steps")
        return job, started, cluster
