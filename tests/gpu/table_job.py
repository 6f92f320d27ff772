"""A job with embedding tables on the GPU beside the same job on a core: a dlrm with layers of up to
1024, batches of 4096 rows of Criteo's format, whose tables are on a server in the worker's process.

  python3 table_job.py WORKER...

WORKER is the command that calls cairn-worker. Prints a JSON line: rows per second on the GPU, and on
the CPU from a tenth of the rows."""
import json
import os
import random
import sys
import tempfile

import worker_job

ROWS, BATCH = 300_000, 4096


def write_rows(path):
    """Clicks that depend on the first two tokens; tokens of 26 columns, frequent ones first."""
    draw = random.Random(1)
    with open(path, "w", encoding="ascii") as file:
        for _ in range(ROWS):
            tokens = [int(draw.paretovariate(0.4)) % 200_000 for _ in range(26)]
            clicked = int(tokens[0] % 3 + tokens[1] % 2 + draw.random() < 1.5)
            file.write(f"{clicked}\t" + "\t".join(str(draw.randrange(100)) for _ in range(13))
                       + "\t" + "\t".join(f"{token:x}" for token in tokens) + "\n")


def train(folder, device, steps):
    job = {"model": {"type": "dlrm", "bottom_hidden": [512, 256],
                     "top_hidden": [1024, 1024, 512, 256], "embedding": {"dim": 16}},
           "data": {"format": "criteo_tsv", "batch_size": BATCH, "epochs": 1, "max_steps": steps,
                    "train": ["rows"]},
           "optimizer": {"type": "adagrad", "learning_rate": 0.02},
           "strategy": {"type": "one_device", "devices": [device]},
           "storage": {"directory": os.path.join(folder, device)}}
    return worker_job.train(folder, job)


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_rows(os.path.join(folder, "rows"))
        gpu = train(folder, "gpu:0", 0)
        cpu = train(folder, "cpu:0", ROWS // BATCH // 10)
    print(json.dumps({
        "bench": f"job of a dlrm with 26 tables, layers of up to 1024, batches of {BATCH} rows, "
                 "beside a core",
        "examples_per_second": gpu["examples_per_second"],
        "other_examples_per_second": cpu["examples_per_second"],
        "ratio": round(gpu["examples_per_second"] / cpu["examples_per_second"], 2),
        "gpu_ms_per_step": gpu["gpu"]["compute_ms_per_step"], "loss": gpu["train_loss"],
        "verified": gpu["train_loss"] < 0.69}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
