"""Kills every role once at every crash point of the sources (common/crash_point.h), and checks the
results: exact totals, the variables of an undisturbed run, a job that is complete or absent. The
points are read from the sources: a point without a case below is a failure."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402
from harness import PUSHER, PUSHERS, SECONDS, PushersCase, ServersCase  # noqa: E402

CALLER = os.environ.get("CAIRN_CALLER")
STEPS, BATCH, COLUMNS = 120, 20, 40  # of a training run

# Points that pushes from two workers to three servers pass: which role is killed, at which passage,
# and what triggers the point: "run" (normal operation), "leave", "replay" (another server is killed
# first), "end" (SIGTERM).
PUSHES = {
    "hello: admitted": ("ps", 1, "run"),
    "hello: durable": ("ps", 1, "run"),
    "create: before a variable": ("ps", 3, "run"),
    "create: before the answer": ("ps", 1, "run"),
    "push: before it is applied": ("ps", 30, "run"),
    "push: stripe applied, not marked": ("ps", 31, "run"),
    "push: between stripes": ("ps", 33, "run"),
    "push: between buckets": ("ps", 100, "run"),
    "push: between variables": ("ps", 42, "run"),
    "push: applied, not in order yet": ("ps", 30, "run"),
    "push: applied": ("ps", 31, "run"),
    "push: before the answer": ("ps", 32, "run"),
    "epoch: noted": ("ps", 5, "run"),
    "epoch: before a stripe is written": ("ps", 20, "run"),
    "epoch: between stripes": ("ps", 30, "run"),
    "epoch: before the records": ("ps", 4, "run"),
    "epoch: before the sync": ("ps", 5, "run"),
    "epoch: synced": ("ps", 6, "run"),
    "epoch: published": ("ps", 6, "run"),
    "leave: begun": ("ps", 1, "leave"),
    "leave: before the answer": ("ps", 1, "leave"),
    "end: before the last epoch": ("ps", 1, "end"),
    "worker: hello to ps:0 alone": ("worker", 1, "run"),
    "worker: before a push is numbered": ("worker", 20, "run"),
    "worker: before a server is sent its part": ("worker", 50, "run"),
    "worker: a server is sent its part": ("worker", 50, "run"),
    "worker: a server has answered": ("worker", 50, "run"),
    "worker: a push is acknowledged by all": ("worker", 20, "run"),
    "worker: before it leaves": ("worker", 1, "leave"),
    "worker: has left one server": ("worker", 1, "leave"),
    "replay: said hello": ("worker", 1, "replay"),
    "replay: before a push": ("worker", 3, "replay"),
    "replay: done": ("worker", 1, "replay"),
    "snapshot: before its stripes are flushed": ("ps", 5, "run"),
    "snapshot: its stripes are flushed": ("ps", 6, "run"),
}
# Points of a server's start, on an empty directory and on a directory with data.
STARTS = ["start: folder marked", "start: database open", "start: boot counted",
          "start: variables read", "start: loaded"]
# Points of the calls that cairn-caller makes, and which role is killed. ps is ps:1; the dense
# variable is on ps:0.
CALLS = {
    "assign: before a variable": ("ps", 4),
    "assign: applied, not marked": ("ps", 3),
    "assign together: applied, not written": ("ps:0", 3),
    "create: before a variable": ("ps", 2),
    "create: before the answer": ("ps", 2),
    "drop: begun": ("ps", 2),
    "drop: gone on disk": ("ps", 2),
    "drop: before the answer": ("ps", 2),
    "worker: job dropped": ("worker", 2),
}
# Points of a variable of a ParameterServerStrategy, at which the program is killed.
HOSTED = ["host: before a variable is created", "host: variable created",
          "host: initial value written"]
# Points of the eviction of rows, and the passages at which a server is killed, one in each of
# consecutive starts.
COLD = {
    "evict: before a stripe is written": (1, 9, 3, 12),
    "evict: before rows are dropped": (2, 8, 1, 5),
}
# Points of the deletion of rows, in the same form.
RULES = {
    "rules: before rows are deleted": (1, 9),
    "rules: rows are deleted": (2, 7),
}
# Points of rows that move between servers while workers push: which role is killed, and at which
# passage.
MOVES = {
    "move: a piece is written": ("ps", 5),
    "move: updates are turned away": ("ps", 2),
    "move: before it is ready": ("ps", 2),
    "move: ready": ("ps", 2),
    "move: before the rows are given away": ("ps", 2),
    "move: before the map": ("ps", 3),
    "move: map written": ("ps", 3),
    "late part: applied, not durable": ("ps", 1),
    "stripes out of turn: written, not synced": ("ps", 1),
    "worker: before what has moved is sent": ("worker", 2),
    "worker: what has moved is sent": ("worker", 2),
    "mover: a piece is copied": ("mover", 5),
    "mover: before the point of no return": ("mover", 2),
    "mover: the source has given the rows away": ("mover", 2),
}
# The same for a table several times as large as the servers' memory; includes some points from
# above.
COLD_MOVES = {
    "move: cold rows are read": ("ps", 4),
    "move: before cold rows are written": ("ps", 4),
    "move: ready": ("ps", 3),
    "move: before the map": ("ps", 4),
    "move: map written": ("ps", 4),
    "mover: a piece is copied": ("mover", 40),
}
COLD_WIDTH, COLD_BUDGET = 4096, 16 << 20
# Points of a fourth server that joins and leaves: which role is killed, which task, at which
# passage.
MEMBERS = {
    "members: before they are written": ("ps", 0, 2),
    "members: written": ("ps", 0, 2),
    "members: before a server leaves": ("ps", 3, 1),
    "members: a server has left": ("ps", 3, 1),
    "worker: a new server is greeted": ("worker", 1, 1),
}
# Points of synchronous steps.
SYNC = {
    "contribution: kept, not in order yet": ("ps", 20),
    "decision: made, not stored": ("ps", 20),
    "decision: stored": ("ps", 20),
    "step: before it closes": ("ps", 20),
    "step: mean applied, not closed": ("ps", 20),
    "step: closed": ("ps", 20),
    "step: before ps:0 is told": ("worker", 20),
    "step: told by ps:0": ("worker", 20),
}
# Points of checkpoints that are made at regular steps; one checkpoint is kept.
CHECKPOINTS = {
    "checkpoint: flushed": ("ps", 2),
    "checkpoint: before the files are linked": ("ps", 2),
    "checkpoint: files linked": ("ps", 2),
    "checkpoint: before the part has its name": ("ps", 2),
    "checkpoint: before the answer": ("ps", 2),
    "checkpoint: before an old part is deleted": ("ps", 1),
    "checkpoint: between an old part's files": ("ps", 2),
    "checkpoint: folder made": ("worker", 2),
    "checkpoint: before the manifest": ("worker", 2),
    "checkpoint: manifest written": ("worker", 2),
    "checkpoint: before an old one is deleted": ("worker", 1),
}
# Points between the last step of a worker and its evaluation.
ENDS = ["run: last step pushed", "run: steps ended", "run: end announced"]
# Points of a restore to other servers.
RESTORES = {
    "restore: before the stripes": "ps",
    "restore: stripes written": "ps",
    "restore: job written": "ps",
    "restore: before the answer": "ps",
    "restore: servers are empty": "worker",
    "restore: all but ps:0 have it": "worker",
}


@contextlib.contextmanager
def told(name, value):
    """Programs started in this context have the variable in their environment."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def armed(point, passage=1):
    """Programs started in this context are killed at the point."""
    return told("CAIRN_CRASH_AT", f"{point}:{passage}")


class CrashCase(ServersCase):
    def open_cluster(self, count, *flags, name="servers"):
        """Snapshots go to tables alone, except where each push is a snapshot of its own."""
        logged = () if {"log", "log_sync"} & set(flags) else ("--logged_snapshot_bytes", "0")
        return super().open_cluster(count, *flags, *logged, name=name)

    def died(self, process, log, point):
        """Whether the process was killed at the point; fails if it ended in any other way."""
        status = process.poll()
        if status is None:
            return False
        self.assertEqual(status, -signal.SIGKILL, self.logs())
        self.assertIn(f"killed at crash point {point}\n", log())
        return True

    def await_death(self, process, log, point):
        processes.wait_for(lambda: self.died(process, log, point), SECONDS,
                           f"somebody to pass \"{point}\"")

    def server_died(self, index, point):
        return self.died(self.cluster.processes[index], lambda: self.cluster.log(index), point)

    def await_server_death(self, index, point):
        self.await_death(self.cluster.processes[index], lambda: self.cluster.log(index), point)

    def arm_server(self, index, point, passage):
        self.cluster.stop(index)
        with armed(point, passage):
            self.cluster.spawn(index, self.cluster.addresses[index])


class Pushes(CrashCase, PushersCase):
    """Two workers push the updates of tests/support/known_pushes.h to three servers."""

    def run_point(self, point, durability):
        role, passage, when = PUSHES[point]
        interval = "5" if when == "replay" else "0.05"
        victim = 1
        with self.open_cluster(3, "--durability", durability, "--snapshot_interval_seconds",
                               interval):
            if role == "ps":
                self.arm_server(victim, point, passage)
            for worker in range(PUSHERS):
                if role == "worker" and worker == victim:
                    with armed(point, passage):
                        self.start_pusher(worker)
                else:
                    self.start_pusher(worker)

            def dead():
                if role == "ps":
                    return self.server_died(victim, point)
                return self.died(self.tasks["worker1"], lambda: self.log("worker1"), point)

            self.until_all_got_on(30, unless=dead)
            if when == "leave":
                self.stop()
            elif when == "replay":
                self.cluster.restart(2)
            elif when == "end":
                self.cluster.processes[victim].send_signal(signal.SIGTERM)
            processes.wait_for(dead, SECONDS, f"somebody to pass \"{point}\"")
            if role == "ps":
                self.respawn(victim)
            else:
                self.start_pusher(victim)
            if when != "leave":
                self.until_all_got_on(10)
            self.finish()

    def run_start(self, point):
        with self.open_cluster(3, "--snapshot_interval_seconds", "0.05"):
            # On an empty directory, which the server then initializes.
            self.cluster.stop(1)
            shutil.rmtree(self.cluster.path("ps1"))
            for _ in range(2):
                with armed(point):
                    self.cluster.spawn(1, self.cluster.addresses[1])
                self.await_server_death(1, point)
            self.respawn(1)
            for worker in range(PUSHERS):
                self.start_pusher(worker)
            self.until_all_got_on(30)
            # On a directory with data, twice.
            self.cluster.stop(1)
            for _ in range(2):
                with armed(point):
                    self.cluster.spawn(1, self.cluster.addresses[1])
                self.await_server_death(1, point)
            self.respawn(1)
            self.until_all_got_on(10)
            self.finish()


class Moves(CrashCase, PushersCase):
    """The same, while a mover moves buckets and shards between the servers."""

    def start_mover(self, name, seed):
        return self.start(name, [PUSHER, "move", self.cluster.first_addresses(), str(seed),
                                 self.folder])

    def run_cold(self, point, durability):
        with told("CAIRN_KNOWN_WIDTH", str(COLD_WIDTH)):
            self.run_point(point, durability, COLD_MOVES[point], "--memory_budget_bytes",
                           str(COLD_BUDGET), "--local_transport", "off")

    def run_point(self, point, durability, how, *flags):
        role, passage = how
        victim = 1
        with self.open_cluster(3, "--durability", durability, "--snapshot_interval_seconds", "0.2",
                               *flags):
            if role == "ps":
                self.arm_server(victim, point, passage)
            for worker in range(PUSHERS):
                with armed(point, passage) if (role, victim) == ("worker", worker) \
                        else contextlib.nullcontext():
                    self.start_pusher(worker)
            with armed(point, passage) if role == "mover" else contextlib.nullcontext():
                self.start_mover("mover", 1)
            name = {"worker": f"worker{victim}", "mover": "mover"}.get(role)
            if role == "ps":
                self.await_server_death(victim, point)
                self.respawn(victim)
            else:
                self.await_death(self.tasks[name], lambda: self.log(name), point)
                if role == "worker":
                    self.start_pusher(victim)
            # Another mover replaces the killed one, and finds its remains.
            last = 2 if role == "mover" else 1
            if role == "mover":
                self.start_mover("mover2", last)
            before = 0 if role == "mover" else self.count_moves(last)
            processes.wait_for(lambda: self.count_moves(last) >= before + 5, SECONDS,
                               f"moves:\n{self.logs()}")
            self.until_all_got_on(10)
            with open(self.path("stop-moves"), "wb"):
                pass
            self.result("mover2" if role == "mover" else "mover")
            self.finish("check_moved")

    def count_moves(self, seed):
        try:
            with open(self.path(f"moves-{seed}"), encoding="ascii") as f:
                return len(f.readlines())
        except OSError:
            return 0


class Members(CrashCase, PushersCase):
    """The same, while a fourth server joins, gets rows, is emptied and leaves."""

    GUEST = 3

    def run_point(self, point, durability):
        role, victim, passage = MEMBERS[point]
        with self.open_cluster(3, "--durability", durability, "--snapshot_interval_seconds", "0.2"):
            if (role, victim) == ("ps", 0):
                self.arm_server(victim, point, passage)
            for worker in range(PUSHERS):
                with armed(point, passage) if (role, victim) == ("worker", worker) \
                        else contextlib.nullcontext():
                    self.start_pusher(worker)
            self.until_all_got_on(10)
            with armed(point, passage) if victim == self.GUEST else contextlib.nullcontext():
                self.cluster.reach(self.GUEST)
                self.cluster.spawn(self.GUEST)
            self.cluster.wait_until_ready(self.GUEST)
            self.died_once = False
            change = lambda *words: self.change(role, victim, point, words)  # noqa: E731
            change("servers", "add", "ps:3", "--address", self.cluster.addresses[self.GUEST])
            change("rebalance", "--job", "soak", "--tolerance", "0")
            change("rebalance", "--job", "soak", "--empty", "ps:3")
            change("servers", "remove", "ps:3")
            self.assertTrue(self.died_once or self.revive(role, victim, point), self.logs())
            self.cluster.stop(self.GUEST)
            self.until_all_got_on(10)
            self.finish("check_moved")

    def change(self, role, victim, point, words):
        """Repeats the command until it succeeds; restarts a process that was killed at the
        point."""
        def done():
            self.died_once = self.died_once or self.revive(role, victim, point)
            try:
                processes.ctl(*words, "--servers", self.cluster.first_addresses())
                return True
            except AssertionError as failure:
                self.last_failure = failure
                return False
        self.last_failure = None
        processes.wait_for(done, SECONDS, f"{words}: {self.last_failure}\n{self.logs()}")

    def revive(self, role, victim, point):
        if role == "ps":
            if not self.server_died(victim, point):
                return False
            self.respawn(victim)
        else:
            if not self.died(self.tasks[f"worker{victim}"], lambda: self.log(f"worker{victim}"),
                             point):
                return False
            self.start_pusher(victim)
        return True


class Calls(CrashCase):
    """A worker that creates, assigns and drops."""

    def run_point(self, point):
        role, passage = CALLS[point]
        with self.open_cluster(2, "--snapshot_interval_seconds", "0.05"):
            command = [CALLER, self.cluster.first_addresses()]
            if role != "worker":
                victim = 0 if role == "ps:0" else 1
                self.arm_server(victim, point, passage)
                self.start("caller", command)
                self.await_server_death(victim, point)
                self.respawn(victim)
            else:
                with armed(point, passage):
                    caller = self.start("caller", command)
                self.await_death(caller, lambda: self.log("caller"), point)
                self.start("caller", command)
            self.result("caller")

    def run_hosted(self, point):
        with self.open_cluster(2):
            command = [CALLER, self.cluster.first_addresses(), "host"]
            with armed(point):
                caller = self.start("caller", command)
            self.await_death(caller, lambda: self.log("caller"), point)
            for _ in range(2):
                self.start("caller", command)
                self.result("caller")


class Cold(CrashCase):
    """A table several times as large as the servers' memory, or one that deletes rows."""

    def run_point(self, point, durability):
        with self.open_cluster(2, "--durability", durability, "--snapshot_interval_seconds", "0.2",
                               "--memory_budget_bytes", str(16 << 20)):
            mode, passages = ("cold", COLD[point]) if point in COLD else ("rules", RULES[point])
            self.start("caller", [CALLER, self.cluster.first_addresses(), mode])
            for passage in passages:
                self.arm_server(1, point, passage)
                self.await_server_death(1, point)
            self.respawn(1)
            self.result("caller")


class Training(CrashCase):
    """cairn-worker, once undisturbed and then with one process killed."""

    def write_job(self, name, **sections):
        rows = self.path("rows.libsvm")
        workers = sections.pop("workers", 1)
        with open(rows, "w", encoding="ascii") as f:
            for i in range(STEPS * BATCH * workers):
                a, b = sorted({1 + i * 7919 % COLUMNS, 1 + (i * 104729 + 1) % COLUMNS} | {1})[-2:]
                f.write(f"{i * i % 7 % 2} {a}:{(1 + i % 11) / 10} {b}:{(1 + i % 13) / 10}\n")
        job = {"name": name,
               "model": {"type": "fm", "factors": 4, "init": {"type": "wave", "scale": 0.1}},
               "data": {"format": "libsvm", "features": COLUMNS, "train": [rows],
                        "batch_size": BATCH},
               "optimizer": {"type": "adagrad", "learning_rate": 0.05},
               "strategy": {"partitioner": {"type": "fixed_shards", "num_shards": 2}}}
        for section, keys in sections.items():
            job.setdefault(section, {}).update(keys)
        path = self.path(f"{name}.yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump(job, f)
        return path

    def start_worker(self, job, file, index=0, flags=()):
        return self.start(f"worker{index}", processes.worker_command(
            job, file, index, ["--export", self.path(f"{index}.safetensors"), *flags]))

    def exported(self):
        """The variables as bytes."""
        with open(self.path("0.safetensors"), "rb") as f:
            return f.read()

    def floats(self, data):
        header = struct.unpack("<Q", data[:8])[0]
        values = data[8 + header:]
        return struct.unpack(f"<{len(values) // 4}f", values)

    def assert_close(self, got, want):
        self.assertEqual(len(got), len(want))
        worst = max(abs(a - b) for a, b in zip(self.floats(got), self.floats(want)))
        self.assertLessEqual(worst, 1e-6)

    def undisturbed(self, job, servers, workers, flags=()):
        with self.open_cluster(servers, name="undisturbed"):
            file = self.cluster.worker_file(workers)
            for index in range(workers):
                self.start_worker(job, file, index, flags)
            for index in range(workers):
                self.result(f"worker{index}")
        return self.exported()

    def run_sync(self, point):
        role, passage = SYNC[point]
        job = self.write_job("job", workers=2, strategy={"consistency": "sync"})
        want = self.undisturbed(job, 2, 2)
        for victim in (0, 1) if role == "ps" and not point.startswith("decision") else (0,):
            with self.open_cluster(2, "--snapshot_interval_seconds", "0.05", name=f"v{victim}"):
                if role == "ps":
                    self.arm_server(victim, point, passage)
                file = self.cluster.worker_file(2)
                self.start_worker(job, file, 1)
                if role == "worker":
                    with armed(point, passage):
                        worker = self.start_worker(job, file, 0)
                    self.await_death(worker, lambda: self.log("worker0"), point)
                    self.start_worker(job, file, 0)
                else:
                    self.start_worker(job, file, 0)
                    self.await_server_death(victim, point)
                    self.respawn(victim)
                for index in range(2):
                    self.assertEqual(self.result(f"worker{index}")["total_steps"], STEPS)
                self.assert_close(self.exported(), want)

    def run_end(self, point):
        # Two asynchronous workers would not end in the same variables twice.
        for consistency, workers in (("async", 1), ("sync", 2)):
            with self.subTest(consistency=consistency):
                job = self.write_job(consistency, workers=workers,
                                     strategy={"consistency": consistency})
                want = self.undisturbed(job, 2, workers)
                with self.open_cluster(2, name=consistency):
                    file = self.cluster.worker_file(workers)
                    for other in range(1, workers):
                        self.start_worker(job, file, other)
                    with armed(point):
                        worker = self.start_worker(job, file)
                    self.await_death(worker, lambda: self.log("worker0"), point)
                    self.start_worker(job, file)
                    for index in range(workers):
                        report = self.result(f"worker{index}")
                        self.assertEqual(report["total_steps"], STEPS)
                        self.assertEqual(report["steps"], 0 if index == 0 else STEPS)
                    if consistency == "async":
                        self.assertTrue(self.exported() == want, "another end than undisturbed")
                    self.assert_close(self.exported(), want)

    def test_launch_restarts_workers_killed_after_their_last_step_without_a_further_step(self):
        for consistency in ("async", "sync"):
            with self.subTest(consistency=consistency):
                job = self.write_job(consistency, workers=2, strategy={"consistency": consistency})
                tasks = {"ps": addresses.own_addresses(2), "worker": addresses.own_addresses(2)}
                with open(self.path("cluster.json"), "w", encoding="ascii") as f:
                    json.dump({"cluster": tasks}, f)
                with armed(ENDS[-1]):
                    self.start(f"launch {consistency}", [
                        "env", f"TMPDIR={self.folder}", processes.CTL, "launch", "--json",
                        "--restart", "on-failure", "--cairn_ps", processes.PS,
                        "--cairn_worker", processes.WORKER,
                        "--cluster", self.path("cluster.json"), "--job", job])
                answer = self.result(f"launch {consistency}")
                self.assertEqual({t["task"]: t["restarts"] for t in answer["tasks"]},
                                 {"ps:0": 0, "ps:1": 0, "worker:0": 1, "worker:1": 1})
                self.assertEqual([(r["steps"], r["total_steps"]) for r in answer["reports"]],
                                 [(0, STEPS)] * 2)

    def checkpoint_job(self):
        return self.write_job("job", checkpoint={"directory": self.path("checkpoints"),
                                                 "every_steps": 20, "keep": 1})

    def run_checkpoint(self, point):
        role, passage = CHECKPOINTS[point]
        job = self.checkpoint_job()
        want = self.undisturbed(job, 2, 1, ["--set", "checkpoint={}"])
        with self.open_cluster(2, "--snapshot_interval_seconds", "0.05"):
            file = self.cluster.worker_file(1)
            if role == "ps":
                self.arm_server(1, point, passage)
                self.start_worker(job, file)
                self.await_server_death(1, point)
                self.respawn(1)
            else:
                with armed(point, passage):
                    worker = self.start_worker(job, file)
                self.await_death(worker, lambda: self.log("worker0"), point)
                self.assertTrue(glob.glob(self.path("checkpoints", "*", "MANIFEST.json")))
                # A checkpoint in progress would have changed later.
                for folder in glob.glob(self.path("checkpoints", "*")):
                    os.utime(folder, (time.time() - 3600,) * 2)
                self.start_worker(job, file)
            self.assertEqual(self.result("worker0")["total_steps"], STEPS)
            # A killed worker computes steps again that some servers have already.
            if role == "ps":
                self.assertTrue(self.exported() == want, "another end than undisturbed")
            end = self.exported()
        folders = sorted(os.listdir(self.path("checkpoints")))
        self.assertEqual(len(folders), 1, folders)
        # The exported values are those of the end of the run.
        with self.open_cluster(1, name="other"):
            self.start_worker(job, self.cluster.worker_file(1), flags=["--continue", "--max_steps", "1"])
            self.assertEqual(self.result("worker0")["total_steps"], STEPS + 1)
            self.assertIn("on 2 servers, to 1", self.log("worker0"))
        self.assertEqual(len(end), len(want))

    def run_restore(self, point):
        job = self.checkpoint_job()
        self.undisturbed(job, 2, 1)
        folder = glob.glob(self.path("checkpoints", "*"))[0]
        kept = ["--continue", "--set", "checkpoint=" + json.dumps({"restore": folder})]
        with self.open_cluster(3, name="calm"):
            self.start_worker(job, self.cluster.worker_file(1), flags=kept)
            self.assertEqual(self.result("worker0")["total_steps"], 2 * STEPS)
        want = self.exported()
        for victim in (0, 1) if RESTORES[point] == "ps" else (None,):
            with self.open_cluster(3, name=f"v{victim}"):
                file = self.cluster.worker_file(1)
                if victim is not None:
                    self.arm_server(victim, point, 1)
                    self.start_worker(job, file, flags=kept)
                    self.await_server_death(victim, point)
                    self.respawn(victim)
                else:
                    with armed(point):
                        worker = self.start_worker(job, file, flags=kept)
                    self.await_death(worker, lambda: self.log("worker0"), point)
                    self.start_worker(job, file, flags=kept)
                self.assertEqual(self.result("worker0")["total_steps"], 2 * STEPS)
                self.assertTrue(self.exported() == want, "another end than undisturbed")


class Points(unittest.TestCase):
    def test_every_point_of_the_sources_has_a_case(self):
        found = set()
        for folder in ("common", "storage", "thrift", "ps_server", "worker"):
            for path in glob.glob(os.path.join(processes.TOP, folder, "**", "*.cc"),
                                  recursive=True):
                with open(path, encoding="utf-8") as f:
                    found |= set(re.findall(r'CAIRN_CRASH_POINT\(\s*"([^"]+)"\)', f.read()))
        cases = {*PUSHES, *STARTS, *CALLS, *COLD, *RULES, *MOVES, *COLD_MOVES, *MEMBERS, *SYNC,
                 *CHECKPOINTS, *ENDS, *RESTORES, *HOSTED}
        self.assertEqual(found ^ cases, set(), "points without a case, or cases without a point")


def add(case, name, run):
    setattr(case, "test_" + re.sub(r"\W+", "_", name), run)


# Points are assigned to durabilities round robin: each point has a fixed one, and each durability
# has points of every kind.
for number, name in enumerate(PUSHES):
    kind = ("snapshot", "log", "log_sync")[number % 3]
    if re.match("replay|snapshot", name):
        kind = "snapshot"
    add(Pushes, f"{name} under {kind}",
        lambda self, name=name, kind=kind: self.run_point(name, kind))
for name in STARTS:
    add(Pushes, name, lambda self, name=name: self.run_start(name))
for name in CALLS:
    add(Calls, name, lambda self, name=name: self.run_point(name))
for name in HOSTED:
    add(Calls, name, lambda self, name=name: self.run_hosted(name))
for name in [*COLD, *RULES]:
    for kind in ("snapshot", "log"):
        add(Cold, f"{name} under {kind}",
            lambda self, name=name, kind=kind: self.run_point(name, kind))
for number, name in enumerate(MOVES):
    kind = ("snapshot", "log", "log_sync")[number % 3]
    add(Moves, f"{name} under {kind}",
        lambda self, name=name, kind=kind: self.run_point(name, kind, MOVES[name]))
for number, name in enumerate(COLD_MOVES):
    kind = ("snapshot", "log", "log_sync")[number % 3]
    add(Moves, f"cold {name} under {kind}",
        lambda self, name=name, kind=kind: self.run_cold(name, kind))
for number, name in enumerate(MEMBERS):
    kind = ("snapshot", "log", "log_sync")[number % 3]
    add(Members, f"{name} under {kind}",
        lambda self, name=name, kind=kind: self.run_point(name, kind))
for name in SYNC:
    add(Training, "sync " + name, lambda self, name=name: self.run_sync(name))
for name in CHECKPOINTS:
    add(Training, name, lambda self, name=name: self.run_checkpoint(name))
for name in ENDS:
    add(Training, name, lambda self, name=name: self.run_end(name))
for name in RESTORES:
    add(Training, name, lambda self, name=name: self.run_restore(name))

if __name__ == "__main__":
    tap.main()
