"""Event files of real runs (output.tensorboard), read by TensorBoard's own loader and compared with
the metrics file and the report."""
import glob
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import python_packages  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

BUILD = sys.argv[1]
TENSORBOARD = "tensorboard==2.19.0"
ROWS, COLUMNS, BATCH = 2000, 20, 50
STEPS = 2 * ROWS // BATCH
PLAIN = "examples_per_second", "learning_rate", "loss", "staleness/mean"
EVAL = "eval/accuracy", "eval/auc", "eval/log_loss"

# Runs below a directory, each with its points; every event of every file is read twice, once raw.
LOADER = """
import glob, json, os, sys
from tensorboard.backend.event_processing import event_accumulator, event_file_loader
runs = {}
for folder, _, files in os.walk(sys.argv[1]):
    if not files:
        continue
    everything = event_accumulator.EventAccumulator(
        folder, size_guidance={"scalars": 0, "histograms": 0})
    everything.Reload()
    tags = everything.Tags()
    runs[os.path.relpath(folder, sys.argv[1])] = {
        "version": everything.file_version,
        "events": {name: sum(1 for _ in event_file_loader.RawEventFileLoader(
                       os.path.join(folder, name)).Load()) for name in files},
        "scalars": {tag: [(e.step, e.value, e.wall_time) for e in everything.Scalars(tag)]
                    for tag in tags["scalars"]},
        "histograms": {tag: [(e.step, e.histogram_value.num)
                             for e in everything.Histograms(tag)] for tag in tags["histograms"]}}
print(json.dumps(runs))
"""


class EventFiles(scene.FolderTest):
    def setUp(self):
        self.python = python_packages.python_with(BUILD, "tensorboard", TENSORBOARD)
        super().setUp()
        self.logs = self.path("logs")
        scene.write_rows(self.path("rows.libsvm"), ROWS, COLUMNS)

    def write_job(self, **output):
        path = self.path("job.yaml")
        rows = [self.path("rows.libsvm")]
        rate = {"type": "exponential_decay", "initial_learning_rate": 0.5, "decay_steps": 10,
                "decay_rate": 0.5}
        with open(path, "w", encoding="ascii") as f:
            json.dump({"name": "job", "model": {"type": "linear"},
                       "data": {"format": "libsvm", "features": COLUMNS, "train": rows,
                                "eval": rows, "batch_size": BATCH, "epochs": 2},
                       "optimizer": {"type": "sgd", "learning_rate": rate},
                       "storage": {"directory": self.path("store")},
                       "evaluation": {"every_steps": 30},
                       "output": {"tensorboard": self.logs, **output}}, f)
        return path

    def load(self):
        done = subprocess.run([self.python, "-c", LOADER, self.logs], capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        return json.loads(done.stdout)

    def steps_and_values(self, run, tag):
        return [(step, value) for step, value, _ in run["scalars"][tag]]

    def assert_same(self, found, expected):
        self.assertEqual([step for step, _ in found], [step for step, _ in expected])
        for (step, value), (_, wanted) in zip(found, expected):
            self.assertAlmostEqual(value, wanted, delta=1e-6 * max(1, abs(wanted)), msg=step)

    def test_they_equal_the_metrics_file_and_the_report(self):
        metrics = self.path("metrics")
        report = processes.run_worker(self.write_job(metrics_file=metrics))
        runs = self.load()
        self.assertEqual(list(runs), ["."])
        run = runs["."]
        self.assertEqual(run["version"], 2)
        self.assertEqual(sorted(run["scalars"]), sorted(PLAIN + EVAL))
        with open(metrics, encoding="ascii") as f:
            lines = [json.loads(line) for line in f]
        losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
        self.assertEqual(len(losses), STEPS)
        self.assert_same(self.steps_and_values(run, "loss"), losses)
        self.assert_same(self.steps_and_values(run, "learning_rate"),
                         [(step, 0.5 * 0.5 ** ((step - 1) / 10)) for step, _ in losses])
        evaluations = [(line["step"], line["eval"]) for line in lines if "eval" in line]
        evaluations.append((STEPS, report["eval"]))
        self.assertEqual([step for step, _ in evaluations], [30, 60, STEPS])
        for tag in EVAL:
            self.assert_same(self.steps_and_values(run, tag),
                             [(step, values[tag[5:]]) for step, values in evaluations])
        self.assertTrue(all(rate > 0 for _, rate in
                            self.steps_and_values(run, "examples_per_second")))
        self.assertEqual(run["scalars"]["staleness/mean"][-1][:2],
                         [STEPS, report["staleness"]["mean"]])
        pushes = sum(report["staleness"]["histogram"].values())
        self.assertEqual(run["histograms"]["staleness"], [[STEPS, pushes]])
        # The file contains only: version, session, points, evaluations, a histogram.
        self.assertEqual(list(run["events"].values()), [2 + STEPS + 3 + 1])
        walls = [wall for _, _, wall in run["scalars"]["loss"]]
        self.assertEqual(walls, sorted(walls))

    def test_a_restarted_run_continues_in_a_second_file(self):
        job = self.write_job()
        processes.run_worker(job, flags=["--max_steps", "20"])
        processes.run_worker(job, flags=["--max_steps", "40"])
        run = self.load()["."]
        self.assertEqual(len(run["events"]), 2)
        self.assertEqual([step for step, _ in self.steps_and_values(run, "loss")],
                         list(range(1, 41)))
        # When the run starts over, its steps replace the earlier ones.
        processes.run_worker(job, flags=["--max_steps", "10", "--fresh"])
        run = self.load()["."]
        self.assertEqual([step for step, _ in self.steps_and_values(run, "loss")],
                         list(range(1, 11)))

    def test_several_workers_have_a_folder_each_and_the_first_evaluates(self):
        job = self.write_job()
        with processes.Cluster(self.folder, 1) as cluster:
            reports = processes.run_workers(job, cluster.worker_file(2), 2)
        runs = self.load()
        self.assertEqual(sorted(runs), ["worker-0", "worker-1"])
        for report in reports:
            run = runs[report["task"].replace(":", "-")]
            self.assertEqual(run["scalars"]["loss"][-1][0], report["total_steps"])
            self.assertEqual(sum(pushes for _, pushes in run["histograms"]["staleness"]),
                             sum(report["staleness"]["histogram"].values()))
            self.assertAlmostEqual(run["scalars"]["staleness/mean"][-1][1],
                                   report["staleness"]["mean"], places=5)
            # A schedule follows the updates of both workers.
            self.assertNotIn("learning_rate", run["scalars"])
            self.assertEqual("eval/auc" in run["scalars"], report["task"] == "worker:0")

    def test_an_evaluator_has_a_folder_with_the_scores_of_its_checkpoints(self):
        job = self.write_job()
        made = ["--set", f"checkpoint.directory={self.path('made')}"]
        trained = processes.run_worker(job, flags=made)
        # After the end of a run it waits for another.
        report = processes.run_worker(job, flags=[
            "--task_type", "evaluator", *made, "--set", "evaluation.checkpoint_wait_seconds=0.2"])
        self.assertEqual(report["checkpoints"], 1)
        runs = self.load()
        self.assertEqual(sorted(runs), [".", "evaluator-0"])
        run = runs["evaluator-0"]
        self.assertEqual(sorted(run["scalars"]), sorted(EVAL))
        for tag in EVAL:
            self.assert_same(self.steps_and_values(run, tag), [(STEPS, trained["eval"][tag[5:]])])
        self.assertEqual(list(run["events"].values()), [2 + 1])

    def test_a_folder_that_cannot_be_written_ends_the_run_with_its_name(self):
        job = self.write_job()
        with open(self.logs, "w", encoding="ascii"):
            pass
        run = subprocess.run(processes.worker_command(job), capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertEqual(run.returncode, 2, run.stderr)
        for text in (self.logs, "output.tensorboard"):
            self.assertIn(text, run.stderr.splitlines()[-1])
        self.assertEqual(glob.glob(self.logs + "/*"), [])


if __name__ == "__main__":
    tap.main()
