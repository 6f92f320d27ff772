"""examples/install_packages.sh, debian/build.sh and quickstart.sh with stand-ins for the programs
that they call; the Dockerfile: its package lists and paths match this tree."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

INSTALL = os.path.join(processes.TOP, "examples", "install_packages.sh")
BUILD_PACKAGES = os.path.join(processes.TOP, "examples", "debian", "build.sh")
RUNTIME = os.path.join(processes.TOP, "examples", "runtime_packages.sh")
# sudo's env_reset: only PATH of the caller's environment is passed on.
STAND_INS = {
    "dpkg-query": 'for name; do :; done; grep -qx "$name" "$STATE/installed" && echo installed',
    "apt-cache": 'for name; do :; done; ! grep -qx "$name" "{state}/unknown"',
    "apt-get": 'echo "$DEBIAN_FRONTEND $*" >>"{state}/calls"\n'
               'case "$1" in update) [ ! -e "{state}/broken" ] || {{ echo "E: no such source" >&2; '
               'exit 100; }} ;; esac',
    "id": "echo 1000",
    "sudo": 'exec /usr/bin/env -i PATH="$PATH" "$@"',
}


def wanted(*flags):
    return subprocess.run([INSTALL, "--list", *flags], capture_output=True, text=True,
                          check=True).stdout.split()


class InstallPackages(scene.FolderTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        for name, text in STAND_INS.items():
            text = text.replace("$STATE", self.folder).replace("{state}", self.folder)
            self.write(os.path.join("bin", name),
                       "#!/bin/sh\n" + text.replace("{{", "{").replace("}}", "}") + "\n", 0o755)
        self.write("installed", "")
        self.write("unknown", "")

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(self.path(name), mode)

    def install(self, *flags, code=0):
        done = subprocess.run([INSTALL, *flags], capture_output=True, text=True, timeout=60,
                              check=False,
                              env={**os.environ, "PATH": self.path("bin") + ":/usr/bin:/bin"})
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def calls(self):
        if not os.path.exists(self.path("calls")):
            return []
        with open(self.path("calls"), encoding="ascii") as f:
            return f.read().splitlines()

    def test_missing_packages_are_installed_without_a_question_through_sudo(self):
        names = wanted()
        self.write("installed", "g++\nmeson\n")
        self.install()
        update, install = self.calls()
        self.assertEqual(update, "noninteractive update -qq")
        self.assertEqual(install.split()[:2], ["noninteractive", "install"])
        self.assertEqual([w for w in install.split()[2:] if not w.startswith("-")],
                         [n for n in names if n not in ("g++", "meson")])

    def test_nothing_is_called_if_all_are_installed(self):
        self.write("installed", "\n".join(wanted()) + "\n")
        self.assertEqual(self.install(), "")
        self.assertEqual(self.calls(), [])

    def test_a_broken_source_is_explained_and_does_not_stop_other_packages(self):
        self.write("broken", "")
        said = self.install()
        self.assertIn("E: no such source", said)
        self.assertIn("apt-get update failed, above is why", said)
        self.assertEqual(len(self.calls()), 2)
        self.write("unknown", "libgloo-dev\n")
        said = self.install(code=1)
        self.assertIn("do not have: libgloo-dev", said)
        self.assertIn("mend the source", said)

    def test_names_that_the_release_lacks_are_reported_before_installing(self):
        self.write("unknown", "libgloo-dev\nlibdlpack-dev\n")
        said = self.install(code=1)
        self.assertIn("do not have: libgloo-dev libdlpack-dev", said)
        self.assertIn("universe", said)
        self.assertEqual(len(self.calls()), 1)

    def test_a_package_with_another_name_elsewhere_is_found_under_it(self):
        self.write("unknown", "chromium\n")
        self.install("--tests")
        self.assertIn(" chromium-browser ", self.calls()[1])
        os.remove(self.path("calls"))
        self.write("unknown", "")
        self.install("--tests")
        self.assertIn(" chromium ", self.calls()[1])

    def test_without_apt_the_list_is_printed(self):
        os.remove(self.path("bin", "apt-get"))
        tools = {name: self.path("bin", name) for name in ("bash", "env")}
        for name, path in tools.items():
            os.symlink(f"/usr/bin/{name}", path)
        done = subprocess.run([INSTALL], capture_output=True, text=True, timeout=60, check=False,
                              env={"PATH": self.path("bin")})
        self.assertEqual(done.returncode, 1)
        self.assertIn("libthrift-dev", done.stderr)
        self.assertIn("unknown word '--test'", self.install("--test", code=2))


class DebianBuild(scene.FolderTest):
    def test_missing_packages_are_named_before_anything_is_written(self):
        for name in ("bash", "dirname"):
            os.symlink(f"/usr/bin/{name}", self.path(name))
        done = subprocess.run(["/usr/bin/bash", BUILD_PACKAGES, self.path("out")], timeout=60,
                              capture_output=True, text=True, check=False,
                              env={"PATH": self.folder})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("missing packages: dpkg-dev debhelper help2man; ", done.stderr)
        self.assertFalse(os.path.exists(self.path("out")))


class Quickstart(scene.FolderTest):
    def flags_of_meson(self, gpu):
        """What quickstart.sh gives to meson, on a machine with or without an NVIDIA GPU."""
        device = self.path("nvidiactl")
        with open(os.path.join(processes.TOP, "examples", "quickstart.sh"), encoding="utf-8") as f:
            text = f.read()
        self.assertEqual(text.count("/dev/nvidiactl"), 1)
        for path, script in (("examples/quickstart.sh", text.replace("/dev/nvidiactl", device)),
                             ("examples/install_packages.sh", "#!/bin/sh\n"),
                             ("bin/meson", f'#!/bin/sh\necho "$@" >{self.path("flags")}\n'),
                             ("bin/ninja", "#!/bin/sh\nexit 7\n")):
            os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
            with open(self.path(path), "w", encoding="utf-8") as f:
                f.write(script)
            os.chmod(self.path(path), 0o755)
        if gpu:
            with open(device, "w", encoding="ascii"):
                pass
        done = subprocess.run([self.path("examples", "quickstart.sh")], capture_output=True,
                              text=True, timeout=60, check=False,
                              env={**os.environ, "PATH": self.path("bin") + ":/usr/bin:/bin"})
        self.assertEqual(done.returncode, 7, done.stderr)
        with open(self.path("flags"), encoding="ascii") as f:
            return f.read().split()

    def test_kernels_are_compiled_only_where_a_gpu_is(self):
        self.assertIn("-Dcuda=disabled", self.flags_of_meson(gpu=False))
        self.assertIn("-Dcuda=auto", self.flags_of_meson(gpu=True))


class Dockerfile(scene.FolderTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(processes.TOP, "Dockerfile"), encoding="utf-8") as f:
            self.text = f.read()

    def test_the_paths_that_it_copies_and_runs_exist(self):
        with open(os.path.join(processes.TOP, ".dockerignore"), encoding="utf-8") as f:
            ignored = f.read().split()
        for path in re.findall(r"(?<!\S)(examples/[\w./-]+)", self.text):
            self.assertTrue(os.path.exists(os.path.join(processes.TOP, path.rstrip("/"))), path)
            self.assertNotIn(path.split("/")[0], ignored)
        self.assertTrue(os.access(RUNTIME, os.X_OK) and os.access(INSTALL, os.X_OK))
        # meson must not look for ignored directories.
        self.assertIn("tests", ignored)
        self.assertIn("-Dtests=disabled", self.text)
        self.assertIn("-Dcuda=disabled", self.text)  # the image has no driver
        for target, program in (("ps_server/cairn-ps", processes.PS),
                                ("worker/cairn-worker", processes.WORKER),
                                ("worker/ctl/cairnctl", processes.CTL)):
            self.assertTrue(program.endswith(target), program)
            self.assertIn(f"build/{target} ", self.text)

    def test_the_image_runs_as_the_user_of_the_manifests(self):
        (user,) = re.findall(r"^USER (\d+):(\d+)$", self.text, re.M)
        for name in ("ps.yaml", "worker.yaml"):
            with open(os.path.join(processes.TOP, "examples", "kubernetes", name),
                      encoding="utf-8") as f:
                manifest = f.read()
            self.assertIn(f"runAsUser: {user[0]}\n", manifest)
            self.assertIn(f"runAsGroup: {user[1]}\n", manifest)

    def test_the_packages_that_it_installs_have_every_library_of_the_programs(self):
        programs = [processes.PS, processes.WORKER, processes.CTL]
        if "Debian" not in open("/etc/os-release", encoding="utf-8").read():
            self.skipTest("no Debian")
        listed = subprocess.run([RUNTIME, *programs], capture_output=True, text=True, check=True,
                                timeout=120).stdout.split()
        self.assertEqual(listed, sorted(set(listed)))
        files = set()
        for package in listed:
            files.update(os.path.basename(line) for line in subprocess.run(
                ["dpkg-query", "-L", package], capture_output=True, text=True,
                check=True).stdout.splitlines())
        linked = subprocess.run(["ldd", *programs], capture_output=True, text=True,
                                check=True).stdout
        needed = set(re.findall(r"^\t(\S+) => /", linked, re.M))
        self.assertGreater(len(needed), 10)
        self.assertEqual(needed - files, set())


if __name__ == "__main__":
    tap.main()
