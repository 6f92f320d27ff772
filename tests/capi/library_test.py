"""The installed form of the C interface: the exported symbols are those of the version script and
of the header, the client library brings none of the server's dependencies, and the example compiles
as C11 without a warning and trains, with a server in its process and with real ones."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.join(sys.argv.pop(), "worker", "capi")
CLIENT = os.path.join(BUILD, "libcairn_client.so.0")
SERVER = os.path.join(BUILD, "libcairn_server.so.0")
SOURCE = os.path.join(processes.TOP, "worker", "capi")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240,
                          **options)


def exported(library):
    """{symbol: version} of the functions that a library defines."""
    text = run("nm", "-D", "--defined-only", "--with-symbol-versions", library).stdout
    return dict(re.findall(r" T (\w+)@@(\w+\.\w+)", text))


def listed(name):
    return re.findall(r"^ {4}(cairn_\w+);", read(os.path.join(SOURCE, name)), re.M)


class Library(unittest.TestCase):
    def test_exports_exactly_the_listed_functions(self):
        self.assertEqual(exported(CLIENT), {name: "CAIRN_0.2" for name in listed("client.map")})
        self.assertEqual(exported(SERVER),
                         {name: "CAIRN_SERVER_0.2" for name in listed("server.map")})

    def test_the_list_is_that_of_the_header(self):
        header = re.sub(r"/\*.*?\*/", "", read(os.path.join(SOURCE, "c.h")), flags=re.S)
        declared = re.findall(r"\b(cairn_\w+)\((?!\*)", header)
        self.assertEqual(sorted(declared), listed("client.map"))

    def test_the_client_brings_no_server_and_no_gpu(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", CLIENT).stdout)
        self.assertTrue(needed)
        found = [n for n in needed if re.search(r"rocksdb|openblas|gloo|cuda|prometheus|nccl", n)]
        self.assertEqual(found, [])


class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.program = os.path.join(cls.folder.name, "embed")
        source = os.path.join(processes.TOP, "examples", "embed.c")
        built = run("cc", "-std=c11", "-Wall", "-Werror", "-pedantic", "-O1", source, "-I", BUILD,
                    CLIENT, "-lm", "-Wl,-rpath," + BUILD, "-o", cls.program)
        assert built.returncode == 0, built.stderr

    def check(self, ended):
        self.assertEqual(ended.returncode, 0, ended.stderr)
        loss, weight = re.search(r"step 2000 loss (\S+) w\[3\] (\S+)", ended.stdout).groups()
        self.assertLess(float(loss), 0.02)
        self.assertAlmostEqual(float(weight), 4, delta=0.1)

    def test_trains_with_a_server_in_its_process(self):
        self.check(run(self.program, cwd=self.folder.name))

    def test_trains_on_real_servers(self):
        with tempfile.TemporaryDirectory() as folder, processes.Cluster(folder, 2) as cluster:
            servers = ", ".join(f'"{address}"' for address in cluster.addresses)
            self.check(run(self.program, f"{{servers: [{servers}], job: embed, worker: 0}}"))

    def test_a_server_that_is_down_is_named(self):
        address = addresses.nobodys_address(1)
        ended = run(self.program, f'{{servers: ["{address}"], job: x, strategy: {{ps_wait_seconds: 0.2}}}}')
        self.assertEqual(ended.returncode, 1)
        waits, error = ended.stderr.splitlines()
        self.assertIn(f"ps:0 ({address}) has been down", waits)
        self.assertIn("waiting up to 200ms", waits)
        self.assertIn(f"Unavailable: connect: ps:0 ({address}) has been down", error)

    def test_says_what_is_wrong(self):
        ended = run(self.program, "{job: x, servers: []}")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("Invalid argument: connect: servers", ended.stderr)


if __name__ == "__main__":
    tap.main()
