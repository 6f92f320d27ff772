"""cairn-worker with real cairn-ps processes: two servers and two workers reach the known AUC three
times in a row, and despite kills of servers; a killed or stopped worker continues where it was;
--fresh starts all workers over together; exports and predictions agree with numpy and the
report."""
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

ROWS, COLUMNS, BATCH = 20000, 20, 50


def write_job(folder, name="job", **data):
    """A job on rows whose label is the sign of their first column minus their second."""
    rows = os.path.join(folder, "rows.libsvm")
    if not os.path.exists(rows):
        scene.write_pairs(rows, ROWS, COLUMNS, least=0)
    path = os.path.join(folder, f"{name}.yaml")
    with open(path, "w", encoding="ascii") as f:
        json.dump({"name": name,
                   "model": {"type": "linear"},
                   "data": {"format": "libsvm", "features": COLUMNS, "train": [rows],
                            "eval": [rows], "batch_size": BATCH, **data},
                   "optimizer": {"type": "adagrad", "learning_rate": 0.1},
                   "storage": {"directory": os.path.join(folder, "data")}}, f)
    return path


def start(job, cluster, index=0, flags=()):
    return subprocess.Popen(processes.worker_command(job, cluster, index, flags),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(path):
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as f:
        return f.read().count(b"\n")


class TrainCluster(scene.FolderTest):
    def finish(self, process, code=0):
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, err[-4000:])
        return json.loads(out.splitlines()[-1]), err

    def write_a9a(self, epochs, **strategy):
        job = os.path.join(self.folder, "a9a.yaml")
        with open(job, "w", encoding="ascii") as f:
            json.dump({"model": {"type": "linear"},
                       "data": {"format": "libsvm", "features": 123, "batch_size": 128,
                                "epochs": epochs, "shuffle": {"buffer_rows": 4096},
                                "train": [processes.data("a9a/train.libsvm")],
                                "eval": [processes.data("a9a/test.libsvm")]},
                       "optimizer": {"type": "adagrad", "learning_rate": 0.3},
                       "strategy": strategy}, f)
        return job

    def test_a9a_reaches_the_auc_of_an_undisturbed_run_through_ten_kills_of_servers(self):
        epochs = 60
        job = self.write_a9a(epochs)
        aucs = []
        for kills in (0, 10):
            with tempfile.TemporaryDirectory() as folder, processes.Cluster(
                    folder, 2, ["--snapshot_interval_seconds=0.5"]) as cluster:
                file = cluster.worker_file(2)
                workers = [start(job, file, i, ["--metrics_file", f"{folder}/m{i}"])
                           for i in range(2)]
                self.addCleanup(lambda w=workers: [p.kill() for p in w])
                for kill in range(kills):
                    # In the same part of the epochs, whatever else the machine does.
                    due = (kill + 0.5) / kills * epochs * 32561 / 2 / 128
                    processes.wait_for(lambda due=due: lines_of(f"{folder}/m0") >= due, 120,
                                       f"step {due:.0f}")
                    self.assertIsNone(workers[0].poll())
                    cluster.restart(kill % 2)
                reports = [self.finish(worker)[0] for worker in workers]
            self.assertEqual(sum(r["examples"] for r in reports), epochs * 32561)
            if kills > 0:
                self.assertGreater(sum(r["replayed_pushes"] for r in reports), 0)
            aucs.append(reports[0]["eval"]["auc"])
        print("# auc", *aucs)
        self.assertAlmostEqual(aucs[0], aucs[1], delta=0.001)

    def test_a9a_reaches_its_auc_three_times(self):
        job = self.write_a9a(3)
        for run in range(3):
            with tempfile.TemporaryDirectory() as folder, \
                    processes.Cluster(folder, 2) as cluster:
                reports = processes.run_workers(job, cluster.worker_file(2), 2)
            self.assertEqual(sum(r["examples"] for r in reports), 3 * 32561)
            self.assertNotIn("eval", reports[1])
            print(f"# run {run + 1}: auc {reports[0]['eval']['auc']}, examples/s",
                  sum(r["examples_per_second"] for r in reports))
            self.assertEqual(reports[0]["eval"]["rows"], 16281)
            self.assertGreaterEqual(reports[0]["eval"]["auc"], 0.900)

    def test_a9a_with_two_replicas_in_each_of_two_workers(self):
        job = self.write_a9a(3, devices=["cpu:0", "cpu:1"])
        with tempfile.TemporaryDirectory() as folder, processes.Cluster(folder, 2) as cluster:
            reports = processes.run_workers(job, cluster.worker_file(2), 2)
        self.assertEqual(sum(r["examples"] for r in reports), 3 * 32561)
        print(f"# auc {reports[0]['eval']['auc']}")
        self.assertGreaterEqual(reports[0]["eval"]["auc"], 0.900)

    def test_a_killed_worker_continues_and_loses_no_step(self):
        job = write_job(self.folder, epochs=5)
        total = 5 * ROWS // BATCH
        metrics = os.path.join(self.folder, "m.jsonl")
        with processes.Cluster(self.folder, 2) as cluster:
            file, done = cluster.worker_file(1), 0
            for _ in range(3):
                worker = start(job, file, flags=["--metrics_file", metrics])
                processes.wait_for(lambda: worker.poll() is not None or
                                   lines_of(metrics) > done + 100, 60, "a hundred more steps")
                worker.kill()
                worker.communicate(timeout=60)
                done = lines_of(metrics)
            report = processes.run_worker(job, file, flags=["--metrics_file", metrics])
        self.assertEqual(report["total_steps"], total)
        self.assertLess(report["steps"], total)
        self.assertGreater(report["eval"]["auc"], 0.9)

    def test_a_stopped_worker_continues_and_a_finished_job_trains_more_on_request(self):
        job = write_job(self.folder, epochs=400)
        with processes.Cluster(self.folder, 1) as cluster:
            file = cluster.worker_file(1)
            steps = 0
            for signal_number in (signal.SIGTERM, signal.SIGINT):
                metrics = os.path.join(self.folder, f"m{signal_number}.jsonl")
                worker = start(job, file, flags=["--metrics_file", metrics])
                processes.wait_for(lambda path=metrics: lines_of(path) > 100, 60, "steps")
                worker.send_signal(signal_number)
                report, log = self.finish(worker, 128 + signal_number)
                self.assertEqual(report["status"], "interrupted")
                self.assertGreater(report["steps"], 0)
                steps += report["steps"]
                self.assertEqual(report["total_steps"], steps)
                self.assertIn("continues run 1" if signal_number == signal.SIGINT
                              else "starts run 1", log)
            # The pushes of a stopped worker are durable, so the server may be killed now.
            cluster.restart(0)
            bounded = ["--max_steps", str(steps + 10)]
            report = processes.run_worker(job, file, flags=bounded)
            self.assertEqual(report["total_steps"], steps + 10)
            # Restarted as by a supervisor, it has already trained the requested steps.
            again = processes.run_worker(job, file, flags=bounded)
            self.assertEqual((again["steps"], again["total_steps"]), (0, steps + 10))
            self.assertEqual(again["eval"], report["eval"])
            # A larger total continues where it ended.
            larger = processes.run_worker(job, file, flags=["--max_steps", str(steps + 30)])
            self.assertEqual((larger["steps"], larger["total_steps"]), (20, steps + 30))
            for start_number in (1, 2):
                more = processes.run_worker(job, file, flags=["--continue", "--set",
                                                              "data.epochs=1"])
                self.assertEqual(more["steps"], ROWS // BATCH)
                self.assertEqual(more["total_steps"],
                                 steps + 30 + start_number * (ROWS // BATCH))

    def test_fresh_starts_over_together(self):
        job = write_job(self.folder)
        with processes.Cluster(self.folder, 2) as cluster:
            file = cluster.worker_file(2)
            for flags, total in (([], 1), ([], 1), (["--continue"], 2), (["--fresh"], 1),
                                 (["--fresh"], 1)):
                reports = processes.run_workers(job, file, 2, flags)
                for report in reports:
                    self.assertEqual(report["total_steps"], total * ROWS // BATCH // 2)
            # A worker that waits for a missing first worker reports that.
            run = subprocess.run(processes.worker_command(
                job, file, 1, ["--fresh", "--set", "strategy.ps_wait_seconds=1"]),
                capture_output=True, text=True, timeout=200, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertIn("start it with --fresh too", run.stderr.splitlines()[-1])

    def test_the_first_worker_continues_without_a_missing_one(self):
        job = write_job(self.folder)
        with processes.Cluster(self.folder, 1) as cluster:
            file = cluster.worker_file(2)
            report, log = self.finish(start(job, file, flags=[
                "--set", "strategy.ps_wait_seconds=1"]))
        self.assertIn("eval", report)
        self.assertIn("worker 1 did not finish", log)

    def test_exports_and_predictions_agree(self):
        import numpy
        job = write_job(self.folder)
        export = os.path.join(self.folder, "m.npz")
        predictions = os.path.join(self.folder, "p.txt")
        with processes.Cluster(self.folder, 2) as cluster:
            file = cluster.worker_file(1)
            trained = processes.run_worker(job, file, flags=["--export", export])
            evaluated = processes.run_worker(job, file, flags=["--mode", "evaluate"])
            processes.run_worker(job, file,
                                 flags=["--mode", "predict", "--predictions", predictions])
        self.assertEqual(trained["eval"], evaluated["eval"])
        arrays = numpy.load(export)
        kernel, bias = arrays["kernel"], arrays["bias"]
        with open(os.path.join(self.folder, "rows.libsvm"), encoding="ascii") as f:
            rows = [line.split() for line in f]
        got = numpy.loadtxt(predictions)
        self.assertEqual(len(got), ROWS)
        for row, p in list(zip(rows, got))[::97]:
            pairs = (pair.split(":") for pair in row[1:])
            score = bias[0] + sum(float(v) * kernel[int(c) - 1, 0] for c, v in pairs)
            self.assertAlmostEqual(1 / (1 + numpy.exp(-score)), p, places=5)
        correct = sum((p > 0.5) == (row[0] == "1") for row, p in zip(rows, got))
        self.assertAlmostEqual(correct / ROWS, evaluated["eval"]["accuracy"], places=6)

    def test_words_are_exported_beside_their_vectors(self):
        import numpy
        text = os.path.join(self.folder, "text.txt")
        with open(text, "w", encoding="ascii") as f:
            for i in range(400):
                f.write(" ".join(("the", "cat" if i % 3 else "dog", "eats", f"w{i % 40}")) + "\n")
        job = os.path.join(self.folder, "words.yaml")
        with open(job, "w", encoding="ascii") as f:
            json.dump({"model": {"type": "skip_gram", "factors": 4, "window": 2, "negatives": 2,
                                 "min_count": 2},
                       "data": {"format": "text", "train": [text], "batch_size": 64},
                       "optimizer": {"type": "sgd", "learning_rate": 0.1}}, f)
        export = os.path.join(self.folder, "w.npz")
        with processes.Cluster(self.folder, 2) as cluster:
            processes.run_worker(job, cluster.worker_file(1), flags=["--export", export])
        arrays = numpy.load(export)
        words = [w.decode() for w in arrays["vocabulary"]]
        self.assertEqual(words[:2], ["eats", "the"])
        self.assertEqual(len(words), 44)
        keys = arrays["input/keys"]
        self.assertEqual(list(keys), sorted(keys))
        self.assertLessEqual(set(keys), set(range(len(words))))
        self.assertEqual(arrays["input/values"].shape, (len(keys), 4))


if __name__ == "__main__":
    tap.main()
