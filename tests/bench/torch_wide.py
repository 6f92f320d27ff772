#!/usr/bin/python3
"""The wide model in PyTorch on Cairn beside TensorFlow's ParameterServerStrategy and Paddle's fleet,
in one run and in turns: 26 keys (Zipf, 1 million ids) in a table of dim 16, 13 dense columns, an MLP
of 64; 2 servers, 2 asynchronous workers, data in memory. Prints the rates and the processor time of
a worker's step, and a JSON line for each peer with the ratio and its bar. Losses are finite and
fall, or the run fails.

usage: CAIRN_BIN=build/ps_server CAIRN_LIBRARY=build/worker/capi/libcairn_client.so.0 \\
       PYTHONPATH=worker/python tests/bench/torch_wide.py [--batch 1024] [--seconds 8] [--repeats 2]
       [--tensorflow PYTHON] [--paddle PYTHON]     interpreters that have them (CONTRIBUTING.md)"""
import argparse
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time

# OpenBLAS has threads of its own, which poll for work whatever torch.set_num_threads says; the
# workers of this machine share its cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch

import cairn
import cairn.torch

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
BARS = {"tensorflow": 1.5, "paddle": 2.0}
KEYS, DENSE, DIM, IDS, WORKERS, WARM_STEPS = 26, 13, 16, 1_000_000, 2, 20


class Wide(torch.nn.Module):
    def __init__(self, client):
        super().__init__()
        self.table = cairn.torch.Embedding(client, "table", DIM,
                                           optimizer=cairn.optim.Adagrad(0.05),
                                           initializer=cairn.init.Normal(stddev=0.01))
        self.top = torch.nn.Sequential(torch.nn.Linear(KEYS * DIM + DENSE, 64), torch.nn.ReLU(),
                                       torch.nn.Linear(64, 1))

    def forward(self, keys, dense):
        rows = self.table(keys).reshape(len(keys), -1)
        return self.top(torch.cat([rows, dense], 1))[:, 0]


def batches(index, size):
    """16 batches, again and again, as tf_ps.py and paddle_ps.py have them in memory. Labels depend
    on the dense columns, so that the loss can fall."""
    rng = np.random.default_rng(index)
    made = []
    for _ in range(16):
        keys = np.minimum(rng.zipf(1.1, (size, KEYS)), 10**12) * 2654435761 % IDS
        dense = rng.random((size, DENSE), np.float32)
        made.append((torch.from_numpy(keys.astype(np.int64)), torch.from_numpy(dense),
                     torch.from_numpy((dense.sum(1) > DENSE / 2).astype(np.float32))))
    while True:
        yield from made


def train(index, servers, batch, seconds, barrier, queue):
    torch.set_num_threads(1)
    torch.manual_seed(index)
    with cairn.connect(servers, job="wide", worker=index, workers=WORKERS) as client:
        model = Wide(client)
        optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.Adagrad(0.05))
        losses, begin, used, step = [], 0.0, 0.0, 0
        ahead = cairn.torch.prefetch(batches(index, batch), {model.table: lambda b: b[0]})
        for step, (keys, dense, labels) in enumerate(ahead):
            if step == WARM_STEPS:
                barrier.wait(60)
                begin, used = time.monotonic(), time.process_time()
            elif step > WARM_STEPS and time.monotonic() - begin > seconds:
                break
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(keys, dense), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step(position=str(step))
            losses.append(loss.detach())
        took, used = time.monotonic() - begin, time.process_time() - used
    values = torch.stack(losses)
    fell = values[-10:].mean() < values[:10].mean()
    steps = step - WARM_STEPS
    queue.put((steps * batch / took, used / steps, step * batch,
               bool(values.isfinite().all() and fell)))


def measure_cairn(options):
    spawn = multiprocessing.get_context("spawn")
    with cairn.launch(servers=2) as cluster:
        queue, barrier = spawn.Queue(), spawn.Barrier(WORKERS)
        workers = [spawn.Process(target=train, args=(i, cluster.addresses, options.batch,
                                                     options.seconds, barrier, queue))
                   for i in range(WORKERS)]
        for worker in workers:
            worker.start()
        results = [queue.get(timeout=options.seconds + 120) for _ in workers]
        for worker in workers:
            worker.join()
    rates, seconds, examples, verified = zip(*results)
    if not all(verified):
        sys.exit("torch_wide.py: a loss is not finite, or did not fall")
    print(json.dumps({"worker_processor_ms_per_step": round(statistics.mean(seconds) * 1e3, 2),
                      "examples": sum(examples)}), flush=True)
    return sum(rates)


def measure_peer(name, python, options):
    batch, seconds = str(options.batch), str(options.seconds)
    command = {"tensorflow": ["tf_ps.py", "emb", batch, seconds],
               "paddle": ["paddle_ps.py", batch, seconds, "2", str(WORKERS), "0"]}[name]
    ended = subprocess.run([python, os.path.join(PEERS, command[0]), *command[1:]],
                           capture_output=True, text=True, check=False, timeout=600,
                           env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    rates = [float(rate) for rate in re.findall(r"(\d+) examples/s", ended.stdout)]
    if not rates:
        sys.exit(f"torch_wide.py: {name} printed no rate:\n{ended.stdout}{ended.stderr[-2000:]}")
    return sum(rates)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tensorflow")
    parser.add_argument("--paddle")
    options = parser.parse_args()
    peers = [(name, getattr(options, name)) for name in BARS if getattr(options, name)]
    rates = {name: [] for name in ["cairn", *(name for name, _ in peers)]}
    for _ in range(options.repeats):
        for name, python in [("cairn", ""), *peers]:
            rate = measure_peer(name, python, options) if python else measure_cairn(options)
            rates[name].append(rate)
            print(json.dumps({"program": name, "examples_per_second": round(rate)}), flush=True)
    ours, passed = statistics.median(rates["cairn"]), True
    for name, _ in peers:
        ratio = ours / statistics.median(rates[name])
        passed = passed and ratio >= BARS[name]
        print(json.dumps({"bench": f"torch_wide_{options.batch}", "peer": name,
                          "ratio": round(ratio, 2), "bar": BARS[name],
                          "pass": ratio >= BARS[name]}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
