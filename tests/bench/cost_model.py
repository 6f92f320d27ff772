#!/usr/bin/env python3
"""Compares the cost model of ps_server/COST.md with measurements: the throughput of whole runs of a
linear model on loopback. Runs of one worker with one and with two servers give the constants: the
processor time of a step at the worker and at the servers, and the time of a step without
competition. They predict the throughput of more workers, which is then measured. One JSON line for
each size; `ratio` is predicted over measured (bar: 0.8 … 1.2). Each run checks that every example
read was trained.

usage: tests/bench/cost_model.py [--seconds 3] [--batch 128] [--workers 2,4]
"""
import argparse
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402

ROWS, FEATURES, SET = 8192, 123, 14
TICK = os.sysconf("SC_CLK_TCK")


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return time.process_time()


def cores():
    """Processor seconds per second that a run gets which asks for all cores."""
    count = 2 * os.cpu_count()
    with multiprocessing.Pool(count) as pool:
        pool.map(spin, [0.01] * count)
        before = sum(pool.map(spin, [0] * count, chunksize=1))
        start = time.monotonic()
        after = sum(pool.map(spin, [1.0] * count, chunksize=1))
        return min((after - before) / (time.monotonic() - start), os.cpu_count())


def write_data(path):
    rng = random.Random(1)
    with open(path, "w", encoding="ascii") as f:
        for _ in range(ROWS):
            features = sorted(rng.sample(range(1, FEATURES + 1), SET))
            f.write(rng.choice(["+1", "-1"]) + "".join(f" {i}:1" for i in features) + "\n")


def write_job(folder, data, batch, epochs):
    job = os.path.join(folder, "job.yaml")
    with open(job, "w", encoding="ascii") as f:
        f.write("name: cost\nmodel: {type: linear, loss: sigmoid_cross_entropy}\n"
                f"data:\n  format: libsvm\n  features: {FEATURES}\n  train: [{data}]\n"
                f"  batch_size: {batch}\n  epochs: {epochs}\n"
                "optimizer: {type: sgd, learning_rate: 0.05}\n")
    return job


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(data, servers, workers, batch, epochs):
    """Steps per second of all workers; processor seconds of a step at workers and at servers."""
    with tempfile.TemporaryDirectory(prefix="cairn-cost.") as folder:
        job = write_job(folder, data, batch, epochs)
        with processes.Cluster(folder, servers) as cluster:
            pids = [p.pid for p in cluster.processes]
            at_servers, at_workers = sum(map(processor_seconds, pids)), children_seconds()
            reports = processes.run_workers(job, cluster.worker_file(workers), workers)
            at_workers = children_seconds() - at_workers
            at_servers = sum(map(processor_seconds, pids)) - at_servers
    assert sum(r["examples"] for r in reports) == ROWS * epochs, reports
    steps = sum(r["steps"] for r in reports)
    return steps / max(r["seconds"] for r in reports), at_workers / steps, at_servers / steps


def predicted(workers, alone, processor, count):
    """Mean value analysis: workers that compute and wait on `count` cores, `processor` seconds a
    step, and otherwise pause for the rest of an undisturbed step."""
    pause, queue, rate = max(0.0, alone - processor), 0.0, 0.0
    for n in range(1, workers + 1):
        waiting = processor / count * (1 + queue)
        rate = n / (waiting + processor * (count - 1) / count + pause)
        queue = rate * waiting  # the average number of waiting calls (Little's law)
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", default="2,4")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-cost.") as folder:
        data = os.path.join(folder, "train.libsvm")
        write_data(data)
        rate, _, _ = run(data, 1, 1, flags.batch, 20)
        epochs = max(20, round(flags.seconds * rate * flags.batch / ROWS))
        count = cores()
        for servers in 1, 2:
            rate, worker, server = run(data, servers, 1, flags.batch, epochs)
            for workers in map(int, flags.workers.split(",")):
                model = predicted(workers, 1 / rate, worker + server, count)
                real, _, _ = run(data, servers, workers, flags.batch, epochs)
                print(json.dumps({
                    "bench": "cost_model", "servers": servers, "workers": workers,
                    "batch": flags.batch, "cores": round(count, 2),
                    "worker_us_per_step": round(worker * 1e6, 1),
                    "server_us_per_step": round(server * 1e6, 1),
                    "step_alone_us": round(1e6 / rate, 1),
                    "predicted_steps_per_second": round(model),
                    "measured_steps_per_second": round(real),
                    "ratio": round(model / real, 2), "bar": "0.8 … 1.2"},
                    ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
