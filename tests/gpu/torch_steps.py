"""Steps of PyTorch on a GPU beside those of gpu_bench: the same models, batches of the same shape.

  python3 torch_steps.py BENCH_LOG

BENCH_LOG holds gpu_bench's JSON lines of this machine. A step copies the batch to the GPU, computes
the loss and all gradients in float32, and reads the loss; the weights stay on the GPU. Prints a JSON
line a model; ratio is PyTorch's time over Cairn's. Exit status 3: there is no PyTorch or no GPU."""
import json
import sys
import time

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(3)

ROWS, COLUMNS, KEYS, DIM = 4096, 26, 5, 16


def layers(*widths, relu_last=False):
    modules = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        modules.append(torch.nn.Linear(inputs, outputs))
        if relu_last or i + 2 < len(widths):
            modules.append(torch.nn.ReLU())
    return torch.nn.Sequential(*modules)


class Dlrm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = layers(13, 64, DIM, relu_last=True)
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(KEYS, DIM) for _ in range(COLUMNS))
        pairs = torch.tril_indices(COLUMNS + 1, COLUMNS + 1, -1)
        self.register_buffer("first", pairs[0])
        self.register_buffer("second", pairs[1])
        self.top = layers(DIM + pairs.shape[1], 64, 1)

    def forward(self, dense, keys):
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom] + [t(keys[c]) for c, t in enumerate(self.tables)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([bottom, products[:, self.first, self.second]], dim=1))


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.all = layers(1024, 1024, 1024, 1)

    def forward(self, dense):
        return self.all(dense)


def step_seconds(model, batch):
    """Seconds of one step in the fastest of several rounds."""
    model = model.cuda()
    batch = [tensor.pin_memory() for tensor in batch]
    lost = torch.nn.BCEWithLogitsLoss()

    def step():
        *inputs, labels = [tensor.cuda(non_blocking=True) for tensor in batch]
        model.zero_grad(set_to_none=True)
        loss = lost(model(*inputs), labels)
        loss.backward()
        return loss.item()

    for _ in range(10):
        step()
    best = float("inf")
    for _ in range(10):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 20)
    return best


def main():
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        return 3
    cairn = {}
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            if line.startswith("{"):
                bench = json.loads(line)
                if bench["bench"].endswith(f"step of {ROWS} rows on gpu:0 beside one core"):
                    cairn[bench["bench"].split()[0]] = bench["us"]
    labels = torch.randint(0, 2, (ROWS, 1)).float()
    steps = {
        "mlp": (Mlp(), [torch.randn(ROWS, 1024), labels]),
        "dlrm": (Dlrm(), [torch.randn(ROWS, 13), torch.randint(0, KEYS, (COLUMNS, ROWS)), labels]),
    }
    for name, (model, batch) in steps.items():
        us = step_seconds(model, batch) * 1e6
        ours = cairn.get(name)
        print(json.dumps({
            "bench": f"{name} step of {ROWS} rows beside PyTorch {torch.__version__}",
            "us": ours, "other_us": round(us, 1),
            "ratio": round(us / ours, 3) if ours else None, "bar": 1.0,
            "met": bool(ours and us >= ours), "verified": ours is not None}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
