#!/usr/bin/env python3
"""Kills and pauses servers and workers at random while the workers push, and checks that every push
counted exactly once on every server: by totals of integers that depend only on (worker, number), a
key for each push, and the update count of every shard.

    soak.py [--kills N] [--seed S] [--durability snapshot,log,log_sync]
            [--consistency async,ssp,sync,backup] [--moves] [--members] [--cold] [--folder DIR]

Runs three cairn-ps, three workers that are killed, paused, or replaced while paused (the paused one
must find itself fenced), and a fourth worker that is only paused (not with --moves) and, under
async and ssp, pushes from three threads concurrently. A worker resumes at the position that the
servers report. --kills is the sum over all combinations. The seed determines the events and their
durations; a failure prints the seed and the events.

ssp: steps with staleness_bound_steps 2; the gap that servers report, and the gap between the clocks
that they show, stay within it. sync: the mean of each step's pushes is applied once on every
server, and every push counts if no lease ends. backup: sync with replicas_to_aggregate 2; a push
counts on all servers or on none, and the fourth worker knows how many of its own pushes did not
count.

--moves: meanwhile a mover, which is also killed, moves buckets and shards between servers.

--cold: --moves, and a table several times as large as the servers' memory, so that its rows are
evicted and loaded while they move between servers.

--members: --moves, and a fourth server joins the cluster, gets rows, is emptied and leaves; then
another one does. These servers are also killed.

The run also fails if no worker makes progress for a minute while everything runs, and if it does
not end."""
import argparse
import enum
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402

PUSHER = os.environ.get(
    "CAIRN_PUSHER", os.path.join(processes.TOP, "build", "tests", "integration", "cairn-pusher"))
SERVERS = 3
WORKERS = 3  # workers that are killed
FREE = WORKERS  # ordinal of the worker that is not killed
BOUND = 2
# Arguments of the pushers, by --consistency.
CONSISTENCIES = {"async": "async", "ssp": f"ssp:{BOUND}", "sync": "sync:0", "backup": "sync:2"}
LONG_LEASE_SECONDS = 300
STUCK_SECONDS = 120
# Budget of servers whose rows do not fit, and the width of their table: 4,096 rows of 16 KiB each.
SMALL_BUDGET, COLD_WIDTH = 16 << 20, 4096
WAITS_AGAIN_SECONDS = 20
END_SECONDS = 120
FENCED = 3


class Failure(Exception):
    pass


class Guest(enum.Enum):
    """State of the server that joins and leaves."""
    ABSENT = 0
    MEMBER = 1
    LEAVING = 2


class Soak:
    """One run with one durability and consistency."""

    def __init__(self, folder, durability, consistency, kills, seed, moves=False, members=False,
                 cold=False):
        self.moves, self.mover, self.movers = moves or members or cold, None, 0
        self.cold = cold
        self.members, self.guest, self.joins = members, Guest.ABSENT, 0
        self.folder, self.durability, self.consistency = folder, durability, consistency
        self.kills, self.seed = kills, seed
        self.random = random.Random(f"{seed}/{durability}/{consistency}")
        interval = self.random.choice([0.1, 0.3, 1.0, 5.0])
        self.retained = [self.random.choice([1 << 16, 1 << 20, 1 << 30])
                         for _ in range(WORKERS + 1)]
        # Fenced: a worker that is silent for a lease while rows move from a server that lost some
        # of its data.
        self.lease = self.random.choice([6 if self.moves else 1.5, LONG_LEASE_SECONDS])
        # 0: stripes of snapshots go to tables alone, as in large snapshots.
        logged = random.Random(f"logged {seed}/{durability}/{consistency}").choice([0, 1 << 25])
        self.cluster = processes.Cluster(
            folder, SERVERS,
            ["--durability", durability, "--logged_snapshot_bytes", str(logged),
             "--snapshot_interval_seconds", str(interval), "--lease_seconds", str(self.lease),
             "--memory_budget_bytes",
             # Callers over the local transport take memory while they are connected.
             *([str(SMALL_BUDGET), "--local_transport", "off"] if cold else [str(256 << 20)])])
        self.pushers = [None] * (WORKERS + 1)
        self.killed = self.paused = self.fenced = self.replaced = self.largest_gap = 0
        self.history = []
        self.start = time.monotonic()
        self.say(f"snapshot interval {interval} s, {logged} bytes of each logged, "
                 f"lease {self.lease} s, retained bytes {self.retained}")

    def say(self, what):
        self.history.append(f"{time.monotonic() - self.start:8.3f} {what}")

    # --- processes ---

    def spawn_pusher(self, worker):
        with open(self.cluster.path(f"worker{worker}.log"), "ab") as log, \
                open(self.cluster.path(f"worker{worker}.out"), "wb") as out:
            self.pushers[worker] = subprocess.Popen(
                [PUSHER, "push", self.cluster.first_addresses(), str(worker), self.folder,
                 str(self.retained[worker]), "free" if worker == FREE else "ordered",
                 CONSISTENCIES[self.consistency]],
                stdout=out, stderr=log)

    def spawn_mover(self):
        self.movers += 1
        with open(self.cluster.path("mover.log"), "ab") as log:
            self.mover = subprocess.Popen(
                [PUSHER, "move", self.cluster.first_addresses(),
                 str(self.seed * 1000 + self.movers), self.folder], stderr=log)

    def moved(self):
        """Returns the number of successful moves."""
        count = 0
        for name in os.listdir(self.folder):
            if name.startswith("moves-"):
                with open(self.cluster.path(name), encoding="ascii") as f:
                    count += len(f.readlines())
        return count

    def end_mover(self):
        with open(self.cluster.path("stop-moves"), "wb"):
            pass
        try:
            status = self.mover.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"the mover did not end in {END_SECONDS} s") from None
        if status != 0:
            raise Failure(f"the mover ended with {status}")
        if self.moved() == 0:
            raise Failure("nothing was moved")

    # --- the server that joins and leaves ---

    def ctl(self, *words):
        """Whether cairnctl succeeded; it may fail while servers are being killed."""
        done = subprocess.run([processes.CTL, *words, "--servers", self.cluster.first_addresses()],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=END_SECONDS, check=False)
        if done.returncode != 0:
            self.say(f"cairnctl {words[0]} {words[1]}: {done.stdout.splitlines()[-1]}")
        return done.returncode == 0

    def host(self, change):
        """Repeats `change` until it succeeds, because servers are killed meanwhile."""
        deadline = time.monotonic() + END_SECONDS
        while not change():
            if time.monotonic() > deadline:
                raise Failure("a server could not come or go")
            if self.random.random() < 0.5:
                self.kill_and_start()

    def guest_index(self):
        return SERVERS + self.joins - 1

    def guest_joins(self):
        self.joins += 1
        self.say(f"ps:{self.guest_index()} comes")
        guest = self.guest_index()
        self.cluster.reach(guest)
        self.cluster.spawn(guest)
        self.cluster.wait_until_ready(guest)
        address = self.cluster.addresses[guest]
        self.host(lambda: self.ctl("servers", "add", f"ps:{guest}", "--address", address))
        self.guest = Guest.MEMBER

    def guest_leaves(self):
        """Moves the guest's rows to the other servers; nothing else moves rows meanwhile."""
        self.say(f"ps:{self.guest_index()} goes")
        self.guest = Guest.LEAVING
        self.kill([("mover", 0)])
        task = f"ps:{self.guest_index()}"
        self.host(lambda: self.ctl("rebalance", "--job", "soak", "--empty", task,
                                   "--tolerance", "1000", "--wait_seconds", "30") and
                  self.ctl("servers", "remove", task))
        self.kill([("ps", self.guest_index())])
        self.cluster.processes[self.guest_index()] = None
        self.guest = Guest.ABSENT
        self.spawn_mover()

    def come_or_go(self):
        if self.guest is Guest.ABSENT:
            self.guest_joins()
        else:
            self.guest_leaves()

    def servers(self):
        """Servers that may be killed."""
        guests = [] if self.guest is Guest.ABSENT else [self.guest_index()]
        return [("ps", i) for i in [*range(SERVERS), *guests]]

    def process(self, name):
        kind, index = name
        if kind == "mover":
            return self.mover
        return self.cluster.processes[index] if kind == "ps" else self.pushers[index]

    def kill(self, names):
        self.say("kill " + text(names))
        for name in names:
            self.process(name).kill()
        for name in names:
            self.process(name).wait(END_SECONDS)
        self.killed += len(names)

    def spawn(self, name):
        self.say("start " + text([name]))
        kind, index = name
        if kind == "ps":
            self.cluster.spawn(index, self.cluster.addresses[index])
        elif kind == "mover":
            self.spawn_mover()
        else:
            self.spawn_pusher(index)

    def check_running(self):
        """Checks that no process has ended by itself, except fenced ones."""
        for index, process in enumerate(self.cluster.processes):
            if process is not None and process.poll() is not None:
                raise Failure(f"ps:{index} ended with {process.returncode}")
        for worker, process in enumerate(self.pushers):
            status = process.poll()
            if status is None:
                continue
            # The hello of a killed start may reach a paused ps:0 after the hello of the next start.
            if status == FENCED and worker != FREE:
                self.fenced += 1
                self.say(f"worker {worker} was fenced")
                self.spawn_pusher(worker)
                continue
            raise Failure(f"worker {worker} ended with {status}")

    def progress(self):
        return processes.progress(self.cluster.folder, WORKERS + 1)

    def until_all_got_on(self, pushes):
        """Waits until every worker has had `pushes` further pushes acknowledged."""
        before = self.progress()

        def got_on():
            self.check_running()
            now = self.progress()
            # A worker that resumed at an earlier number counts from that number.
            for worker, number in enumerate(now):
                before[worker] = min(before[worker], number)
            return all(number >= before[worker] + pushes for worker, number in enumerate(now))

        try:
            processes.wait_for(got_on, STUCK_SECONDS, "pushes")
        except AssertionError:
            raise Failure(f"nobody stopped them, but the workers' pushes went from {before} to "
                          f"{self.progress()} in {STUCK_SECONDS} s, not {pushes} on") from None

    def check_gap(self):
        """Checks that under ssp no worker is further ahead than allowed, as far as running servers
        know."""
        if self.consistency != "ssp":
            return
        # A worker sends its clock to a restarted server just before it waits there again, and a new
        # worker may have its clock from servers that do not know all clocks yet. A worker that
        # began a step too early is recorded permanently: as the largest gap.
        ahead = {}

        def within():
            ahead.clear()
            ahead.update({index: server for index, server in enumerate(self.ask_why())
                          if self.too_far(server)})
            return not ahead

        try:
            processes.wait_for(within, WAITS_AGAIN_SECONDS, "workers to keep within the bound")
        except AssertionError:
            raise Failure(f"for {WAITS_AGAIN_SECONDS} s a worker is more than {BOUND} steps ahead, "
                          f"or was: {json.dumps(ahead)}") from None

    def ask_why(self):
        answer = subprocess.run([PUSHER, "why", self.cluster.first_addresses()],
                                stdout=subprocess.PIPE, text=True, timeout=END_SECONDS, check=True)
        return json.loads(answer.stdout)

    def too_far(self, server):
        if server is None:
            return False
        live = [w for w in server["workers"] if w["state"] == "live"]
        # A waiting worker has announced a step that it has not begun.
        begun = [w["step"] for w in live if not w["waits"]]
        spread = max(begun) - min(w["step"] for w in live) if begun else 0
        self.largest_gap = max(self.largest_gap, server["largest_step_gap"])
        return max(spread, server["largest_step_gap"]) > BOUND

    # --- possible events ---

    def some(self, names, weights):
        count = self.random.choices(range(1, len(weights) + 1), weights)[0]
        return self.random.sample(names, count)

    def victims(self):
        servers = self.servers()
        workers = [("worker", i) for i in range(WORKERS)]
        kind = self.random.choices(["servers", "workers", "both"], [5, 2, 4])[0]
        names = []
        if kind != "workers":
            names += self.some(servers, [6, 3, 2])
        if kind != "servers":
            names += self.some(workers, [6, 3, 2])
        if self.moves and self.guest is not Guest.LEAVING and self.random.random() < 0.25:
            names.append(("mover", 0))
        self.random.shuffle(names)
        return names

    def kill_and_start(self):
        names = self.victims()
        self.kill(names)
        for name in names:
            self.wait_a_moment(self.random.choice([0, 0, 0.02, 0.1, 0.3]))
            self.spawn(name)
            if self.random.random() < 0.15:  # killed again while it starts or receives replays
                self.wait_a_moment(self.random.uniform(0, 0.3))
                self.kill([name])
                self.spawn(name)

    @staticmethod
    def wait_a_moment(seconds):
        end = time.monotonic() + seconds
        processes.wait_for(lambda: time.monotonic() >= end, seconds + 10, "time to pass")

    def stop_and_continue(self):
        names = self.some(self.servers() +
                          [("worker", i) for i in range(WORKERS + (not self.moves))],
                          [4, 3, 2, 1])
        seconds = self.random.choice([0.05, 0.3, 1, 2.5])
        self.say(f"pause {text(names)} for {seconds} s")
        for name in names:
            self.process(name).send_signal(signal.SIGSTOP)
        self.wait_a_moment(seconds)
        for name in names:
            self.process(name).send_signal(signal.SIGCONT)
        self.paused += len(names)

    def replace(self):
        """Another start replaces a paused worker, which finds itself fenced; or the paused worker
        fences the other, if it was paused before its hello."""
        worker = self.random.randrange(WORKERS)
        self.say(f"pause worker {worker} and start another in its place")
        paused = self.pushers[worker]
        paused.send_signal(signal.SIGSTOP)
        self.spawn_pusher(worker)
        starts = [paused, self.pushers[worker]]
        try:
            self.until_all_got_on(1)
            self.say(f"the paused worker {worker} goes on")
            paused.send_signal(signal.SIGCONT)
            processes.wait_for(lambda: any(p.poll() is not None for p in starts), STUCK_SECONDS,
                               f"one of two starts of worker {worker} to find itself fenced")
            ended = next(p for p in starts if p.poll() is not None)
            if ended.returncode != FENCED:
                raise Failure(f"one of two starts of worker {worker} ended with "
                              f"{ended.returncode}, not {FENCED}")
        except BaseException:
            for process in starts:
                process.kill()
                process.wait(END_SECONDS)
            raise
        starts.remove(ended)
        self.pushers[worker] = starts[0]
        self.replaced += 1

    def run(self):
        with self.cluster:
            try:
                for worker in range(WORKERS + 1):
                    self.spawn_pusher(worker)
                self.until_all_got_on(10)
                if self.moves:
                    self.spawn_mover()
                while self.killed < self.kills:
                    self.one_event()
                return self.finish()
            finally:
                for process in self.pushers + [self.mover]:
                    if process is not None and process.poll() is None:
                        process.kill()
                        process.wait(END_SECONDS)

    def one_event(self):
        self.check_gap()
        event = self.random.choices(
            [self.kill_and_start, self.stop_and_continue, self.replace, self.come_or_go],
            [12, 2, 1, 12 if self.members else 0])[0]
        event()
        after = self.random.random()
        if after < 0.6:
            self.until_all_got_on(self.random.choice([1, 5, 30]))
        elif after < 0.8:
            self.wait_a_moment(self.random.uniform(0, 0.2))

    def finish(self):
        """All workers leave, disturbed once more; servers are killed; the remaining state is
        compared."""
        self.until_all_got_on(5)
        if self.guest is Guest.MEMBER:
            self.guest_leaves()
        if self.moves:
            self.say("the mover is told to end")
            self.end_mover()
        self.say("the workers are told to leave")
        with open(self.cluster.path("stop"), "wb"):
            pass
        names = self.some([("ps", i) for i in range(SERVERS)], [4, 2, 1])
        self.kill(names)
        for name in names:
            self.spawn(name)
        reports = [self.report(worker) for worker in range(WORKERS + 1)]
        servers = [("ps", i) for i in range(SERVERS)]
        self.kill(servers)
        for name in servers:
            self.spawn(name)
        for index in range(SERVERS):
            self.cluster.wait_until_ready(index)
        if self.cold and not any("evicts unused rows" in self.cluster.log(index)
                                 for index in range(SERVERS)):
            raise Failure("no row left memory")
        counts = [report["pushes"] for report in reports]
        self.say(f"check {counts} pushes")
        synchronous = CONSISTENCIES[self.consistency].startswith("sync")
        found = self.check_sync(reports) if synchronous else self.check_pushes(counts)
        return {"durability": self.durability, "consistency": self.consistency, "seed": self.seed,
                "kills": self.killed, "pauses": self.paused, "replaced": self.replaced,
                "fenced": self.fenced, "pushes": sum(counts), "lost": 0, "doubled": 0, **found,
                "replayed_pushes_of_last_starts": sum(r["replayed_pushes"] for r in reports),
                "retained_bytes_max": max(r["retained_bytes_max"] for r in reports),
                "seconds": round(time.monotonic() - self.start, 1)}

    def ask(self, what, counts, *more):
        """The state that cairn-pusher finds on the servers, in JSON."""
        check = subprocess.run(
            [PUSHER, what, self.cluster.first_addresses(), ",".join(map(str, counts)), *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=END_SECONDS,
            check=False)
        if check.returncode != 0:
            raise Failure(check.stderr)
        return json.loads(check.stdout or "null")

    def check_pushes(self, counts):
        self.ask("check_moved" if self.moves else "check", counts)
        if self.moves:
            return {"moves": self.moved(), "movers": self.movers, "joins": self.joins}
        return {"largest_step_gap": self.largest_gap} if self.consistency == "ssp" else {}

    def check_sync(self, reports):
        """A push may be dropped on all servers; or, if a server is killed and a worker's lease
        ends, be missing on that server, which reports it."""
        lost = {}
        for index in range(SERVERS):
            for push, worker in re.findall(r"closes without push (\d+) of worker (\d+)",
                                           self.cluster.log(index)):
                lost.setdefault(f"{index}/{worker}", set()).add(push)
        found = self.ask("check_sync_moved" if self.moves else "check_sync", [report["pushes"] for report in reports],
                         *(f"{where}/{len(pushes)}" for where, pushes in lost.items()))
        if self.lease == LONG_LEASE_SECONDS:
            if lost:
                raise Failure(f"nobody was lost, but servers closed steps without {lost}")
            if self.consistency == "sync" and any(found["dropped"]):
                raise Failure(f"everybody was waited for, but pushes were dropped: {found}")
            if any(report["untold"] or report["partial"] for report in reports):
                raise Failure("pushes were dropped, and their workers were not told: "
                              f"{json.dumps(reports)}")
        told = reports[FREE]["late"] + reports[FREE]["untold"]
        if found["dropped"][FREE] != told:
            raise Failure(f"worker {FREE} knows that {told} of its pushes were dropped, but "
                          f"{found['dropped'][FREE]} did not count")
        moves = {"moves": self.moved(), "movers": self.movers,
                 "joins": self.joins} if self.moves else {}
        return {**moves, "steps": found["steps"], "dropped": sum(found["dropped"]),
                "missing_on_a_server": sum(map(len, lost.values()))}

    def report(self, worker):
        """Waits for the results of a worker that has left."""
        end = time.monotonic() + END_SECONDS
        while True:
            try:
                status = self.pushers[worker].wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failure(f"worker {worker} did not leave in {END_SECONDS} s") from None
            if status == 0:
                with open(self.cluster.path(f"worker{worker}.out"), encoding="ascii") as f:
                    return json.loads(f.read())
            if status != FENCED or worker == FREE:
                raise Failure(f"worker {worker} ended with {status} when it was to leave")
            self.fenced += 1
            self.spawn_pusher(worker)

    def kind(self):
        kind = " --members" if self.members else " --moves" if self.moves else ""
        return kind + (" --cold" if self.cold else "")

    def explain(self, failure):
        lines = [f"FAILED: {failure}", f"seed {self.seed}, durability {self.durability}, "
                 f"consistency {self.consistency}; again: soak.py --seed {self.seed} "
                 f"--durability {self.durability} --consistency {self.consistency} "
                 f"--kills {self.kills}{self.kind()}", "history:"] + self.history
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), encoding="utf-8",
                          errors="replace") as f:
                    tail = f.read().splitlines()[-25:]
                lines += [f"--- end of {name}"] + tail
        return "\n".join(lines)


def text(names):
    return ", ".join(f"{kind}:{index}" for kind, index in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=216)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", default="snapshot,log,log_sync")
    parser.add_argument("--consistency", default=",".join(CONSISTENCIES))
    parser.add_argument("--moves", action="store_true", help="rows go from server to server too")
    parser.add_argument("--members", action="store_true",
                        help="and a server joins and leaves, again and again")
    parser.add_argument("--cold", action="store_true",
                        help="rows move too, of a table that is larger than the servers' memory")
    parser.add_argument("--folder", help="where servers keep their data; default: a temporary one")
    args = parser.parse_args()
    if args.cold:
        os.environ["CAIRN_KNOWN_WIDTH"] = str(COLD_WIDTH)
    runs = [(durability, consistency) for consistency in args.consistency.split(",")
            for durability in args.durability.split(",")]
    for durability, consistency in runs:
        folder = tempfile.mkdtemp(prefix="cairn-soak-", dir=args.folder)
        try:
            soak = Soak(folder, durability, consistency, -(-args.kills // len(runs)), args.seed,
                        args.moves, args.members, args.cold)
            try:
                print(json.dumps(soak.run()), flush=True)
            except (Failure, AssertionError, subprocess.TimeoutExpired) as failure:
                print(soak.explain(failure), flush=True)
                return 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
