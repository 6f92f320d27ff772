"""Hosts differ between concurrent processes, also from hosts that C++ tests claim."""
import os
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import addresses  # noqa: E402
import tap  # noqa: E402

HOLD = ("import sys, addresses; print(addresses.own_address(), flush=True); sys.stdin.read()")


class AddressesTest(unittest.TestCase):
    def test_concurrent_processes_have_different_hosts(self):
        held, found = [], [addresses.own_host()]
        for _ in range(8):
            one = subprocess.Popen([sys.executable, "-c", HOLD], cwd=os.path.dirname(__file__),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.addCleanup(one.communicate)
            held.append(one)
        for one in held:
            found.append(one.stdout.readline().split(":")[0])
        self.assertEqual(len(set(found)), 9, found)

    def test_a_host_of_another_process_is_skipped(self):
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(taken.close)
        taken.bind("\0cairn-test-host 127.0.77.1")  # the name that addresses.cc uses
        hosts = iter(["127.0.77.1", "127.0.77.2"])
        self.assertEqual(addresses.claim_host(lambda: next(hosts)), "127.0.77.2")

    def test_ports_differ_and_can_be_listened_on(self):
        own = addresses.own_addresses(50)
        self.assertEqual(len(set(own)), 50)
        host, port = own[-1].split(":")
        socket.create_server((host, int(port))).close()

    def test_runs_of_ports_do_not_overlap(self):
        runs = [range(base, base + 4) for base in (addresses.run_of_ports(4) for _ in range(20))]
        self.assertEqual(len({port for run in runs for port in run}), 80)


if __name__ == "__main__":
    tap.main()
