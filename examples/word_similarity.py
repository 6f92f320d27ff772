#!/usr/bin/env python3
"""Spearman's rank correlation between people's judgements of word pairs and the cosines of trained
word vectors. Needs numpy.
usage: word_similarity.py VECTORS.npz PAIRS.tsv     (lines "word<TAB>word<TAB>score"; # is a comment)
"""
import json
import sys

import numpy


def ranks(values):
    """Ranks from 0; equal values share their mean rank."""
    values = numpy.asarray(values)
    _, group, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    last = numpy.cumsum(counts) - 1
    return (last - (counts - 1) / 2)[group]


def main(vectors_path, pairs_path):
    exported = numpy.load(vectors_path)
    vectors = dict(zip(exported["input/keys"], exported["input/values"]))
    vector_of = {word.decode(): vectors[number]
                 for number, word in enumerate(exported["vocabulary"]) if number in vectors}
    judged, cosines, unknown = [], [], 0
    with open(pairs_path, encoding="utf-8") as lines:
        for line in lines:
            cells = line.split("\t")
            if line.startswith("#") or len(cells) != 3:
                continue
            a, b = (vector_of.get(word.strip().lower()) for word in cells[:2])
            if a is None or b is None:
                unknown += 1
                continue
            judged.append(float(cells[2]))
            cosines.append(a @ b / (numpy.linalg.norm(a) * numpy.linalg.norm(b) + 1e-12))
    rho = numpy.corrcoef(ranks(judged), ranks(cosines))[0, 1] if len(judged) > 1 else float("nan")
    print(json.dumps({"pairs": len(judged), "unknown_pairs": unknown, "rho": round(rho, 4)}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
