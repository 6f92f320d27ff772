#!/usr/bin/python3
"""What the package `cairn` costs over the C++ client: calls of both, in turns, on the same two
servers. Prints a JSON line for each measure with its bar.

usage: CAIRN_BIN=build/ps_server CAIRN_LIBRARY=build/worker/capi/libcairn_client.so.0 \\
       PYTHONPATH=worker/python tests/bench/python_client.py build/tests/bench/client_loop"""
import json
import statistics
import subprocess
import sys
import time

import numpy as np

import cairn

TABLES, KEYS, DIM, WINDOWS, SMALL_CALLS, LARGE_CALLS, ROUNDS = \
    26, 1024, 16, 50, 100, 100, 5


def median_us(calls, call):
    took = []
    for i in range(calls + calls // 10):
        begin = time.perf_counter()
        call()
        if i >= calls // 10:
            took.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(took)


def measure(addresses, job):
    with cairn.connect(addresses, job=job, worker=0) as client:
        tables = [client.embedding(f"t{i}", DIM, optimizer=cairn.optim.Adagrad(0.01))
                  for i in range(TABLES)]
        one = np.zeros(1, np.int64)
        # As client_loop.cc: other programs on the machine only ever add to the least.
        small = min(median_us(SMALL_CALLS, lambda: tables[0].pull(one)) for _ in range(WINDOWS))
        keys = (np.arange(KEYS, dtype=np.int64) * 7919 + 13) % (KEYS * 4)
        gradients = np.full((TABLES, KEYS, DIM), 1e-6, np.float32)
        pushes = [(t, keys, g) for t, g in zip(tables, gradients)]
        client.push(pushes)
        values = np.empty((TABLES, KEYS, DIM), np.float32)
        pulls = [(t, keys, out) for t, out in zip(tables, values)]
        pull = median_us(LARGE_CALLS, lambda: client.pull(pulls))
        push = median_us(LARGE_CALLS, lambda: client.push(pushes))
    return {"small_us": small, "pull_us": pull, "push_us": push}


def main():
    with cairn.launch(servers=2, durability="off") as cluster:
        ours, theirs = [], []
        measure(cluster.addresses, "bench")
        for _ in range(ROUNDS):
            ours.append(measure(cluster.addresses, "bench"))
            theirs.append(json.loads(subprocess.run(
                [sys.argv[1], "bench", *cluster.addresses], check=True, capture_output=True,
                text=True).stdout))
    # The least of the rounds: other programs on the machine only ever add to it.
    python = {k: min(m[k] for m in ours) for k in ours[0]}
    native = {k: min(m[k] for m in theirs) for k in theirs[0]}
    overhead = python["small_us"] - native["small_us"]
    lines = [{"bench": "python_pull_64B", "python_us": python["small_us"],
              "cpp_us": native["small_us"], "overhead_us": overhead, "bar": 10,
              "pass": overhead <= 10}]
    for call in ("pull", "push"):
        ratio = native[call + "_us"] / python[call + "_us"]
        lines.append({"bench": f"python_{call}_26x1024x16", "python_us": python[call + "_us"],
                      "cpp_us": native[call + "_us"], "ratio": ratio, "bar": 0.85,
                      "pass": ratio >= 0.85})
    for line in lines:
        print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()}))
    return 0 if all(line["pass"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
