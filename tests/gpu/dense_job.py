"""A whole job whose steps fill the GPU beside the same job in PyTorch: an mlp of two layers of 1024,
Adam, batches of 4096 rows of 784 bytes, drawn in a new order in every epoch.

  python3 dense_job.py WORKER...

WORKER is the command that calls cairn-worker. PyTorch keeps all rows in memory and gathers a batch
there (no worker processes, which are slower), copies its bytes to the GPU, and converts them there.
Prints a JSON line: rows per second, and PyTorch's. Exit status 3: Python's packages or a GPU are
missing."""
import json
import os
import struct
import sys
import tempfile
import time

import worker_job

try:
    import numpy
    import torch
except ImportError as error:
    print(error)
    sys.exit(3)

ROWS, COLUMNS, CLASSES, BATCH, EPOCHS = 65536, 784, 10, 4096, 30


def rows():
    random = numpy.random.default_rng(1)
    images = random.integers(0, 256, (ROWS, COLUMNS), dtype=numpy.uint8)
    labels = ((images[:, :256].astype(numpy.float32) - 127.5) @
              random.standard_normal((256, CLASSES)).astype(numpy.float32)).argmax(axis=1)
    return images, labels.astype(numpy.uint8)


def cairn(folder, images, labels):
    with open(os.path.join(folder, "images"), "wb") as file:
        file.write(struct.pack(">IIII", 0x803, ROWS, 28, 28) + images.tobytes())
    with open(os.path.join(folder, "labels"), "wb") as file:
        file.write(struct.pack(">II", 0x801, ROWS) + labels.tobytes())
    job = {"model": {"type": "mlp", "hidden": [1024, 1024], "loss": "softmax_cross_entropy",
                     "classes": CLASSES},
           "data": {"format": "idx", "batch_size": BATCH, "epochs": EPOCHS,
                    "train": [{"images": "images", "labels": "labels"}],
                    "shuffle": {"buffer_rows": ROWS, "seed": 1}},
           "optimizer": {"type": "adam", "learning_rate": 0.001},
           "strategy": {"type": "one_device", "devices": ["gpu:0"]},
           "storage": {"directory": os.path.join(folder, "storage")}}
    return worker_job.train(folder, job)


def pytorch(images, labels):
    """Rows per second of a whole run, and the mean loss of the last epoch."""
    images, labels = torch.from_numpy(images), torch.from_numpy(labels).long()
    model = torch.nn.Sequential(
        torch.nn.Linear(COLUMNS, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(), torch.nn.Linear(1024, CLASSES)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    lost = torch.nn.CrossEntropyLoss()
    begin = None
    for epoch in range(1 + EPOCHS):
        if epoch == 1:  # after an epoch to warm up
            torch.cuda.synchronize()
            begin = time.perf_counter()
        order, losses = torch.randperm(ROWS), []
        for at in range(0, ROWS, BATCH):
            chosen = order[at:at + BATCH]
            x = images[chosen].pin_memory().cuda(non_blocking=True).float() / 255
            y = labels[chosen].pin_memory().cuda(non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            loss = lost(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        last = torch.stack(losses).mean().item()
    return ROWS * EPOCHS / (time.perf_counter() - begin), last


def main():
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        return 3
    images, labels = rows()
    with tempfile.TemporaryDirectory() as folder:
        report = cairn(folder, images, labels)
    other, other_loss = pytorch(images, labels)
    ours = report["examples_per_second"]
    print(json.dumps({
        "bench": f"job of an mlp 784-1024-1024-{CLASSES} with adam, batches of {BATCH} rows, beside "
                 f"PyTorch {torch.__version__}",
        "examples_per_second": round(ours), "other_examples_per_second": round(other),
        "ratio": round(ours / other, 3), "gpu_ms_per_step": report["gpu"]["compute_ms_per_step"],
        "loss": report["train_loss"], "other_loss": other_loss,
        "verified": report["train_loss"] < 1.5 and other_loss < 1.5}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
