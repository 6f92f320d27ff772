"""examples/slurm/train.sbatch with a real slurmctld and slurmd on this machine, which the test
configures, starts and stops: a9a on two servers and two workers reaches its AUC and the job ends by
itself; scancel ends everything with all state on disk, and a later job continues from there; a
failing task ends the others."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

SCRIPT = os.path.join(processes.TOP, "examples", "slurm", "train.sbatch")
CTL = processes.CTL
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol")
WAIT = 120

# auth/none and cred/none: no munge and no key, only on 127.0.0.1. linuxproc instead of cgroup: CI's
# machines provide no cgroups. config_overrides: four tasks on any number of cores.
CONFIG = """
ClusterName=cairn-test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ctld_port}
SlurmdPort={d_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
KillWait=30
MinJobAge=3600
NodeName=localhost NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    missing = [p for p in PROGRAMS if shutil.which(p) is None]
    if missing:
        return f"{', '.join(missing)} missing: examples/install_packages.sh --tests"
    if os.geteuid() != 0:
        return "slurmd needs root"
    return None


def running(text):
    """Command lines of processes that mention `text`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                words = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words:
            found.append(words)
    return found


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if why_not():
            raise unittest.SkipTest(why_not())
        cls.folder = tempfile.mkdtemp(prefix="cairn-slurm.")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for name in ("state", "spool", "bin"):
            os.mkdir(os.path.join(cls.folder, name))
        for program in (processes.PS, processes.WORKER, CTL):
            os.symlink(program, os.path.join(cls.folder, "bin", os.path.basename(program)))
        ctld_port = addresses.run_of_ports(2)
        config = os.path.join(cls.folder, "slurm.conf")
        with open(config, "w", encoding="ascii") as f:
            f.write(CONFIG.format(folder=cls.folder, ctld_port=ctld_port, d_port=ctld_port + 1))
        cls.environment = {**os.environ, "SLURM_CONF": config}
        cls.start("slurmctld", "-D", "-i", "-c")
        cls.start("slurmd", "-D", "-N", "localhost")
        processes.wait_for(lambda: "State=IDLE" in cls.slurm("scontrol", "show", "node", code=None),
                           WAIT, "the node to be idle")

    @classmethod
    def start(cls, program, *flags):
        log = open(os.path.join(cls.folder, program + ".log"), "wb")
        cls.addClassCleanup(log.close)
        process = subprocess.Popen([shutil.which(program), *flags], env=cls.environment,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        cls.addClassCleanup(cls.end, process)

    @classmethod
    def end(cls, process):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)

    @classmethod
    def slurm(cls, *command, code=0, **variables):
        """The output of a Slurm command; `code` None: any exit status."""
        done = subprocess.run(command, env={**cls.environment, **variables}, capture_output=True,
                              text=True, timeout=WAIT, check=False)
        if code is not None and done.returncode != code:
            raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def submit(self, job, state, worker_flags, ps_flags="", cluster="ps=2,worker=2"):
        """Submits a job; returns its number and its output file."""
        output = os.path.join(self.folder, state + ".out")
        said = self.slurm(
            "sbatch", "--parsable", "--output", output, SCRIPT, CAIRN_JOB=job,
            CAIRN_BIN=os.path.join(self.folder, "bin"), CAIRN_PORT=str(addresses.run_of_ports(4)),
            CAIRN_STATE=os.path.join(self.folder, state), CAIRN_CLUSTER=cluster,
            CAIRN_WORKER_FLAGS=worker_flags, CAIRN_PS_FLAGS=ps_flags)
        number = said.strip()
        self.addCleanup(self.slurm, "scancel", "--quiet", "--signal=KILL", "--full", number,
                        code=None)
        return number, output

    def ended(self, number):
        """The state and the exit status of a job, once it has ended."""
        def over():
            shown = self.slurm("scontrol", "show", "job", number)
            state = re.search(r"JobState=(\w+)", shown).group(1)
            code = re.search(r"ExitCode=(\d+):", shown).group(1)
            return (state, int(code)) if state not in ("PENDING", "RUNNING", "COMPLETING") else None
        return processes.wait_for(over, WAIT, f"job {number} to end")

    def output(self, path):
        """Lines of a job's output by task."""
        by_task = {}
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                task, colon, text = line.rstrip("\n").partition(": ")
                by_task.setdefault(task if colon else "", []).append(text if colon else line)
        return by_task

    def reports(self, path):
        """The reports in a job's output, by task name."""
        found = [json.loads(line) for lines in self.output(path).values() for line in lines
                 if line.startswith("{")]
        return {report["task"]: report for report in found}

    def text(self, path):
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def assert_nothing_runs(self, state):
        left = lambda: not running(os.path.join(self.folder, state))  # noqa: E731
        processes.wait_for(left, 30, "all processes of the job to be gone")

    def endless_job(self):
        return scene.write_endless_job(self.folder, "endless", batch=10)

    def test_a9a_reaches_its_auc_and_the_job_ends_by_itself(self):
        number, output = self.submit(
            os.path.join(processes.TOP, "examples", "a9a.yaml"), "a9a",
            f"--data_root {processes.DATA}")
        self.assertEqual(self.ended(number), ("COMPLETED", 0), self.text(output))
        reports = self.reports(output)
        self.assertEqual(sorted(reports), ["worker:0", "worker:1"], self.text(output))
        self.assertGreaterEqual(reports["worker:0"]["eval"]["auc"], 0.900)
        self.assertIn("ps:1 ", "".join(self.output(output)["1"]))
        kept = os.listdir(os.path.join(self.folder, "a9a"))
        self.assertEqual(sorted(kept), ["ps0", "ps1"], "the certificates go with the job")
        self.assert_nothing_runs("a9a")

    def test_scancel_ends_all_with_everything_on_disk_and_a_later_job_continues(self):
        job = self.endless_job()
        # No snapshot except the last one, at the end.
        events = os.path.join(self.folder, "events")
        number, output = self.submit(job, "cancelled", f"--set output.tensorboard={events}",
                                     "--snapshot_interval_seconds=3600")

        def both_train():
            sizes = [os.path.getsize(path) for path in glob.glob(os.path.join(events, "*", "*"))]
            return len(sizes) == 2 and min(sizes) > 20000
        processes.wait_for(both_train, WAIT, "some hundred steps of each worker")
        calls = running(os.path.join(self.folder, "cancelled"))
        for program in ("cairn-ps", "cairn-worker"):
            flags = [words for words in calls if program + " " in words]
            self.assertEqual(len(flags), 2, calls)
            self.assertTrue(all(" --tls_certificate " in words for words in flags), flags)
        self.slurm("scancel", number)
        self.assertEqual(self.ended(number)[0], "CANCELLED", self.text(output))
        self.assert_nothing_runs("cancelled")
        log = self.text(output)
        self.assertEqual(log.count("writing everything, then ending"), 2, log)
        for server in ("0", "1"):
            found = subprocess.run([CTL, "inspect", "--json", "--data_dir",
                                    os.path.join(self.folder, "cancelled", "ps" + server)],
                                   capture_output=True, text=True, timeout=WAIT, check=True)
            self.assertIn("endless", found.stdout)
        number, output = self.submit(job, "cancelled", "--max_steps 5")
        self.assertEqual(self.ended(number), ("COMPLETED", 0), self.text(output))
        reports = self.reports(output)
        self.assertEqual(sorted(reports), ["worker:0", "worker:1"], self.text(output))
        for report in reports.values():  # earlier jobs made more steps than these
            self.assertEqual(report["steps"], 0, report)
            self.assertGreater(report["total_steps"], 50, report)

    def test_workers_that_train_as_one_need_no_servers(self):
        number, output = self.submit(
            self.endless_job(), "together", "--max_steps 5 --set strategy.type=multi_worker_mirrored",
            cluster="worker=2")
        self.assertEqual(self.ended(number), ("COMPLETED", 0), self.text(output))
        self.assertEqual(sorted(self.reports(output)), ["worker:0", "worker:1"], self.text(output))
        self.assertEqual(os.listdir(os.path.join(self.folder, "together")), [])

    def test_a_failing_task_ends_the_others_and_the_job_reports_it(self):
        number, output = self.submit(self.endless_job(), "failed", "--set data.batch_size=none")
        state, code = self.ended(number)
        self.assertEqual((state, code != 0), ("FAILED", True), self.text(output))
        self.assertIn("data.batch_size", self.text(output))
        self.assert_nothing_runs("failed")


if __name__ == "__main__":
    tap.main()
