#!/usr/bin/env python3
"""The cost of several replicas in a worker: the same rows in the same steps, computed by one replica
and divided over several logical devices, under strategy mirrored.

Prints one JSON line for each model: examples/s with one replica and with several (the best of the
repeats, which alternate), and their ratio. On a machine with a core for each replica the ratio is
above 1; the bar is for replicas that share cores. Each replica's BLAS has one thread. Verified: the
losses of both runs' last steps agree.

usage: tests/bench/replicas.py [--build build] [--devices 2] [--repeats 3]
"""
import argparse
import json
import os
import random
import sys
import tempfile

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BAR = 0.87  # at most 15 % more time
ROWS, COLUMNS = 40_000, 200
MODELS = {
    "linear": ({"type": "linear"}, 1024),
    "mlp": ({"type": "mlp", "hidden": [256, 64], "loss": "sigmoid_cross_entropy"}, 512),
}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.environ["CAIRN_WORKER"] = os.path.join(options.build, "worker", "cairn-worker")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.path.insert(0, os.path.join(TOP, "tests", "support"))
    with tempfile.TemporaryDirectory() as folder:
        rows = write_rows(os.path.join(folder, "rows.csv"))
        for model in MODELS:
            print(json.dumps(measure(options, folder, rows, model)), flush=True)


def write_rows(path):
    """Dense rows whose label is the sign of a fixed linear function."""
    draw = random.Random(7)
    weights = [draw.uniform(-1, 1) for _ in range(COLUMNS)]
    with open(path, "w", encoding="ascii") as f:
        f.write("label," + ",".join(f"x{i}" for i in range(COLUMNS)) + "\n")
        for _ in range(ROWS):
            x = [round(draw.uniform(-1, 1), 3) for _ in range(COLUMNS)]
            label = int(sum(a * b for a, b in zip(x, weights)) > 0)
            f.write(f"{label}," + ",".join(map(str, x)) + "\n")
    return path


def measure(options, folder, rows, name):
    model, batch = MODELS[name]
    rates, losses = {}, {}
    for repeat in range(options.repeats):
        for devices in (1, options.devices):
            rate, loss = train(folder, rows, model, batch, devices, f"{name}{devices}-{repeat}")
            rates[devices] = max(rates.get(devices, 0), rate)
            losses[devices] = loss
    one, several = rates[1], rates[options.devices]
    same = abs(losses[1] - losses[options.devices]) <= 1e-3 * (1 + abs(losses[1]))
    return {"bench": f"{options.devices} replicas in a worker, {name}, against one with all rows",
            "batch": batch, "one_replica_examples_per_second": one,
            "examples_per_second": several, "ratio": round(several / one, 3), "bar": BAR,
            "cores": os.cpu_count(), "verified": same}


def train(folder, rows, model, batch, devices, name):
    import processes  # reads the environment
    job = os.path.join(folder, f"{name}.yaml")
    with open(job, "w", encoding="ascii") as f:
        json.dump({"name": name, "model": model,
                   "data": {"format": "csv", "train": [rows], "batch_size": batch, "epochs": 5},
                   "optimizer": {"type": "sgd", "learning_rate": 0.05},
                   "strategy": {"type": "mirrored",
                                "devices": [f"cpu:{i}" for i in range(devices)]},
                   "storage": {"directory": os.path.join(folder, name), "durability": "off"}}, f)
    report = processes.run_worker(job)
    return report["examples_per_second"], report["train_loss"]


if __name__ == "__main__":
    main()
