"""The wall clock jumps by a day, forward and back, under running servers and workers
(tests/faults/fault_shim.cc): no lease ends early, no wait lasts longer, snapshots and heartbeats
continue, and every push counts once."""
import glob
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402
from faults import Environment, Faults  # noqa: E402
from harness import PUSHER, PUSHERS, SECONDS, PushersCase  # noqa: E402

DAY = 86400
LEASE_SECONDS = 4
ENDED = "its lease has ended"


def pass_time(seconds):
    end = time.monotonic() + seconds
    processes.wait_for(lambda: time.monotonic() >= end, seconds + SECONDS, "time to pass")


class Clock(PushersCase):
    def setUp(self):
        super().setUp()
        self.servers, self.workers = Faults(self.path("servers.faults")), Faults(
            self.path("workers.faults"))

    def open_pushing(self):
        with Environment(self.servers.environment("/nowhere")):
            cluster = self.open_cluster(3, "--snapshot_interval_seconds", "0.2",
                                        "--lease_seconds", str(LEASE_SECONDS))
            cluster.__enter__()
        self.addCleanup(cluster.__exit__)
        with Environment(self.workers.environment("/nowhere")):
            for worker in range(PUSHERS):
                self.start_pusher(worker)
        self.until_all_got_on(20)
        return cluster

    def start_pusher(self, worker):
        # So much that no worker requests an early snapshot.
        return self.start(f"worker{worker}", [
            PUSHER, "push", ",".join(self.cluster.addresses), str(worker), self.folder,
            str(1 << 30), "ordered", "async"])

    def stored_bytes(self, index):
        return sum(os.path.getsize(path) for path in
                   glob.glob(os.path.join(self.cluster.path(f"ps{index}"), "db", "*.log")))

    def expect_no_lease_ended(self):
        for index in range(3):
            self.assertNotIn(ENDED, self.cluster.log(index))

    def test_servers_jump(self):
        self.open_pushing()
        for shift in (DAY, 0, -DAY):
            self.servers.clock(shift)
            before = self.stored_bytes(0)
            self.until_all_got_on(20)
            # Snapshots by the clock: the log of RocksDB grows only through them.
            processes.wait_for(lambda: self.stored_bytes(0) > before, 10 * LEASE_SECONDS,
                               f"an epoch after a jump to {shift}")
            pass_time(LEASE_SECONDS)
            self.expect_no_lease_ended()
        # The end of a lease is noticed without delay.
        self.tasks["worker1"].send_signal(signal.SIGSTOP)
        pass_time(LEASE_SECONDS / 2)
        self.servers.clock(-2 * DAY)
        processes.wait_for(lambda: all(ENDED in self.cluster.log(i) for i in range(3)),
                           5 * LEASE_SECONDS, "the end of a lease after a jump back")
        self.tasks["worker1"].send_signal(signal.SIGCONT)
        self.until_all_got_on(10)
        self.finish()

    def test_workers_jump(self):
        cluster = self.open_pushing()
        for shift in (DAY, 0, -DAY):
            self.workers.clock(shift)
            self.until_all_got_on(20)
            pass_time(LEASE_SECONDS)
            self.expect_no_lease_ended()
        # The workers wait for ps:1; only their heartbeats keep their leases on the other servers.
        cluster.processes[1].send_signal(signal.SIGSTOP)
        pass_time(LEASE_SECONDS / 2)
        self.workers.clock(-2 * DAY)
        pass_time(3 * LEASE_SECONDS)
        cluster.processes[1].send_signal(signal.SIGCONT)
        self.until_all_got_on(10)
        self.expect_no_lease_ended()
        self.finish()


if __name__ == "__main__":
    tap.main()
