"""Test programs that time out or fail beside their cases count as failures of a run."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import tap  # noqa: E402

COUNT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "count.py")
CASES = ('<testsuites><testsuite name="S"><testcase name="one" classname="S" status="run"/>'
         '<testcase name="two" classname="S" status="run"/></testsuite></testsuites>')
WRITE = f"echo '{CASES}' > ${{1#--gtest_output=xml:}}"
FAILS = CASES.replace('status="run"/>', 'status="run"><failure message="no"/></testcase>', 1)


class Count(unittest.TestCase):
    def run_programs(self, scripts):
        """Runs shell scripts by name as test programs; the exit status and the lines of the count."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        rules = ["project('p')", "sh = find_program('sh')"]
        for name, (protocol, script) in scripts.items():
            with open(f"{folder.name}/{name}.sh", "w", encoding="utf-8") as file:
                file.write(script)
            rules.append(f"test('{name}', sh, args : files('{name}.sh'), protocol : '{protocol}', "
                         f"timeout : {1 if 'sleep' in script else 60}, "
                         f"suite : ['unit', '{protocol}'])")
        with open(f"{folder.name}/meson.build", "w", encoding="utf-8") as file:
            file.write("\n".join(rules) + "\n")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        build = f"{folder.name}/build"
        subprocess.run(["meson", "setup", build, folder.name], check=True, **quiet)
        subprocess.run(["meson", "test", "-C", build], check=False, **quiet)
        counted = subprocess.run([sys.executable, COUNT, f"{build}/meson-logs"],
                                 stdout=subprocess.PIPE, text=True, check=False)
        return counted.returncode, counted.stdout.splitlines()

    def test_all_pass(self):
        status, lines = self.run_programs({
            "cases": ("gtest", WRITE),
            "lines": ("tap", "echo ok 1 - one; echo 'ok 2 - two # SKIP no reason'; echo 1..2"),
            "alone": ("exitcode", "true")})
        self.assertEqual(lines[-1], "4 passed, 0 failed, 1 skipped")
        self.assertEqual(status, 0)

    def test_programs_that_time_out(self):
        status, lines = self.run_programs({
            "cases": ("gtest", "sleep 30"),
            "lines": ("tap", "echo ok 1 - one; sleep 30"),
            "alone": ("exitcode", "sleep 30"),
            "good": ("exitcode", "true")})
        self.assertEqual(sorted(lines), ["2 passed, 3 failed, 0 skipped",
                                         "FAILED p:unit+exitcode / alone: TIMEOUT",
                                         "FAILED p:unit+gtest / cases: TIMEOUT",
                                         "FAILED p:unit+tap / lines: TIMEOUT"])
        self.assertEqual(status, 1)

    def test_a_program_that_fails_after_its_cases(self):
        status, lines = self.run_programs({
            "cases": ("gtest", f"{WRITE}; exit 1"),
            "lines": ("tap", "echo ok 1 - one; echo 1..1; exit 1")})
        self.assertEqual(sorted(lines), ["3 passed, 2 failed, 0 skipped",
                                         "FAILED p:unit+gtest / cases: FAIL",
                                         "FAILED p:unit+tap / lines: ERROR"])
        self.assertEqual(status, 1)

    def test_a_failed_case_counts_once(self):
        status, lines = self.run_programs({
            "cases": ("gtest", f"{WRITE.replace(CASES, FAILS)}; exit 1"),
            "lines": ("tap", "echo not ok 1 - one; echo 1..1; exit 1"),
            "alone": ("exitcode", "exit 1")})
        self.assertEqual(lines[-1], "1 passed, 3 failed, 0 skipped")
        self.assertEqual(status, 1)


if __name__ == "__main__":
    tap.main()
