"""The starting point of tests of whole programs: a directory for each test, and rows to train
on."""
import json
import os
import random
import tempfile
import unittest


class FolderTest(unittest.TestCase):
    """Every test has a directory, which is deleted at the end."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)


def write_rows(path, rows, columns, noise=0.0):
    """libsvm rows of four columns each; odd columns indicate label 1, even ones 0, up to
    `noise`."""
    draw = random.Random(3)
    with open(path, "w", encoding="ascii") as f:
        for _ in range(rows):
            chosen = sorted(draw.sample(range(1, columns + 1), 4))
            label = int(sum(1 if c % 2 else -1 for c in chosen) + draw.uniform(-noise, noise) > 0)
            f.write(f"{label} " + " ".join(f"{c}:1" for c in chosen) + "\n")


def write_comparisons(path, rows):
    """libsvm rows of four columns each; the label says whether the first exceeds the second."""
    generator = random.Random(7)
    with open(path, "w", encoding="ascii") as f:
        for _ in range(rows):
            values = [generator.random() for _ in range(4)]
            f.write(f"{int(values[0] > values[1])} "
                    + " ".join(f"{i + 1}:{v:.3f}" for i, v in enumerate(values)) + "\n")


def write_sparse(path, rows, columns=20):
    """libsvm rows of four of the columns each, with random labels."""
    draw = random.Random(7)
    with open(path, "w", encoding="ascii") as f:
        for _ in range(rows):
            chosen = sorted(draw.sample(range(1, columns + 1), 4))
            f.write(f"{draw.randrange(2)} "
                    + " ".join(f"{c}:{draw.uniform(-1, 1):.3f}" for c in chosen) + "\n")


def write_pairs(path, rows, columns, least):
    """libsvm rows of two columns each, of values from `least` tenths; odd columns indicate label 1,
    even ones 0."""
    with open(path, "w", encoding="ascii") as f:
        for i in range(rows):
            a, b = 1 + i * 7919 % columns, 1 + i * 104729 % columns
            pairs = {a: (least + i % 11) / 10, b: (least + i % 13) / 10}
            label = 1 if sum(v if c % 2 else -v for c, v in pairs.items()) > 0 else 0
            f.write(f"{label} " + " ".join(f"{c}:{pairs[c]}" for c in sorted(pairs)) + "\n")


def write_endless_job(folder, name, batch=32, **sections):
    """The path of a job that trains a linear model until it is stopped."""
    rows, features = os.path.join(folder, "rows.libsvm"), 64
    with open(rows, "w", encoding="ascii") as f:
        for row in range(6400):
            f.write(f"{1 if row * 7 % 11 > 4 else -1} {row % features + 1}:1\n")
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="ascii") as f:
        json.dump({"name": name, "model": {"type": "linear"},
                   "data": {"format": "libsvm", "train": [rows], "features": features,
                            "batch_size": batch, "epochs": 10 ** 7},
                   "optimizer": {"type": "adagrad", "learning_rate": 0.01}, **sections}, f)
    return path
