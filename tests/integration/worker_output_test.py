"""The output of cairn-worker for users on stderr: progress lines without a terminal, a bar on a
terminal, a summary at the end, and the reason why a diverging run ends. stdout has only the JSON
report."""
import json
import os
import pty
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

LINE = re.compile(r"worker:0: step (\d+), (\d+) % done, \d+ rows/s, loss [\d.e+-]+(, \d+:\d\d left)?$")


class WorkerOutput(scene.FolderTest):
    def job(self, **sections):
        """A job of two thousand steps over rows that are not linearly separable."""
        scene.write_rows(self.path("rows.libsvm"), 2000, 20, noise=3)
        job = {"name": "story", "model": {"type": "linear"},
               "data": {"format": "libsvm", "features": 20, "batch_size": 10, "epochs": 10,
                        "train": ["rows.libsvm"], "eval": ["rows.libsvm"]},
               "optimizer": {"type": "sgd", "learning_rate": 0.1},
               "storage": {"directory": self.path("data")}, **sections}
        with open(self.path("story.yaml"), "w", encoding="ascii") as f:
            json.dump(job, f)
        return self.path("story.yaml")

    def run_worker(self, job, *flags, code=0):
        run = subprocess.run([processes.WORKER, "--job", job, *flags], capture_output=True,
                             text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, code, run.stderr[-2000:])
        return run

    def test_progress_lines_without_a_terminal(self):
        run = self.run_worker(self.job(), "--set", "output.progress_seconds=0.001")
        found = [match for line in run.stderr.splitlines() if (match := LINE.search(line))]
        self.assertGreater(len(found), 3, run.stderr)
        steps = [int(match.group(1)) for match in found]
        self.assertEqual(steps, sorted(set(steps)))
        done = [int(match.group(2)) for match in found]
        self.assertEqual(done, sorted(done))
        self.assertLessEqual(done[-1], 100)
        self.assertIsNotNone(found[-2].group(3), "time left")

    def test_no_line_if_disabled(self):
        run = self.run_worker(self.job(), "--set", "output.progress_seconds=0")
        self.assertNotRegex(run.stderr, "% done")

    def test_a_bar_and_no_lines_on_a_terminal(self):
        controller, terminal = pty.openpty()
        with subprocess.Popen([processes.WORKER, "--job", self.job(), "--set",
                               "output.progress_seconds=0.001"], stdout=subprocess.PIPE,
                              stderr=terminal) as worker:
            os.close(terminal)
            shown = b""
            while True:
                try:
                    piece = os.read(controller, 65536)
                except OSError:  # the worker has ended
                    break
                if not piece:
                    break
                shown += piece
            self.assertEqual(worker.wait(60), 0, shown)
        os.close(controller)
        self.assertIn(b"\rworker:0 [", shown)
        self.assertNotIn(b"% done", shown)

    def test_the_summary_is_beside_the_report(self):
        export = self.path("model.npz")
        run = self.run_worker(self.job(), "--export", export)
        report = json.loads(run.stdout)  # stdout has nothing else
        summary = run.stderr[run.stderr.index("worker:0: trained job 'story' (linear): 2,000 steps"):]
        self.assertIn(f"auc {report['eval']['auc']:.4f}", summary)
        self.assertIn(export, summary)
        self.assertIn("--mode predict --predictions FILE", summary)
        predicted = self.run_worker(self.path("story.yaml"), "--mode", "predict", "--predictions",
                                    self.path("scores"))
        self.assertIn("worker:0: scored 2,000 rows with job 'story'", predicted.stderr)
        self.assertIn(self.path("scores"), predicted.stderr)

    def test_the_next_step_leaves_out_flags_for_training_only(self):
        given = ["--fresh", "--max_steps", "50", "--metrics_file", self.path("metrics")]
        run = self.run_worker(self.job(), *given)
        self.assertIn("the same command without --fresh and --max_steps and --metrics_file, but "
                      "with --mode predict --predictions FILE", run.stderr)
        predict = ["--mode", "predict", "--predictions", self.path("scores")]
        self.run_worker(self.path("story.yaml"), *predict)
        for flag in (given[:1], given[1:3], given[3:]):
            self.run_worker(self.path("story.yaml"), *predict, *flag, code=2)

    def test_a_run_that_diverges_ends_with_the_reason(self):
        job = self.job()
        run = self.run_worker(job, "--set", "optimizer.learning_rate=1e30", code=1)
        self.assertEqual(run.stdout, "")
        last = run.stderr.splitlines()[-1]
        self.assertIn("cairn-worker: worker:0: training diverged: the loss is ", last)
        self.assertIn("lower optimizer.learning_rate", last)
        # --fresh starts over, here with the learning rate of the file.
        self.run_worker(job, "--fresh")


if __name__ == "__main__":
    tap.main()
