#!/usr/bin/env python3
"""Examples per second of whole training runs against TensorFlow, Paddle and Vowpal Wabbit, in one run.

Cairn: the built cairn-ps and cairn-worker, two of each on loopback (the set-up of TensorFlow and
Paddle), or one worker with an in-process server (Vowpal Wabbit's). The rate includes reading and
parsing: of the first --seconds, from empty tables, and beside it the rate of the second half of the
run ("warm"). Peers: the scripts of peers/, each with the Python interpreter of a virtual environment
outside this repository (pip install tensorflow-cpu tf-keras; pip install vowpalwabbit; pip install
paddlepaddle==2.6.2 protobuf==4.25.3 setuptools "numpy<2"). Prints one JSON line for each row: the
rates, their ratios to the peers', the bars, and whether Cairn's run was verified (every step's loss
is finite, the last loss is below the first). For the models wide and wide26 the line also has the
rate of bench/roofline, measured just before.

The peers of wide and wide_deep look up all 26 keys of an example in one table of a million rows, and
so do these models. In wide26 and wide_deep26 each key column has a million rows of its own, so they
do more work than the peers beside them.

usage: tests/bench/throughput.py [--build build] [--tensorflow PYTHON] [--paddle PYTHON] [--vw PYTHON]
           [--models lr,mlp,wide,wide_deep,wide26,wide_deep26,alone] [--batches 128,1024] [--seconds 8] [--repeats 1]
           [--busy N]
--busy runs N loops that use a core each, at normal priority, beside every run.
"""
import argparse
import bisect
import contextlib
import gzip
import itertools
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
# (model, batch of each worker) -> minimum ratios to the rates of TensorFlow and Paddle. The peers of
# wide_deep train its deep part alone.
BARS = {("lr", 128): (10, None), ("lr", 1024): (5, None), ("mlp", 128): (2, None),
        ("wide", 128): (10, 8), ("wide", 1024): (4, 4),
        ("wide_deep", 128): (5, None), ("wide_deep", 1024): (3, None),
        ("wide26", 128): (None, None), ("wide26", 1024): (None, None),
        ("wide_deep26", 128): (None, None), ("wide_deep26", 1024): (None, None)}
VW_BARS = {128: 1, 1024: 2}
TENSORFLOW_NAMES = {"lr": "lr", "mlp": "mlp", "wide": "emb", "wide_deep": "emb", "wide26": "emb",
                    "wide_deep26": "emb"}
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
    kind = "mlp" if model in ("wide", "wide26") else "wide_deep"
    tables = "shared" if model.endswith("26") else "shared_vocabulary"
    return (f"name: {model}\nmodel: {{type: {kind}, hidden: [64], loss: sigmoid_cross_entropy, "
            f"tables: {tables}, embedding: {{dim: 16, hash_buckets: 1000000}}}}\n"
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


def rates(metrics, seconds):
    """Examples per second of one worker in its first `seconds`, and in the second half of its run."""
    with open(metrics, encoding="ascii") as f:
        steps = [json.loads(line) for line in f]
    ends = [0.0] + [step["seconds"] for step in steps]
    done = [0] + list(itertools.accumulate(step["examples"] for step in steps))
    first = bisect.bisect_right(ends, seconds) - 1
    middle = bisect.bisect_right(ends, ends[-1] / 2) - 1
    return done[first] / ends[first], (done[-1] - done[middle]) / (ends[-1] - ends[middle])


def run_cluster(build, folder, job_path, seconds):
    """As train, with the sums of the workers' rates: of the first `seconds`, and warm."""
    _, ok = train(build, folder, job_path)
    both = [rates(os.path.join(folder, f"metrics{i}.jsonl"), seconds) for i in range(2)]
    return sum(first for first, _ in both), sum(warm for _, warm in both), ok


def run_alone(build, folder, job_path):
    out = subprocess.run(
        [os.path.join(build, "worker", "cairn-worker"), "--job", job_path, "--set",
         f"storage.directory={os.path.join(folder, 'data')}", "--metrics_file",
         os.path.join(folder, "metrics.jsonl")], capture_output=True, text=True, timeout=600,
        check=True).stdout
    report = json.loads(out.splitlines()[-1])
    return report["examples_per_second"], verified(os.path.join(folder, "metrics.jsonl"))


def peer_rate(lines, command, environment=None):
    """The sum of the rates that a peer prints, one on each of `lines` lines."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                          env=environment)
    rates_of = [float(rate) for rate in re.findall(r"(\d+) examples/s", done.stdout)]
    if len(rates_of) != lines:
        sys.exit(f"{' '.join(command)} printed {len(rates_of)} rates, not {lines}; run it alone\n"
                 f"{done.stderr[-2000:]}")
    return sum(rates_of)


def tensorflow_rate(python, model, batch, seconds):
    if not python:
        return None
    return peer_rate(1, [python, os.path.join(PEERS, "tf_ps.py"), TENSORFLOW_NAMES[model],
                         str(batch), str(seconds)])


def paddle_rate(python, model, batch, seconds):
    if not python or not model.startswith("wide"):
        return None
    # It hides the reason of a failure unless it is asked for it.
    return peer_rate(2, [python, os.path.join(PEERS, "paddle_ps.py"), str(batch), str(seconds)],
                     {**os.environ, "LOUD": "1"})


def roofline_rate(build, batch, tables):
    out = subprocess.run([os.path.join(build, "tests", "bench", "roofline"), f"--batch={batch}",
                          f"--tables={tables}"], capture_output=True, text=True, timeout=600, check=True).stdout
    return json.loads(out)["examples_per_second"]


@contextlib.contextmanager
def busy_loops(count):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def vw_rate(python, data):
    out = subprocess.run([python, os.path.join(PEERS, "vw.py"), data],
                         capture_output=True, text=True, timeout=600).stdout
    return float(re.search(r"vw, 5 pass\(es\): (\d+)", out).group(1))


def row(name, batch, ours, peers, ok, **more):
    """`peers`: name -> (rate, bar), both None where unknown."""
    line = {"bench": name, "batch": batch, "examples_per_second": round(ours), **more}
    for peer, (rate, bar) in peers.items():
        line[peer] = {"examples_per_second": rate, "ratio": round(ours / rate, 2) if rate else None,
                      "bar": bar}
    print(json.dumps({**line, "verified": ok}), flush=True)


def epochs_for(model, batch):
    # Long enough for several seconds of training.
    return {"lr": 60 if batch == 128 else 150, "mlp": 4}.get(model, 12)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--tensorflow", help="python with tensorflow-cpu and tf-keras")
    parser.add_argument("--paddle", help="python with paddlepaddle 2.6.2")
    parser.add_argument("--vw", help="python with vowpalwabbit")
    parser.add_argument("--models", default="lr,mlp,wide,wide_deep,alone")
    parser.add_argument("--batches", default="128,1024")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    models = options.models.split(",")
    batches = [int(batch) for batch in options.batches.split(",")]
    with busy_loops(options.busy), tempfile.TemporaryDirectory() as folder:
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
        if any(model.startswith("wide") for model in models):
            write_wide(data["wide"])
        for repeat in range(options.repeats):
            for (model, batch), (tensorflow_bar, paddle_bar) in BARS.items():
                if model not in models or batch not in batches:
                    continue
                more = {}
                if model in ("wide", "wide26"):
                    more["roofline"] = roofline_rate(options.build, batch,
                                                     26 if model == "wide26" else 1)
                with tempfile.TemporaryDirectory(dir=folder) as run:
                    path = os.path.join(run, "job.yaml")
                    with open(path, "w", encoding="ascii") as f:
                        f.write(job(model, batch, epochs_for(model, batch), data))
                    ours, more["warm"], ok = run_cluster(options.build, run, path, options.seconds)
                peers = {"tensorflow": (tensorflow_rate(options.tensorflow, model, batch,
                                                        options.seconds), tensorflow_bar),
                         "paddle": (paddle_rate(options.paddle, model, batch, options.seconds),
                                    paddle_bar)}
                row(f"throughput {model}, 2 ps + 2 workers", batch, ours, peers, ok, **more)
            for batch, bar in VW_BARS.items():
                if "alone" not in models or batch not in batches:
                    continue
                with tempfile.TemporaryDirectory(dir=folder) as run:
                    path = os.path.join(run, "job.yaml")
                    with open(path, "w", encoding="ascii") as f:
                        f.write(job("lr", batch, 5, data))
                    ours, ok = run_alone(options.build, run, path)
                peer = vw_rate(options.vw, data["a9a"]) if options.vw else None
                row("throughput lr, one process", batch, ours, {"vw": (peer, bar)}, ok)


if __name__ == "__main__":
    main()
