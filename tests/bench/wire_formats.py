#!/usr/bin/env python3
"""What each format of strategy.wire saves and costs: payload bytes of a step, its time, and the
quality of the trained model, beside plain in the same run. Two servers and one worker on loopback,
where bytes are nearly free: a slower network saves the more. One JSON line a model and format.

usage: tests/bench/wire_formats.py [--rows 200000]   (of the click logs)"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import clicks  # noqa: E402
import processes  # noqa: E402

TABLES_IN_INT8 = ('{push: top_k, top_k_fraction: 0.05, per_variable: '
                  '[{match: "embedding/*", push: int8}, {match: "wide/*", push: int8}]}')
FORMATS = {
    "plain": "{}",
    "float16": "{push: float16, pull: float16}",
    "bfloat16": "{push: bfloat16, pull: bfloat16}",
    "int8": "{push: int8, pull: int8}",
    "int8, pulls bfloat16": "{push: int8, pull: bfloat16}",
    "top_k 0.05": "{push: top_k, top_k_fraction: 0.05}",
    "plain, delta pulls": "{delta_pulls: true}",
}


def train(folder, job, flags):
    with processes.Cluster(folder, 2) as servers:
        return processes.run_workers(job, servers.worker_file(1), 1, flags)[0]


def quality(report):
    found = report["eval"]
    return found.get("auc", found.get("accuracy"))


def measure(model, job, flags):
    plain = None
    for name, wire in FORMATS.items():
        if model == "clicks" and name.startswith("top_k"):
            name, wire = name + ", tables int8", TABLES_IN_INT8
        with tempfile.TemporaryDirectory(prefix="cairn-wire.") as folder:
            report = train(folder, job, [*flags, "--set", f"strategy.wire={wire}"])
        plain = plain or report
        line = {"bench": "wire formats", "model": model, "format": name,
                "push_bytes": report["bytes_pushed"] / report["steps"],
                "pull_bytes": report["bytes_pulled"] / report["steps"],
                "push_over_plain": report["bytes_pushed"] / plain["bytes_pushed"],
                "pull_over_plain": report["bytes_pulled"] / plain["bytes_pulled"],
                "step_time_over_plain": (plain["examples_per_second"] /
                                         report["examples_per_second"]),
                "quality": quality(report), "quality_minus_plain": quality(report) - quality(plain)}
        clicks.show(line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200000)
    arguments = parser.parse_args()
    examples = os.path.join(processes.TOP, "examples")
    data = ["--data_root", processes.DATA]
    measure("a9a", os.path.join(examples, "a9a.yaml"), data)
    if processes.data("mnist") is not None:
        measure("mnist", os.path.join(examples, "mnist.yaml"), data)
    with tempfile.TemporaryDirectory(prefix="cairn-clicks.") as folder:
        clicks.make(folder, arguments.rows)
        measure("clicks", clicks.JOB, ["--data_root", folder])


if __name__ == "__main__":
    main()
