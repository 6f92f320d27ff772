"""A server restarts on an empty directory, or on that of another timeline of the job: the worker's
next start returns to the newest checkpoint on every server, or ends with an error that names the
server. The worker never trains on half a job, and every command reports the problem. Remains of a
failed restore do no harm."""
import glob
import json
import os
import shutil
import subprocess
import sys
from concurrent import futures

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

ROWS, COLUMNS, BATCH = 2000, 40, 50
STEPS = ROWS // BATCH  # an epoch


class LostServers(scene.FolderTest):
    def setUp(self):
        super().setUp()
        self.directory = self.path("checkpoints")
        self.names = 0

    def write_job(self, consistency="async", every_steps=0):
        rows = self.path("rows.libsvm")
        scene.write_rows(rows, ROWS, COLUMNS)
        path = self.path("job.yaml")
        checkpoint = {"directory": self.directory, "every_steps": every_steps, "keep": 3}
        with open(path, "w", encoding="ascii") as f:
            json.dump({"name": "job",
                       "model": {"type": "fm", "factors": 4, "embedding": {"vocabulary": "dynamic"},
                                 "init": {"type": "normal", "stddev": 0.05, "seed": 1}},
                       "data": {"format": "libsvm", "features": COLUMNS, "train": [rows],
                                "eval": [rows], "batch_size": BATCH, "epochs": 100},
                       "optimizer": {"type": "adagrad", "learning_rate": 0.1},
                       "strategy": {"consistency": consistency},
                       "checkpoint": checkpoint if every_steps else {}}, f)
        return path

    def cluster(self, servers=2):
        self.names += 1
        folder = self.path(f"cluster{self.names}")
        os.mkdir(folder)
        return processes.Cluster(folder, servers)

    def replace(self, cluster, index, directory=None):
        """Starts server `index` again on an empty directory, or on a copy of `directory`."""
        cluster.stop(index)
        data = cluster.path(f"ps{index}")
        shutil.rmtree(data)
        if directory is not None:
            shutil.copytree(directory, data)
        cluster.spawn(index, cluster.addresses[index])
        cluster.wait_until_ready(index)

    def run_workers(self, job, cluster, flags, workers):
        file = cluster.worker_file(workers)
        with futures.ThreadPoolExecutor(workers) as threads:
            return list(threads.map(
                lambda index: subprocess.run(processes.worker_command(job, file, index, flags),
                                             capture_output=True, text=True, timeout=120,
                                             check=False), range(workers)))

    def trains(self, job, cluster, *flags, workers=1):
        """The report and the log of the first worker."""
        runs = self.run_workers(job, cluster, flags, workers)
        for run in runs:
            self.assertEqual(run.returncode, 0, run.stderr[-4000:])
        reports = [json.loads(run.stdout.splitlines()[-1]) for run in runs]
        self.assertEqual(len({(r["steps"], r["total_steps"]) for r in reports}), 1, reports)
        return reports[0], runs[0].stderr

    def refused(self, job, cluster, *flags):
        run, = self.run_workers(job, cluster, flags, 1)
        self.assertEqual(run.returncode, 1, run.stderr[-4000:])
        return run.stderr.splitlines()[-1]

    def steps_of_checkpoints(self):
        return [manifest["step"] for manifest, _ in processes.checkpoints(self.directory)]

    def test_every_server_goes_back_to_the_newest_checkpoint(self):
        for consistency, workers in (("async", 1), ("sync", 2)):
            for lost in (0, 1):
                with self.subTest(consistency=consistency, lost=lost), self.cluster() as cluster:
                    job = self.write_job(consistency, every_steps=100)
                    train = lambda steps: self.trains(  # noqa: E731
                        job, cluster, "--max_steps", str(steps), workers=workers)
                    trained, _ = train(300)
                    self.replace(cluster, lost)
                    back, log = train(300)
                    self.assertIn(f"ps:{lost} ({cluster.addresses[lost]}) holds nothing of it",
                                  log)
                    self.assertIn("every server goes back to the checkpoint", log)
                    self.assertEqual((back["steps"], back["total_steps"]), (0, 300))
                    self.assertEqual(back["eval"], trained["eval"])
                    on, _ = train(400)
                    self.assertEqual((on["steps"], on["total_steps"]), (100, 400))
                    self.assertEqual(self.steps_of_checkpoints()[-1], 400)
                shutil.rmtree(self.directory)

    def test_without_a_checkpoint_no_start_trains_on_half_a_job(self):
        for consistency in ("async", "sync"):
            job = self.write_job(consistency)
            for lost in (0, 1):
                with self.subTest(consistency=consistency, lost=lost), self.cluster() as cluster:
                    trained, _ = self.trains(job, cluster, "--max_steps", "100")
                    self.replace(cluster, lost)
                    # The first start must not make the job look complete to the second.
                    for _ in range(2):
                        error = self.refused(job, cluster, "--max_steps", "200")
                        self.assertIn(
                            f"ps:{lost} ({cluster.addresses[lost]}) holds nothing of it", error)
                        self.assertIn("its own --data_dir", error)
                    fresh, _ = self.trains(job, cluster, "--fresh", "--max_steps", "100")
                    self.assertEqual(fresh["total_steps"], 100)
                    if consistency == "async":
                        self.assertEqual(fresh["eval"], trained["eval"])

    def test_the_directory_of_another_life_is_refused(self):
        job = self.write_job()
        with self.cluster() as cluster:
            self.trains(job, cluster, "--max_steps", "50")
            cluster.stop(1, 15)
            shutil.copytree(cluster.path("ps1"), self.path("earlier"))
            cluster.restart(1)
            self.trains(job, cluster, "--fresh", "--max_steps", "50")
            self.replace(cluster, 1, self.path("earlier"))
            error = self.refused(job, cluster, "--max_steps", "60")
            self.assertIn(f"ps:1 ({cluster.addresses[1]}) holds it as it began at", error)
            # A directory of the same timeline that is merely older is accepted.
            self.trains(job, cluster, "--fresh", "--max_steps", "50")
            self.trains(job, cluster, "--max_steps", "60")

    def test_every_command_names_the_server(self):
        job = self.write_job()
        with self.cluster() as cluster:
            self.trains(job, cluster, "--max_steps", "50")
            self.replace(cluster, 1)
            why = f"ps:1 ({cluster.addresses[1]}) holds nothing of it"
            self.assertIn(why, self.refused(job, cluster, "--mode", "evaluate"))
            self.assertIn(why, self.refused(job, cluster, "--mode", "predict", "--predictions",
                                            self.path("p")))
            servers = ["--servers", cluster.first_addresses(), "--job", "job"]
            for command in (["status"], ["why"], ["inspect"]):
                self.assertIn(why, processes.ctl(*command, *servers, code=1)[1])
            for command in (["export", self.path("x.npz")],
                            ["checkpoint", "create", self.path("kept")]):
                self.assertIn(why, self.ctl_fails(*command, *servers))
            self.assertIn("ps:1 holds nothing of it",
                          self.ctl_fails("rebalance", "--plan", *servers))
            found, _ = processes.ctl("doctor", "--cluster", cluster.worker_file(1), code=1)
            self.assertIn(why, " ".join(f["found"] for f in found["findings"]))

    def ctl_fails(self, *words):
        done = subprocess.run([processes.CTL, *words], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stderr

    def test_a_failed_restore_is_rolled_back_and_the_job_starts_over(self):
        job = self.write_job(every_steps=100)
        with self.cluster() as cluster:
            self.trains(job, cluster, "--max_steps", "100")
        newest = processes.checkpoints(self.directory)[-1][1]
        table = glob.glob(os.path.join(newest, "ps-0", "db", "*.sst"))[0]
        with open(table, "rb") as f:
            data = bytearray(f.read())
        os.unlink(table)  # so that the copy is not a hard link
        data[len(data) // 2] ^= 1
        with open(table, "wb") as f:
            f.write(data)
        with self.cluster() as cluster:
            self.assertIn(table, self.refused(job, cluster))
            servers = ["--servers", cluster.first_addresses(), "--job", "job"]
            status, _ = processes.ctl("status", *servers)
            self.assertEqual(status["variables"]["count"], 0)
            none, _ = self.trains(job, cluster, "--max_steps", "50", "--set",
                                  "checkpoint.restore=none")
            self.assertEqual(none["total_steps"], 50)

    def test_a_worker_killed_after_its_last_step_does_not_train_again(self):
        for consistency, workers in (("async", 1), ("sync", 2)):
            with self.subTest(consistency=consistency), self.cluster() as cluster:
                job = self.write_job(consistency, every_steps=1000)
                train = lambda *flags: self.trains(  # noqa: E731
                    job, cluster, "--max_steps", "60", *flags, workers=workers)
                trained, _ = train("--set", "checkpoint={}")
                # As a worker that ended before its last checkpoint: the next start makes the
                # checkpoint.
                again, log = train()
                self.assertEqual((again["steps"], again["total_steps"]), (0, 60))
                self.assertEqual(again["eval"], trained["eval"])
                self.assertIn("has finished after 60 steps", log)
                self.assertEqual(self.steps_of_checkpoints(), [60])
                train()
                self.assertEqual(self.steps_of_checkpoints(), [60])
            shutil.rmtree(self.directory)

    def test_arguments_of_the_optimizer_change_when_a_worker_comes_back(self):
        job = self.write_job()
        with self.cluster() as cluster:
            self.trains(job, cluster, "--max_steps", "50")
            _, log = self.trains(job, cluster, "--max_steps", "100", "--set",
                                 "optimizer.learning_rate=0.05")
            self.assertIn("variables: learning_rate 0.1 -> 0.05", log)
            cluster.restart(0)
            cluster.restart(1)
            _, log = self.trains(job, cluster, "--max_steps", "150", "--set",
                                 "optimizer.learning_rate=0.05")
            self.assertNotIn("learning_rate 0.", log)
            error = self.refused(job, cluster, "--max_steps", "200", "--set", "optimizer.type=adam")
            self.assertIn("optimizer.type: the job has adagrad, asked for adam", error)
            error = self.refused(job, cluster, "--max_steps", "200", "--set", "model.factors=8")
            self.assertIn("shape: the job has [40, 4], asked for [40, 8]", error)
            self.assertNotIn("initializer", error)


if __name__ == "__main__":
    tap.main()
