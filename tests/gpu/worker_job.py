"""Runs a job with the command sys.argv[1:], which calls cairn-worker."""
import json
import os
import subprocess
import sys

ENV = {**os.environ, "LD_LIBRARY_PATH": os.environ.get("CAIRN_LIBRARIES", "")}


def train(folder, job):
    """Writes the job file to `folder`, where its data is too; prints the log; returns the report."""
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="ascii") as file:
        json.dump(job, file)
    done = subprocess.run([*sys.argv[1:], "--job", path, "--data_root", folder], env=ENV,
                          capture_output=True, text=True, timeout=120, check=False)
    print(done.stderr[-2500:])
    if done.returncode != 0:
        raise AssertionError(f"cairn-worker exited {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])
