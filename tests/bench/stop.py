#!/usr/bin/env python3
"""How long a cairn-ps takes from SIGTERM to its end if all its data is dirty and a worker pushes
continuously. terminationGracePeriodSeconds, KillWait and TimeoutStopSec are set from this time.
Verified: the directory holds all the data, with every acknowledged push.

usage: tests/bench/stop.py [--mib 1024]   # of values; Adagrad's slot is as much again
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402

FEATURES = 8192
WAIT = 600


def parts_of(mib):
    """Number of steps, of 64 MiB each, that touch all data once."""
    return max(2, mib // 64)


def write_job(folder, mib):
    hidden = mib * (1 << 20) // 4 // FEATURES
    # Each example uses one part of the features; together the examples use every row of the kernel.
    parts = parts_of(mib)
    with open(os.path.join(folder, "rows.libsvm"), "w", encoding="ascii") as f:
        for part in range(parts):
            f.write(" ".join([str(part % 2)] + [f"{i + 1}:0.1" for i in range(part, FEATURES, parts)])
                    + "\n")
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="ascii") as f:
        json.dump({"name": "large", "model": {"type": "mlp", "hidden": [hidden]},
                   "data": {"format": "libsvm", "features": FEATURES, "batch_size": 1,
                            "train": [os.path.join(folder, "rows.libsvm")], "epochs": 100000},
                   "optimizer": {"type": "adagrad", "learning_rate": 0.1}}, f)
    return path


def steps(path):
    try:
        with open(path, encoding="ascii") as f:
            return [json.loads(line)["step"] for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


def verified(found, mib, acknowledged):
    """Whether the directory holds the whole kernel, with every acknowledged push."""
    (kernel,) = [v for v in found["variables"] if v["name"] == "dense_0/kernel"]
    (worker,) = found["workers"]
    return (kernel["bytes"] == 2 * (mib << 20) and worker["sequence"] >= acknowledged
            and kernel["shards"][0]["version"] >= acknowledged)


def directory_bytes(folder):
    return sum(os.path.getsize(os.path.join(at, name))
               for at, _, names in os.walk(folder) for name in names)


def measure(folder, mib):
    job, metrics = write_job(folder, mib), os.path.join(folder, "steps.jsonl")
    budget = str((mib << 20) * 5 + (2 << 30))
    # Off, so that no epoch runs before the end. Under other durabilities a worker that retains half
    # a GiB of pushes requests an epoch, and the rows that it wrote would be clean.
    flags = ("--durability", "off", "--memory_budget_bytes", budget)
    with processes.Cluster(folder, 1, flags) as cluster:
        file = cluster.worker_file(1)
        with open(os.path.join(folder, "worker.log"), "wb") as log:
            worker = subprocess.Popen(processes.worker_command(
                job, file, 0, ["--metrics_file", metrics]), stdout=log, stderr=log)
        try:
            processes.wait_for(lambda: len(steps(metrics)) > 2 * parts_of(mib), WAIT,
                               "everything to be dirty")
            server = cluster.processes[0]
            begin = time.monotonic()
            server.send_signal(signal.SIGTERM)
            status = server.wait(WAIT)
            seconds = time.monotonic() - begin
        finally:
            worker.kill()
            worker.wait(60)
        acknowledged = steps(metrics)[-1] - 1  # before the last step began
        # The servers' files without the worker, which would send its retained pushes again.
        inspect = subprocess.run([processes.CTL, "inspect", "--json", "--data_dir",
                                  cluster.path("ps0")], capture_output=True, text=True,
                                 timeout=WAIT, check=True)
        on_disk = directory_bytes(cluster.path("ps0"))
    dirty = 2 * (mib << 20)
    return {"name": "stop", "seconds": round(seconds, 3), "dirty_bytes": dirty,
            "bytes_on_disk": on_disk,
            "gb_per_second": round(dirty / seconds / 1e9, 3), "steps": acknowledged,
            "verified": status == 0 and verified(json.loads(inspect.stdout), mib, acknowledged)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    mib = parser.parse_args().mib
    with tempfile.TemporaryDirectory(prefix="cairn-stop.") as folder:
        result = measure(folder, mib)
    print(json.dumps(result))
    return 0 if result["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
