"""cairn-worker processes that train as one (strategy.type multi_worker_mirrored): their variables
have the same bits, equal to those of one process with all rows in its batches, also with ragged and
sparse batches; a worker that dies, stops or never appears is named; stopped, killed and lost
workers continue with the newest state; checkpoints, evaluation and warm starts; invalid settings
are refused."""
import json
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import joint_workers  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402
from joint_workers import FEATURES, ROWS, SECONDS, SPARSE, write_ratings  # noqa: E402


class MultiWorkerMirrored(joint_workers.JointWorkersTest):
    def test_workers_train_as_one_with_all_rows(self):
        # 3,001 rows: with two workers, the last batch of one has one row and the other has none;
        # the same in the next epoch.
        more = {"data_more": {"epochs": 2}}
        for workers, batch in ((2, 60), (3, 40)):
            self.together(f"linear{workers}", workers, batch, **more)
            self.together(f"fm{workers}", workers, batch, **SPARSE, **more)

    def test_embeddings_train_as_with_one_worker(self):
        # Half of the keys of a step occur on only one worker.
        data = {"format": "movielens", "train": [self.rows(2003, write_ratings)]}
        for workers, batch in ((2, 50), (3, 30)):
            self.together(f"ratings{workers}", workers, batch, data=data,
                          model={"type": "matrix_factorization", "factors": 4},
                          optimizer={"type": "adagrad", "learning_rate": 0.1},
                          data_more={"epochs": 2})

    def test_replicas_clipping_packs_and_pulls_ahead_keep_the_result(self):
        _, one = self.alone("clipped-alone", 120, optimizer={"global_clipnorm": 0.05}, **SPARSE)
        job = self.write_job("clipped", 60, {"devices": ["cpu:0", "cpu:1"], "communication": {
            "implementation": "ring", "bytes_per_pack": 64}},
            optimizer={"global_clipnorm": 0.05}, **SPARSE)
        self.run_all(job)
        self.assert_close(self.check_same_bits(job), one)
        ahead = self.write_job("ahead", 60, {"pull_ahead_steps": 2})
        self.assertEqual({r["steps"] for r in self.run_all(ahead)}, {26})
        self.check_same_bits(ahead)

    def test_max_steps_and_uneven_files_end_cleanly(self):
        # Whole files are assigned to workers: the first has 2,000 rows, the second 300.
        data = {"format": "libsvm", "features": FEATURES,
                "train": [self.rows(2000), self.rows(300)]}
        job = self.write_job("uneven", 100, data=data, data_more={"epochs": 2})
        reports = self.run_all(job)
        self.assertEqual([(r["steps"], r["examples"]) for r in reports], [(40, 4000), (40, 600)])
        self.check_same_bits(job)
        job = self.write_job("few", 100, data=data, data_more={"max_steps": 7})
        self.assertEqual([(r["steps"], r["examples"]) for r in self.run_all(job)],
                         [(7, 700), (7, 300)])

    STEPS = 12 * 301  # of start_long: 1,501 and 1,500 rows in batches of five

    def test_a_killed_worker_is_named_and_all_continue_with_the_newest_state(self):
        job, started, cluster = self.start_long("killed", 3)
        self.check_killed_worker_is_named(started, cluster)
        reports = self.run_all(job, 3)
        self.assertIn("all resume from worker", self.log(0))
        steps = 12 * 201  # with three workers, 1,001 rows of the first
        self.assertEqual({r["total_steps"] for r in reports}, {steps})
        self.assertLess(reports[0]["steps"], steps)
        self.check_same_bits(job, 3)

    def test_a_worker_that_hangs_is_named_within_the_timeout(self):
        _, started, cluster = self.start_long("hangs")
        self.check_hanging_worker_is_named(started, cluster)

    def test_a_stop_of_one_stops_all_after_the_same_step_and_nothing_is_lost(self):
        calm = self.write_job("calm", 5, data_more={"epochs": 12})
        self.run_all(calm)
        job, started, _ = self.start_long("stopped")
        started[1].send_signal(signal.SIGTERM)
        second = self.report(started[1], 1, code=128 + signal.SIGTERM)
        self.assertEqual(second["status"], "interrupted")
        self.assertIn(f"worker 1 ({addresses.own_host()}:", self.report(started[0], 0, code=1))
        self.assertIn(f"was asked to stop, so all stopped after step {second['total_steps']}",
                      self.log(0))
        reports = self.run_all(job)
        self.assertEqual([r["steps"] for r in reports], [self.STEPS - second["steps"]] * 2)
        self.assertEqual(self.check_same_bits(job), self.variables(calm))

    def test_lost_disks_are_filled_from_the_newest_state(self):
        job, started, _ = self.start_long("lost")
        started[0].send_signal(signal.SIGTERM)
        for index, process in enumerate(started):
            process.communicate(timeout=SECONDS)
        shutil.rmtree(self.path("data", "lost"))  # the first worker's
        reports = self.run_all(job)
        self.assertIn("worker 0 without state", self.log(0))
        self.assertEqual({r["total_steps"] for r in reports}, {self.STEPS})
        self.assertLess(reports[0]["steps"], self.STEPS)
        self.check_same_bits(job)
        # One worker more, and the next run.
        reports = self.run_all(job, 3, flags=["--continue"])
        self.assertEqual({r["total_steps"] for r in reports}, {self.STEPS + 12 * 201})
        # On a further start, no worker trains.
        reports = self.run_all(job, 3)
        self.assertEqual({r["steps"] for r in reports}, {0})
        self.check_same_bits(job, 3)
        # The first worker continues without the others from the same state, and all take it from
        # there.
        alone = ["--set", "strategy.type=mirrored", "--set", "strategy.communication={}"]
        report = processes.run_worker(job, flags=[*alone, "--continue", "--max_steps", "10"])
        self.assertEqual(report["total_steps"], self.STEPS + 12 * 201 + 10)
        reports = self.run_all(job, flags=["--continue", "--max_steps", "5"])
        self.assertEqual({r["total_steps"] for r in reports}, {self.STEPS + 12 * 201 + 15})
        self.check_same_bits(job)
        # Start over.
        reports = self.run_all(job, flags=["--max_steps", "5", "--fresh"])
        self.assertEqual({r["total_steps"] for r in reports}, {5})
        self.check_same_bits(job)

    def test_checkpoints_and_evaluation_of_the_first_worker(self):
        directory = self.path("checkpoints")
        evaluated = {"eval": [self.rows(ROWS)]}
        job = self.write_job("kept", 60, data_more={"epochs": 2, **evaluated},
                             checkpoint={"directory": directory, "every_steps": 20, "keep": 9},
                             evaluation={"every_steps": 10})
        metrics = self.path("kept.jsonl")
        reports = self.run_all(job, flags=["--metrics_file", metrics])
        self.assertEqual([r["steps"] for r in reports], [52, 52])
        self.assertIn("auc", reports[0]["eval"])
        self.assertNotIn("eval", reports[1])
        with open(metrics, encoding="ascii") as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([line["step"] for line in lines if "eval" in line], [10, 20, 30, 40, 50])
        losses = [line for line in lines if "loss" in line]
        self.assertEqual(len(losses), 52)
        self.assertEqual(losses[0]["examples"], 120)
        kept = processes.checkpoints(directory)
        self.assertEqual([manifest["step"] for manifest, _ in kept], [20, 40, 52])
        final = self.variables(job)
        # To all workers: disks are lost, the first finds the checkpoint, the others take its state.
        shutil.rmtree(self.path("data"))
        reports = self.run_all(job, flags=["--fresh", "--set",
                                           f"checkpoint.restore={kept[0][1]}"])
        self.assertEqual([r["steps"] for r in reports], [32, 32])
        self.assertEqual(self.check_same_bits(job), final)

    def test_a_warm_start_reaches_every_worker(self):
        directory = self.path("checkpoints")
        first = self.write_job("first", 60, checkpoint={"directory": directory})
        self.run_all(first)
        folder = processes.checkpoints(directory)[-1][1]
        warm = self.write_job("warm", 60, checkpoint={"warm_start": {"from": folder}},
                              data_more={"max_steps": 1})
        self.run_all(warm)
        kept = self.check_same_bits(warm)
        before = self.variables(first)
        self.assertLess(max(abs(a - b) for a, b in zip(kept["kernel"], before["kernel"])), 0.011)
        self.assertGreater(max(abs(a) for a in before["kernel"]), 0.02)

    def test_a_missing_worker_is_named(self):
        job = self.write_job("alone", 60, {"communication": {"connect_timeout_seconds": 1}})
        cluster = processes.workers_alone(self.folder, 3)
        started = [self.start(job, cluster, i) for i in (0, 2)]
        lines = [self.report(started[0], 0, code=1), self.report(started[1], 2, code=1)]
        with open(cluster, encoding="ascii") as f:
            address = json.load(f)["cluster"]["worker"][1]
        self.assertIn(f"rank 1 ({address})", lines[0])
        # The first may have given up by then.
        self.assertRegex(lines[1], rf"rank 1 \({address}\)|rank 0 serves it: is rank 0 running")

    def test_a_worker_that_waits_for_others_can_be_stopped(self):
        job = self.write_job("waits", 60)
        worker = self.start(job, processes.workers_alone(self.folder, 2), 0)
        processes.wait_for(lambda: "waits at" in self.log(0), 60, "the wait")
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 128 + signal.SIGTERM)
        self.assertIn("stopped while waiting for the other workers", self.log(0))

    def test_a_chief_is_the_first(self):
        job = self.write_job("chief", 60)
        path = processes.workers_alone(self.folder, 2)
        with open(path, encoding="ascii") as f:
            chief, worker = json.load(f)["cluster"]["worker"]
        with open(path, "w", encoding="ascii") as f:
            json.dump({"cluster": {"chief": [chief], "worker": [worker]}}, f)
        started = [self.start(job, path, 0, ["--task_type", "chief"]), self.start(job, path, 0)]
        reports = [self.report(process, 0) for process in started]
        self.assertEqual([r["task"] for r in reports], ["chief:0", "worker:0"])
        self.assertEqual(sorted(os.listdir(self.path("data"))), ["chief", "chief@worker-0"])

    def test_addresses_that_others_can_reach_are_refused_unless_allowed(self):
        job, cluster = self.write_job("open", 60), self.path("open_cluster.yaml")
        with open(cluster, "w", encoding="ascii") as f:
            json.dump({"cluster": {"worker": ["0.0.0.0:1", "10.0.0.2:1"]}}, f)
        self.assertIn("give --allow_plaintext", self.refused(job, cluster))

    def test_bad_rows_of_one_worker_end_all(self):
        # Row i goes to worker i mod 2: the bad row belongs to the second worker.
        path = self.path("bad.libsvm")
        shutil.copy(self.rows(301), path)
        with open(path, "a", encoding="ascii") as f:
            f.write("1 99:1\n")
        job = self.write_job("bad", 10, data={"format": "libsvm", "features": FEATURES,
                                              "train": [path]})
        cluster = processes.workers_alone(self.folder, 2)
        started = [self.start(job, cluster, i) for i in range(2)]
        self.assertIn("bad.libsvm:302", self.report(started[1], 1, code=2))
        line = self.report(started[0], 0, code=1)
        self.assertIn("rank 1", line)
        self.assertIn("bad.libsvm:302", line)
        self.assertNotIn("[cairn/", line)  # marks of errors are not shown to users

    def refused(self, job, cluster, index=0, flags=()):
        return self.report(self.start(job, cluster, index, flags), index, code=2)

    def test_invalid_settings_are_refused(self):
        job = self.write_job("refused", 60)
        cluster = processes.workers_alone(self.folder, 2)
        with open(cluster, encoding="ascii") as f:
            tasks = json.load(f)
        tasks["cluster"]["ps"] = [addresses.nobodys_address()]
        with_ps = self.path("ps.yaml")
        with open(with_ps, "w", encoding="ascii") as f:
            json.dump(tasks, f)
        self.assertIn("leave ps out of the cluster", self.refused(job, with_ps))
        self.assertIn("not one of the cluster's 2 training tasks", self.refused(job, cluster, 5))
        self.assertIn("is for type: parameter_server", self.refused(
            job, cluster, flags=["--set", "strategy.consistency=sync"]))
        self.assertIn("or use multi_worker_mirrored", self.refused(
            job, cluster, flags=["--set", "strategy={type: mirrored}"]))
        other = ["--set", "data.batch_size=30"]
        started = [self.start(job, cluster, 0), self.start(job, cluster, 1, other)]
        for index, process in enumerate(started):
            line = self.report(process, index, code=2)
            self.assertIn("data.batch_size: 60", line)
            self.assertIn("data.batch_size: 30", line)

    def test_without_a_cluster_or_with_one_worker_it_is_one_process(self):
        job = self.write_job("single", 120)
        _, one = self.alone("single-alone", 120)
        self.assertEqual(processes.run_worker(job)["steps"], 26)
        self.assertEqual(self.variables(job, workers=1), one)
        self.run_all(job, 1, ["--fresh"])
        self.assertEqual(self.variables(job, workers=1), one)


if __name__ == "__main__":
    tap.main()
