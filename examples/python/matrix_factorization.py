#!/usr/bin/env python3
"""Film ratings by matrix factorization: a row of factors and an offset for each user and film, on
parameter servers. Ratings in MovieLens' format come from
    examples/make_ratings.py train.dat && examples/make_ratings.py eval.dat --rows 10000 --seed 2
Root mean square error 0.64 on the 10,000 (the truth they were drawn from: 0.59; their mean: 0.93).

usage: matrix_factorization.py train.dat eval.dat [--epochs 12]"""
import argparse

import numpy as np

import cairn

FACTORS, BATCH = 4, 256


def read(path):
    """Users, films and ratings."""
    with open(path, encoding="ascii") as file:
        rows = [line.split("::") for line in file]
    users, films = (np.array([int(row[i]) for row in rows], np.int64) for i in (0, 1))
    return users, films, np.array([float(row[2]) for row in rows], np.float32)


def predict(mean, user, film):
    """The mean, both offsets (column 0), and the product of the factors (the others)."""
    return mean + user[:, 0] + film[:, 0] + (user[:, 1:] * film[:, 1:]).sum(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("eval")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    users, films, ratings = read(options.train)
    mean = ratings.mean()
    rng = np.random.default_rng(1)
    with cairn.launch(servers=2) as cluster, cluster.connect(job="films", worker=0) as client:
        tables = [client.embedding(name, 1 + FACTORS, optimizer=cairn.optim.LazyAdam(0.01),
                                   initializer=cairn.init.Normal(stddev=0.1))
                  for name in ("users", "films")]
        for _ in range(options.epochs):
            order = rng.permutation(len(ratings))
            for begin in range(0, len(order), BATCH):
                rows = order[begin:begin + BATCH]
                keys = users[rows], films[rows]
                user, film = client.pull(list(zip(tables, keys)))
                error = (predict(mean, user, film) - ratings[rows])[:, None] * (2 / len(rows))
                ones = np.ones_like(error)
                # Gradients of a user or film that occurs several times are summed.
                client.push([
                    (tables[0], keys[0], error * np.hstack([ones, film[:, 1:]])),
                    (tables[1], keys[1], error * np.hstack([ones, user[:, 1:]]))])
        users, films, ratings = read(options.eval)
        user, film = client.pull([(tables[0], users), (tables[1], films)])
        rmse = np.sqrt(np.mean((predict(mean, user, film) - ratings) ** 2))
        print(f"rmse {rmse:.4f}")


if __name__ == "__main__":
    main()
