#!/usr/bin/env python3
"""Film ratings in MovieLens' format (user::item::rating::time) with a known truth: a rating is the
mean, what the user and the film add, and the product of hidden tastes, with noise, in half stars.
Prints the root mean square error that the true model itself has on the rows.
usage: make_ratings.py OUT.dat [--rows 100000] [--users 1000] [--items 1700] [--seed 1]
"""
import argparse
import json
import math
import random

TASTES, NOISE = 4, 0.6


def person(kind, number):
    """What a user or film adds, and its tastes; the same for every seed of the log."""
    rng = random.Random(f"{kind} {number}")
    return rng.gauss(0, 0.35), [rng.gauss(0, 0.55) for _ in range(TASTES)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--items", type=int, default=1700)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    users = [person("user", u) for u in range(options.users)]
    items = [person("item", i) for i in range(options.items)]
    rng = random.Random(options.seed)
    squares = 0.0
    with open(options.out, "w", encoding="ascii") as out:
        for row in range(options.rows):
            # Some users and films are seen far more often than others.
            u = int(options.users * rng.random() ** 1.5)
            i = int(options.items * rng.random() ** 2)
            expected = 3.5 + users[u][0] + items[i][0] + sum(
                a * b for a, b in zip(users[u][1], items[i][1]))
            drawn = expected + rng.gauss(0, NOISE)
            rating = min(5.0, max(0.5, round(2 * drawn) / 2))
            squares += (rating - min(5.0, max(0.5, expected))) ** 2
            out.write(f"{u + 1}::{i + 1}::{rating:g}::{1_000_000_000 + row}\n")
    print(json.dumps({"rows": options.rows, "true_rmse": round(math.sqrt(squares / options.rows), 4)}))


if __name__ == "__main__":
    main()
