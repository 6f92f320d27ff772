"""Real cairn-ps and cairn-worker processes for tests: every one is ended by its context manager.

The programs come from $CAIRN_PS and $CAIRN_WORKER, which Meson sets; data sets from $CAIRN_DATA or
examples/data."""
import glob
import gzip
import json
import os
import select
import signal
import struct
import subprocess
import tempfile
import threading
import time

import addresses

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DATA = os.path.abspath(os.environ.get("CAIRN_DATA") or os.path.join(TOP, "examples", "data"))
PS = os.environ.get("CAIRN_PS", os.path.join(TOP, "build", "ps_server", "cairn-ps"))
WORKER = os.environ.get("CAIRN_WORKER", os.path.join(TOP, "build", "worker", "cairn-worker"))
CTL = os.environ.get("CAIRNCTL", os.path.join(TOP, "build", "worker", "ctl", "cairnctl"))
START_SECONDS = 60


def data(*parts):
    """A data set's directory or file, or None if it is missing; "x" also finds "x.gz"."""
    path = os.path.join(DATA, *parts)
    return next((p for p in (path, path + ".gz") if os.path.exists(p)), None)


def read_lines(path):
    """The lines of a text file, which may be compressed (.gz)."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="ascii") as f:
        return f.readlines()


def golden(name):
    """A golden file's path, or None: from $CAIRN_GOLDEN, or else tests/golden/data."""
    folder = os.environ.get("CAIRN_GOLDEN") or os.path.join(TOP, "tests", "golden", "data")
    path = os.path.join(folder, name)
    return path if os.path.exists(path) else None


def wait_for(condition, seconds, what):
    """Returns condition()'s first true value; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        select.select([], [], [], 0.005)  # lets the other processes run


def read_line(process, stream, seconds=60):
    """The next line of an output of `process`; kills the process if none comes in time."""
    killer = threading.Timer(seconds, process.kill)
    killer.start()
    try:
        return stream.readline()
    finally:
        killer.cancel()


def gone(pid):
    """Whether a process has ended, although perhaps nobody has asked for its status yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Cluster:
    """`count` cairn-ps processes on addresses of this test, with data below `folder`."""

    def __init__(self, folder, count, flags=()):
        self.folder, self.count, self.flags = folder, count, list(flags)
        self.processes, self.addresses = [None] * count, [None] * count

    def __enter__(self):
        for index in range(self.count):
            self.spawn(index)
        for index in range(self.count):
            self.wait_until_ready(index)
        return self

    @classmethod
    def of_class(cls, tests, count, flags=()):
        """Servers for all tests of the class `tests`, on a folder of their own; call it in
        setUpClass."""
        folder = tempfile.TemporaryDirectory()
        tests.addClassCleanup(folder.cleanup)
        cluster = cls(folder.name, count, flags)
        tests.addClassCleanup(cluster.__exit__)
        return cluster.__enter__()

    def __exit__(self, *_):
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.kill()
        for process in self.processes:
            if process is not None:
                process.wait(START_SECONDS)

    def path(self, name):
        return os.path.join(self.folder, name)

    def log(self, index):
        with open(self.path(f"ps{index}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def reach(self, index):
        """Makes room for a server `index`, which the original servers do not know."""
        more = index + 1 - len(self.processes)
        self.processes += [None] * more
        self.addresses += [None] * more

    def first_addresses(self):
        """The addresses of the original servers."""
        return ",".join(self.addresses[:self.count])

    def spawn(self, index, address=None):
        """Starts server `index` without waiting for it, by default on a new address."""
        cluster, port_file = self.path(f"ps{index}.yaml"), self.path(f"ps{index}.port")
        tasks = [addresses.nobodys_address(i + 1) for i in range(max(self.count, index + 1))]
        tasks[index] = address or addresses.own_address()
        with open(cluster, "w", encoding="ascii") as f:
            json.dump({"cluster": {"ps": tasks}}, f)
        if os.path.exists(port_file):
            os.unlink(port_file)
        with open(self.path(f"ps{index}.log"), "ab") as log:
            self.processes[index] = subprocess.Popen(
                [PS, "--cluster", cluster, "--task_index", str(index), "--data_dir",
                 self.path(f"ps{index}"), "--port_file", port_file, *self.flags],
                stdout=log, stderr=log)

    def wait_until_ready(self, index):
        port_file = self.path(f"ps{index}.port")

        def address():
            if self.processes[index].poll() is not None:
                raise AssertionError(f"cairn-ps {index} ended early:\n{self.log(index)}")
            if not os.path.exists(port_file):
                return None
            with open(port_file, encoding="ascii") as f:
                return f.read().strip()

        self.addresses[index] = wait_for(address, START_SECONDS, f"ps:{index} to listen")

    def restart(self, index, how=signal.SIGKILL):
        """Ends server `index` with signal `how` and restarts it with its address and data."""
        self.stop(index, how)
        self.spawn(index, self.addresses[index])
        self.wait_until_ready(index)

    def stop(self, index, how=signal.SIGKILL):
        self.processes[index].send_signal(how)
        return self.processes[index].wait(START_SECONDS)

    def worker_file(self, workers):
        """A cluster file for workers; the workers' own addresses are only names."""
        path = self.path("cluster.yaml")
        tasks = {"ps": self.addresses[:self.count],
                 "worker": [addresses.nobodys_address(w + 1) for w in range(workers)]}
        with open(path, "w", encoding="ascii") as f:
            json.dump({"cluster": tasks}, f)
        return path


def workers_alone(folder, count):
    """A cluster file of workers without servers, the first of which listens on its address."""
    path = os.path.join(folder, "workers.yaml")
    with open(path, "w", encoding="ascii") as f:
        json.dump({"cluster": {"worker": addresses.own_addresses(count)}}, f)
    return path


def end(process):
    """Kills a process that has not ended, and reads its output."""
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=START_SECONDS)


def checkpoints(directory):
    """Manifests and directories of the finished checkpoints in a directory, the oldest first."""
    found = []
    for path in glob.glob(os.path.join(directory, "*", "MANIFEST.json")):
        try:
            with open(path, encoding="ascii") as f:
                found.append((json.load(f), os.path.dirname(path)))
        except FileNotFoundError:  # deleted in the meantime because it was too old
            pass
    return sorted(found, key=lambda one: one[0]["number"])


def progress(folder, workers):
    """The number of each pusher's last acknowledged push, which it keeps in `folder`; else 0."""
    numbers = []
    for worker in range(workers):
        try:
            with open(os.path.join(folder, f"progress-{worker}"), "rb") as f:
                numbers.append(struct.unpack("<q", f.read(8))[0])
        except (OSError, struct.error):
            numbers.append(0)
    return numbers


def worker_command(job, cluster=None, index=0, flags=()):
    command = [WORKER, "--job", job]
    if cluster is not None:
        command += ["--cluster", cluster, "--task_type", "worker", "--task_index", str(index)]
    return command + list(flags)


def run_worker(job, cluster=None, index=0, flags=(), seconds=300):
    """Runs one worker to its end; returns its report. Fails with its log."""
    run = subprocess.run(worker_command(job, cluster, index, flags), capture_output=True,
                         text=True, timeout=seconds, check=False)
    if run.returncode != 0:
        raise AssertionError(f"cairn-worker exited {run.returncode}:\n{run.stderr[-4000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def run_workers(job, cluster, count, flags=(), seconds=300):
    """Runs `count` workers concurrently; returns their reports."""
    with tempfile.TemporaryDirectory() as folder:
        started, logs = [], []
        try:
            for index in range(count):
                logs.append(open(os.path.join(folder, f"worker{index}.log"), "w+",
                                 encoding="utf-8"))
                started.append(subprocess.Popen(worker_command(job, cluster, index, flags),
                                                stdout=subprocess.PIPE, stderr=logs[-1],
                                                text=True))
            reports = []
            for index, process in enumerate(started):
                out, _ = process.communicate(timeout=seconds)
                logs[index].seek(0)
                if process.returncode != 0:
                    raise AssertionError(f"worker {index} exited {process.returncode}:\n"
                                         f"{logs[index].read()[-4000:]}")
                reports.append(json.loads(out.splitlines()[-1]))
            return reports
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait(START_SECONDS)
            for log in logs:
                log.close()


def ctl(*arguments, code=0):
    """Runs a cairnctl command that must end with `code`; returns its JSON answer and its stderr."""
    done = subprocess.run([CTL, *arguments, "--json"], capture_output=True, text=True,
                          timeout=START_SECONDS, check=False)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: status {done.returncode}, not {code}\n{done.stdout}"
                             f"{done.stderr}")
    return json.loads(done.stdout), done.stderr
