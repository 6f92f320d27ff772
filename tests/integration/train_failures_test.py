"""Failures of cairn-worker: a server that is killed in mid-training or never existed, bad flags,
bad job and cluster files, bad data. The exit status is 2 for bad flags and files, otherwise 1, and
the last line of stderr says what happened and what to do."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402


class TrainFailures(scene.FolderTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job("job")

    def write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(text)
        return self.path(name)

    def write_job(self, name, rows="1 1:1\n0 2:1\n", **changes):
        job = {"name": name, "model": {"type": "linear"},
               "data": {"format": "libsvm", "features": 2, "batch_size": 1,
                        "train": [self.write(f"{name}.libsvm", rows)]},
               "optimizer": {"type": "sgd", "learning_rate": 0.1},
               "storage": {"directory": self.path("data")}}
        for key, value in changes.items():
            job[key] = {**job.get(key, {}), **value}
        return self.write(f"{name}.yaml", json.dumps(job))

    def run_bad(self, *flags, code=2, env=None):
        """The last line of stderr of a worker that must exit with `code`."""
        run = subprocess.run([processes.WORKER, *flags], capture_output=True, text=True,
                             timeout=120, check=False, env={**os.environ, **(env or {})})
        self.assertEqual(run.returncode, code, run.stderr[-2000:])
        self.assertEqual(run.stdout, "")
        last = run.stderr.splitlines()[-1]
        self.assertTrue(last.startswith("cairn-worker: "), last)
        return last

    def test_a_server_killed_in_mid_training_is_named_at_once_and_waited_for(self):
        job = self.write_job("long", data={"epochs": 10**9, "batch_size": 2})
        log_path, metrics = self.path("worker.log"), self.path("m.jsonl")
        with processes.Cluster(self.folder, 2) as cluster, open(log_path, "w+b") as log:
            worker = subprocess.Popen(
                processes.worker_command(job, cluster.worker_file(1), flags=[
                    "--set", "strategy.ps_wait_seconds=8", "--metrics_file", metrics]),
                stdout=subprocess.PIPE, stderr=log)
            self.addCleanup(worker.wait, 60)
            self.addCleanup(worker.kill)

            def written():
                with open(log_path, encoding="utf-8") as f:
                    return f.read()
            processes.wait_for(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0,
                               60, "the first steps")
            cluster.stop(1)
            killed = time.monotonic()
            processes.wait_for(lambda: "ps:1" in written(), 7, "the worker to name ps:1")
            self.assertIsNone(worker.poll(), written())
            self.assertEqual(worker.wait(30), 1)
            waited = time.monotonic() - killed
            self.assertGreater(waited, 7.5)
            self.assertLess(waited, 25)
            last = written().splitlines()[-1]
            self.assertIn("ps:1", last)
            self.assertIn("since", last)

    def test_missing_servers_are_named(self):
        cluster = self.write("cluster.yaml", json.dumps(
            {"cluster": {"ps": [addresses.nobodys_address(1)],
                         "worker": [addresses.nobodys_address(2)]}}))
        last = self.run_bad("--job", self.job, "--cluster", cluster, "--task_type", "worker",
                            "--task_index", "0", "--set", "strategy.ps_wait_seconds=1", code=1)
        self.assertIn(f"ps:0 ({addresses.nobodys_address(1)})", last)

    def test_bad_flags(self):
        job = ("--job", self.job)
        self.assertIn("--job", self.run_bad())
        self.assertIn("did you mean '--fresh'", self.run_bad(*job, "--frsh"))
        self.assertIn("max_steps", self.run_bad(*job, "--max_steps", "many"))
        self.assertIn("lacks", self.run_bad("--job"))
        self.assertIn("word", self.run_bad(*job, "word"))
        self.assertIn("train, evaluate and predict", self.run_bad(*job, "--mode", "tran"))
        self.assertIn("--predictions", self.run_bad(*job, "--mode", "predict"))
        self.assertIn("--predictions", self.run_bad(*job, "--predictions", "p"))
        self.assertIn("--fresh", self.run_bad(*job, "--mode", "evaluate", "--fresh"))
        self.assertIn("give one of them", self.run_bad(*job, "--fresh", "--continue"))
        self.assertIn(".npz", self.run_bad(*job, "--export", self.path("model.bin")))
        self.assertIn("did you mean", self.run_bad(*job, "--set", "optimizer.learning_rat=1"))
        self.assertIn("/no/such", self.run_bad(*job, "--metrics_file", "/no/such/folder/m"))
        for flag in ("--export", "--predictions", "--metrics_file", "--data_root", "--cluster"):
            last = self.run_bad(*job, flag, "s3://bucket/model.npz")
            self.assertIn(f"flag {flag}: found \"s3://bucket/model.npz\", a URL", last)
        self.assertFalse(os.path.exists("s3:"))
        self.assertIn("--max_steps is -5", self.run_bad(*job, "--max_steps", "-5"))
        self.assertIn("--task_index is -7", self.run_bad(*job, "--task_index", "-7"))
        for flag, value in (("--max_steps", "5"), ("--metrics_file", self.path("m"))):
            self.assertIn("are for --mode train", self.run_bad(*job, "--mode", "evaluate", flag, value))

    def test_output_paths_are_checked_before_training(self):
        os.makedirs(self.path("model.npz"))
        for path, why in ((self.path("no/model.npz"), "No such file"),
                          (self.path("model.npz"), "is a directory"),
                          (self.path("job.yaml/model.npz"), "Not a directory")):
            last = self.run_bad("--job", self.job, "--export", path)
            self.assertIn(path, last)
            self.assertIn(why, last)
        flags = ("--job", self.job, "--mode", "predict", "--predictions", self.path("model.npz"),
                 "--set", f"data.eval=[{self.path('job.libsvm')}]")
        processes.run_worker(self.job)
        self.assertIn("is a directory", self.run_bad(*flags))

    def test_predictions_may_go_to_a_pipe(self):
        processes.run_worker(self.job)
        run = subprocess.run(
            [processes.WORKER, "--job", self.job, "--mode", "predict", "--predictions",
             "/proc/self/fd/1", "--set", f"data.eval=[{self.path('job.libsvm')}]"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        *scores, report = run.stdout.splitlines()
        self.assertEqual(len([float(score) for score in scores]), 2)
        self.assertEqual(json.loads(report)["examples"], 2)

    def test_bad_job_files(self):
        self.assertIn("nowhere.yaml", self.run_bad("--job", self.path("nowhere.yaml")))
        self.assertIn("optimzer", self.run_bad("--job", self.write("a.yaml", "optimzer: {}\n")))
        self.assertIn("no-such.libsvm", self.run_bad(
            "--job", self.write_job("b", data={"train": [self.path("no-such.libsvm")]})))
        self.assertIn("cross_device_ops", self.run_bad(
            "--job", self.write_job("c", strategy={"cross_device_ops": "nccl"})))
        os.mkfifo(self.path("pipe"))
        self.assertIn("write it to a file", self.run_bad(
            "--job", self.write_job("d", data={"train": [self.path("pipe")]})))
        # Errors that the servers find are still errors of the job file.
        with open(self.path("ratings"), "w", encoding="ascii") as f:
            f.write("1,2,3\n")
        self.assertIn("max_rows is 3", self.run_bad("--job", self.write("e.yaml", json.dumps({
            "model": {"type": "mlp", "loss": "mean_squared_error", "embedding": {"max_rows": 3}},
            "data": {"format": "movielens", "train": [self.path("ratings")]},
            "storage": {"directory": self.path("data")}}))))
        os.makedirs(self.path("data/job"))
        self.assertIn("data.eval", self.run_bad("--job", self.job, "--mode", "evaluate"))

    def test_bad_data(self):
        for rows, where in (("1 1:1\n1 2:x\n", "rows.libsvm:2:5: found 'x'"),
                            ("1 3:1\n", "rows.libsvm:1:3: column 3 is outside [1, 2]"),
                            ("7 1:1\n", "rows.libsvm:1:1: label '7'")):
            job = self.write_job("rows", rows)
            self.assertIn(where, self.run_bad("--job", job, "--fresh"))
        empty = self.write_job("empty", "\n")
        last = self.run_bad("--job", empty)
        self.assertIn("empty.libsvm has no row: worker:0 has trained nothing", last)
        small = self.write_job("small", data={"batch_size": 3, "drop_remainder": True})
        self.assertIn("has no batch of 3 rows", self.run_bad("--job", small))
        wrong = self.write_job("model", model={"type": "matrix_factorization"})
        self.assertIn("matrix_factorization", self.run_bad("--job", wrong))

    def test_bad_clusters_and_tasks(self):
        def cluster(**tasks):
            return self.write("cluster.yaml", json.dumps({"cluster": tasks}))
        job = ("--job", self.job, "--cluster")
        ps, worker = [addresses.nobodys_address(1)], [addresses.nobodys_address(2)]
        self.assertIn("no ps tasks", self.run_bad(*job, cluster(worker=worker)))
        self.assertIn("no task that trains", self.run_bad(*job, cluster(ps=ps)))
        # A user who forgets the cluster does not train alone by accident.
        for flags in (("--task_type", "worker"), ("--task_index", "1"), ("--task_type", "ps")):
            self.assertIn("there is none: give --cluster", self.run_bad("--job", self.job, *flags))
        both = cluster(ps=ps, worker=worker)
        self.assertIn("--task_type", self.run_bad(*job, both))
        self.assertIn("worker:1 is not one of", self.run_bad(*job, both, "--task_type", "worker",
                                                             "--task_index", "1"))
        self.assertIn("cairn-ps", self.run_bad(*job, both, "--task_type", "ps"))
        self.assertIn("evaluator", self.run_bad(*job, both, "--task_type", "evaluator"))
        self.assertIn("nowhere", self.run_bad(*job, self.path("nowhere")))
        self.assertIn("TF_CONFIG", self.run_bad("--job", self.job, env={"TF_CONFIG": "{"}))

    def test_a_folder_in_use_or_not_writable_is_refused(self):
        self.write("file", "")
        last = self.run_bad("--job", self.job, "--set",
                            f"storage.directory={self.path('file')}/x", code=1)
        self.assertIn(self.path("file"), last)
        last = self.run_bad("--job", self.job, "--mode", "evaluate", "--set",
                            f"data.eval=[{self.path('job.libsvm')}]", code=1)
        self.assertIn("train first", last)

    def test_help_is_not_an_error(self):
        run = subprocess.run([processes.WORKER, "--help"], capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertEqual(run.returncode, 0)
        for flag in ("--job", "--cluster", "--task_type", "--task_index", "--data_root",
                     "--metrics_file", "--export", "--max_steps", "--mode", "--predictions",
                     "--fresh", "--set"):
            self.assertIn(flag, run.stdout)
        for program in (processes.WORKER, processes.PS):
            run = subprocess.run([program, "-h"], capture_output=True, text=True, timeout=60,
                                 check=False)
            self.assertIn("--help", run.stdout)
            self.assertEqual(run.returncode, 0)
            with open("/dev/full", "w", encoding="ascii") as full:
                self.assertEqual(subprocess.run([program, "--help"], stdout=full, timeout=60,
                                                check=False).returncode, 1)


if __name__ == "__main__":
    tap.main()
