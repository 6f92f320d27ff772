"""Shared by the tests of faults: servers and workers that are killed and restarted, and totals that
are compared at the end."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402

PUSHER = os.environ.get("CAIRN_PUSHER")
SECONDS = 180
PUSHERS = 2


class ServersCase(unittest.TestCase):
    """Servers, and other processes by name, all of which end with the test."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cairn-faults-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.cluster, self.tasks = None, {}
        self.addCleanup(self.end_tasks)

    def end_tasks(self):
        for process in self.tasks.values():
            if process.poll() is None:
                process.kill()
            process.wait(SECONDS)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def open_cluster(self, count, *flags, name="servers"):
        os.makedirs(self.path(name), exist_ok=True)
        self.cluster = processes.Cluster(self.path(name), count, flags)
        return self.cluster

    def start(self, name, command):
        """Starts process `name` with its output in files."""
        with open(self.path(f"{name}.log"), "ab") as log, open(self.path(f"{name}.out"), "wb") as out:
            self.tasks[name] = subprocess.Popen(command, stdout=out, stderr=log)
        return self.tasks[name]

    def log(self, name):
        with open(self.path(f"{name}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def result(self, name):
        """The output of a process that must succeed, as a dict."""
        try:
            status = self.tasks[name].wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.fail(f"{name} did not end in {SECONDS} s:\n{self.logs()}")
        self.assertEqual(status, 0, f"{name} ended with {status}:\n{self.logs()}")
        with open(self.path(f"{name}.out"), encoding="utf-8") as f:
            lines = f.read().splitlines()
        return json.loads(lines[-1]) if lines else {}

    def logs(self):
        text = "".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.tasks)
        if self.cluster is not None:
            text += "".join(f"--- ps:{i}\n{self.cluster.log(i)[-3000:]}"
                            for i in range(self.cluster.count))
        return text

    def respawn(self, index):
        self.cluster.spawn(index, self.cluster.addresses[index])
        self.cluster.wait_until_ready(index)


class PushersCase(ServersCase):
    """Two workers push the updates of tests/support/known_pushes.h to three servers."""

    def start_pusher(self, worker):
        return self.start(f"worker{worker}", [
            PUSHER, "push", self.cluster.first_addresses(), str(worker), self.folder,
            str(1 << 20), "ordered", "async"])

    def progress(self):
        return processes.progress(self.folder, PUSHERS)

    def until_all_got_on(self, pushes, unless=lambda: False):
        before = self.progress()

        def got_on():
            now = self.progress()
            for worker, number in enumerate(now):
                before[worker] = min(before[worker], number)
            return unless() or all(n >= b + pushes for n, b in zip(now, before))

        processes.wait_for(got_on, SECONDS, f"{pushes} pushes of each:\n{self.logs()}")

    def stop(self):
        with open(self.path("stop"), "wb"):
            pass

    def finish(self, check="check"):
        """All workers leave, the servers are killed, and the stored updates are compared."""
        self.stop()
        counts = [self.result(f"worker{w}")["pushes"] for w in range(PUSHERS)]
        for index in range(self.cluster.count):
            self.cluster.stop(index)
        for index in range(self.cluster.count):
            self.respawn(index)
        check = subprocess.run(
            [PUSHER, check, self.cluster.first_addresses(), ",".join(map(str, counts))],
            stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False)
        self.assertEqual(check.returncode, 0, check.stderr + self.logs())
        self.assertGreater(min(counts), 10)
