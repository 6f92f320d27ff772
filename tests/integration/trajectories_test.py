"""Every case of trajectories.json, recorded from TensorFlow, through `cairn-worker --job`: with an
in-process server, with one and with three cairn-ps processes; with each step's rows divided over
replicas (mirrored, with central storage, and with a parameter server); and over two processes that
train as one. Compares the losses of the recorded steps, the final variables and the test metrics
within the file's tolerances."""
import json
import math
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

GOLDEN = processes.golden("trajectories.json")
# The number of servers (0: in process) and the job's `strategy:`.
SETUPS = {
    "in_process": (0, {}),
    "one_server": (1, {}),
    "three_servers": (3, {}),
    "mirrored_1": (0, {"type": "mirrored", "devices": ["cpu:0"]}),
    "mirrored_2": (0, {"type": "mirrored", "devices": ["cpu:0", "cpu:1"]}),
    "mirrored_3": (0, {"type": "mirrored", "devices": ["cpu:0", "cpu:1", "cpu:2"]}),
    "central_storage_2": (0, {"type": "central_storage", "devices": ["cpu:0", "cpu:1"]}),
    "one_device": (0, {"type": "one_device", "devices": ["cpu:1"]}),
    "parameter_server_2": (1, {"type": "parameter_server", "devices": ["cpu:0", "cpu:1"]}),
    "multi_worker_mirrored_2": (0, {"type": "multi_worker_mirrored"}),
}
PROCESSES = {"multi_worker_mirrored": 2}  # otherwise one
ran = {setup: 0 for setup in SETUPS}


def data_section(case, folder):
    """The `data:` section that reads this case's files in the order given by the golden file."""
    name = case["data"]
    common = {"batch_size": case["batch_size"], "epochs": 1}
    if name == "mnist":
        files = {p: [{"images": f"{processes.DATA}/mnist/{s}-images-idx3-ubyte.gz",
                      "labels": f"{processes.DATA}/mnist/{s}-labels-idx1-ubyte.gz"}]
                 for p, s in (("train", "train"), ("eval", "t3k"))}
        return {"format": "idx", **files, **common}
    train, test = (processes.data(name, part + ".libsvm") for part in ("train", "test"))
    if name == "abalone":  # the first 3,342 rows train, the rest test
        rows = processes.read_lines(train)
        train, test = os.path.join(folder, "train.libsvm"), os.path.join(folder, "test.libsvm")
        for path, part in ((train, rows[:3342]), (test, rows[3342:])):
            with open(path, "w", encoding="ascii") as f:
                f.writelines(part)
    columns = {"a9a": (123, 1), "dna": (180, 1), "abalone": (8, 1), "agaricus": (127, 0)}
    if name not in columns:
        raise unittest.SkipTest(f"no data set '{name}'")
    features, base = columns[name]
    section = {"format": "libsvm", "train": [train], "eval": [test], "features": features,
               "index_base": base, **common}
    if name == "dna":
        section["label_base"] = 1
    return section


def job(case, folder, strategy):
    model = {"type": case["model"], "loss": case["loss"]}
    for key in ("classes", "hidden", "factors"):
        if key in case:
            model[key] = case[key]
    model["init"] = {"type": case["init"]}
    if case["init"] == "wave":
        model["init"]["scale"] = case["init_scale"]
    data = data_section(case, folder)
    data["max_steps"] = case.get("steps", 0)
    workers = PROCESSES.get(strategy.get("type"), 1)
    if data["batch_size"] % workers:
        raise AssertionError(f"a batch of {data['batch_size']} rows for {workers} processes")
    data["batch_size"] //= workers
    return {"name": case["name"], "model": model, "data": data,
            "optimizer": {"type": case["optimizer"], **case["optimizer_args"]},
            "strategy": strategy,
            "storage": {"directory": os.path.join(folder, "data"), "durability": "off"}}


class Trajectories(unittest.TestCase):
    def compare_losses(self, case, metrics, tolerance):
        with open(metrics, encoding="ascii") as f:
            losses = {r["step"]: r["loss"] for r in map(json.loads, f)}
        self.assertEqual(len(losses), case["steps_run"], "steps in the metrics file")
        for step, want in case["losses"]:
            self.assertLessEqual(abs(losses[step] - want), tolerance * abs(want),
                                 f"loss of step {step}: {losses[step]}, recorded {want}")

    def compare_final(self, case, export, tolerance):
        import numpy
        arrays = numpy.load(export)
        for name, want in case["final"].items():
            got = arrays[name]
            self.assertEqual(list(got.shape), want["shape"], name)
            flat = got.astype(numpy.float64).ravel()
            # Elements and sums may cancel, so errors are also relative to the variable's own scale.
            scale = want["l2"] / math.sqrt(flat.size)
            first, last = flat[:len(want["first"])], flat[-len(want["last"]):]
            for part, values in (("first", first), ("last", last)):
                for index, (g, w) in enumerate(zip(values, want[part])):
                    self.assertLessEqual(abs(g - w), tolerance * (abs(w) + scale),
                                         f"{name} {part}[{index}]: {g}, recorded {w}")
            l2 = math.sqrt(float((flat * flat).sum()))
            self.assertLessEqual(abs(l2 - want["l2"]), tolerance * want["l2"], f"l2 of {name}")
            self.assertLessEqual(abs(flat.sum() - want["sum"]),
                                 tolerance * (abs(want["sum"]) + want["l2"]), f"sum of {name}")

    def run_case(self, case, tolerance, servers, strategy):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.yaml")
            metrics, export = os.path.join(folder, "m.jsonl"), os.path.join(folder, "final.npz")
            with open(path, "w", encoding="ascii") as f:
                json.dump(job(case, folder, strategy), f)
            flags = ["--metrics_file", metrics, "--export", export]
            workers = PROCESSES.get(strategy.get("type"), 1)
            if workers > 1:
                cluster = processes.workers_alone(folder, workers)
                report, *_ = processes.run_workers(path, cluster, workers, flags)
            elif servers == 0:
                report = processes.run_worker(path, flags=flags)
            else:
                with processes.Cluster(folder, servers, ["--durability", "off"]) as cluster:
                    report = processes.run_worker(path, cluster.worker_file(1), flags=flags)
            self.assertEqual(report["steps"], case["steps_run"])
            self.compare_losses(case, metrics, tolerance["losses_relative"])
            self.compare_final(case, export, tolerance["final_relative"])
            for name, want in case["test"].items():
                self.assertLessEqual(abs(report["eval"][name] - want),
                                     tolerance["test_absolute"], f"{name}: {report['eval']}")


def add_cases():
    """Adds a test for each set-up of a case. Returns the number of cases, and the data sets that
    other cases need."""
    with open(GOLDEN, encoding="ascii") as f:
        golden = json.load(f)
    runnable = [case for case in golden["cases"] if processes.data(case["data"]) is not None]
    for case in runnable:
        for setup, (servers, strategy) in SETUPS.items():
            def test(self, case=case, setup=setup, servers=servers, strategy=strategy):
                self.run_case(case, golden["tolerance"], servers, strategy)
                ran[setup] += 1
            setattr(Trajectories, f"test_{case['name']}_{setup}", test)
    missing = {case["data"] for case in golden["cases"] if case not in runnable}
    return len(runnable), sorted(missing)


if GOLDEN is None:
    class NoGolden(unittest.TestCase):
        def test_trajectories(self):
            self.skipTest("the golden set has no trajectories.json")
else:
    TOTAL, MISSING = add_cases()

    class ZCounts(unittest.TestCase):
        def test_every_case_ran_in_every_set_up(self):
            print("#", {setup: f"{count} of {TOTAL}" for setup, count in ran.items()})
            self.assertEqual(set(ran.values()), {TOTAL})

        def test_data_sets(self):
            if MISSING:
                self.skipTest(f"{processes.DATA} lacks {MISSING}: examples/data/get.py downloads")

if __name__ == "__main__":
    tap.main()
