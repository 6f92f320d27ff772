#!/usr/bin/env python3
"""Processor time of a wide model by stage, at the workers and at the servers: microseconds an
example, the part of them in the kernel, and the work that the stage has to do. Two servers and two
workers on loopback; the model is that of throughput.py (cairn-worker) or torch_wide.py (PyTorch).

The processes run with stack_sampler.cc preloaded; nothing is measured in a process without it. A
sample belongs to the stage of its innermost function that STAGES names. A process's samples are
scaled to its processor time. Start and end of the processes are a stage of their own.

usage: tests/bench/stages.py [--program worker|torch] [--batch 1024] [--build build]
                             [--seconds 8] (torch) [--rows 50000] [--epochs 8] (worker)
                             [--model wide|wide26|wide_deep|wide_deep26] (worker)
                             [--functions [STAGE]]
--functions also prints the innermost functions of a stage (default: of none of these), most
frequent first."""
import argparse
import bisect
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import throughput

TOP = throughput.TOP
KEYS, DIM, DENSE, HIDDEN = 26, 16, 13, 64

# Stages in the order of a step, each with the functions that belong to it. A frame has the first
# stage that matches; "library symbol" is matched.
STAGES = [
    # Python's import calls the import library's functions by PyObject_CallMethodObjArgs.
    ("start and end", r"^ld-linux|_dl_catch|PyImport_|PyInit_|Py_Finalize|libc\S* exit@|"
                      r"PyObject_CallMethodObjArgs|random_zipf|PsClient::Connect|cairn_connect"),
    ("read and parse", r"Parser::Parse|LineRows|TextRows|BatchReader|ReadAhead|PrefetchReader|InputFile"),
    ("hash and deduplicate", r"PlanKeys|KeyIndex|FindDistinct|_unique2"),
    ("finite check", r"FindNotFinite|FindBits"),
    ("gather", r"GatherTables|CopyRepeats|at::native::embedding\(|at::_ops::embedding::"),
    ("scatter", r"ScatterColumns|SumByPosition|AddRows|embedding_dense_backward|ScatterOnto"),
    ("products", r"blas|gemm|DenseForward|DenseBackward|(add)?mm_out_cpu"),
    ("retain", r"RetainPart|Retention|PushLedger|TakeDurable|RetainedPart"),
    ("store reply", r"DataPlan::(StoreReply|PlaceRows)|ScatterRows\(std::byte"),
    ("plan", r"CallPlanner|DataPlan::|GatherRows\(std::byte|cairn::capi::"),
    ("snapshot", r"librocksdb|Flusher|StripeBatch|RocksStore|RowSegment|DrainAhead|DrainContent"),
    ("group keys", r"KeyGroups::(Build|CountingSort|ComparisonSort|AreOf)|PulledRows::Find"),
    ("create rows", r"FoundOrMade|InitializeNumbers|InitializeRow|FillFrom|FindOrInsert|AddMemory|"
                    r"RowIndex::(Insert|MoveRows|Allocate)|ContinueGrowth|"
                    r"NormalQuantile"),
    ("look up", r"Row(Table|Index)::(Find|Prefetch)|CountAbsent|HostedTable::Locate"),
    ("mark changed", r"EmbeddingStripe::(Take|MarkDirty|ReserveDirty)|Stripe::Touch"),
    ("optimize", r"ApplyRows|ApplyOnce|ApplySummed|ApplyTaken|N_[A-Z0-9]+::Apply"),
    ("copy rows", r"CopyRow|PeekRow|ForEachWindow<|HostedTable::(Pull|Push)"),
    ("check", r"CheckRequest|ServerCore::Admit|Prepare(All|Gradient)|ResolveItem|UpdateOrder|"
              r"GuardedProcessor::Check"),
    ("send", r"(Stream|Transport)::(Send|Put|Flush|Write)|SendPending|sendmsg|libc\S* __send"),
    ("receive", r"(Stream|Transport)::(Receive|Take|Read|Move|Poll)|ReadSlowly|BriefSpin|recvmsg"),
    ("encode and decode", r"BulkProtocol|::read<|::write<|_send_|recv_|ProcessorT"),
    ("threads and waits", r"CallPool|ConnectionLoop|CondVar|Mutex|AwaitStep|blas_thread_server|"
                          r"Heartbeat|Evictor::Loop|Deliverer|FanOut"),
    ("rest of the step", r"Trainer|TrainLoop|StepPipeline|Mlp|OnCpu|StepView|RunMeter"),
    ("PyTorch's own operations", r"^libtorch|^libc10|_C\.|libtorch_python"),
    ("Python", r"^python3|_ctypes|^libffi|multiarray"),
]
# Stages of a sample only where none of its functions belongs to another.
OUTER = {"PyTorch's own operations", "Python"}
# Bytes of the dense variables: every step pulls and pushes them.
DENSE_BYTES = 4 * ((KEYS * DIM + DENSE) * HIDDEN + 2 * HIDDEN + 1)
# What a stage cannot do without, for an example of this model with `d` distinct keys and `w` bytes
# of dense variables.
WORK = {
    "read and parse": lambda d, w: "about 250 bytes of text",
    "hash and deduplicate": lambda d, w: f"{KEYS} keys",
    "gather": lambda d, w: f"{KEYS * DIM * 4} bytes copied",
    "products": lambda d, w: f"{6 * ((KEYS * DIM + DENSE) * HIDDEN + HIDDEN) / 1e6:.2f} MFLOP",
    "scatter": lambda d, w: f"{KEYS * DIM * 4} bytes added",
    "store reply": lambda d, w: f"{d * DIM * 4 + w:.0f} bytes copied",
    "retain": lambda d, w: f"{d * (DIM * 4 + 8) + w:.0f} bytes copied",
    "finite check": lambda d, w: f"{d * DIM * 4 + w:.0f} bytes read",
    "send": lambda d, w: (f"{d * (DIM * 4 + 16) + w:.0f} bytes from a worker, "
                          f"{d * DIM * 4 + w:.0f} back"),
    "look up": lambda d, w: f"{2 * d:.1f} rows",
    "copy rows": lambda d, w: f"{d * DIM * 4 + w:.0f} bytes copied",
    "optimize": lambda d, w: f"{2 * (d * DIM * 4 + w):.0f} bytes read and written",
}
KERNEL = re.compile(r"^libc\S* (__)?(send|recv|sendmsg|recvmsg|read|write|pread|pwrite|poll|futex|"
                    r"epoll_wait|epoll_ctl|open|close|mmap|munmap|madvise|fsync|fdatasync|"
                    r"sched_yield|syscall|clone|ioctl|stat|fstatat|brk)")


class Functions:
    """The functions of an ELF file by their place in it."""

    def __init__(self, path):
        found = {}
        for dynamic in ([], ["-D"]):  # stripped libraries have only those that they export
            listed = subprocess.run(["nm", "-CS", "--defined-only", *dynamic, path],
                                    capture_output=True, text=True, check=False).stdout
            for line in listed.splitlines():
                parts = line.split(" ", 3)
                if len(parts) == 4 and parts[2] in "tTwWiuV":
                    found.setdefault(int(parts[0], 16), (int(parts[1], 16), parts[3]))
        self.starts = sorted(found)
        self.found = [found[start] for start in self.starts]
        headers = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True,
                                 check=False).stdout
        self.segments = [tuple(int(part, 16) for part in (fields[1], fields[2], fields[4]))
                         for fields in map(str.split, headers.splitlines())
                         if fields[:1] == ["LOAD"]]

    def name(self, offset):
        address = next((offset - at + to for at, to, size in self.segments
                        if at <= offset < at + size), offset)
        index = bisect.bisect_right(self.starts, address) - 1
        if index < 0 or address >= self.starts[index] + self.found[index][0]:
            return "?"
        return self.found[index][1]


class Process:
    """The samples of one process."""

    files = {}

    def __init__(self, stacks):
        with open(stacks[:-len("stacks")] + "maps", encoding="utf-8") as file:
            self.seconds, self.faults = map(float, file.readline().split())
            mapped = [line.split() for line in file]
        self.maps = [(*(int(x, 16) for x in m[0].split("-")), int(m[2], 16), m[5])
                     for m in mapped if "x" in m[1] and len(m) > 5]
        self.starts = [m[0] for m in self.maps]
        self.program = os.path.basename(next((m[5] for m in mapped if len(m) > 5), "?"))
        self.names = {}
        with open(stacks, "rb") as file:
            words = memoryview(file.read()).cast("Q")
        self.stacks, at = [], 0
        while at < len(words) and words[at]:
            self.stacks.append(words[at + 1:at + 1 + words[at]].tolist())
            at += words[at] + 1

    def name(self, address):
        """"library symbol" of an address."""
        if address not in self.names:
            self.names[address] = self.find(address)
        return self.names[address]

    def find(self, address):
        index = bisect.bisect_right(self.starts, address) - 1
        if index < 0 or address >= self.maps[index][1]:
            return "? ?"
        start, _, offset, path = self.maps[index]
        if not path.startswith("/"):
            return f"{path} ?"
        if path not in self.files:
            self.files[path] = Functions(path)
        return f"{os.path.basename(path)} {self.files[path].name(address - start + offset)}"

    def frames(self, stack):
        """Innermost first. Return addresses are those after the calls."""
        return [self.name(address - (depth > 0)) for depth, address in enumerate(stack)]


def stage_of(name, known={}):
    if name not in known:
        known[name] = next((stage for stage, functions in PATTERNS if functions.search(name)), None)
    return known[name]


PATTERNS = [(stage, re.compile(functions)) for stage, functions in STAGES]


def account(processes):
    """Seconds, of them in the kernel, by stage; and those of the innermost functions, by stage."""
    seconds, kernel = collections.Counter(), collections.Counter()
    innermost = collections.defaultdict(collections.Counter)
    for process in processes:
        scale = process.seconds / max(1, len(process.stacks))
        for stack in process.stacks:
            frames = process.frames(stack)
            stages = [stage for stage in map(stage_of, frames) if stage]
            named = [stage for stage in stages if stage not in OUTER]
            stage = "start and end" if "start and end" in stages else \
                (named or stages or ["other"])[0]
            seconds[stage] += scale
            if KERNEL.search(frames[0]):
                kernel[stage] += scale
            innermost[stage][frames[0]] += scale
    return seconds, kernel, innermost


def run_worker(options, folder):
    data = {"wide": os.path.join(folder, "wide.tsv")}
    throughput.write_wide(data["wide"], options.rows)
    job = os.path.join(folder, "job.yaml")
    with open(job, "w", encoding="ascii") as file:
        file.write(throughput.job(options.model, options.batch, options.epochs, data))
    with_sampler(options, folder, os.environ)
    reports, verified = throughput.train(options.build, folder, job)
    if not verified:
        sys.exit("stages.py: a loss is not finite, or did not fall")
    return sum(report["examples"] for report in reports)


def run_torch(options, folder):
    environment = {**os.environ, "CAIRN_BIN": os.path.join(options.build, "ps_server"),
                   "PYTHONPATH": os.path.join(TOP, "worker", "python"),
                   "CAIRN_LIBRARY": os.path.join(options.build, "worker", "capi",
                                                 "libcairn_client.so.0")}
    with_sampler(options, folder, environment)
    ended = subprocess.run(
        [sys.executable, os.path.join(TOP, "tests", "bench", "torch_wide.py"), "--batch",
         str(options.batch), "--seconds", str(options.seconds), "--repeats", "1"],
        env=environment, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout.splitlines()[0])["examples"]


def with_sampler(options, folder, environment):
    environment["CAIRN_SAMPLES"] = folder
    environment["LD_PRELOAD"] = os.path.join(options.build, "tests", "bench", "libstack_sampler.so")


def distinct_share(batch, tables):
    """Distinct keys of a batch over its keys, where the columns have so many tables."""
    rng = throughput.random.Random(0)
    keys = batch * KEYS // tables  # of a table
    distinct = sum(len({throughput.zipf(rng, 1.1) * 2654435761 % 1_000_000 for _ in range(keys)})
                   for _ in range(tables))
    return distinct / (batch * KEYS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=("worker", "torch"), default="worker")
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--model", default="wide",
                        choices=("wide", "wide26", "wide_deep", "wide_deep26"))
    parser.add_argument("--functions", metavar="STAGE", nargs="?", const="other",
                        choices=[*(name for name, _ in STAGES), "other"])
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    with tempfile.TemporaryDirectory() as folder:
        run = run_worker if options.program == "worker" else run_torch
        examples = run(options, folder)
        for name in ("LD_PRELOAD", "CAIRN_SAMPLES"):
            os.environ.pop(name, None)
        sampled = [Process(path) for path in glob.glob(os.path.join(folder, "*.stacks"))
                   if os.path.exists(path[:-len("stacks")] + "maps")]
        servers = [p for p in sampled if p.program == "cairn-ps"]
        columns = [account([p for p in sampled if p not in servers]), account(servers)]
    # Each column has rows of its own in wide26 and wide_deep26.
    own = options.program == "worker" and options.model.endswith("26")
    distinct = KEYS * distinct_share(options.batch, KEYS if own else 1)
    print(f"{examples} examples in batches of {options.batch}; µs an example (in the kernel)\n")
    print("| stage | workers | servers | work |\n|---|---|---|---|")

    def cell(column, stage):
        micros, kernel = (column[i][stage] * 1e6 / examples for i in (0, 1))
        return "" if micros == 0 else f"{micros:.2f}" + (f" ({kernel:.2f})" if kernel > 0 else "")

    for stage in [*(name for name, _ in STAGES), "other"]:
        cells = [cell(column, stage) for column in columns]
        if any(cells):
            work = WORK.get(stage, lambda d, w: "")(distinct, DENSE_BYTES / options.batch)
            print(f"| {stage} | {cells[0]} | {cells[1]} | {work} |")
    totals = [sum(column[0].values()) - column[0]["start and end"] for column in columns]
    print(f"| together, without start and end | {totals[0] * 1e6 / examples:.2f} | "
          f"{totals[1] * 1e6 / examples:.2f} | |")
    faults = [sum(p.faults for p in sampled if (p in servers) == are) for are in (False, True)]
    print(f"| page faults, thousandths | {faults[0] * 1e3 / examples:.1f} | "
          f"{faults[1] * 1e3 / examples:.1f} | |")
    if options.functions:
        for name, column in zip(("workers", "servers"), columns):
            for function, seconds in column[2][options.functions].most_common(20):
                print(f"{name}: {seconds * 1e6 / examples:.3f} {function}")


if __name__ == "__main__":
    main()
