"""The click model for benchmarks: its rows, its tables, and JSON lines of results."""
import json
import os
import subprocess

import processes

JOB = os.path.join(processes.TOP, "examples", "clicks", "clicks.yaml")
MAKE = os.path.join(processes.TOP, "build", "examples", "clicks", "cairn-make-clicks")


def make(folder, rows):
    """Writes `rows` rows to train on and 20,000 to evaluate; `folder` is then the --data_root."""
    for count, seed, name in ((rows, 1, "train.tsv"), (20000, 2, "eval.tsv")):
        subprocess.run([MAKE, "--rows", str(count), "--seed", str(seed), "--out",
                        os.path.join(folder, name)], check=True, capture_output=True)


def tables(servers):
    found, _ = processes.ctl("inspect", "--cluster", servers.worker_file(1), "--job", "clicks")
    return [variable for variable in found["variables"]
            if variable["kind"] == "embedding" and not variable["name"].startswith("cairn/")]


def show(line):
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value
                      for key, value in line.items()}), flush=True)
