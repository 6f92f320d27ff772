#!/usr/bin/env python3
"""The savings and costs of a table that admits keys with their n-th push: rows, memory and the AUC of
the click model, compared with n = 1 in the same run. Two servers and one worker. One JSON line for
each n. Passes after the first push every key again, so n = 2 then keeps all keys.

usage: tests/bench/row_rules.py [--rows 400000] [--epochs 1] [--pushes 2 3 5]
  --rows, --epochs: of the click logs"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import clicks  # noqa: E402
import processes  # noqa: E402


def train(pushes, flags):
    with tempfile.TemporaryDirectory(prefix="cairn-rules.") as folder:
        with processes.Cluster(folder, 2) as servers:
            report = processes.run_workers(
                clicks.JOB, servers.worker_file(1), 1,
                [*flags, "--set", f"model.embedding.admit_after_pushes={pushes}"])[0]
            return report, clicks.tables(servers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--pushes", type=int, nargs="*", default=[2, 3, 5])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-clicks.") as folder:
        clicks.make(folder, arguments.rows)
        base = None
        for pushes in [1, *arguments.pushes]:
            report, found = train(pushes, ["--data_root", folder, "--set",
                                           f"data.epochs={arguments.epochs}"])
            line = {"bench": "row rules", "model": "clicks", "epochs": arguments.epochs,
                    "admit_after_pushes": pushes,
                    "auc": report["eval"]["auc"],
                    "rows": sum(table["rows"] for table in found),
                    "not_admitted": sum(table["row_figures"]["not_admitted"] for table in found),
                    "memory_bytes": sum(table["memory_bytes"] for table in found),
                    "examples_per_second": report["examples_per_second"]}
            base = base or dict(line)
            line["auc_minus_all"] = line["auc"] - base["auc"]
            line["rows_over_all"] = line["rows"] / base["rows"]
            line["memory_over_all"] = line["memory_bytes"] / base["memory_bytes"]
            clicks.show(line)


if __name__ == "__main__":
    main()
