#!/usr/bin/env python3
"""Logistic regression with scikit-learn's interface, its weights on parameter servers, on UCI
Adult. Test AUC 0.902 after two passes (scikit-learn: 0.9022).

usage: logistic_regression.py [examples/data/a9a]"""
import gzip
import os
import sys

import numpy as np

import cairn

FEATURES = 123


class LogisticRegression:
    """Weights [features] and a bias, by mini-batches and Adagrad.

    X is rows of feature indices: [n, most features of a row], with `features` as padding."""

    def __init__(self, client, features, learning_rate=0.3, batch_size=128, epochs=2, seed=1):
        self.client, self.features = client, features
        self.batch_size, self.epochs, self.seed = batch_size, epochs, seed
        adagrad = cairn.optim.Adagrad(learning_rate)
        self.weights = client.variable("weights", (features,), optimizer=adagrad)
        self.bias = client.variable("bias", (1,), optimizer=adagrad)

    def fit(self, X, y):
        rng = np.random.default_rng(self.seed)
        weights, bias = self.client.pull([self.weights, self.bias])
        for _ in range(self.epochs):
            order = rng.permutation(len(X))
            for begin in range(0, len(X), self.batch_size):
                rows = order[begin:begin + self.batch_size]
                error = (self._probability(X[rows], weights, bias) - y[rows]) / len(rows)
                gradient = np.bincount(X[rows].ravel(), np.repeat(error, X.shape[1]),
                                       self.features + 1)[:-1]
                # One update of both, and their new values, in one round trip to each server.
                weights, bias = self.client.push_pull(
                    [(self.weights, gradient.astype(np.float32)),
                     (self.bias, error.sum(keepdims=True).astype(np.float32))],
                    [self.weights, self.bias])
        return self

    def predict_proba(self, X):
        return self._probability(X, *self.client.pull([self.weights, self.bias]))

    @staticmethod
    def _probability(X, weights, bias):
        return 1 / (1 + np.exp(-np.append(weights, 0)[X].sum(1) - bias))


def read_libsvm(path, features):
    """Rows of indices (all values of this data are 1), and labels 0 or 1."""
    with gzip.open(path, "rt", encoding="ascii") as file:
        parts = [line.split() for line in file]
    X = np.full((len(parts), max(map(len, parts)) - 1), features, np.int64)
    for row, part in zip(X, parts):
        row[:len(part) - 1] = [int(p.split(":")[0]) - 1 for p in part[1:]]
    return X, np.array([float(p[0]) > 0 for p in parts], np.float64)


def auc(scores, y):
    """The area under the ROC curve."""
    order = np.argsort(scores, kind="stable")
    values, first, counts = np.unique(scores[order], return_index=True, return_counts=True)
    rank = np.empty(len(scores))
    rank[order] = np.repeat(first + (counts + 1) / 2, counts)  # ties share their mean rank
    positive = y.sum()
    return (rank[y == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(y) - positive))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    data = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "data", "a9a")
    with cairn.launch(servers=2) as cluster, cluster.connect(job="adult", worker=0) as client:
        model = LogisticRegression(client, FEATURES)
        model.fit(*read_libsvm(os.path.join(data, "train.libsvm.gz"), FEATURES))
        X, y = read_libsvm(os.path.join(data, "test.libsvm.gz"), FEATURES)
        print(f"auc {auc(model.predict_proba(X), y):.4f}")


if __name__ == "__main__":
    main()
