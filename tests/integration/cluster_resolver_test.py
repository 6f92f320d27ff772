"""cairn-worker finds its cluster with --cluster_resolver: it trains on the cluster of TF_CONFIG,
prints the cluster of a Slurm step as a cluster file, and exits with status 2 without a cluster."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

STEP = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1,2"}


class ClusterResolver(scene.FolderTest):
    def worker(self, *flags, **variables):
        environment = {k: v for k, v in os.environ.items()
                       if k != "TF_CONFIG" and not k.startswith("SLURM_")}
        return subprocess.run([processes.WORKER, *flags], env={**environment, **variables},
                              capture_output=True, text=True, timeout=120)

    def test_a_worker_trains_on_the_cluster_of_tf_config(self):
        rows = os.path.join(self.folder, "rows.libsvm")
        with open(rows, "w", encoding="ascii") as f:
            f.write("1 1:1\n0 2:1\n")
        job = os.path.join(self.folder, "job.yaml")
        with open(job, "w", encoding="ascii") as f:
            json.dump({"model": {"type": "linear"},
                       "data": {"format": "libsvm", "features": 2, "batch_size": 1,
                                "train": [rows]},
                       "optimizer": {"type": "sgd", "learning_rate": 0.1}}, f)
        with processes.Cluster(self.folder, 1) as cluster:
            config = {"cluster": {"ps": cluster.addresses, "worker": [addresses.nobodys_address()]},
                      "task": {"type": "worker", "index": "0"}}
            run = self.worker("--job", job, "--cluster_resolver", "tf_config",
                              TF_CONFIG=json.dumps(config))
        self.assertEqual(run.returncode, 0, run.stderr)
        report = json.loads(run.stdout.splitlines()[-1])
        self.assertEqual((report["status"], report["task"]), ("completed", "worker:0"))

    def test_the_cluster_of_a_slurm_step_is_printed_with_this_task_in_it(self):
        flags = ["--cluster_resolver", "slurm", "--cluster_jobs", "ps=1,worker=2",
                 "--cluster_port", "7000", "--print_cluster"]
        run = self.worker(*flags, **STEP)
        self.assertEqual(run.returncode, 0, run.stderr)
        printed = json.loads(run.stdout)
        self.assertEqual(printed, {
            "cluster": {"ps": ["n1:7000"], "worker": ["n2:7000", "n2:7001"]},
            "task": {"type": "worker", "index": 0}})

    def test_a_missing_cluster_ends_with_status_2(self):
        cases = [
            (["--print_cluster"], {}, "go with --cluster_resolver"),
            (["--print_cluster", "--cluster_resolver", "slrum"], {}, "did you mean 'slurm'?"),
            (["--print_cluster", "--cluster_resolver", "tf_config"], {}, "TF_CONFIG is not set"),
            (["--print_cluster", "--cluster_resolver", "slurm", "--cluster_jobs", "ps=1"], {},
             "Not running inside a SLURM step?"),
            (["--print_cluster", "--cluster_resolver", "slurm", "--cluster_jobs", "ps=4"], STEP,
             "Requested 4 tasks but only 3 were assigned"),
            (["--print_cluster", "--cluster_resolver", "kubernetes", "--cluster_jobs", "ps:a=b",
              "--cluster", os.path.join(self.folder, "none.json")], {}, "none.json"),
        ]
        for flags, variables, why in cases:
            run = self.worker(*flags, **variables)
            self.assertEqual(run.returncode, 2, (flags, run.stderr))
            self.assertIn(why, run.stderr.splitlines()[-1])
            self.assertEqual(run.stdout, "")


if __name__ == "__main__":
    tap.main()
