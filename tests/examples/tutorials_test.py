"""Every tutorial runs and finds the promised result, for any number of devices."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402

TUTORIALS = os.path.join(os.path.abspath(sys.argv.pop()), "examples", "tutorials")


def run(name, *arguments, cwd=None):
    return subprocess.run([os.path.join(TUTORIALS, f"cairn-tutorial-{name}"), *arguments],
                          capture_output=True, text=True, timeout=60, cwd=cwd,
                          env={k: v for k, v in os.environ.items() if k != "TF_CONFIG"})


class Tutorials(unittest.TestCase):
    def output(self, name, *arguments, cwd=None):
        done = run(name, *arguments, cwd=cwd)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_mirrored_finds_the_same_for_any_number_of_devices(self):
        found = {}
        for devices in (1, 2, 3):
            text = self.output("mirrored", str(devices))
            self.assertIn(f"63 steps, {devices} replicas", text)
            found[devices] = [float(n) for n in re.findall(r"w = .*\((.*)\)", text)[0].split(",")]
        for devices in (2, 3):
            for one, several in zip(found[1], found[devices]):
                self.assertAlmostEqual(one, several, places=4)

    def test_one_training_runs_under_every_strategy(self):
        for name, says in {
                "default": "default strategy: 1 replicas, copies of a variable: 1",
                "one_device": "OneDeviceStrategy: 1 replicas, copies of a variable: 1",
                "central_storage": "CentralStorageStrategy: 3 replicas, copies of a variable: 1",
                "mirrored": "MirroredStrategy: 3 replicas, copies of a variable: 3"}.items():
            text = self.output("strategies", name)
            self.assertIn(says, text)
            self.assertIn("slope 3.000 offset -1.000", text)

    def test_two_workers_train_as_one(self):
        tasks = addresses.own_addresses(2)
        workers = []
        for index in range(2):
            config = {"cluster": {"worker": tasks}, "task": {"type": "worker", "index": index}}
            workers.append(subprocess.Popen(
                [os.path.join(TUTORIALS, "cairn-tutorial-multi-worker")], text=True,
                env={**os.environ, "TF_CONFIG": json.dumps(config)}, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE))
        try:
            for index, worker in enumerate(workers):
                out, err = worker.communicate(timeout=90)
                self.assertEqual(worker.returncode, 0, err)
                self.assertIn(f"worker {index} of 2, 4 replicas in sync: w = float32 [2] (", out)
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
                    worker.communicate(timeout=60)

    def test_the_coordinator_trains_in_process_and_on_servers(self):
        with tempfile.TemporaryDirectory(prefix="cairn-tutorials.") as folder:
            self.assertIn("2 workers, w = float32 [2] (", self.output("coordinator", cwd=folder))
            with processes.Cluster(folder, 2) as cluster:
                text = self.output("coordinator", *cluster.addresses, cwd=folder)
                self.assertIn("2 workers, w = float32 [2] (", text)

    def test_a_worker_without_a_cluster_reports_it(self):
        done = run("multi-worker")
        self.assertEqual(done.returncode, 1)
        self.assertIn("TF_CONFIG has no workers", done.stderr)

    def test_an_unknown_strategy_is_refused(self):
        done = run("strategies", "mirored")
        self.assertEqual(done.returncode, 1)
        self.assertIn("NOT_FOUND", done.stderr)
        self.assertIn("mirrored", done.stderr)


if __name__ == "__main__":
    tap.main()
