#!/usr/bin/env python3
"""The savings and costs of a table that admits keys with their n-th push: rows, memory and the AUC of
the click model, compared with n = 1 in the same run. Two servers and one worker. One JSON line for
each n. Passes after the first push every key again, so n = 2 then keeps all keys.

usage: tests/bench/row_rules.py [--rows 400000] [--epochs 1] [--pushes 2 3 5]
  --rows, --epochs: of the click logs"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402

BUILD = os.path.join(processes.TOP, "build")
MAKE_CLICKS = os.path.join(BUILD, "examples", "clicks", "cairn-make-clicks")


def tables(servers, job):
    found, _ = processes.ctl("inspect", "--cluster", servers.worker_file(1), "--job", job)
    return [variable for variable in found["variables"]
            if variable["kind"] == "embedding" and not variable["name"].startswith("cairn/")]


def train(job, pushes, flags):
    with tempfile.TemporaryDirectory(prefix="cairn-rules.") as folder:
        with processes.Cluster(folder, 2) as servers:
            report = processes.run_workers(
                job, servers.worker_file(1), 1,
                [*flags, "--set", f"model.embedding.admit_after_pushes={pushes}"])[0]
            return report, tables(servers, "clicks")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--pushes", type=int, nargs="*", default=[2, 3, 5])
    arguments = parser.parse_args()
    job = os.path.join(processes.TOP, "examples", "clicks", "clicks.yaml")
    with tempfile.TemporaryDirectory(prefix="cairn-clicks.") as folder:
        for rows, seed, name in ((arguments.rows, 1, "train.tsv"), (20000, 2, "eval.tsv")):
            subprocess.run([MAKE_CLICKS, "--rows", str(rows), "--seed", str(seed), "--out",
                            os.path.join(folder, name)], check=True, capture_output=True)
        base = None
        for pushes in [1, *arguments.pushes]:
            report, found = train(job, pushes, ["--data_root", folder, "--set",
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
            print(json.dumps({key: round(value, 4) if isinstance(value, float) else value
                              for key, value in line.items()}), flush=True)


if __name__ == "__main__":
    main()
