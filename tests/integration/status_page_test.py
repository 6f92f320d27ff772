"""The status page of a real cluster in a real browser: the right tasks, numbers that change, a
stopped worker missing within seconds, nothing on the console, readable in light, dark and on a
phone. Screenshots go to $CAIRN_SCREENSHOTS."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import browser  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import scrape  # noqa: E402
import tap  # noqa: E402

try:
    import websocket  # noqa: F401
except ImportError:
    websocket = None

WAIT_SECONDS = 60
MISSING_WITHIN_SECONDS = 8  # two on an idle machine
SHOTS = os.environ.get("CAIRN_SCREENSHOTS")

TASKS = "[...document.querySelectorAll('#tasks tbody tr')].map(row => row.dataset.task)"
MISSING = ("[...document.querySelectorAll('#tasks tbody tr.missing')]"
           ".map(row => row.dataset.task)")


def pill(task):
    return f"document.querySelector('tr[data-task=\"{task}\"] .pill')?.textContent"


# Contrast of text on its background: the ratio must be at least 4.5, as WCAG requires.
CONTRAST = """(() => {
  const light = (text) => {
    const parts = text.match(/[0-9.]+/g).slice(0, 3).map(Number)
      .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const low = [];
  for (const element of document.querySelectorAll("h1,h2,p,dt,dd,small,th,td,.pill,figcaption,output,li,a,label,span")) {
    if (!element.textContent.trim() || element.offsetParent === null) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${element.tagName} ${element.textContent.slice(0, 20)}: ${ratio.toFixed(2)}`);
  }
  return low;
})()"""


@unittest.skipIf(browser.CHROMIUM is None, "chromium is not installed")
@unittest.skipIf(websocket is None, "python3-websocket is not installed")
class StatusPage(unittest.TestCase):
    """Two servers and two workers that train while the tests run; a page of the first server."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.shots = SHOTS or cls.folder
        os.makedirs(cls.shots, exist_ok=True)
        cls.job = scene.write_endless_job(cls.folder, "clicks", batch=64)
        cls.cluster = cls.enterClassContext(
            PageCluster(cls.folder, 2, ["--snapshot_interval_seconds", "1"]))
        cls.http = cls.cluster.http[0]
        cls.cluster_file = cls.cluster.worker_file(2)
        cls.workers = [cls.start_worker(index) for index in range(2)]
        cls.page = cls.enterClassContext(browser.Browser(cls.folder))
        cls.page.look(1280, 900, dark=False)
        cls.page.open(f"http://{cls.http.address}/")
        cls.page.wait(f"{TASKS}.length == 4", WAIT_SECONDS, "both servers and both workers")
        cls.page.wait(f"{pill('worker:1')} == 'training' && {pill('worker:0')} == 'training'",
                      WAIT_SECONDS, "both to train")

    @classmethod
    def start_worker(cls, index, *flags):
        log = cls.enterClassContext(open(os.path.join(cls.folder, f"worker{index}.log"), "ab"))
        worker = subprocess.Popen(
            processes.worker_command(cls.job, cls.cluster_file, index, flags),
            stdout=subprocess.DEVNULL, stderr=log)
        cls.addClassCleanup(processes.end, worker)
        return worker

    def tearDown(self):
        self.assertEqual(self.page.problems, [])

    def text(self, selector):
        return self.page.run(f"document.querySelector('{selector}').textContent")

    def test_the_page_shows_the_existing_tasks(self):
        self.assertEqual(self.page.run(TASKS), ["ps:0", "ps:1", "worker:0", "worker:1"])
        self.assertEqual(self.page.run(pill("ps:0")), "serving")
        self.page.wait(f"{pill('ps:1')} == 'serving'", WAIT_SECONDS, "news of ps:1")
        # The link to its own page.
        self.assertEqual(self.page.run("document.querySelector('tr[data-task=\"ps:1\"] a').href"),
                         f"http://{self.cluster.http[1].address}/")
        self.assertEqual(self.page.run(MISSING), [])
        self.assertIn(self.cluster.addresses[0], self.text('tr[data-task="ps:0"]'))
        self.assertEqual(self.page.run("document.title"), "Cairn ps:0")

    def test_live_numbers_and_charts_move(self):
        for selector in ('tr[data-task="worker:0"] td[data-label="Step"]', "#tile-examples",
                         "#server-facts"):
            before = self.text(selector)
            self.page.wait(f"document.querySelector('{selector}').textContent != '{before}'",
                           WAIT_SECONDS, f"{selector} to change from {before}")
        for chart in ("loss", "examples", "staleness", "lag"):
            curve = f"document.querySelector('#chart-{chart} .curve')?.getAttribute('d')"
            self.page.wait(f"({curve} ?? '').includes('L')", WAIT_SECONDS, f"a curve of {chart}")
            self.assertRegex(
                self.page.run(f"document.querySelector('#chart-{chart} svg').ariaLabel"),
                r"now .+, lowest .+, highest ")
        self.assertGreater(float(self.text('tr[data-task="worker:0"] td[data-label="Loss"]')), 0)

    def test_a_stopped_worker_is_missing_within_seconds_and_comes_back(self):
        took = []
        for _ in range(3):
            self.page.wait(f"{MISSING}.length == 0", WAIT_SECONDS, "nobody to be missing")
            began = time.monotonic()
            self.workers[1].send_signal(signal.SIGSTOP)
            self.page.wait(f"{MISSING}.includes('worker:1')", WAIT_SECONDS, "worker:1 to be missing")
            took.append(time.monotonic() - began)
            self.assertEqual(self.page.run(pill("worker:1")), "missing")
            self.assertIn("1 missing", self.text("#tile-workers"))
            self.page.wait("document.querySelector('#changes').textContent == 'worker:1 is missing'",
                           WAIT_SECONDS, "it to be read aloud")
            self.assertNotEqual(self.page.run(pill("worker:0")), "missing")
            self.workers[1].send_signal(signal.SIGCONT)
            self.page.wait(f"{pill('worker:1')} == 'training'", WAIT_SECONDS, "it to be back")
        # In one of the rounds another program may have used the cores.
        self.assertLess(min(took), MISSING_WITHIN_SECONDS, took)

    def test_a_server_that_workers_cannot_reach_is_shown_gone(self):
        self.cluster.processes[1].send_signal(signal.SIGSTOP)
        try:
            self.page.wait(f"{pill('ps:1')} == 'gone'", WAIT_SECONDS, "ps:1 to be gone")
            self.assertIn("worker:", self.text('tr[data-task="ps:1"] .where'))
            # The job's state, first on the page, with the same words as in cairnctl.
            self.page.wait("/^Stalled \\d+ s: ps:1 does not answer worker:0, worker:1$/.test("
                           "document.querySelector('#sentence').textContent)", WAIT_SECONDS,
                           "the job to be stalled")
            self.page.screenshot(os.path.join(self.shots, "stalled.png"))
            self.page.wait("document.querySelector('#tile-memory').textContent.includes("
                           "'1 of 2 servers')", WAIT_SECONDS, "sums of the others")
        finally:
            self.cluster.processes[1].send_signal(signal.SIGCONT)
        self.page.wait(f"{pill('ps:1')} == 'serving'", WAIT_SECONDS, "it to be back")
        self.page.wait("document.querySelector('#sentence').textContent.startsWith('Training')",
                       WAIT_SECONDS, "training to go on")

    def status(self, server, query=""):
        return json.loads(self.cluster.http[server].get("/status.json" + query))

    def test_every_page_shows_the_same_job_state_and_sums_over_all_servers(self):
        def sums(server):
            found = self.status(server, "?job=clicks")
            return found if found["cluster"]["answered"] == 2 else None
        # A server asks the other servers only when a page asks it.
        both = [processes.wait_for(lambda s=server: sums(s), WAIT_SECONDS, "the other server")
                for server in range(2)]
        for status in both:
            self.assertEqual(status["job_state"]["phase"], "training")
            self.assertEqual(status["job_state"]["job"], "clicks")
            self.assertGreater(status["cluster"]["rows"], status["jobs"][0]["rows"])
            self.assertGreater(status["cluster"]["memory_budget_bytes"],
                               status["memory_budget_bytes"])
        self.assertEqual(both[0]["cluster"]["rows"], both[1]["cluster"]["rows"])
        self.assertEqual(self.http.ask("/status.json?after=x")[0], 400)
        self.page.wait("document.querySelector('#tile-memory').textContent.includes('2 servers')",
                       WAIT_SECONDS, "sums on the page")

    def test_the_job_shows_its_progress_and_its_last_checkpoint(self):
        progress = "document.querySelector('#progress')"
        share = processes.wait_for(lambda: self.status(0, "?job=clicks")["job_state"]["share_done"],
                                   WAIT_SECONDS, "the servers to hear the share")
        self.page.wait(f"!{progress}.hidden && {progress}.value >= {share}", WAIT_SECONDS,
                       "the share on the page")
        self.assertLess(self.page.run(f"{progress}.value"), 0.01)  # of a job of weeks
        processes.ctl("checkpoint", "create", "--cluster", self.cluster_file, "--job", "clicks",
                      os.path.join(self.folder, "kept"))
        self.page.wait("/^last checkpoint \\d+ s ago$/.test("
                       "document.querySelector('#checkpoint').textContent)", WAIT_SECONDS,
                       "the checkpoint's age")

    def test_waits_are_above_the_charts(self):
        self.assertTrue(self.page.run(
            "Boolean(document.querySelector('#waits').compareDocumentPosition("
            "document.querySelector('.charts')) & Node.DOCUMENT_POSITION_FOLLOWING)"))

    def choose(self, job):
        self.page.run(f"(() => {{ const select = document.querySelector('#job'); "
                      f"select.value = '{job}'; select.dispatchEvent(new Event('change')); }})()")

    def test_waits_for_a_stopped_worker_are_named(self):
        pair = [self.start_worker(index, "--set", "name=lockstep", "--set",
                                  "strategy.consistency=ssp") for index in range(2)]
        try:
            self.page.wait("!document.querySelector('#job-choice').hidden", WAIT_SECONDS,
                           "a choice of jobs")
            self.choose("lockstep")
            self.page.wait("document.querySelector('#job-text').textContent.startsWith('lockstep')",
                           WAIT_SECONDS, "the job to be shown")
            self.page.wait(f"{pill('worker:1')} == 'training' && {pill('worker:0')} == 'training'",
                           WAIT_SECONDS, "both to keep step")
            pair[1].send_signal(signal.SIGSTOP)
            # On either server: a worker that is stopped after it has sent its step to one server,
            # but not yet to the other, is waited for only on the other.
            self.page.wait("/at ps:\\d: worker 0 of job lockstep has waited .*missing: worker 1/s.test("
                           "document.querySelector('#waits').textContent)", WAIT_SECONDS, "the wait")
            self.page.wait("/^Stalled .*worker:0 waits for worker:1 .last seen/.test("
                           "document.querySelector('#sentence').textContent)", WAIT_SECONDS,
                           "the sentence about it")
            self.page.wait(f"{MISSING}.includes('worker:1')", WAIT_SECONDS, "it to be missing too")
            self.page.screenshot(os.path.join(self.shots, "waiting.png"))
        finally:
            for worker in pair:
                processes.end(worker)
            self.choose("clicks")

    def test_it_is_readable_in_light_and_dark_and_on_a_phone(self):
        self.page.wait("document.querySelectorAll('.curve').length == 4", WAIT_SECONDS, "charts")
        for name, width, dark, phone in (("light", 1280, False, False), ("dark", 1280, True, False),
                                         ("phone", 390, False, True), ("phone-dark", 390, True, True)):
            with self.subTest(name):
                self.page.look(width, 844 if phone else 900, dark, phone)
                self.page.wait("new Promise(done => requestAnimationFrame(() => "
                               "requestAnimationFrame(() => done(true))))", WAIT_SECONDS, "a frame")
                ground = self.page.run("getComputedStyle(document.body).backgroundColor")
                self.assertEqual(sum(map(int, ground[4:-1].split(","))) < 300, dark, ground)
                self.assertLessEqual(
                    self.page.run("document.documentElement.scrollWidth - innerWidth"), 0)
                self.assertEqual(self.page.run(CONTRAST), [])
                path = os.path.join(self.shots, f"{name}.png")
                self.assertGreater(self.page.screenshot(path), 10000)
        self.page.look(1280, 900, dark=False)


class ChangingCluster(unittest.TestCase):
    def test_pages_follow_servers_that_join_and_leave(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        cluster = self.enterContext(PageCluster(folder, 2, []))
        worker = subprocess.Popen(
            processes.worker_command(scene.write_endless_job(folder, "clicks", batch=64),
                                     cluster.worker_file(1)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(processes.end, worker)

        def ctl(*words):
            return processes.ctl(*words, "--servers", cluster.first_addresses())

        def status(server):
            return json.loads(cluster.http[server].get("/status.json?job=clicks"))
        processes.wait_for(
            lambda: status(1)["jobs"] and status(0)["job_state"]["phase"] == "training",
            WAIT_SECONDS, "the job to train")
        cluster.spawn_next()
        ctl("servers", "add", "ps:2", "--address", cluster.addresses[2])
        ctl("rebalance", "--busy_fraction", "1", "--job", "clicks", "--empty", "ps:1")
        ctl("servers", "remove", "ps:1")
        cluster.stop(1)

        def shows_both(server):
            found = status(server)
            tasks = [s["task"] for s in found["servers"]]
            both = tasks == ["ps:0", "ps:2"] and found["cluster"]["answered"] == 2
            # The worker may miss ps:1 until it has learned that ps:1 has left.
            silent = "does not answer" in found["job_state"]["sentence"]
            return found if both and not silent else None
        for server in 0, 2:
            found = processes.wait_for(lambda s=server: shows_both(s), WAIT_SECONDS,
                                       f"both servers on the page of ps:{server}")
            self.assertEqual(found["cluster"]["servers"], 2)
            self.assertEqual([s["address"] for s in found["servers"]],
                             [cluster.addresses[0], cluster.addresses[2]])


class PageCluster(processes.Cluster):
    """Servers that know each other's addresses, each with a page."""

    def __init__(self, folder, count, flags):
        super().__init__(folder, count, flags)
        self.known = addresses.own_addresses(count)
        self.http = [scrape.Http(os.path.join(folder, f"http{i}")) for i in range(count)]

    def __enter__(self):
        for index in range(self.count):
            self.spawn(index, self.known[index])
        for index in range(self.count):
            self.wait_until_ready(index)
            self.http[index].wait()
        return self

    def spawn_next(self):
        """Starts a server that the others do not know yet."""
        index = len(self.known)
        self.reach(index)
        self.known.append(addresses.own_address())
        self.http.append(scrape.Http(os.path.join(self.folder, f"http{index}")))
        self.spawn(index, self.known[index])
        self.wait_until_ready(index)
        self.http[index].wait()

    def spawn(self, index, address):
        path = self.path("servers.yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"cluster": {"ps": self.known}}, f)
        with open(self.path(f"ps{index}.log"), "ab") as log:
            self.processes[index] = subprocess.Popen(
                [processes.PS, "--cluster", path, "--task_index", str(index), "--data_dir",
                 self.path(f"ps{index}"), "--port_file", self.path(f"ps{index}.port"), *self.flags,
                 *scrape.flags(self.http[index].port_file)], stdout=log, stderr=log)


if __name__ == "__main__":
    tap.main()
