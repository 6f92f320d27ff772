"""Checkpoints of whole jobs with real processes: everything is killed and its disks are lost, and
another number of servers continues from the last checkpoint. If no worker pushed while the
checkpoint was made, the result equals that of an undisturbed run, bit for bit. Corruption is named.
Remains of an interrupted attempt are removed, and other programs' files stay."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

ROWS, COLUMNS, BATCH = 4000, 50, 50
STEPS = ROWS // BATCH  # an epoch


class Checkpoints(scene.FolderTest):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.folder, "checkpoints")

    def write_job(self, epochs, every_steps=0, keep=3):
        rows = self.path("rows.libsvm")
        scene.write_pairs(rows, ROWS, COLUMNS, least=1)
        path = self.path("job.yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"name": "job",
                       "model": {"type": "fm", "factors": 4, "embedding": {"vocabulary": "dynamic"},
                                 "init": {"type": "normal", "stddev": 0.05, "seed": 1}},
                       "data": {"format": "libsvm", "features": COLUMNS, "train": [rows],
                                "batch_size": BATCH, "epochs": epochs},
                       "optimizer": {"type": "adam", "learning_rate": 0.01},
                       "strategy": {"partitioner": {"type": "fixed_shards", "num_shards": 2}},
                       "checkpoint": {"directory": self.directory, "every_steps": every_steps,
                                      "keep": keep}}, f)
        return path

    def manifests(self):
        """Paths of the finished checkpoints' manifests, the oldest first."""
        return [os.path.join(folder, "MANIFEST.json")
                for _, folder in processes.checkpoints(self.directory)]

    def newest_number(self):
        finished = processes.checkpoints(self.directory)
        return finished[-1][0]["number"] if finished else 0

    def cluster(self, name, servers):
        os.mkdir(self.path(name))
        return processes.Cluster(self.path(name), servers)

    def test_an_interrupted_worker_completes_its_checkpoint_before_it_leaves(self):
        job = self.write_job(epochs=1000000, every_steps=20, keep=1)
        with self.cluster("interrupted", 2) as cluster:
            for start in range(3):
                log = open(self.path(f"worker{start}.log"), "w+", encoding="utf-8")
                self.addCleanup(log.close)
                worker = subprocess.Popen(
                    processes.worker_command(job, cluster.worker_file(1)),
                    stdout=subprocess.DEVNULL, stderr=log)
                self.addCleanup(processes.end, worker)

                def said():
                    with open(log.name, encoding="utf-8") as f:
                        return f.read()
                processes.wait_for(lambda: said().count("checkpoint of step") > 2, 60, "checkpoints")
                worker.send_signal(signal.SIGINT)
                self.assertEqual(worker.wait(60), 130, said())
                self.assertNotIn("has left job", said())

    def kill_after_checkpoints(self, name, servers, workers, job, count):
        """Trains until `count` more checkpoints exist, the last with steps of every worker, then
        kills everything and deletes the disks."""
        wanted = self.newest_number() + count

        def all_there():
            found = processes.checkpoints(self.directory)
            return found and found[-1][0]["number"] >= wanted and all(
                sum(w["sequence"] > 0 for w in part["workers"]) == workers
                for part in found[-1][0]["servers"])

        with self.cluster(name, servers) as cluster:
            file = cluster.worker_file(workers)
            started = [subprocess.Popen(processes.worker_command(job, file, index),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                       for index in range(workers)]
            try:
                processes.wait_for(lambda: all_there() or started[0].poll() is not None, 120,
                                   f"{count} checkpoints")
            finally:
                for worker in started:
                    worker.kill()
                logs = [worker.communicate(timeout=60)[1] for worker in started]
            self.assertGreaterEqual(self.newest_number(), wanted, logs[0][-4000:])
        shutil.rmtree(self.path(name))
        return logs

    def export(self, job, servers, *flags, name="last"):
        path = self.path(name + ".safetensors")
        with self.cluster(name, servers) as cluster:
            report = processes.run_worker(job, cluster.worker_file(1),
                                          flags=["--export", path, *flags])
        with open(path, "rb") as f:
            return report, f.read()

    def fails(self, job, servers, *flags):
        name = tempfile.mkdtemp(dir=self.folder)
        with processes.Cluster(name, servers) as cluster:
            run = subprocess.run(processes.worker_command(job, cluster.worker_file(1), 0, flags),
                                 capture_output=True, text=True, timeout=120, check=False)
        self.assertNotEqual(run.returncode, 0)
        return run.stderr.splitlines()[-1]

    def corrupt(self, checkpoint):
        """Changes a bit of a table of ps:1's part; returns its path."""
        table = glob.glob(os.path.join(checkpoint, "ps-1", "db", "*.sst"))[0]
        with open(table, "rb") as f:
            data = bytearray(f.read())
        os.unlink(table)  # it may be a hard link to the server's own file
        data[len(data) // 2] ^= 1
        with open(table, "wb") as f:
            f.write(data)
        return table

    def test_runs_on_two_servers_then_three_then_one_end_like_undisturbed_ones(self):
        job = self.write_job(2)
        undisturbed = []
        with self.cluster("undisturbed", 2) as cluster:
            for run in range(3):
                path = self.path(f"undisturbed{run}.safetensors")
                processes.run_worker(job, cluster.worker_file(1), flags=[
                    "--continue", "--export", path, "--set", "checkpoint={}"])
                with open(path, "rb") as f:
                    undisturbed.append(f.read())
        for run, servers in enumerate((2, 3, 1)):
            report, exported = self.export(job, servers, "--continue", name=f"run{run}")
            self.assertEqual(report["total_steps"], 2 * STEPS * (run + 1))
            self.assertTrue(exported == undisturbed[run], f"run {run} differs")

    def test_a_job_killed_with_its_disks_continues_and_loses_no_step(self):
        epochs = 150
        job = self.write_job(epochs, every_steps=500, keep=2)
        # The remains of a crash in the middle of a checkpoint, beside other programs' files.
        unfinished = os.path.join(self.directory, "job.step-0000000007-0badcafe")
        os.makedirs(os.path.join(unfinished, "ps-0.part", "db"))
        os.utime(unfinished, (time.time() - 3600,) * 2)
        kept = [os.path.join(self.directory, name) for name in
                ("notes", "other.step-0000000007-0badcafe", "job.step-7-backup")]
        for path in kept:
            os.makedirs(os.path.join(path, "ps-0.part"))
        self.kill_after_checkpoints("two", 2, 1, job, 3)
        self.assertFalse(os.path.exists(unfinished))
        logs = self.kill_after_checkpoints("three", 3, 1, job, 2)
        self.assertIn("on 2 servers, to 3", logs[0])
        report, _ = self.export(job, 1)
        self.assertEqual(report["total_steps"], epochs * STEPS)
        self.assertLess(report["steps"], epochs * STEPS - 1000)
        self.assertEqual(len(self.manifests()), 2)
        for path in kept:
            self.assertTrue(os.path.isdir(path), path)

    def test_every_worker_continues_at_its_own_position(self):
        job = self.write_job(300, every_steps=300)
        self.kill_after_checkpoints("before", 2, 2, job, 2)
        with self.cluster("after", 3) as cluster:
            reports = processes.run_workers(job, cluster.worker_file(2), 2)
        for report in reports:
            self.assertEqual(report["total_steps"], 300 * STEPS // 2)
            self.assertLess(report["steps"], report["total_steps"])

    def test_a_corrupt_file_is_named_and_an_older_checkpoint_restored(self):
        job = self.write_job(10, every_steps=STEPS)
        self.export(job, 2, name="first")
        older, newest = self.manifests()[-2:]
        table = self.corrupt(os.path.dirname(newest))
        for servers in (2, 3):
            error = self.fails(job, servers)
            self.assertIn(table, error)
            self.assertIn("corrupt", error)
            self.assertIn("checkpoint.restore", error)
            self.assertIn(os.path.dirname(older), error)
        report, _ = self.export(job, 2, "--set", f"checkpoint.restore={os.path.dirname(older)}")
        self.assertGreater(report["total_steps"], report["steps"])
        # A manifest with one changed byte.
        with open(newest, encoding="ascii") as f:
            text = f.read()
        with open(newest, "w", encoding="ascii") as f:
            f.write(text.replace('"sequence": ', '"sequence": 1', 1))
        self.assertIn("its checksum is wrong", self.fails(job, 2))
        self.assertIn("holds no finished checkpoint",
                      self.fails(job, 1, "--set", f"checkpoint.restore={self.path('nowhere')}"))
        self.assertIn("is a file; name the directory of a checkpoint",
                      self.fails(job, 1, "--set", f"checkpoint.restore={newest}"))

    def test_servers_keep_their_job_if_the_checkpoint_for_it_is_corrupt(self):
        job = self.write_job(1)
        with self.cluster("keepers", 2) as cluster:
            file = cluster.worker_file(1)
            processes.run_worker(job, file)
            checkpoint = os.path.dirname(self.manifests()[-1])
            table = self.corrupt(checkpoint)
            flags = ["--fresh", "--set", f"checkpoint.restore={checkpoint}"]
            run = subprocess.run(processes.worker_command(job, file, 0, flags),
                                 capture_output=True, text=True, timeout=120, check=False)
            self.assertNotEqual(run.returncode, 0)
            restored, _ = processes.ctl("checkpoint", "restore", checkpoint, "--cluster", file,
                                        "--replace", code=1)
            for error in run.stderr.splitlines()[-1], restored["error"]:
                self.assertIn("the servers keep the job", error)
                self.assertIn(table, error)
            more = processes.run_worker(job, file, flags=["--continue"])
            self.assertEqual(more["total_steps"], 2 * STEPS)

    def test_restore_none_starts_over_and_fresh_returns_to_a_named_checkpoint(self):
        job = self.write_job(4)
        with self.cluster("servers", 2) as cluster:
            file = cluster.worker_file(1)
            first = processes.run_worker(job, file)
            self.assertEqual(first["total_steps"], 4 * STEPS)
            end_of_first = os.path.dirname(self.manifests()[-1])
            # The servers hold the job: nothing is restored.
            more = processes.run_worker(job, file, flags=["--continue"])
            self.assertEqual(more["total_steps"], 8 * STEPS)
            named = ["--continue", "--set", f"checkpoint.restore={end_of_first}"]
            self.assertEqual(processes.run_worker(job, file, flags=named)["total_steps"],
                             12 * STEPS)
            # Return to the named checkpoint.
            back = processes.run_worker(job, file, flags=["--fresh", *named])
            self.assertEqual(back["total_steps"], 8 * STEPS)
            # --fresh without a checkpoint also discards checkpoints.
            self.assertEqual(processes.run_worker(job, file, flags=["--fresh"])["total_steps"],
                             4 * STEPS)
        with self.cluster("new", 1) as cluster:
            none = processes.run_worker(job, cluster.worker_file(1),
                                        flags=["--set", "checkpoint.restore=none"])
            self.assertEqual(none["total_steps"], 4 * STEPS)


if __name__ == "__main__":
    tap.main()
