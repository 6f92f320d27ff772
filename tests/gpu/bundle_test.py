"""tests/gpu.sh makes a bundle below 64 MiB whose run.sh runs every part, goes on after parts that
fail, crash and hang, and writes a summary. With programs for fake GPUs; those for real ones are
bundled too, and find no GPU."""
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop())
KIND = sys.argv.pop()
ALL = ["gpu", "models", "optimizers", "tensors", "golden", "golden_optimizers", "strategies", "nccl",
       "resident", "doctor", "jobs", "workers", "package", "bench", "torch", "dense_job", "table_job",
       "generated",
       "memcheck", "memcheck_tensors", "memcheck_resident", "racecheck", "initcheck"]
# Parts that need a real GPU: the driver's description, cairn-worker, and PyTorch.
REAL = {"gpu", "jobs", "workers", "package", "torch", "dense_job", "table_job"}
# Each program runs a part of its tests: they have run as tests of their own.
ENV = {**os.environ, "CAIRN_GPU_BENCH": "--small", "GTEST_TOTAL_SHARDS": "6",
       "GTEST_SHARD_INDEX": "0", "CAIRN_FAKE_DELAY_US": "0"}


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=500, **options)


def bundle(out):
    fakes = ["--fakes"] if KIND == "fakes" else []
    done = run(os.path.join(processes.TOP, "tests", "gpu.sh"), "--bundle", out, "--build", BUILD,
               "--no-build", *fakes)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)


def pack(*arguments):
    done = run("zstd", "-q", "-f", "--long=27", *arguments)
    assert done.returncode == 0, done.stderr


def results(out, env):
    """Calls run.sh; returns its exit status, the summary, and the statuses of the parts."""
    done = run(os.path.join(out, "run.sh"), env=env)
    with open(os.path.join(out, "results", "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    # A line a part, and the summary's path.
    assert len(done.stdout.splitlines()) == len(summary["parts"]) + 1, done.stdout + done.stderr
    return done.returncode, summary, {part["part"]: part for part in summary["parts"]}


@unittest.skipUnless(KIND == "fakes", "the programs are for GPUs")
class OnFakeGpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.out = tempfile.mkdtemp()
        bundle(cls.out)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.out)

    def with_sanitizer(self, folder):
        """The environment with a compute-sanitizer that runs its program and notes its tool."""
        path = os.path.join(folder, "compute-sanitizer")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$2" >>"{folder}/tools"\nshift 4\nexec "$@"\n')
        os.chmod(path, 0o755)
        return {**ENV, "PATH": folder + ":" + ENV["PATH"]}

    def test_every_part_runs_in_order_and_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            status, summary, parts = results(self.out, self.with_sanitizer(folder))
            with open(os.path.join(folder, "tools"), encoding="utf-8") as file:
                tools = file.read().split()
        self.assertEqual([part["part"] for part in summary["parts"]], ALL)
        self.assertEqual({name for name in ALL if parts[name]["status"] != "passed"} - REAL, set(),
                         summary["parts"])
        self.assertEqual((status, summary["failed_parts"]), (0, 0))
        self.assertGreater(parts["golden"]["passed"], 0)
        self.assertEqual(tools, ["memcheck"] * 3 + ["racecheck", "initcheck"])
        self.assertTrue(summary["bench"])
        self.assertTrue(all("bench" in line for line in summary["bench"]))

    def test_the_rest_runs_after_parts_that_fail_crash_and_hang(self):
        out = tempfile.mkdtemp()
        try:
            shutil.copy(os.path.join(self.out, "run.sh"), out)
            shutil.copytree(os.path.join(self.out, "zstd"), os.path.join(out, "zstd"))
            with tempfile.TemporaryDirectory() as stage:
                pack("-d", os.path.join(self.out, "payload.tar.zst"), "-o", stage + ".tar")
                with tarfile.open(stage + ".tar") as payload:
                    payload.extractall(stage)
                for program, text in (("golden", "exit 7"), ("optimizers", "sleep 600"),
                                      ("strategies", "kill -SEGV $$")):
                    with open(os.path.join(stage, "bin", program), "w", encoding="utf-8") as file:
                        file.write(f"#!/bin/sh\necho 'says \"no\"'\n{text}\n")
                with tarfile.open(stage + ".tar", "w") as payload:
                    for name in os.listdir(stage):
                        payload.add(os.path.join(stage, name), name)
                pack("-1", stage + ".tar", "-o", os.path.join(out, "payload.tar.zst"))
                os.remove(stage + ".tar")
            status, summary, parts = results(out, {**ENV, "CAIRN_GPU_PART_SECONDS": "60"})
        finally:
            shutil.rmtree(out)
        self.assertEqual([part["part"] for part in summary["parts"]], ALL)
        self.assertEqual({name for name in ALL if parts[name]["status"] == "failed"},
                         {"golden", "optimizers", "strategies"}, summary["parts"])
        self.assertEqual((status, summary["failed_parts"]), (1, 3))
        self.assertEqual(parts["golden"]["note"], "exit status 7: says no")
        self.assertEqual(parts["optimizers"]["note"], "not done in 60 s")
        self.assertEqual(parts["tensors"]["status"], "passed")

    def test_no_part_begins_when_the_time_is_over(self):
        _, _, parts = results(self.out, {**ENV, "CAIRN_GPU_SECONDS": "0"})
        self.assertEqual({part["status"] for part in parts.values()}, {"skipped"})
        self.assertIn("no time is left", parts["models"]["note"])


@unittest.skipUnless(KIND == "gpus", "the programs are for fake GPUs")
class ForGpus(unittest.TestCase):
    def test_the_bundle_says_that_there_is_no_gpu_or_passes(self):
        out = tempfile.mkdtemp()
        try:
            bundle(out)
            size = sum(os.path.getsize(os.path.join(folder, name))
                       for folder, _, names in os.walk(out) for name in names)
            self.assertLess(size, 64 << 20)
            status, _, parts = results(out, {**ENV, "CAIRN_GPU_BENCH": ""})
        finally:
            shutil.rmtree(out)
        if parts["models"]["status"] != "skipped":
            self.assertEqual(status, 0, parts)
        else:
            self.assertEqual(status, 1)
            self.assertIn("GPU", parts["models"]["note"])


if __name__ == "__main__":
    tap.main()
