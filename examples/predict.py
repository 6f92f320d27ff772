#!/usr/bin/env python3
"""Predictions of an exported model with numpy alone: what `cairn-worker --mode predict` writes.

usage: predict.py MODEL.npz DATA [--model TYPE] [--loss LOSS] [--buckets N]

DATA has the rows of the model's training: libsvm (linear, mlp), ratings (matrix_factorization), or
Criteo's (wide_deep, dlrm, mlp). The export knows the rest; the options are for exports of cairnctl
without --job. USE_ELSEWHERE.md explains every formula.
"""
import argparse
import gzip
import json
import re
import signal
import zipfile

import numpy as np

M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    """The finalizer of SplitMix64."""
    x = (x + GOLDEN) & M64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & M64
    return x ^ (x >> 31)


def hash_bytes(data):
    """64-bit FNV-1a, mixed: the key of a token."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & M64
    return mix(value)


def signed(x):
    return x - (1 << 64) if x >> 63 else x


def bucket_of_key(key, buckets):
    """Which hash bucket of an embedding table, and so which server, has a key."""
    return (mix(key & M64) >> 48) * buckets >> 16


def normal_quantile(p):
    """Wichura's AS 241, PPND7."""
    def ratio(up, down, r):
        return np.polyval(up[::-1], r) / np.polyval(down[::-1], r)
    q = p - 0.5
    if abs(q) <= 0.425:
        return q * ratio([3.3871327179, 50.434271938, 159.29113202, 59.109374720],
                         [1, 17.895169469, 78.757757664, 67.187563600], 0.180625 - q * q)
    r = np.sqrt(-np.log(p if q < 0 else 1 - p))
    if r <= 5:
        x = ratio([1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103],
                  [1, 0.73700164250, 0.12021132975], r - 1.6)
    else:
        x = ratio([6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997],
                  [1, 0.24197894225, 0.012258202635], r - 5)
    return -x if q < 0 else x


def fresh_row(name, dim, init, key):
    """The value of a key that has no row: the table's initializer, seeded by table and key."""
    stream = mix(mix(mix(init["seed"] & M64) ^ hash_bytes(name.encode())) + (key & M64) & M64)
    fractions = []
    for i in range(dim):
        word = mix(stream + i // 2 * GOLDEN & M64)
        fractions.append(((word & 0xFFFFFFFF if i % 2 else word >> 32) + 0.5) * 2.0 ** -32)
    kind = init["type"]
    if kind in ("uniform", "glorot_uniform"):
        limit = np.sqrt(6 / max(2.0, 1 + dim))
        low, high = (init["minval"], init["maxval"]) if kind == "uniform" else (-limit, limit)
        values = [low + (high - low) * f for f in fractions]
    elif kind == "normal":
        values = [init["mean"] + init["stddev"] * normal_quantile(f) for f in fractions]
    else:
        values = [{"ones": 1, "zeros": 0}.get(kind, init.get("value", 0))] * dim
    return np.array(values, np.float32)


class Export:
    def __init__(self, path):
        self.arrays = np.load(path)
        with zipfile.ZipFile(path) as archive:
            self.about = json.loads(archive.comment or b"{}")
        self.specs = {name: group for group in self.about.get("variables", [])
                      for name in group["names"]}

    def __getitem__(self, name):
        return self.arrays[name]

    def __contains__(self, name):
        return name in self.arrays.files

    def rows(self, table, keys):
        """[len(keys), dim]: trained rows, and fresh ones for keys without a row."""
        known, values = self.arrays[table + "/keys"], self.arrays[table + "/values"]
        spec = self.specs[table]
        keys = np.asarray(keys, np.int64)
        unique, inverse = np.unique(keys, return_inverse=True)
        at = np.searchsorted(known, unique)
        rows = np.empty((len(unique), spec["shape"][0]), np.float32)
        for i, key in enumerate(unique):
            there = at[i] < len(known) and known[at[i]] == key
            rows[i] = values[at[i]] if there else fresh_row(table, rows.shape[1],
                                                            spec["initializer"], int(key))
        return rows[inverse]

    def column(self, prefix, c, keys, first):
        """The rows of key column c, counted from 0: all columns share a table, in which its keys
        begin at `first`, or a table and its keys, or each has a table."""
        if prefix + "all/keys" in self:
            return self.rows(prefix + "all", [key + first for key in keys])
        if prefix + "vocabulary/keys" in self:
            return self.rows(prefix + "vocabulary", keys)
        return self.rows(f"{prefix}C{c + 1}", keys)

    def layers(self, prefix, x, relu_last=False):
        """Dense layers PREFIX0, PREFIX1, ... with ReLU between them."""
        count = sum(1 for name in self.arrays.files if re.fullmatch(prefix + r"\d+/kernel", name))
        for i in range(count):
            x = x @ self[f"{prefix}{i}/kernel"] + self[f"{prefix}{i}/bias"]
            if relu_last or i + 1 < count:
                x = np.maximum(x, 0)
        return x


def open_rows(path, mode="rt"):
    encoding = None if "b" in mode else "ascii"
    return (gzip.open if path.endswith(".gz") else open)(path, mode, encoding=encoding)


def read_libsvm(path, features):
    rows = []
    with open_rows(path) as lines:
        for line in lines:
            row = np.zeros(features, np.float32)
            for pair in line.split("#")[0].split()[1:]:
                index, value = pair.split(":")
                row[int(index) - 1] = float(value)
            rows.append(row)
    return np.array(rows)


def read_criteo(path, buckets, names_columns=True):
    """Numbers [rows, 13] and keys, one array a column. `names_columns`: a key is a hash of its
    column's name too."""
    numbers, keys = [], [[] for _ in range(26)]
    with open_rows(path, "rb") as lines:
        for line in lines:
            line = line.rstrip(b"\r\n")
            cells = line.split(b"\t" if b"\t" in line else b",")
            if cells[0].isalpha():  # names of columns
                continue
            numbers.append([np.log1p(np.float32(c)) if c and float(c) > 0 else 0
                            for c in cells[1:14]])
            for column, token in enumerate(cells[14:40]):
                key = hash_bytes(b"C%d:%s" % (column + 1, token) if names_columns else token)
                if buckets:
                    key = mix(key) * buckets >> 64
                keys[column].append(signed(key))
    return np.array(numbers, np.float32), keys


def read_ratings(path):
    with open_rows(path) as lines:
        pairs = [re.split(r"::|[,\t]", line)[:2] for line in lines]
    return np.array([p for p in pairs if p[0].strip().isdigit()], np.int64).T


def keyed_scores(export, model, numbers, keys, step):
    """`step`: how far apart the keys of two columns are in a table that columns share."""
    tables = [export.column("embedding/", c, column, c * step) for c, column in enumerate(keys)]
    if model == "dlrm":
        bottom = export.layers("bottom_", numbers, relu_last=True)
        vectors = np.stack([bottom, *tables], axis=1)
        products = vectors @ vectors.transpose(0, 2, 1)
        i, j = np.tril_indices(vectors.shape[1], -1)  # (1,0), (2,0), (2,1), (3,0), ...
        return export.layers("top_", np.concatenate([bottom, products[:, i, j]], axis=1))
    scores = export.layers("dense_", np.concatenate([*tables, numbers], axis=1))
    if model == "wide_deep":
        for c, column in enumerate(keys):
            scores = scores + export.column("wide/", c, column, c * step)
        scores = scores + numbers @ export["wide/dense"]
    return scores


def predict(export, path, model=None, loss=None, buckets=None):
    """Probabilities, or values, [rows, outputs]."""
    about = export.about.get("model", {})
    model = model or about["type"]
    loss = loss or about["loss"]
    buckets = about.get("hash_buckets", 0) if buckets is None else buckets
    if model == "matrix_factorization":
        users, items = read_ratings(path)
        scores = ((export.rows("user", users) * export.rows("item", items)).sum(1, keepdims=True)
                  + export.rows("user_bias", users) + export.rows("item_bias", items)
                  + export["bias"])
    elif model == "linear":
        x = read_libsvm(path, export["kernel"].shape[0])
        scores = x @ export["kernel"] + export["bias"]
    elif model == "mlp" and not any(name.startswith("embedding/") for name in export.specs):
        x = read_libsvm(path, export["dense_0/kernel"].shape[0])
        scores = export.layers("dense_", x)
    else:
        names_columns = "embedding/vocabulary/keys" not in export
        scores = keyed_scores(export, model, *read_criteo(path, buckets, names_columns), buckets)
    if loss == "sigmoid_cross_entropy":
        return 1 / (1 + np.exp(-scores))
    if loss == "softmax_cross_entropy":
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    return scores


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the program without a traceback
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("export")
    parser.add_argument("data")
    parser.add_argument("--model")
    parser.add_argument("--loss")
    parser.add_argument("--buckets", type=int)
    given = parser.parse_args()
    for row in predict(Export(given.export), given.data, given.model, given.loss, given.buckets):
        print(*(f"{value:.9g}" for value in row))


if __name__ == "__main__":
    main()
