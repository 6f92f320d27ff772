"""cairn-worker processes that train as one and sum their gradients between GPUs
(strategy.communication.implementation: nccl), on fake GPUs: their variables are those of one process
with all rows; a worker that dies or hangs is named within the timeout; workers whose GPUs NCCL
cannot connect are refused with the reason."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import joint_workers  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402
from joint_workers import SPARSE  # noqa: E402

NCCL = ["--set", "strategy.communication.implementation=nccl"]
MLP = {"model": {"type": "mlp", "hidden": [16], "init": {"type": "wave", "scale": 0.1}}}
SUMS = "sums gradients between the GPUs of all workers by NCCL"


def on(*gpus):
    return ["--set", f"strategy.devices=[{','.join(f'gpu:{gpu}' for gpu in gpus)}]"]


class MultiWorkerNccl(joint_workers.JointWorkersTest):
    WORKER_FLAGS = staticmethod(lambda index: [*on(2 * index, 2 * index + 1), *NCCL])

    def test_gpus_of_all_workers_train_as_one_process(self):
        more = {"rows": 1201, "data_more": {"epochs": 2}}
        self.together("linear", 2, 60, **more)
        self.assertIn(SUMS, self.log(0))
        self.together("mlp", 3, 40, **MLP, **more)
        self.together("fm", 2, 60, **SPARSE, **more)

    def test_a_killed_worker_is_named_and_all_continue_with_the_newest_state(self):
        job, started, cluster = self.start_long("killed", 3)
        self.check_killed_worker_is_named(started, cluster)
        reports = self.run_all(job, 3, flags=["--max_steps", "3000"])
        self.assertIn("all resume from worker", self.log(0))
        self.assertEqual(len({r["total_steps"] for r in reports}), 1)
        self.check_same_bits(job, 3)

    def test_a_worker_that_hangs_is_named_within_the_timeout(self):
        _, started, cluster = self.start_long("hangs")
        self.check_hanging_worker_is_named(started, cluster)

    def end_of_both(self, job, flags, code):
        cluster = processes.workers_alone(self.folder, 2)
        started = [self.start(job, cluster, i, flags[i]) for i in range(2)]
        return [self.report(process, i, code) for i, process in enumerate(started)]

    def test_workers_whose_gpus_cannot_sum_are_refused_with_the_reason(self):
        job = self.write_job("refused", 60, rows=301)
        key = "strategy.communication.implementation: nccl"
        for line in self.end_of_both(job, [on(1), on(1)], code=2):
            self.assertIn(key, line)
            self.assertRegex(line, r"gpu:1 of rank 0 \(.*\) and gpu:1 of rank 1 \(.*\) are the same")
        lines = self.end_of_both(job, [on(0), ["--set", "strategy.devices=[cpu:0]"]], code=2)
        self.assertIn("1 of 2 workers cannot", lines[0])
        self.assertIn("cpu:0 is no GPU", lines[1])
        lines = self.end_of_both(
            job, [["--set", "strategy.cross_device_ops=reduction_to_one_device"]] * 2, code=2)
        self.assertIn("leave strategy.cross_device_ops", lines[0])

    def test_auto_sums_between_cpus_where_the_gpus_cannot(self):
        auto = ["--set", "strategy.communication.implementation=auto"]
        for flags, sums in (([[*on(1), *auto]] * 2, False), ([auto] * 2, True)):
            job = self.write_job(f"auto{sums}", 60, rows=301)
            for report in self.end_of_both(job, flags, code=0):
                self.assertGreater(report["steps"], 0)
            self.assertEqual(SUMS in self.log(0), sums)


if __name__ == "__main__":
    tap.main()
