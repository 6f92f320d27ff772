#!/usr/bin/env python3
"""How soon workers continue after a server was killed (kill -9), while two servers and two workers
train wide & deep on click logs with 26 embedding tables.

Prints one JSON line: the seconds from the restarted server's first accepted call to every worker's
next steps (the worst of the kills, and each; workers write their metrics in blocks of some 60 steps,
which are included), the server's load times, and the pushes that workers retained and sent again.
Verified: only the killed server was restarted, and all examples of the run were trained once.

usage: tests/bench/recovery.py [--build build] [--kills 5] [--rows 200000]
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BAR_SECONDS = 2
EPOCHS = 20
BATCH = 128


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args()
    os.environ["CAIRN_PS"] = os.path.join(options.build, "ps_server", "cairn-ps")
    os.environ["CAIRN_WORKER"] = os.path.join(options.build, "worker", "cairn-worker")
    sys.path.insert(0, os.path.join(TOP, "tests", "support"))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options, folder)))


def measure(options, folder):
    import processes  # reads the environment
    rows = os.path.join(folder, "train.tsv")
    subprocess.run([os.path.join(options.build, "examples", "clicks", "cairn-make-clicks"), "--rows",
                    str(options.rows), "--seed", "1", "--out", rows], check=True,
                   stdout=subprocess.DEVNULL)
    job = os.path.join(folder, "job.yaml")
    with open(job, "w", encoding="ascii") as f:
        json.dump({"model": {"type": "wide_deep", "hidden": [64],
                             "embedding": {"dim": 16, "vocabulary": "dynamic"}},
                   "data": {"format": "criteo_tsv", "train": [rows], "batch_size": BATCH,
                            "epochs": EPOCHS},
                   "optimizer": {"type": "adagrad", "learning_rate": 0.05}}, f)
    metrics = [os.path.join(folder, f"metrics{i}") for i in range(2)]

    def sizes():
        return [os.path.getsize(path) if os.path.exists(path) else 0 for path in metrics]

    with processes.Cluster(folder, 2, ["--snapshot_interval_seconds=1"]) as cluster:
        file = cluster.worker_file(2)
        logs = [open(os.path.join(folder, f"worker{i}.log"), "w", encoding="utf-8")
                for i in range(2)]
        workers = [subprocess.Popen(
            processes.worker_command(job, file, i, ["--metrics_file", metrics[i]]),
            stdout=subprocess.PIPE, stderr=logs[i], text=True) for i in range(2)]
        try:
            # The first epoch creates the tables' rows.
            wait(processes, workers, sizes, [1 << 16] * 2)
            loads, recoveries = [], []
            for kill in range(options.kills):
                wait(processes, workers, sizes, [size + (1 << 16) for size in sizes()])
                victim = kill % 2
                cluster.stop(victim)
                at_kill = sizes()
                started = time.monotonic()
                cluster.spawn(victim, cluster.addresses[victim])
                cluster.wait_until_ready(victim)
                ready = time.monotonic()
                wait(processes, workers, sizes, [size + 1 for size in at_kill])
                loads.append(ready - started)
                recoveries.append(time.monotonic() - ready)
            reports = [json.loads(w.communicate(timeout=600)[0].splitlines()[-1]) for w in workers]
            starts = [len(re.findall("serves on", cluster.log(i))) for i in range(2)]
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
                worker.wait()
            for log in logs:
                log.close()
    kills_of = [(options.kills + 1) // 2, options.kills // 2]
    verified = (sum(r["examples"] for r in reports) == EPOCHS * options.rows
                and starts == [1 + kills for kills in kills_of])
    return {"bench": "recovery after kill -9 of a server, 2 servers and 2 workers",
            "kills": options.kills, "worst_seconds": round(max(recoveries), 3),
            "seconds": [round(s, 3) for s in recoveries],
            "load_seconds": [round(s, 3) for s in loads],
            "retained_bytes_max": max(r["retained_bytes_max"] for r in reports),
            "replayed_pushes": sum(r["replayed_pushes"] for r in reports),
            "replayed_bytes": sum(r["replayed_bytes"] for r in reports),
            "replay_seconds": max(r["replay_seconds"] for r in reports),
            "bar": BAR_SECONDS, "met": max(recoveries) <= BAR_SECONDS, "verified": verified}


def wait(processes, workers, sizes, wanted):
    """Waits until every metrics file has grown to `wanted`, or a worker has ended."""
    processes.wait_for(lambda: any(w.poll() is not None for w in workers) or
                       all(size >= want for size, want in zip(sizes(), wanted)), 300, "steps")
    if any(w.poll() is not None for w in workers):
        raise SystemExit("a worker ended before the last kill: raise --rows")


if __name__ == "__main__":
    main()
