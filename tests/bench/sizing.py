#!/usr/bin/env python3
"""The sizes in ps_server/SIZING.md besides rows: the memory of an empty cairn-ps and of its
connections, and the largest size of its directory while epochs rewrite a whole table repeatedly.
One JSON line.

usage: tests/bench/sizing.py [--mib 128] [--seconds 30]   # of values; Adagrad's slot is as much again
"""
import argparse
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import scrape  # noqa: E402
import stop  # noqa: E402

CONNECTIONS = 200


def memory(folder):
    """Resident bytes of an idle server, and of each connection."""
    http = scrape.Http(os.path.join(folder, "http"))
    with processes.Cluster(folder, 1, scrape.flags(http.port_file)) as cluster:
        http.wait()
        before = http.metrics()["process_resident_memory_bytes"]
        host, port = cluster.addresses[0].split(":")
        open_ones = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
        try:
            processes.wait_for(
                lambda: http.metrics()["cairn_ps_connections"] >= CONNECTIONS, 60, "connections")
            after = http.metrics()["process_resident_memory_bytes"]
        finally:
            for one in open_ones:
                one.close()
    return before, (after - before) / CONNECTIONS


def disk(folder, mib, seconds):
    """The largest and the last size of the directory, divided by the table's; and the epochs."""
    job, metrics = stop.write_job(folder, mib), os.path.join(folder, "steps.jsonl")
    http = scrape.Http(os.path.join(folder, "http"))
    flags = ("--snapshot_interval_seconds", "1", "--memory_budget_bytes",
             str((mib << 20) * 5 + (2 << 30)), *scrape.flags(http.port_file))
    with processes.Cluster(folder, 1, flags) as cluster:
        http.wait()
        with open(os.path.join(folder, "worker.log"), "wb") as log:
            worker = subprocess.Popen(
                processes.worker_command(job, cluster.worker_file(1), 0,
                                         ["--metrics_file", metrics]), stdout=log, stderr=log)
        sizes = []
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    sizes.append(stop.directory_bytes(cluster.path("ps0")))
                except FileNotFoundError:  # a file was deleted during the count
                    pass
                select.select([], [], [], 0.05)
            epochs = http.metrics()["cairn_ps_snapshot_duration_seconds_count"]
        finally:
            processes.end(worker)
    table = 2 * (mib << 20)
    return max(sizes) / table, sizes[-1] / table, epochs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=30)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-sizing.") as folder:
        resident, connection = memory(folder)
    with tempfile.TemporaryDirectory(prefix="cairn-sizing.") as folder:
        peak, last, epochs = disk(folder, flags.mib, flags.seconds)
    print(json.dumps({"name": "sizing", "idle_server_bytes": round(resident),
                      "connection_bytes": round(connection), "table_mib": 2 * flags.mib,
                      "epochs": epochs, "directory_peak_over_table": round(peak, 2),
                      "directory_last_over_table": round(last, 2)}))


if __name__ == "__main__":
    main()
