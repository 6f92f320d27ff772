"""A cluster that runs in the background: launch --wait, jobs, status without a job, get, logs and
stop, as scripts use them."""
import json
import os
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

WAIT = 60
PROGRAMS = ["--cairn_ps", processes.PS, "--cairn_worker", processes.WORKER]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class ClusterCommands(scene.FolderTest):
    def setUp(self):
        super().setUp()
        # Launches are found through TMPDIR; a separate one hides the launches of other tests.
        self.temporary = self.path("tmp")
        os.mkdir(self.temporary)
        self.environment = {**os.environ, "TMPDIR": self.temporary}

    def run_ctl(self, *arguments, code=0):
        done = subprocess.run([processes.CTL, *arguments], capture_output=True, text=True,
                              timeout=WAIT, check=False, env=self.environment)
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done

    def ctl(self, *arguments, code=0):
        return json.loads(self.run_ctl(*arguments, "--json", code=code).stdout)

    def launch(self, *flags, job=None):
        """The answer of launch --wait; the launch is stopped when the test ends."""
        ready = self.ctl("launch", "--wait", "--log_directory", self.path("logs"), *PROGRAMS,
                         *(["--job", job] if job else []), *flags)

        def end():
            if alive(ready["pid"]):
                os.kill(ready["pid"], 15)
                processes.wait_for(lambda: not alive(ready["pid"]), WAIT, "the launch to end")
        self.addCleanup(end)
        return ready

    def log(self, task):
        with open(self.path("logs", f"{task}.log"), encoding="utf-8") as f:
            return f.read()

    def test_wait_returns_once_everything_serves_and_stop_ends_it(self):
        job = scene.write_endless_job(self.folder, "story")
        ready = self.launch("--ps", "2", "--worker", "2", job=job)
        self.assertTrue(alive(ready["pid"]))
        # No further waiting is needed: servers answer, and both workers have joined.
        status = self.ctl("status", "--cluster", ready["cluster_file"])
        self.assertEqual(status["job"], "story")
        self.assertEqual([s["state"] for s in status["servers"]], ["ok", "ok"])
        self.assertEqual([w["state"] for w in status["workers"]], ["live", "live"])
        self.assertEqual(status["state"], "training")
        self.assertRegex(status["sentence"], r"^Training: step \d+")

        # A worker that is stopped before its first step has no report.
        for worker in (0, 1):
            processes.wait_for(lambda w=worker: "starts run 1" in self.log(f"worker-{w}"), WAIT,
                               "both to train")
        # Workers also have a port for Prometheus.
        self.assertIn("metrics at http://127.", self.run_ctl("logs", "worker:0").stdout)

        stopped = self.ctl("stop")
        self.assertEqual((stopped["stopped"], stopped["pid"]), ("launch", ready["pid"]))
        self.assertFalse(alive(ready["pid"]))
        self.assertEqual(os.listdir(self.temporary), [])
        for task, end in (("worker-0", '"status":"interrupted"'),
                          ("ps-1", "writing everything, then ending")):
            self.assertIn(end, self.log(task))
        refused = self.ctl("stop", code=2)
        self.assertIn("no launch of this user runs", refused["error"])

    def test_wait_reports_why_it_never_became_ready(self):
        done = self.run_ctl("launch", "--wait", "--log_directory", self.path("logs"), *PROGRAMS,
                            "--job", scene.write_endless_job(self.folder, "story"), "--",
                            "--no_such_flag", code=2)
        self.assertIn("no_such_flag", done.stderr)
        self.assertIn("--log_directory",
                      self.ctl("launch", "--wait", "--worker", "0", code=2)["error"])
        self.assertEqual(os.listdir(self.temporary), [])

    def test_logs_prints_the_last_lines_of_the_named_tasks(self):
        ready = self.launch("--ps", "2", "--worker", "0")
        lines_before = len(self.log("ps-1").splitlines())  # the server continues writing
        text = self.run_ctl("logs", "ps:1", "--lines", "1").stdout
        self.assertRegex(text, r"^ps:1 \| .*\n$")
        self.assertIn(text.partition(" | ")[2],
                      self.log("ps-1").splitlines(True)[lines_before - 1:])
        tasks = self.ctl("logs")["tasks"]
        self.assertEqual([t["task"] for t in tasks], ["ps:0", "ps:1", "launch"])
        self.assertIn("no task 'ps:2' has a log", self.ctl("logs", "ps:2", code=2)["error"])

        follow = subprocess.Popen([processes.CTL, "logs", "--follow", "ps:0"], text=True,
                                  stdout=subprocess.PIPE, env=self.environment)
        self.addCleanup(processes.end, follow)
        # It has found the launch.
        self.assertRegex(processes.read_line(follow, follow.stdout), "^ps:0 ")
        every = subprocess.Popen([processes.CTL, "logs", "--follow"], text=True,
                                 stdout=subprocess.PIPE, env=self.environment)
        self.addCleanup(processes.end, every)
        processes.read_line(every, every.stdout)
        # A task whose log begins later, and whose last line has no end.
        with open(self.path("logs", "worker-0.log"), "w", encoding="ascii") as f:
            f.write("late\nunfinished")
        line = ""
        while "worker:0" not in line:
            line = processes.read_line(every, every.stdout)
            self.assertTrue(line, "it ended before it showed the new log")
        self.assertEqual(line, "worker:0 | late\n")
        self.ctl("stop", "--launch", str(ready["pid"]))
        out, _ = follow.communicate(timeout=WAIT)  # ends with the launch
        self.assertIn("writing everything, then ending", out.splitlines()[-1])
        self.assertIn("worker:0 | unfinished\n", every.communicate(timeout=WAIT)[0])
        # Logs outlive the launch if the user named their directory.
        after = self.ctl("logs", "--directory", self.path("logs"), "ps:0", "--lines", "1")
        self.assertIn("writing everything", after["tasks"][0]["lines"][0])

    def test_pages_of_servers_with_tls_ask_each_other(self):
        self.launch("--ps", "2", "--worker", "1", "--tls_directory", self.path("tls"),
                    job=scene.write_endless_job(self.folder, "story"))
        page = re.search(r"its status page at http://(\S+)/", self.log("ps-0")).group(1)

        def both():
            with urllib.request.urlopen(f"http://{page}/status.json", timeout=WAIT) as f:
                status = json.load(f)
            return status if status["cluster"]["answered"] == 2 else None
        status = processes.wait_for(both, WAIT, "the other server's answer")
        self.assertEqual([s["state"] for s in status["servers"]], ["serving", "serving"])
        self.assertIn(status["servers"][1]["page"], self.log("ps-1"))

    def test_stop_of_servers_that_no_launch_started_drains_them(self):
        with processes.Cluster(self.folder, 2) as cluster:
            answer = self.ctl("stop", "--servers", cluster.first_addresses())
            self.assertEqual(answer["stopped"], "servers")
            self.assertEqual([s["drained"] for s in answer["servers"]], [True, True])
            self.assertEqual([p.wait(WAIT) for p in cluster.processes], [0, 0])

    def test_stop_finds_the_launch_of_the_named_servers(self):
        ready = self.launch("--ps", "1", "--worker", "0")
        answer = self.ctl("stop", "--servers", ready["cluster"]["ps"][0])
        self.assertEqual((answer["stopped"], answer["pid"]), ("launch", ready["pid"]))

    def train(self, cluster, name):
        folder = self.path(name)
        os.mkdir(folder)
        job = scene.write_endless_job(folder, name)
        processes.run_worker(job, cluster.worker_file(1), flags=["--max_steps", "20"])

    def test_jobs_are_listed_and_the_only_one_need_not_be_named(self):
        with processes.Cluster(self.folder, 2) as cluster:
            target = ["--servers", cluster.first_addresses()]
            self.assertEqual(self.ctl("jobs", *target)["jobs"], [])
            self.assertEqual(self.ctl("status", *target)["jobs"], [])
            self.train(cluster, "first")
            self.assertEqual(self.ctl("status", *target)["job"], "first")
            self.train(cluster, "second")
            jobs = {job["job"]: job for job in self.ctl("jobs", *target)["jobs"]}
            self.assertEqual(set(jobs), {"first", "second"})
            self.assertEqual((jobs["first"]["workers"], jobs["first"]["step"]), (1, 20))
            self.assertGreaterEqual(jobs["first"]["variables"], 2)
            self.assertGreater(jobs["second"]["memory_bytes"], 0)
            self.assertEqual([j["job"] for j in self.ctl("status", *target)["jobs"]],
                             ["first", "second"])
            listed = self.run_ctl("status", *target).stdout
            self.assertRegex(listed, r"first +\d")
            self.assertIn("no job 'secnd' (did you mean 'second'?); they have first, second",
                          self.run_ctl("status", *target, "--job", "secnd", code=2).stderr)
            self.assertIn("the servers have first, second",
                          self.ctl("get", "bias", *target, code=2)["error"])

    def test_errors_of_the_cluster_are_reported_before_those_of_the_job(self):
        for command in ("status", "why", "inspect", "jobs"):
            self.assertIn("nope.yaml", self.ctl(command, "--cluster", "nope.yaml", code=2)["error"])
        answer = self.ctl("status", "--servers", addresses.nobodys_address(), code=1)
        self.assertIn(f"ps:0 ({addresses.nobodys_address()}) does not answer", answer["error"])

    def test_get_shows_values_and_slots_of_rows_and_keys(self):
        with processes.Cluster(self.folder, 2) as cluster:
            self.train(cluster, "linear")
            target = ["--servers", cluster.first_addresses()]
            bias = self.ctl("get", "bias", *target)
            self.assertEqual((bias["kind"], bias["dtype"], bias["shape"]), ("dense", "float32", [1]))
            whole = self.ctl("get", "kernel", *target)["rows"]
            self.assertEqual(len(whole), 64)
            some = self.ctl("get", "kernel", "63", "2", *target)["rows"]
            self.assertEqual(some, [whole[63], whole[2]])
            self.assertNotEqual(some[0]["values"], [0.0])
            slot = self.ctl("get", "kernel", "2", "--slot", "accumulator", *target)["rows"]
            self.assertGreater(slot[0]["values"][0], 0)
            self.assertIn(f"{bias['rows'][0]['values'][0]:.4g}"[:4],
                          self.run_ctl("get", "bias", *target).stdout)
            for words, said in ((["kernel", "64"], "64 rows from 0 on"),
                                (["kernle"], "did you mean 'kernel'"),
                                (["kernel", "--slot", "momentum"], "momentum")):
                error = self.run_ctl("get", *words, *target,
                                     code=2 if "64" in words else 1).stderr
                self.assertIn(said, error)


if __name__ == "__main__":
    tap.main()
