#!/usr/bin/env python3
"""word2vec: skip-gram with negative sampling (https://arxiv.org/abs/1310.4546), both tables on 2
parameter servers, 2 asynchronous workers that share the text. Any text file serves; without one the
program makes a text of 200 words in 10 topics, each sentence about one topic, and prints the share
of words whose nearest neighbour has the same topic: at least 0.95 (at random: 0.1).

usage: word2vec.py [TEXT [--epochs 2] [--nearest WORD]]"""
import argparse
import multiprocessing
import sys

import numpy as np

import cairn

DIM, WINDOW, NEGATIVES, BATCH, WORKERS = 16, 4, 5, 512, 2
TOPICS, TOPIC_WORDS = 10, 20


def make_text(rng, sentences=4000, length=10):
    """Sentences of "topic_word" words."""
    topics = rng.integers(0, TOPICS, (sentences, 1))
    words = rng.integers(0, TOPIC_WORDS, (sentences, length))
    return [[f"t{t}_w{w}" for w in row] for t, row in zip(topics[:, 0], words)]


def read(path):
    """The words of each line."""
    with open(path, encoding="utf-8") as file:
        return [line.split() for line in file if line.strip()]


def encode(sentences):
    """Words by frequency, their counts, and sentences as arrays of their indices."""
    words, inverse, counts = np.unique([w for s in sentences for w in s], return_inverse=True,
                                       return_counts=True)
    order = np.argsort(-counts, kind="stable")
    index = np.empty_like(order)
    index[order] = np.arange(len(order))
    ends = np.cumsum([len(s) for s in sentences])
    return words[order], counts[order], np.split(index[inverse], ends[:-1])


def pairs(sentences, rng):
    """(word, neighbour) of all words at most a random window apart, shuffled: [n, 2]."""
    found = []
    for words in sentences:
        window = rng.integers(1, WINDOW + 1, len(words))
        for distance in range(1, min(WINDOW, len(words) - 1) + 1):
            left, right = words[:-distance], words[distance:]
            found.append(np.stack([left, right], 1)[window[:-distance] >= distance])
            found.append(np.stack([right, left], 1)[window[distance:] >= distance])
    return rng.permutation(np.concatenate(found))


def open_tables(client):
    """Vectors of words, and of words as neighbours; rows appear when they are first pushed."""
    adagrad = cairn.optim.Adagrad(0.2)
    uniform = cairn.init.Uniform(-0.5 / DIM, 0.5 / DIM, seed=1)
    return (client.embedding("words", DIM, optimizer=adagrad, initializer=uniform),
            client.embedding("neighbours", DIM, optimizer=adagrad, initializer="zeros"))


def train(index, servers, sentences, counts, epochs):
    """One worker: every second sentence; after a restart it continues after its last step."""
    with cairn.connect(servers, job="word2vec", worker=index, workers=WORKERS) as client:
        words, neighbours = open_tables(client)
        noise = np.cumsum(counts ** 0.75)
        step, first = 0, int(client.position or b"0")
        for epoch in range(epochs):
            rng = np.random.default_rng([index, epoch])
            shuffled = pairs(sentences[index::WORKERS], rng)
            for begin in range(0, len(shuffled), BATCH):
                center, near = shuffled[begin:begin + BATCH].T
                draws = rng.random((len(center), NEGATIVES)) * noise[-1]
                step += 1
                if step <= first:
                    continue
                outside = np.column_stack([near, np.searchsorted(noise, draws)])
                v, u = client.pull([(words, center), (neighbours, outside)])
                score = 1 / (1 + np.exp(-np.einsum("nd,nkd->nk", v, u)))
                score[:, 0] -= 1  # the neighbour; the others are noise
                client.push([(words, center, np.einsum("nk,nkd->nd", score, u)),
                             (neighbours, outside, score[:, :, None] * v[:, None])],
                            position=str(step))


def nearest(vectors, index, count=1):
    """The words whose vectors have the smallest angle to that of word `index`."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = unit @ unit[index]
    similarity[index] = -1
    return np.argsort(-similarity)[:count]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--nearest")
    options = parser.parse_args()
    sentences = read(options.text) if options.text else make_text(np.random.default_rng(1))
    names, counts, encoded = encode(sentences)
    with cairn.launch(servers=2) as cluster:
        # A client belongs to its process: each worker connects for itself.
        spawn = multiprocessing.get_context("spawn")
        workers = [spawn.Process(target=train, args=(i, cluster.addresses, encoded, counts,
                                                     options.epochs)) for i in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode != 0 for worker in workers):
            sys.exit("a worker failed; above is why")
        with cluster.connect(job="word2vec") as client:
            vectors = open_tables(client)[0].pull(np.arange(len(names)))
    if options.nearest:
        found = np.flatnonzero(names == options.nearest)
        if found.size == 0:
            sys.exit(f"the text has no word '{options.nearest}'")
        print(*names[nearest(vectors, found[0], 10)])
    if not options.text:
        topics = [name.split("_")[0] for name in names]
        same = [topics[nearest(vectors, i)[0]] == topics[i] for i in range(len(names))]
        print(f"same_topic {np.mean(same):.4f}")


if __name__ == "__main__":
    main()
