"""Steps of PyTorch on a GPU beside those of gpu_bench: the same models, batches of the same shape.

  python3 torch_steps.py BENCH_LOG

BENCH_LOG holds gpu_bench's JSON lines of this machine. A step copies the batch to the GPU, computes
the loss and all gradients in float32, and reads the loss; the weights stay on the GPU. A training step
updates the weights besides. Prints a JSON line a step; ratio is PyTorch's time over Cairn's. Exit status 3: there is no PyTorch or no GPU."""
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


def step_seconds(model, batch, make_optimizer=None):
    """Seconds of one step in the fastest of several rounds."""
    model = model.cuda()
    optimizer = make_optimizer(model.parameters()) if make_optimizer else None
    batch = [tensor.pin_memory() for tensor in batch]
    lost = torch.nn.BCEWithLogitsLoss()

    def step():
        *inputs, labels = [tensor.cuda(non_blocking=True) for tensor in batch]
        model.zero_grad(set_to_none=True)
        loss = lost(model(*inputs), labels)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
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
                cairn[bench["bench"]] = bench.get("us")
    labels = torch.randint(0, 2, (ROWS, 1)).float()
    dense = torch.randn(ROWS, 1024)
    keys = torch.randint(0, KEYS, (COLUMNS, ROWS))
    # Cairn's name of the step, the name to print, the model, the batch, the optimizer.
    steps = [
        (f"mlp step of {ROWS} rows on gpu:0 beside one core", f"mlp step of {ROWS} rows",
         Mlp(), [dense, labels], None),
        (f"dlrm step of {ROWS} rows on gpu:0 beside one core", f"dlrm step of {ROWS} rows",
         Dlrm(), [torch.randn(ROWS, 13), keys, labels], None),
        (f"mlp training step of {ROWS} rows with sgd on gpu:0",
         f"mlp training step of {ROWS} rows with sgd", Mlp(), [dense, labels],
         lambda parameters: torch.optim.SGD(parameters, lr=1e-4, fused=True)),
        (f"mlp training step of {ROWS} rows with adam on gpu:0",
         f"mlp training step of {ROWS} rows with adam", Mlp(), [dense, labels],
         lambda parameters: torch.optim.Adam(parameters, lr=1e-4, fused=True)),
    ]
    for ours_name, name, model, batch, make_optimizer in steps:
        us = step_seconds(model, batch, make_optimizer) * 1e6
        ours = cairn.get(ours_name)
        print(json.dumps({
            "bench": f"{name} beside PyTorch {torch.__version__}",
            "us": ours, "other_us": round(us, 1),
            "ratio": round(us / ours, 3) if ours else None, "bar": 1.0,
            "met": bool(ours and us >= ours), "verified": ours is not None}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
