"""Python packages that only tests need: installed from PyPI into a virtual environment in the build
directory, which later runs reuse."""
import glob
import os
import subprocess
import sys
import unittest

INSTALL_SECONDS = 240


def python_with(build, name, *packages):
    """The interpreter of an environment that has `packages` ("name==version"). If they cannot be
    installed, the test is skipped with the last line of pip's output."""
    folder = os.path.join(build, "tests", "venv-" + name)
    done = os.path.join(folder, "installed")
    python = os.path.join(folder, "bin", "python")
    wanted = "\n".join(packages) + "\n"
    if os.path.exists(done):
        with open(done, encoding="ascii") as f:
            if f.read() == wanted:
                return python
    for command in ([sys.executable, "-m", "venv", "--clear", folder],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                     "--retries", "1", "--timeout", "20", *packages]):
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS,
                                 check=False)
            why = "" if run.returncode == 0 else (run.stderr or run.stdout).strip()
        except subprocess.TimeoutExpired:
            why = f"not within {INSTALL_SECONDS} s"
        if why:
            raise unittest.SkipTest(f"{' '.join(packages)} cannot be installed: "
                                    f"{why.splitlines()[-1]}")
    with open(done, "w", encoding="ascii") as f:
        f.write(wanted)
    return python


def site_packages(build, name, *packages):
    """The folder of the modules that python_with installs, for sys.path of this interpreter."""
    (folder,) = glob.glob(os.path.join(os.path.dirname(python_with(build, name, *packages)),
                                       "..", "lib", "python3*", "site-packages"))
    return folder
