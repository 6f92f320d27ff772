"""The evaluator task during and after the training of a job; and new jobs that start with another
job's values (checkpoint.warm_start). With real processes."""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

ROWS, COLUMNS, BATCH = 4000, 20, 50
STEPS = ROWS // BATCH  # an epoch


class Jobs(scene.FolderTest):
    def setUp(self):
        super().setUp()
        self.directory = self.path("checkpoints")
        scene.write_rows(self.path("rows.libsvm"), ROWS, COLUMNS, noise=1)

    def write_job(self, name="job", model=None, **sections):
        path = self.path(name + ".yaml")
        rows = [self.path("rows.libsvm")]
        job = {"name": name, "model": model or {"type": "fm", "factors": 4},
               "data": {"format": "libsvm", "features": COLUMNS, "train": rows, "eval": rows,
                        "batch_size": BATCH, "epochs": 2},
               "optimizer": {"type": "adagrad", "learning_rate": 0.1},
               "storage": {"directory": self.path("store")},
               "checkpoint": {"directory": self.directory, "every_steps": STEPS // 2}}
        for key, values in sections.items():
            job.setdefault(key, {}).update(values)
        with open(path, "w", encoding="ascii") as f:
            json.dump(job, f)
        return path

    def start(self, command):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(processes.end, process)
        return process

    def finish(self, process, code=0):
        out, log = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, log[-4000:])
        return json.loads(out.splitlines()[-1]) if out else None, log

    def evaluator(self, job, *flags):
        return [processes.WORKER, "--job", job, "--task_type", "evaluator", *flags]

    def refused(self, command, code, *texts):
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, code, run.stderr[-4000:])
        for text in texts:
            self.assertIn(text, run.stderr.splitlines()[-1])

    def newest_checkpoint(self):
        return processes.checkpoints(self.directory)[-1][1]


class EvaluatorTask(Jobs):
    def test_it_scores_checkpoints_as_they_appear_and_ends_with_the_run(self):
        job = self.write_job(data={"epochs": 10})
        with processes.Cluster(self.folder, 2) as cluster:
            evaluator = self.start(self.evaluator(
                job, "--task_index", "0", "--cluster", cluster.worker_file(1),
                "--set", "output.metrics_file=" + self.path("scores.jsonl")))
            trained = processes.run_worker(job, cluster.worker_file(1))
            report, log = self.finish(evaluator)
        self.assertEqual(report["status"], "completed")
        self.assertEqual(report["task"], "evaluator:0")
        self.assertEqual(report["total_steps"], 10 * STEPS)
        self.assertEqual(report["eval"], trained["eval"])
        # The first worker would write scores.jsonl.
        with open(self.path("scores.evaluator-0.jsonl"), encoding="ascii") as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual(len(lines), report["checkpoints"])
        self.assertEqual(lines[-1], {"step": 10 * STEPS, "eval": report["eval"]})
        self.assertEqual(sorted({line["step"] for line in lines}), [line["step"] for line in lines])
        self.assertIn(f"step {10 * STEPS} (", log)
        self.assertEqual(glob.glob(self.path("store", ".*")), [])

    def test_after_a_run_it_scores_the_end_and_waits_for_a_newer_one(self):
        job = self.write_job()
        trained = processes.run_worker(job)
        impatient = ["--set", "evaluation.checkpoint_wait_seconds=0.2"]
        report, _ = self.finish(self.start(self.evaluator(job, *impatient)))
        self.assertEqual((report["checkpoints"], report["eval"]), (1, trained["eval"]))
        # Another run while the evaluator waits: the evaluator ends with that run.
        evaluator = self.start(self.evaluator(job))
        again = processes.run_worker(job, flags=["--continue"])
        report, _ = self.finish(evaluator)
        self.assertEqual(report["total_steps"], 4 * STEPS)
        self.assertEqual(report["eval"], again["eval"])

    def test_it_stops_at_a_signal_and_after_its_waiting_time(self):
        job = self.write_job()
        evaluator = self.start(self.evaluator(job))
        line = processes.read_line(evaluator, evaluator.stderr)
        while "follows the checkpoints" not in line:
            self.assertTrue(line, "the evaluator ended early")
            line = processes.read_line(evaluator, evaluator.stderr)
        evaluator.send_signal(signal.SIGTERM)
        report, _ = self.finish(evaluator, code=143)
        self.assertEqual((report["status"], report["checkpoints"]), ("interrupted", 0))
        impatient = ["--set", "evaluation.checkpoint_wait_seconds=0.2"]
        self.refused(self.evaluator(job, *impatient), 1, "no checkpoint of job 'job' came to",
                     self.directory, "first worker (chief, else worker 0)")
        self.refused(self.evaluator(job, "--set", "checkpoint={}"), 2, "checkpoint.directory")
        self.refused(self.evaluator(job, "--set", "data.eval=[]"), 2, "data.eval names no file")
        self.refused(self.evaluator(job, "--mode", "evaluate"), 2, "the evaluator task")
        for flags in (["--fresh"], ["--continue"], ["--export", "x.npz"], ["--max_steps", "3"]):
            self.refused(self.evaluator(job, *flags), 2, flags[0], "not the evaluator")

    def test_a_corrupt_checkpoint_ends_it_with_the_files_name(self):
        job = self.write_job()
        processes.run_worker(job)
        folder = self.newest_checkpoint()
        manifest = glob.glob(os.path.join(folder, "ps-0", "db", "MANIFEST-*"))[0]
        with open(manifest, "ab") as f:
            f.write(b"x")
        self.refused(self.evaluator(job), 1, manifest)


class WarmStarts(Jobs):
    def test_a_new_job_starts_with_the_values_but_not_the_slots_of_another(self):
        first = self.write_job("first")
        with self.new_servers(2) as cluster:
            before = processes.run_worker(first, cluster.worker_file(1))
        folder = self.newest_checkpoint()
        warm = {"warm_start": {"from": folder}, "directory": "", "every_steps": 0}
        still = self.write_job("still", checkpoint=warm, data={"max_steps": 1},
                               optimizer={"type": "sgd", "learning_rate": 0})
        for servers, workers in ((3, 1), (1, 2)):
            with self.new_servers(servers) as cluster:
                reports = processes.run_workers(still, cluster.worker_file(workers), workers)
            self.assertEqual(reports[0]["eval"], before["eval"])
        # Accumulators start over, so the learning path differs from another run of the first job.
        onwards = self.write_job("onwards", checkpoint=warm)
        with self.new_servers(1) as cluster:
            file = cluster.worker_file(1)
            report = processes.run_worker(onwards, file)
            self.assertEqual(report["total_steps"], 2 * STEPS)
            # A continued run has its own values.
            again = processes.run_worker(onwards, file, flags=["--continue", "--max_steps", "1"])
            self.assertEqual(again["total_steps"], 2 * STEPS + 1)
            self.assertAlmostEqual(again["eval"]["auc"], report["eval"]["auc"], delta=0.01)
        self.assertGreater(report["eval"]["auc"], 0.9)

    def test_a_killed_warm_start_is_repeated(self):
        before = processes.run_worker(self.write_job("first"))
        job = self.write_job("second", data={"max_steps": 1},
                             optimizer={"type": "sgd", "learning_rate": 0},
                             checkpoint={"directory": "", "every_steps": 0,
                                         "warm_start": {"from": self.newest_checkpoint()}})
        with self.new_servers(2) as cluster:
            file = cluster.worker_file(1)
            for _ in range(3):
                worker = self.start(processes.worker_command(job, file))
                line = processes.read_line(worker, worker.stderr)
                while line and "': restores " not in line:  # variables may exist now
                    line = processes.read_line(worker, worker.stderr)
                processes.end(worker)
            report = processes.run_worker(job, file)
        self.assertEqual(report["eval"], before["eval"])

    def test_matching_variables_are_taken_and_others_are_named(self):
        first = self.write_job("first")
        processes.run_worker(first)
        folder = self.newest_checkpoint()

        def warm(name, variables, model=None):
            return self.write_job(name, model=model, data={"max_steps": 1}, checkpoint={
                "directory": "", "every_steps": 0,
                "warm_start": {"from": folder, "variables": variables}})

        def export(job):
            path = self.path("some.npz")
            processes.run_worker(job, flags=["--export", path, "--set",
                                             "optimizer.learning_rate=0"])
            with open(path, "rb") as f:
                return f.read()

        some, all_of_them = export(warm("some", ["linear"])), export(warm("all", ["*"]))
        self.assertNotEqual(some, all_of_them)
        command = processes.worker_command
        self.refused(command(warm("a", ["lin"])), 2, "'lin' is no variable of this job",
                     "linear")
        self.refused(command(warm("b", ["factors"], {"type": "fm", "factors": 5})), 2,
                     "variable 'factors' is", "[20, 4]", "[20, 5]")
        self.refused(command(warm("c", ["kernel"], {"type": "linear"})), 2,
                     "it has no variable 'kernel'")
        os.unlink(os.path.join(folder, "MANIFEST.json"))
        self.refused(command(warm("d", ["*"])), 2, "checkpoint.warm_start.from", "MANIFEST.json")

    def new_servers(self, count):
        return processes.Cluster(tempfile.mkdtemp(dir=self.folder), count)


if __name__ == "__main__":
    tap.main()
