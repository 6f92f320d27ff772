"""The Debian packages of this build: lintian finds nothing unexplained; they install in a root that
contains only their dependencies; the unit's own command line serves and notifies its service
manager; a worker trains with the server; purge keeps the data."""
import configparser
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop())
PROGRAMS = ("dpkg-buildpackage", "dh", "help2man", "lintian", "mmdebstrap")
SUITE = "bookworm"


def run(*command, seconds=1200, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit status {done.returncode}\n"
                             f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


class DebianTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [p for p in PROGRAMS if shutil.which(p) is None]
        if missing:
            raise unittest.SkipTest(f"{', '.join(missing)} missing: "
                                    "examples/install_packages.sh --tests")
        cls.folder = tempfile.mkdtemp(prefix="cairn-debian.")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run(os.path.join(processes.TOP, "examples", "debian", "build.sh"), "--prebuilt", BUILD,
            os.path.join(cls.folder, "packages"))
        cls.packages = {os.path.basename(path).split("_")[0]: path
                        for path in glob.glob(os.path.join(cls.folder, "packages", "*.deb"))}

    def test_lintian_finds_nothing_unexplained(self):
        self.assertEqual(sorted(self.packages), ["cairn", "libcairn-client0", "libcairn-dev",
                                                 "libcairn-worker0.2"])
        # A tree with CUDA names the toolkit's directory, where the static library finds the
        # runtime; package builds leave CUDA out (debian/rules).
        with open(os.path.join(BUILD, "worker", "library", "cairn-static.pc"),
                  encoding="ascii") as f:
            toolkit = ["--suppress-tags", "pkg-config-bad-directive"] if "cudart" in f.read() else []
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", *toolkit,
                               *self.packages.values()], capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_the_library_is_found_at_its_installed_place(self):
        files = os.path.join(self.folder, "dev")
        for name in ("libcairn-dev", "libcairn-worker0.2"):
            run("dpkg-deb", "-x", self.packages[name], files)
        (config,) = glob.glob(os.path.join(files, "usr", "lib", "*", "pkgconfig", "cairn.pc"))
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(config),
                       "PKG_CONFIG_SYSROOT_DIR": files}
        for variable in ("includedir", "libdir"):
            path = run("pkg-config", f"--variable={variable}", "cairn", env=environment).strip()
            self.assertTrue(os.path.isdir(path), path)
            self.assertNotIn("local", path)
        self.assertTrue(glob.glob(os.path.join(path, "libcairn_worker.so")))

    def root(self):
        """A root with the packages that ours depend on; created once and kept in the build
        directory."""
        if os.geteuid() != 0:
            self.skipTest("a root of its own needs root")
        needed = set()
        for name in ("cairn", "libcairn-worker0.2"):
            for one in run("dpkg-deb", "-f", self.packages[name], "Depends").split(","):
                needed.add(re.split(r"[ (|]", one.strip())[0])
        include = ",".join(sorted(needed - set(self.packages)))
        key = hashlib.sha256(f"{SUITE} {include}".encode()).hexdigest()[:12]
        kept = os.path.join(BUILD, "tests", f"root-{key}.tar")
        if not os.path.exists(kept):
            made = subprocess.run(["mmdebstrap", "--mode=root", "--variant=essential",
                                   f"--include={include}", SUITE, kept + ".part.tar"],
                                  capture_output=True, text=True, timeout=500, check=False)
            if made.returncode != 0:
                self.skipTest("mmdebstrap cannot make a root (no network?): "
                              + made.stderr.strip().splitlines()[-1])
            os.rename(kept + ".part.tar", kept)
        root = os.path.join(self.folder, "root")
        os.mkdir(root)
        run("tar", "-xf", kept, "-C", root)
        return root

    def unit(self, root):
        """The unit's settings as systemd would read them for instance 0."""
        parser = configparser.RawConfigParser(strict=False)
        parser.optionxform = str
        with open(os.path.join(root, "lib/systemd/system/cairn-ps@.service"),
                  encoding="ascii") as f:
            parser.read_string(f.read().replace("%i", "0"))
        service = dict(parser["Service"])
        variables = {}
        with open(root + service["EnvironmentFile"].lstrip("-"), encoding="ascii") as f:
            for line in f:
                if "=" in line and not line.startswith("#"):
                    name, _, value = line.strip().partition("=")
                    variables[name] = shlex.split(value)[0] if shlex.split(value) else ""
        words = []
        for word in service["ExecStart"].split():
            words += variables[word[1:]].split() if word.startswith("$") else [word]
        return service, words

    def start(self, root):
        """Starts the unit by hand; returns its process and the notifications to its manager."""
        service, words = self.unit(root)
        self.assertEqual(service["Type"], "notify")
        state = os.path.join(root, "var", "lib", service["StateDirectory"])
        os.makedirs(state, exist_ok=True)
        run("chroot", root, "chown", f"{service['User']}:{service['Group']}",
            "/var/lib/" + service["StateDirectory"])
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(os.path.join(root, "run", "notify"))
        os.chmod(os.path.join(root, "run", "notify"), 0o666)
        manager.settimeout(60)
        log = open(os.path.join(self.folder, "unit.log"), "w+", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            ["chroot", f"--userspec={service['User']}:{service['Group']}", root, "/usr/bin/env",
             "NOTIFY_SOCKET=/run/notify", *words], stdout=log, stderr=log)
        self.addCleanup(processes.end, process)
        return process, manager, state

    def told(self, manager, what):
        """Every message up to the one that contains `what`."""
        heard = []
        while not heard or what not in heard[-1].split("\n"):
            heard.append(manager.recv(4096).decode())
        return heard

    def train(self, root):
        with open(os.path.join(root, "tmp", "rows.libsvm"), "w", encoding="ascii") as f:
            f.write("1 1:1\n0 2:1\n" * 200)
        with open(os.path.join(root, "tmp", "job.yaml"), "w", encoding="ascii") as f:
            f.write("{name: tiny, model: {type: linear}, optimizer: {type: sgd, learning_rate: 1},"
                    " data: {format: libsvm, features: 2, train: [rows.libsvm], batch_size: 20}}")
        out = run("chroot", root, "cairn-worker", "--job", "/tmp/job.yaml", "--cluster",
                  "/etc/cairn/cluster.yaml", "--task_type", "worker", "--task_index", "0")
        return json.loads(out.splitlines()[-1])

    def test_they_install_serve_and_keep_the_data(self):
        root = self.root()
        for name in ("cairn", "libcairn-worker0.2"):
            shutil.copy(self.packages[name], os.path.join(root, "tmp"))
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("chroot", root, "sh", "-c", "dpkg -i /tmp/*.deb", env=environment)
        address = addresses.own_address()
        with open(os.path.join(root, "etc/cairn/cluster.yaml"), "w", encoding="ascii") as f:
            f.write('cluster: {ps: ["%s"], worker: ["%s"]}\n' %
                    (address, addresses.nobodys_address()))

        process, manager, state = self.start(root)
        self.told(manager, "READY=1")
        host, port = address.split(":")
        socket.create_connection((host, int(port)), timeout=5).close()  # checks that ready is true
        owners = {os.stat(path).st_uid for path in glob.glob(os.path.join(state, "*"))}
        self.assertEqual(owners, {int(run("chroot", root, "id", "-u", "cairn"))})
        self.assertEqual(self.train(root)["steps"], 20)
        status = json.loads(run("chroot", root, "cairnctl", "status", "--json", "--cluster",
                                "/etc/cairn/cluster.yaml", "--job", "tiny"))
        self.assertEqual(status["servers"][0]["state"], "ok")
        process.send_signal(signal.SIGTERM)
        self.told(manager, "STOPPING=1")
        self.assertEqual(process.wait(60), 0)

        run("chroot", root, "dpkg", "--purge", "cairn", env=environment)
        self.assertFalse(os.path.exists(os.path.join(root, "etc/cairn/cluster.yaml")))
        self.assertFalse(os.path.exists(os.path.join(root, "usr/bin/cairn-ps")))
        kept = json.loads(run(processes.CTL, "inspect", "--json", "--data_dir", state))
        self.assertIn("tiny", json.dumps(kept))


if __name__ == "__main__":
    tap.main()
