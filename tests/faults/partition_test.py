"""The network between one worker and one server is cut in both directions, and restored, in
separate network namespaces: the worker names the server and the time of the loss, its lease ends on
that server only, the other workers continue, and after the restoration every push counts once."""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402
from harness import PUSHER, PUSHERS, SECONDS, PushersCase  # noqa: E402

INSIDE = "CAIRN_IN_NAMESPACE"
CUT = 1  # index of the server, and of the worker
LEASE_SECONDS = 4


def ip(*words, inside=None):
    """Runs `ip WORDS` in the network of process `inside`."""
    command = [] if inside is None else ["nsenter", "-t", str(inside), "-n"]
    subprocess.run([*command, "ip", *words], check=True, timeout=SECONDS)


class Partition(PushersCase):
    """Servers and worker 0 in one network, worker 1 in another, with a cable to each server."""

    def setUp(self):
        super().setUp()
        self.assertIn(INSIDE, os.environ, "run this file, which makes namespaces for it")
        ip("link", "set", "lo", "up")
        self.holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE)
        self.addCleanup(self.holder.wait, SECONDS)
        self.addCleanup(self.holder.stdin.close)
        ours = os.readlink("/proc/self/ns/net")
        processes.wait_for(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != ours, SECONDS,
                           "a network for worker 1")
        for s in range(3):
            ip("address", "add", f"10.9.{s}.1/32", "dev", "lo")
            ip("link", "add", f"to{s}", "type", "veth", "peer", "name", f"from{s}")
            ip("link", "set", f"from{s}", "netns", str(self.holder.pid))
            ip("address", "add", f"10.9.{s}.2/32", "dev", f"from{s}", inside=self.holder.pid)
            ip("link", "set", f"from{s}", "up", inside=self.holder.pid)
            ip("route", "add", f"10.9.{s}.1/32", "dev", f"from{s}", inside=self.holder.pid)
            self.connect(s)

    @staticmethod
    def connect(server):
        ip("link", "set", f"to{server}", "up")
        ip("route", "replace", f"10.9.{server}.2/32", "dev", f"to{server}")

    @staticmethod
    def cut(server):
        ip("link", "set", f"to{server}", "down")

    def open_cluster(self, count, *flags, name="servers"):
        cluster = super().open_cluster(count, "--allow_plaintext", *flags, name=name)
        spawn = cluster.spawn
        cluster.spawn = lambda index, address=None: spawn(
            index, address or f"10.9.{index}.1:{addresses.own_port()}")
        return cluster

    def start_pusher(self, worker):
        command = [PUSHER, "push", ",".join(self.cluster.addresses), str(worker), self.folder,
                   str(1 << 20), "ordered", "async"]
        if worker == CUT:
            command = ["nsenter", "-t", str(self.holder.pid), "-n", *command]
        return self.start(f"worker{worker}", command)

    def test_one_worker_and_one_server_are_cut_off_and_reconnect(self):
        with self.open_cluster(3, "--snapshot_interval_seconds", "0.1", "--lease_seconds",
                               str(LEASE_SECONDS)) as cluster:
            for worker in range(PUSHERS):
                self.start_pusher(worker)
            self.until_all_got_on(20)
            self.cut(CUT)
            name = rf"ps:{CUT} \({re.escape(cluster.addresses[CUT])}\) "
            processes.wait_for(
                lambda: re.search(name + r"(has not answered|has been down) since \d\d:\d\d:\d\d",
                                  self.log(f"worker{CUT}")), SECONDS, "worker 1 to name ps:1")
            lost = f"worker {CUT} of job soak"
            ended = f"was not heard of for {LEASE_SECONDS}s: its lease has ended"
            processes.wait_for(lambda: ended in cluster.log(CUT), SECONDS, "the end of the lease")
            before = self.progress()
            processes.wait_for(lambda: self.progress()[0] >= before[0] + 50, SECONDS,
                               "worker 0 to get on")
            self.assertLessEqual(self.progress()[CUT], before[CUT])
            self.assertIn(lost, [l for l in cluster.log(CUT).splitlines() if ended in l][-1])
            for index in (0, 2):  # heartbeats continue
                self.assertNotIn(ended, cluster.log(index))
            self.connect(CUT)
            self.until_all_got_on(20)
            self.assertIn("is back after", self.log(f"worker{CUT}"))
            self.finish()


def why_not():
    """Why namespaces cannot be used here; empty: they can."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"no program {program}"
    probe = "ip link set lo up && ip link add here type veth peer name there && unshare -n true"
    run = subprocess.run(["unshare", "-rn", "sh", "-c", probe], capture_output=True, text=True,
                         timeout=SECONDS, check=False)
    return "" if run.returncode == 0 else "no network namespaces: " + run.stderr.strip()[-200:]


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if INSIDE in os.environ:
        tap.main()
    reason = why_not()
    if reason:
        print(f"ok 1 - Partition # SKIP {reason}\n1..1", flush=True)
        sys.exit(0)
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "-rn", sys.executable, *sys.argv])
