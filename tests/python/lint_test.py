"""mypy --strict and ruff accept the package `cairn`, and everything public in it has a docstring, from
which pdoc makes the reference."""
import ast
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import python_packages  # noqa: E402
import tap  # noqa: E402

BUILD = sys.argv[1]
RUFF = "ruff==0.13.0"
FOLDER = os.path.join(processes.TOP, "worker", "python")


class Lint(unittest.TestCase):
    def check(self, *command):
        ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_mypy_strict(self):
        if shutil.which("mypy") is None:
            self.skipTest("mypy is not installed")
        with tempfile.TemporaryDirectory() as cache:
            self.check("mypy", "--config-file", os.path.join(processes.TOP, "pyproject.toml"), "--strict",
                       "--cache-dir", cache, "cairn")

    def test_ruff(self):
        python = python_packages.python_with(BUILD, "ruff", RUFF)
        self.check(python, "-m", "ruff", "check", "--no-cache", ".")

    def test_everything_public_has_a_docstring(self):
        missing, seen = [], 0

        def visit(node, place):
            nonlocal seen
            is_named = hasattr(node, "name")
            if is_named and node.name.startswith("_"):
                return
            seen += 1
            if ast.get_docstring(node) is None:
                missing.append(place)
            for child in [] if isinstance(node, ast.FunctionDef) else node.body:
                if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                    visit(child, f"{place}.{child.name}")

        for path in glob.glob(os.path.join(FOLDER, "cairn", "**", "*.py"), recursive=True):
            with open(path, encoding="utf-8") as file:
                visit(ast.parse(file.read()), os.path.relpath(path, FOLDER))
        self.assertGreater(seen, 100)
        self.assertEqual(missing, [])


if __name__ == "__main__":
    tap.main()
