#!/usr/bin/env python3
"""DLRM in PyTorch on click logs: 26 embedding tables and the dense layers on 2 parameter servers, 2
asynchronous workers. The data are 200 rows of Criteo's display ads, trained and evaluated on
themselves: AUC above 0.99 shows that both workers train one model, not the model's quality.

usage: dlrm.py [examples/data/criteo-sample/criteo_sample.csv.gz]"""
import csv
import gzip
import multiprocessing
import os
import sys
import zlib

import numpy as np
import torch

import cairn
import cairn.torch

DENSE, SPARSE, DIM, BATCH, EPOCHS, WORKERS = 13, 26, 8, 20, 20, 2


def read(path):
    """Dense columns [n, 13], log-scaled; keys [n, 26]; labels [n]."""
    with gzip.open(path, "rt", encoding="ascii") as file:
        rows = list(csv.reader(file))[1:]
    dense = np.array([[np.log1p(max(float(cell or 0), 0)) for cell in row[1:1 + DENSE]]
                      for row in rows], np.float32)
    keys = np.array([[zlib.crc32(cell.encode()) for cell in row[1 + DENSE:]] for row in rows])
    labels = np.array([float(row[0]) for row in rows], np.float32)
    return torch.from_numpy(dense), torch.from_numpy(keys), torch.from_numpy(labels)


def layers(*widths):
    """Linear layers with ReLU between them."""
    modules = []
    for width, following in zip(widths, widths[1:]):
        modules += [torch.nn.Linear(width, following), torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


class Dlrm(torch.nn.Module):
    """The model of https://arxiv.org/abs/1906.00091: products of all pairs of embeddings.

    tables: SPARSE modules as torch.nn.Embedding, on servers or not."""

    def __init__(self, tables):
        super().__init__()
        self.tables = torch.nn.ModuleList(tables)
        self.bottom = layers(DENSE, 32, DIM)
        self.top = layers(DIM + SPARSE * (SPARSE + 1) // 2, 32, 1)
        self.pairs = torch.triu_indices(SPARSE + 1, SPARSE + 1, 1)

    def forward(self, dense, keys):
        bottom = self.bottom(dense)
        rows = torch.stack([bottom] + [t(keys[:, i]) for i, t in enumerate(self.tables)], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, products], 1))[:, 0]


def on_servers(client):
    """The model with its tables on the servers."""
    return Dlrm(cairn.torch.Embedding(client, f"table{i}", DIM, optimizer=cairn.optim.Adagrad(0.1))
                for i in range(SPARSE))


def train(index, servers, data):
    """One worker: every second row; after a restart it continues after its last step."""
    torch.set_num_threads(1)
    torch.manual_seed(index)
    client = cairn.connect(servers, job="dlrm", worker=index, workers=WORKERS)
    model = on_servers(client)
    optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.Adagrad(0.05))
    dense, keys, labels = (part[index::WORKERS] for part in data)
    steps = [torch.arange(b, min(b + BATCH, len(labels)))
             for _ in range(EPOCHS) for b in range(0, len(labels), BATCH)]
    first = int(client.position or b"0")
    keys_of = {t: lambda rows, i=i: keys[rows, i] for i, t in enumerate(model.tables)}
    for step, rows in enumerate(cairn.torch.prefetch(steps[first:], keys_of), first + 1):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            model(dense[rows], keys[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(position=str(step), rows=len(rows))
    client.leave()


def auc(scores, labels):
    """The area under the ROC curve of scores without ties."""
    ranks = torch.argsort(torch.argsort(scores)).double() + 1
    positive = labels.sum().item()
    return ((ranks[labels == 1].sum().item() - positive * (positive + 1) / 2)
            / (positive * (len(labels) - positive)))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        here, "..", "data", "criteo-sample", "criteo_sample.csv.gz")
    data = read(path)
    with cairn.launch(servers=2) as cluster:
        # A client belongs to its process: each worker connects for itself.
        spawn = multiprocessing.get_context("spawn")
        workers = [spawn.Process(target=train, args=(i, cluster.addresses, data))
                   for i in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode != 0 for worker in workers):
            sys.exit("a worker failed; above is why")
        with cluster.connect(job="dlrm") as client, torch.no_grad():
            model = on_servers(client)
            cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.Adagrad(0.05))
            print(f"auc {auc(model(data[0], data[1]), data[2]):.4f}")


if __name__ == "__main__":
    main()
