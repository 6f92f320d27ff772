"""--version of every program: version, build, and the versions of the protocol and of the formats,
as defined in the sources."""
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

PROGRAMS = [processes.PS, processes.WORKER, processes.CTL, os.environ["CAIRN_MAKE_CLICKS"]]


def number(path, pattern):
    with open(os.path.join(processes.TOP, path), encoding="utf-8") as f:
        return int(re.search(pattern, f.read()).group(1))


PROTOCOL = number("thrift/cairn.thrift", r"const i32 PROTOCOL_VERSION = (\d+)")
STORE = number("storage/record.h", r"kFormatVersion = (\d+)")
CHECKPOINT = number("worker/trainer/checkpoints/checkpoint_manifest.h", r"kFormat = (\d+)")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


class VersionTest(unittest.TestCase):
    def test_every_program_prints_its_version_on_stdout(self):
        for program in PROGRAMS:
            done = run(program, "--version")
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)
            first, revision, built, formats = done.stdout.splitlines()
            self.assertRegex(first, rf"^{os.path.basename(program)} \d+\.\d+\.\d+$")
            self.assertRegex(revision, r"^revision \S+$")
            self.assertRegex(built, r"^built with (GCC|Clang) \d+\.\d+\.\d+, \w+")
            self.assertEqual(formats, f"protocol {PROTOCOL}, store format {STORE}, "
                                      f"checkpoint format {CHECKPOINT}")

    def test_help_names_it(self):
        for program in PROGRAMS:
            self.assertIn("--version", run(program, "--help").stdout, program)

    def test_cairnctl_has_it_as_json(self):
        answer, _ = processes.ctl("version")
        self.assertEqual((answer["protocol"], answer["store_format"], answer["checkpoint_format"]),
                         (PROTOCOL, STORE, CHECKPOINT))
        self.assertEqual(run(processes.CTL, "version").stdout,
                         run(processes.CTL, "--version").stdout)

    def test_the_revision_equals_that_of_the_sources(self):
        git = run("git", "-C", processes.TOP, "describe", "--tags", "--always")
        if git.returncode != 0:
            self.skipTest("the sources are in no git checkout")
        # The build may be older than the last commit, so any commit of the history is accepted.
        revision = processes.ctl("version")[0]["revision"]
        name = revision.removesuffix("-dirty")
        self.assertEqual(run("git", "-C", processes.TOP, "cat-file", "-t", name).stdout.strip(),
                         "commit", revision)


if __name__ == "__main__":
    tap.main()
