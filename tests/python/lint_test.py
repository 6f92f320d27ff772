"""mypy --strict and ruff accept the package `cairn`."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

FOLDER = os.path.join(processes.TOP, "worker", "python")


class Lint(unittest.TestCase):
    def check(self, *command):
        if shutil.which(command[0]) is None:
            self.skipTest(f"{command[0]} is not installed")
        ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_mypy_strict(self):
        with tempfile.TemporaryDirectory() as cache:
            self.check("mypy", "--config-file", os.path.join(processes.TOP, "pyproject.toml"), "--strict",
                       "--cache-dir", cache, "cairn")

    def test_ruff(self):
        self.check("ruff", "check", "--no-cache", ".")


if __name__ == "__main__":
    tap.main()
