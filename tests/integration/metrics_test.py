"""Metrics, alert rules, dashboard and health of real servers and workers: promtool accepts the
metrics, and every metric that the dashboard and the rules name exists."""
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import scrape  # noqa: E402
import tap  # noqa: E402

PROMETHEUS = os.path.join(processes.TOP, "ps_server", "monitor", "prometheus")
PROMTOOL = shutil.which("promtool")
WAIT_SECONDS = 60


def promtool(*arguments, text=None):
    return subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True,
                          timeout=WAIT_SECONDS, check=False, cwd=PROMETHEUS)


class Watched(unittest.TestCase):
    """One server and one worker that train for as long as the tests run."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.ps = scrape.Http(os.path.join(cls.folder, "ps.http"))
        cls.health = addresses.own_port()
        cls.cluster = processes.Cluster(
            cls.folder, 1, [*scrape.flags(cls.ps.port_file), "--snapshot_interval_seconds", "0.2",
                            "--health_port", str(cls.health)])
        cls.enterClassContext(cls.cluster)
        cls.ps.wait()
        cls.worker = scrape.Http(os.path.join(cls.folder, "worker.http"))
        log = cls.enterClassContext(open(os.path.join(cls.folder, "worker.log"), "wb"))
        cls.process = subprocess.Popen(
            processes.worker_command(scene.write_endless_job(cls.folder, "watched", batch=8), cls.cluster.worker_file(1), 0,
                                     scrape.flags(cls.worker.port_file)),
            stdout=subprocess.DEVNULL, stderr=log)
        cls.addClassCleanup(processes.end, cls.process)
        cls.worker.wait(cls.process)
        processes.wait_for(lambda: cls.has_trained(), WAIT_SECONDS, "steps and a snapshot")

    @classmethod
    def has_trained(cls):
        ps = cls.ps.metrics()
        return (cls.worker.metrics().get("cairn_worker_steps_total", 0) > 100 and
                ps.get("cairn_ps_snapshot_duration_seconds_count", 0) > 2 and
                'cairn_ps_training_loss{cairn_job="watched"}' in ps)

    def test_counters_count_the_work(self):
        before = self.ps.metrics()
        processes.wait_for(
            lambda: self.ps.metrics()["cairn_ps_pushes_total"] > before["cairn_ps_pushes_total"],
            WAIT_SECONDS, "pushes to be counted")
        # The worker first: then the server has everything that the worker has counted.
        worker, ps = self.worker.metrics(), self.ps.metrics()
        steps = worker["cairn_worker_steps_total"]
        self.assertGreaterEqual(ps["cairn_ps_pushes_total"], steps)
        calls = 'cairn_ps_rpc_duration_seconds_count{method="step",outcome="ok"}'
        self.assertGreaterEqual(ps[calls] + 1, steps)
        self.assertEqual(worker["cairn_worker_examples_total"], 8 * steps)
        self.assertEqual(worker["cairn_worker_step_duration_seconds_count"], steps)
        self.assertGreater(worker["cairn_worker_pushed_bytes_total"], 0)
        self.assertGreater(ps["cairn_ps_received_bytes_total"],
                           worker["cairn_worker_pushed_bytes_total"])
        self.assertEqual(ps['cairn_ps_workers{cairn_job="watched",state="live"}'], 1)
        self.assertEqual(ps['cairn_ps_workers_missing{cairn_job="watched"}'], 0)
        self.assertGreater(ps["cairn_ps_connections"], 0)
        self.assertGreater(ps["cairn_ps_rocksdb_written_bytes_total"], 0)
        self.assertLess(ps["cairn_ps_memory_used_bytes"], ps["cairn_ps_memory_budget_bytes"])
        self.assertEqual(ps["cairn_ps_ready"], 1)
        for who in (ps, worker):
            self.assertGreater(who["process_resident_memory_bytes"], 1 << 20)

    def test_buckets_of_histograms_add_up(self):
        for samples in (self.ps.metrics(), self.worker.metrics()):
            buckets = {}
            for name, value in samples.items():
                match = re.fullmatch(r'(\w+)_bucket\{(.*?),?le="([^"]+)"\}', name)
                if match:
                    buckets.setdefault(match.group(1, 2), []).append(value)
            self.assertTrue(buckets)
            for (name, labels), counts in buckets.items():
                self.assertEqual(counts, sorted(counts), name)
                labels = "{" + labels + "}" if labels else ""
                self.assertEqual(counts[-1], samples[f"{name}_count{labels}"], name)

    @unittest.skipIf(PROMTOOL is None, "promtool (package prometheus) is not installed")
    def test_promtool_accepts_what_is_scraped(self):
        for who in (self.ps, self.worker):
            run = promtool("check", "metrics", text=who.get("/metrics"))
            self.assertEqual((run.returncode, run.stdout + run.stderr), (0, ""))

    @unittest.skipIf(PROMTOOL is None, "promtool (package prometheus) is not installed")
    def test_promtool_accepts_the_rules_and_their_tests_pass(self):
        for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
            run = promtool(*arguments)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_what_the_dashboard_and_the_rules_name_exists(self):
        there = scrape.names(self.ps.metrics()) | scrape.names(self.worker.metrics())
        there |= {name.removesuffix("_count") for name in there}  # histograms, in descriptions
        with open(os.path.join(PROMETHEUS, "dashboard.json"), encoding="utf-8") as f:
            panels = json.load(f)["panels"]
        queries = [t["expr"] for panel in panels for t in panel.get("targets", [])]
        self.assertGreater(len(queries), 10)
        with open(os.path.join(PROMETHEUS, "rules.yaml"), encoding="utf-8") as f:
            queries.append(f.read())
        named = {name for query in queries
                 for name in re.findall(r"\b((?:cairn_(?:ps|worker)|process)_\w+)", query)}
        self.assertGreater(len(named), 20)
        self.assertEqual(named - there, set())

    @unittest.skipIf(PROMTOOL is None, "promtool (package prometheus) is not installed")
    def test_promtool_parses_every_query_of_the_dashboard(self):
        with open(os.path.join(PROMETHEUS, "dashboard.json"), encoding="utf-8") as f:
            panels = json.load(f)["panels"]
        rules = [{"record": f"dashboard:query:{number}", "expr": target["expr"]
                  .replace("$__rate_interval", "1m").replace("$job", ".+")}
                 for number, target in enumerate(t for p in panels for t in p.get("targets", []))]
        path = os.path.join(self.folder, "queries.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, f)
        run = promtool("check", "rules", path)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_health_and_the_pages_limits(self):
        self.assertEqual(self.ps.get("/healthz"), "ok\n")
        self.assertEqual(self.ps.get("/readyz"), "ready\n")
        self.assertEqual(self.worker.get("/healthz"), "ok\n")
        status, headers, text = self.ps.ask("/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertNotRegex(text, r"https?://")  # nothing from other hosts
        self.assertEqual(self.ps.ask("/", method="HEAD")[2], "")
        self.assertEqual(self.ps.ask("/", method="POST", body="x")[0], 405)
        self.assertEqual(self.ps.ask("/", body="x")[0], 413)
        self.assertEqual(self.ps.ask("/../etc/passwd")[0], 404)
        self.assertEqual(self.ps.ask("/status.json?after=-1")[0], 400)
        for host in ("evil.example", "127.evil.example"):
            self.assertEqual(self.ps.ask("/", headers={"Host": host})[0], 421)
        self.assertGreaterEqual(self.ps.ask("/", headers={"X-Long": "x" * 10000})[0], 400)

    def connect(self, request):
        """A connection to the page that has sent `request`."""
        host, port = self.ps.address.split(":")
        connection = socket.create_connection((host, int(port)), timeout=60)
        self.addCleanup(connection.close)
        connection.sendall(request.encode())
        return connection

    def occupy(self, connections):
        """Opens as many connections to the page, none of which completes its request."""
        for _ in range(connections):
            self.connect("GET / HTTP/1.1\r\nHost: local")

    def test_slow_connections_do_not_block_others(self):
        self.occupy(20)
        begin = time.monotonic()
        self.assertEqual(self.ps.get("/healthz"), "ok\n")
        # Twenty connections on eight threads: three rounds of the server's 3 s, with time to spare.
        self.assertLess(time.monotonic() - begin, 20)

    def test_slow_connections_to_the_page_do_not_block_probes_of_the_health_port(self):
        # More rounds of the page's 8 threads, 3 s each, than this test takes.
        self.occupy(160)
        host = self.ps.address.split(":")[0]
        behind = self.connect(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n")
        health = scrape.Http(None)
        health.address = f"{host}:{self.health}"
        for path, answer in (("/healthz", "ok\n"), ("/readyz", "ready\n")) * 5:
            self.assertEqual(health.get(path), answer)
        self.assertEqual(health.ask("/metrics")[0], 404)
        readable, _, _ = select.select([behind], [], [], 0)
        self.assertEqual(readable, [], "the page's threads were free, so this proves nothing")

    def test_the_status_has_the_history_and_newer_samples(self):
        first = processes.wait_for(
            lambda: (lambda s: s if s["last_sample"] >= 3 else None)(self.ps.status()),
            WAIT_SECONDS, "three samples")
        numbers = [sample["n"] for sample in first["samples"]]
        self.assertEqual(numbers, list(range(1, first["last_sample"] + 1)))
        after = self.ps.status(after=numbers[-2])
        self.assertEqual(after["samples"][0]["n"], numbers[-1])
        sample = first["samples"][-1]["jobs"]["watched"]
        self.assertGreater(sample["examples"], 0)
        self.assertGreater(sample["loss"], 0)
        job = first["jobs"][0]
        self.assertEqual((job["name"], [w["task"] for w in job["workers"]]),
                         ("watched", ["worker:0"]))


class Flags(unittest.TestCase):
    def refuse(self, program, *flags):
        with tempfile.TemporaryDirectory() as folder:
            job, cluster = scene.write_endless_job(folder, "watched"), os.path.join(folder, "c.json")
            with open(cluster, "w", encoding="ascii") as f:
                json.dump({"cluster": {"ps": [addresses.own_address()]}}, f)
            command = {"ps": [processes.PS, "--cluster", cluster, "--task_index", "0",
                              "--data_dir", os.path.join(folder, "d")],
                       "worker": [processes.WORKER, "--job", job]}[program]
            run = subprocess.run([*command, *flags], capture_output=True, text=True,
                                 timeout=WAIT_SECONDS, check=False)
            self.assertEqual(run.returncode, 2, run.stderr)
            return run.stderr

    def test_an_address_that_others_reach_is_refused_unless_allowed(self):
        for program in ("ps", "worker"):
            error = self.refuse(program, "--http_port", str(addresses.own_port()),
                                "--http_address", "0.0.0.0")
            self.assertIn("--http_allow_plaintext", error)

    def test_flags_that_need_the_port_say_so(self):
        for program in ("ps", "worker"):
            self.assertIn("--http_port", self.refuse(program, "--http_port_file", "/tmp/x"))
            self.assertIn("65535", self.refuse(program, "--http_port", "70000"))


if __name__ == "__main__":
    tap.main()
