#!/usr/bin/env python3
"""The cost of monitoring: the speed of a worker while it and its server are scraped ten times a second,
the page's data included, over its speed without scraping. Measured in steps per second of the two
processes' CPU time, which scraping uses, and per second of elapsed time, which other programs on the
machine affect. Rounds alternate; one JSON line. usage: tests/bench/scraping.py [--rounds N]"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scene  # noqa: E402
import scrape  # noqa: E402

ROUND_SECONDS = 2
BAR = 0.95
# Prometheus scrapes every 10 or 15 s, a page asks every 0.4 s.
SCRAPES_PER_SECOND = 10


def measure(ps, worker, watched):
    """Steps per CPU second and per elapsed second in a round, while `watched` are scraped."""
    over = threading.Event()
    errors = []

    def watch():
        try:
            while not over.wait(1 / SCRAPES_PER_SECOND):
                for ask in watched:
                    ask()
        except Exception as error:  # a bench that does not scrape must not print a result
            errors.append(error)

    def now():
        run, server = worker.metrics(), ps.metrics()
        cpu = run["process_cpu_seconds_total"] + server["process_cpu_seconds_total"]
        return run["cairn_worker_steps_total"], cpu, time.monotonic()

    thread = threading.Thread(target=watch)
    first = now()
    thread.start()
    over.wait(ROUND_SECONDS)
    last = now()
    over.set()
    thread.join()
    if errors:
        raise errors[0]
    steps, cpu, seconds = (b - a for a, b in zip(first, last))
    return steps / cpu, steps / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        job = scene.write_endless_job(folder, "watched")
        ps = scrape.Http(os.path.join(folder, "ps.http"))
        worker = scrape.Http(os.path.join(folder, "worker.http"))
        with processes.Cluster(folder, 1, scrape.flags(ps.port_file)) as cluster:
            ps.wait()
            process = subprocess.Popen(
                processes.worker_command(job, cluster.worker_file(1), 0,
                                         scrape.flags(worker.port_file)),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                worker.wait(process)
                processes.wait_for(lambda: worker.metrics()["cairn_worker_steps_total"] > 1000,
                                   processes.START_SECONDS, "training")
                pairs = []
                for _ in range(rounds):
                    alone = measure(ps, worker, [])
                    pairs.append((measure(
                        ps, worker, [lambda: ps.get("/metrics"), lambda: worker.get("/metrics"),
                                     lambda: ps.status(after=10 ** 9)]), alone))
            finally:
                processes.end(process)
    ratio, clock = (statistics.median(w[i] / a[i] for w, a in pairs) for i in (0, 1))
    print(json.dumps({"bench": "scraping",
                      "steps_per_cpu_second": round(statistics.median(w[0] for w, _ in pairs)),
                      "left_alone": round(statistics.median(a[0] for _, a in pairs)),
                      "ratio": round(ratio, 3), "ratio_on_the_clock": round(clock, 3), "bar": BAR,
                      "scrapes_per_second": SCRAPES_PER_SECOND, "ok": ratio >= BAR}))
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
