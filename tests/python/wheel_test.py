"""The wheel: it has every file of the package, the backend tags it for all Pythons, and installed in
a clean environment, without compilers or variables of this project, it runs the README's program.
Its parts come from this build; fresh_install.sh beside this file compiles and repairs a real one."""
import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

try:
    import numpy  # noqa: F401
    MISSING = None
except ImportError as error:  # python3-numpy belongs to /usr/bin/python3
    MISSING = str(error)

BUILD = sys.argv.pop()
SOURCE = os.path.join(processes.TOP, "worker", "python")
LIBRARIES = ("worker/capi/libcairn_client.so.0", "worker/capi/libcairn_server.so.0")
PROGRAMS = ("ps_server/cairn-ps", "worker/cairn-worker", "worker/ctl/cairnctl")


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


VERSION = re.search(r'^version = "(.*)"', read(processes.TOP, "pyproject.toml"), re.M).group(1)
INFO = f"cairn_ps-{VERSION}.dist-info"


def package_files():
    """Paths below worker/python, as Meson lists them."""
    return [os.path.relpath(os.path.join(folder, name), SOURCE)
            for folder, _, names in os.walk(os.path.join(SOURCE, "cairn"))
            for name in names if not name.endswith(".pyc")]


def backend():
    """worker/python/build_backend.py, without meson-python, which only builds."""
    sys.modules.setdefault("mesonpy", types.SimpleNamespace(**dict.fromkeys((
        "build_editable", "build_sdist", "get_requires_for_build_editable",
        "get_requires_for_build_sdist", "get_requires_for_build_wheel", "build_wheel"))))
    sys.path.insert(0, SOURCE)
    import build_backend
    return build_backend


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        name = f"cairn_ps-{VERSION}-cp311-cp311-linux_x86_64.whl"
        with zipfile.ZipFile(os.path.join(cls.folder, name), "w") as wheel:
            for path in package_files():
                wheel.write(os.path.join(SOURCE, path), path)
            for path in LIBRARIES:
                wheel.write(os.path.join(BUILD, path), "cairn/lib/" + os.path.basename(path))
            for path in PROGRAMS:
                wheel.write(os.path.join(BUILD, path),
                            f"cairn_ps-{VERSION}.data/scripts/" + os.path.basename(path))
            wheel.writestr(f"{INFO}/METADATA",
                           f"Metadata-Version: 2.1\nName: cairn-ps\nVersion: {VERSION}\n")
            wheel.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\n"
                           "Root-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n")
            wheel.writestr(f"{INFO}/RECORD", "")
        cls.wheel = os.path.join(cls.folder, backend()._retagged(cls.folder, name))

    def test_has_every_file_of_the_package(self):
        listed = re.findall(r"'(cairn/[\w./]+\.(?:py|typed))'", read(SOURCE, "meson.build"))
        self.assertEqual(sorted(listed), sorted(package_files()))

    def test_serves_every_python(self):
        self.assertEqual(os.path.basename(self.wheel),
                         f"cairn_ps-{VERSION}-py3-none-linux_x86_64.whl")
        with zipfile.ZipFile(self.wheel) as wheel:
            self.assertEqual(re.findall("^Tag: .*", wheel.read(f"{INFO}/WHEEL").decode(), re.M),
                             ["Tag: py3-none-linux_x86_64"])
            rows = list(csv.reader(wheel.read(f"{INFO}/RECORD").decode().splitlines()))
            self.assertEqual({row[0] for row in rows}, set(wheel.namelist()))
            for path, digest, size in rows[:-1]:
                data = wheel.read(path)
                self.assertEqual(len(data), int(size), path)
                self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(
                    hashlib.sha256(data).digest()).rstrip(b"=").decode(), path)

    def test_requires_a_numpy_that_reads_dlpack(self):
        floor = re.search(r'"numpy>=(\d+)\.(\d+)"', read(processes.TOP, "pyproject.toml"))
        self.assertGreaterEqual((int(floor[1]), int(floor[2])), (1, 23))  # numpy.from_dlpack

    @unittest.skipIf(MISSING, f"numpy: {MISSING}")
    def test_runs_in_a_clean_environment(self):
        place = os.path.join(self.folder, "env")
        bin_folder = os.path.join(place, "bin")
        clean = {"PATH": bin_folder, "HOME": self.folder}

        def run(*command):
            ended = subprocess.run(command, capture_output=True, text=True, check=False,
                                   timeout=200, env=clean, cwd=self.folder)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            return ended.stdout

        # Numpy is the system's: the suite needs no PyPI.
        run(sys.executable, "-m", "venv", "--system-site-packages", place)
        python = os.path.join(bin_folder, "python3")
        run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", self.wheel)
        programs = re.findall(r"^```python\n(.*?)^```$", read(SOURCE, "README.md"), re.M | re.S)
        output = run(python, "-c", programs[1])
        self.assertGreater(float(re.match(r"auc (\S+)", output).group(1)), 0.9)
        self.assertIn(place, run(python, "-c", "import cairn; print(cairn.__file__)"))
        for path in PROGRAMS:
            self.assertIn(VERSION, run(os.path.join(bin_folder, os.path.basename(path)),
                                       "--version"))


if __name__ == "__main__":
    tap.main()
