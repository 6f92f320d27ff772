#!/usr/bin/env python3
"""Examples per second of whole training runs against TensorFlow and Vowpal Wabbit, in one run.

Cairn: the built cairn-ps and cairn-worker, two of each on loopback (TensorFlow's set-up), or one
worker with an in-process server (Vowpal Wabbit's); the rate is the sum of the workers' reports,
including reading and parsing. Peers: the scripts of peers/, each with the Python interpreter of a
virtual environment outside this repository (pip install tensorflow-cpu tf-keras; pip install
vowpalwabbit). Prints one JSON line for each row: the rates, their ratio, the bar, and whether Cairn's
run was verified (every step's loss is finite, the last loss is below the first).

usage: tests/bench/throughput.py [--build build] [--tensorflow PYTHON] [--vw PYTHON]
                                 [--models lr,mlp,wide] [--seconds 8] [--repeats 1]
"""
import argparse
import gzip
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402

TOP = processes.TOP
PEERS = os.path.join(TOP, "tests", "bench", "peers")
# (model, batch of each worker) -> minimum ratio to TensorFlow's rate.
BARS = {("lr", 128): 10, ("lr", 1024): 5, ("mlp", 128): 2, ("wide", 128): 5, ("wide", 1024): 3}
VW_BARS = {128: 1, 1024: 2}
TENSORFLOW_NAMES = {"lr": "lr", "mlp": "mlp", "wide": "emb"}
WIDE_ROWS = 200_000


def job(model, batch, epochs, data):
    """A job file's text; every path in `data` is absolute."""
    tail = f"\n  batch_size: {batch}\n  epochs: {epochs}\n"
    if model == "lr":
        return ("name: lr\nmodel: {type: linear, loss: sigmoid_cross_entropy}\n"
                f"data:\n  format: libsvm\n  features: 123\n  train: [{data['a9a']}]" + tail +
                "optimizer: {type: sgd, learning_rate: 0.05}\n")
    if model == "mlp":
        return ("name: mlp\nmodel: {type: mlp, hidden: [128], classes: 10, "
                "loss: softmax_cross_entropy}\n"
                f"data:\n  format: idx\n  train: [{{images: {data['images']}, "
                f"labels: {data['labels']}}}]" + tail +
                "optimizer: {type: sgd, learning_rate: 0.05}\n")
    return ("name: wide\nmodel: {type: mlp, hidden: [64], loss: sigmoid_cross_entropy, "
            "embedding: {dim: 16, hash_buckets: 1000000}}\n"
            f"data:\n  format: criteo_tsv\n  train: [{data['wide']}]" + tail +
            "optimizer: {type: adagrad, learning_rate: 0.05}\n")


def zipf(rng, exponent):
    """Devroye's rejection sampler of the Zipf distribution, as numpy's."""
    b = 2.0 ** (exponent - 1.0)
    while True:
        u, v = 1.0 - rng.random(), rng.random()
        x = math.floor(u ** (-1.0 / (exponent - 1.0))) if u > 1e-12 else 10 ** 12
        x = min(x, 10 ** 12)
        t = (1.0 + 1.0 / x) ** (exponent - 1.0)
        if v * x * (t - 1.0) / (b - 1.0) <= t / b:
            return int(x)


def write_wide(path, rows=WIDE_ROWS):
    """Rows of tf_ps.py's `emb` shape in Criteo's format: 26 keys of one million, Zipf(1.1)."""
    rng = random.Random(0)
    with open(path, "w", encoding="ascii") as f:
        for _ in range(rows):
            keys = [f"{zipf(rng, 1.1) * 2654435761 % 1_000_000:08x}" for _ in range(26)]
            dense = [str(rng.randrange(100)) for _ in range(13)]
            f.write("\t".join([str(rng.randrange(2)), *dense, *keys]) + "\n")


def verified(metrics):
    """Loss of every step finite, and lower at the end than at the start."""
    with open(metrics, encoding="ascii") as f:
        losses = [json.loads(line)["loss"] for line in f]
    tenth = max(1, len(losses) // 10)
    return (all(math.isfinite(x) for x in losses) and
            sum(losses[-tenth:]) <= sum(losses[:tenth]) * 1.02)


def train(build, folder, job_path):
    """Two servers, two workers; the workers' reports, and whether the run is verified."""
    tasks = addresses.own_addresses(4)
    cluster = os.path.join(folder, "cluster.yaml")
    with open(cluster, "w", encoding="ascii") as f:
        f.write("cluster:\n  ps: [" + ", ".join(f'"{a}"' for a in tasks[:2]) +
                "]\n  worker: [" + ", ".join(f'"{a}"' for a in tasks[2:]) + "]\n")
    servers, workers = [], []
    try:
        for i in range(2):
            servers.append(subprocess.Popen(
                [os.path.join(build, "ps_server", "cairn-ps"), "--cluster", cluster,
                 "--task_index", str(i), "--data_dir", os.path.join(folder, f"ps{i}")],
                stderr=subprocess.DEVNULL))
        for i in range(2):
            workers.append(subprocess.Popen(
                [os.path.join(build, "worker", "cairn-worker"), "--job", job_path, "--cluster",
                 cluster, "--task_type", "worker", "--task_index", str(i), "--metrics_file",
                 os.path.join(folder, f"metrics{i}.jsonl")],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        reports = []
        for worker in workers:
            out, err = worker.communicate(timeout=600)
            if worker.returncode != 0:
                sys.exit(f"cairn-worker failed:\n{err[-2000:]}")
            reports.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in workers + servers:
            if process.poll() is None:
                process.terminate()
        for process in workers + servers:
            process.wait(60)
    ok = all(verified(os.path.join(folder, f"metrics{i}.jsonl")) for i in range(2))
    return reports, ok


def run_cluster(build, folder, job_path):
    """As train, with the sum of the workers' rates."""
    reports, ok = train(build, folder, job_path)
    return sum(r["examples_per_second"] for r in reports), ok


def run_alone(build, folder, job_path):
    out = subprocess.run(
        [os.path.join(build, "worker", "cairn-worker"), "--job", job_path, "--set",
         f"storage.directory={os.path.join(folder, 'data')}", "--metrics_file",
         os.path.join(folder, "metrics.jsonl")], capture_output=True, text=True, timeout=600,
        check=True).stdout
    report = json.loads(out.splitlines()[-1])
    return report["examples_per_second"], verified(os.path.join(folder, "metrics.jsonl"))


def tensorflow_rate(python, model, batch, seconds):
    if not python:
        return None
    out = subprocess.run([python, os.path.join(PEERS, "tf_ps.py"),
                          TENSORFLOW_NAMES[model], str(batch), str(seconds)],
                         capture_output=True, text=True, timeout=600).stdout
    match = re.search(r"(\d+) examples/s", out)
    return float(match.group(1)) if match else None


def vw_rate(python, data):
    out = subprocess.run([python, os.path.join(PEERS, "vw.py"), data],
                         capture_output=True, text=True, timeout=600).stdout
    return float(re.search(r"vw, 5 pass\(es\): (\d+)", out).group(1))


def row(name, batch, ours, peer, bar, ok):
    line = {"bench": name, "batch": batch, "examples_per_second": round(ours), "peer": peer,
            "ratio": round(ours / peer, 2) if peer else None, "bar": bar, "verified": ok}
    print(json.dumps(line), flush=True)


def epochs_for(model, batch):
    # Long enough for several seconds of training.
    return {"lr": 60 if batch == 128 else 150, "mlp": 4, "wide": 4 if batch == 128 else 8}[model]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--tensorflow", help="python with tensorflow-cpu and tf-keras")
    parser.add_argument("--vw", help="python with vowpalwabbit")
    parser.add_argument("--models", default="lr,mlp,wide,alone")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    models = options.models.split(",")
    with tempfile.TemporaryDirectory() as folder:
        data = {"a9a": os.path.join(folder, "a9a.libsvm"), "wide": os.path.join(folder, "wide.tsv")}
        # Uncompressed, since every peer can read that.
        with open(data["a9a"], "w", encoding="ascii") as target:
            target.writelines(processes.read_lines(processes.data("a9a/train.libsvm")))
        for part, rank in (("images", 3), ("labels", 1)) if "mlp" in models else ():
            packed = processes.data(f"mnist/train-{part}-idx{rank}-ubyte.gz")
            if packed is None:
                sys.exit("the model mlp needs MNIST: run examples/data/get.py mnist, or leave it out "
                         "with --models lr,wide,alone")
            data[part] = os.path.join(folder, part)
            with gzip.open(packed) as source, open(data[part], "wb") as target:
                target.write(source.read())
        if "wide" in models:
            write_wide(data["wide"])
        for repeat in range(options.repeats):
            for (model, batch), bar in BARS.items():
                if model not in models:
                    continue
                with tempfile.TemporaryDirectory(dir=folder) as run:
                    path = os.path.join(run, "job.yaml")
                    with open(path, "w", encoding="ascii") as f:
                        f.write(job(model, batch, epochs_for(model, batch), data))
                    ours, ok = run_cluster(options.build, run, path)
                peer = tensorflow_rate(options.tensorflow, model, batch, options.seconds)
                row(f"throughput {model}, 2 ps + 2 workers, vs TensorFlow", batch, ours, peer,
                    bar, ok)
            for batch, bar in VW_BARS.items():
                if "alone" not in models:
                    continue
                with tempfile.TemporaryDirectory(dir=folder) as run:
                    path = os.path.join(run, "job.yaml")
                    with open(path, "w", encoding="ascii") as f:
                        f.write(job("lr", batch, 5, data))
                    ours, ok = run_alone(options.build, run, path)
                peer = vw_rate(options.vw, data["a9a"]) if options.vw else None
                row("throughput lr, one process, vs Vowpal Wabbit", batch, ours, peer, bar, ok)


if __name__ == "__main__":
    main()
