#!/usr/bin/env python3
"""The savings and costs of each row_storage of the click model's tables: memory, step time and AUC,
compared with float32 in the same run. Two servers and one worker on loopback. One JSON line for each
storage.

usage: tests/bench/row_storage.py [--rows 400000] [--epochs 2] [--only float16+float32 ...]
                                  [--set optimizer.type=sgd ...]
  --rows, --epochs: of the click logs; --only: some of the storages, values+slots;
  --set: keys of the job"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import clicks  # noqa: E402
import processes  # noqa: E402

STORAGES = ["float32+float32", "float32+bfloat16", "float32+float16",
            "float16+float32", "float16+bfloat16", "float16+float16",
            "bfloat16+float32", "bfloat16+bfloat16", "bfloat16+float16",
            "int8+float32", "int8+bfloat16", "int8+float16"]


def train(storage, flags):
    values, slots = storage.split("+")
    with tempfile.TemporaryDirectory(prefix="cairn-storage.") as folder:
        with processes.Cluster(folder, 2) as servers:
            report = processes.run_workers(
                clicks.JOB, servers.worker_file(1), 1,
                [*flags, "--set",
                 f"model.embedding.row_storage={{values: {values}, slots: {slots}}}"])[0]
            tables = clicks.tables(servers)
    for table in tables:
        if table["row_storage"] != {"values": values, "slots": slots}:
            raise AssertionError(f"{table['name']} has {table['row_storage']}, not {storage}")
    return report, tables


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=STORAGES[1:])
    parser.add_argument("--set", nargs="*", default=[])
    arguments = parser.parse_args()
    flags = [flag for value in [f"data.epochs={arguments.epochs}", *arguments.set]
             for flag in ("--set", value)]
    with tempfile.TemporaryDirectory(prefix="cairn-clicks.") as folder:
        clicks.make(folder, arguments.rows)
        base = None
        for storage in [STORAGES[0], *arguments.only]:
            report, tables = train(storage, ["--data_root", folder, *flags])
            line = {"bench": "row storage", "model": "clicks", "epochs": arguments.epochs,
                    "storage": storage, "auc": report["eval"]["auc"],
                    "rows": sum(table["rows"] for table in tables),
                    "memory_bytes": sum(table["memory_bytes"] for table in tables),
                    "examples_per_second": report["examples_per_second"]}
            base = base or dict(line)
            line["auc_minus_float32"] = line["auc"] - base["auc"]
            line["memory_over_float32"] = line["memory_bytes"] / base["memory_bytes"]
            line["step_time_over_float32"] = (base["examples_per_second"] /
                                              line["examples_per_second"])
            clicks.show(line)


if __name__ == "__main__":
    main()
