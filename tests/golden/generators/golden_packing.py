"""packing.json: how gradients are grouped for a collective, and CommunicationOptions."""

import itertools

import golden_common as common
from golden_common import tf
import numpy as np
from tensorflow.python.distribute import collective_util
from tensorflow.python.distribute import cross_device_ops
from tensorflow.python.distribute import cross_device_utils

FRAGMENTS = [
    "Argument `bytes_per_pack` must be >=0",
    "Argument `implementation` must be instance of",
    "is not a valid CommunicationImplementation",
    "must be greater than zero",
    "not supported between instances of",
    "num_packs must be >= 0",
    "NCCL all-reduce requires num_packs >= 0",
    "HierarchicalCopy requires num_packs >= 0",
]

# Element counts of the tensors of one batch; null is a tensor of unknown shape.
BATCHES = {
    "public": [
        [32, 8, 200, 1], [1], [], [10, 10, 10, 10], [100, 1, 1, 1, 1], [1, 1, 1, 1, 100],
        [50, 50], [0, 4, 0, 8], [5, None, 5], [7, 13, 29, 3, 11, 2, 17], [25, 25, 1, 24, 1],
    ],
    "heldout": [
        [64, 64, 64], [3, 5, 8, 13, 21, 34], [128, 2, 2, 128], [None], [1000], [9, 9, 9, 9, 9, 9],
        [20, 0, 0, 30, 10],
    ],
}
PACK_BYTES = {"public": [0, 1, 4, 40, 100, 200, 400, 10 ** 6], "heldout": [0, 8, 60, 256, 300, 520]}


def group_cases(variant):
    """Indices of the tensors in each pack."""
    cases = []
    for counts, pack_bytes, dtype in itertools.product(
            BATCHES[variant], PACK_BYTES[variant], ["float32", "float16", "int64"]):
        if dtype != "float32" and pack_bytes not in (40, 100, 60, 256):
            continue
        specs = [tf.TensorSpec([None] if n is None else [n], dtype) for n in counts]
        packs = cross_device_utils.group_by_size(specs, pack_bytes)
        cases.append({"elements": counts, "dtype": dtype, "bytes_per_pack": pack_bytes,
                      "packs": [[next(i for i, s in enumerate(specs) if s is member)
                                 for member in pack] for pack in packs]})
    return common.numbered("PG", cases)


def concat_cases(variant):
    """The packs of NcclAllReduce and HierarchicalCopyAllReduce: concatenate, then split into
    num_packs."""
    shapes = {"public": [[[3], [2, 2], [1]], [[8]], [[1], [1]], [[2, 3], [5]]],
              "heldout": [[[4], [3, 3], [2]], [[1, 1], [6]], [[7], [7]]]}[variant]
    cases = []
    for tensors, packs in itertools.product(shapes, [-1, 0, 1, 2, 3, 4]):
        values, start = [], 0
        for shape in tensors:
            size = int(np.prod(shape))
            values.append(tf.reshape(tf.range(start, start + size, dtype=tf.float32), shape))
            start += size

        def pack():
            packer = cross_device_ops._ConcatAndSplitPacker(packs)
            packed = packer.pack([[(v, None) for v in values]])
            return [common.tensor(p)["data"] for p, _ in packed[0]]

        cases.append({"shapes": tensors, "num_packs": packs,
                      **common.outcome(lambda: {"packs": pack()}, FRAGMENTS)})
    if variant == "public":
        for name in ["NcclAllReduce", "HierarchicalCopyAllReduce"]:
            for packs in [-1, 0, 1, 8]:
                def construct():
                    return {"num_packs": getattr(tf.distribute, name)(num_packs=packs)._num_packs}
                cases.append({"construct": name, "argument": packs,
                              **common.outcome(construct, FRAGMENTS)})
    return common.numbered("PC", cases)


def fields(options):
    return {"bytes_per_pack": options.bytes_per_pack, "timeout_seconds": options.timeout_seconds,
            "implementation": options.implementation.value}


def option_cases(variant):
    """CommunicationOptions from arguments, and per-call options merged over those of construction."""
    make = tf.distribute.experimental.CommunicationOptions
    arguments = {
        "public": [{}, {"bytes_per_pack": 50}, {"bytes_per_pack": -1}, {"timeout_seconds": 1.5},
                   {"timeout_seconds": 0.0}, {"timeout_seconds": -1.0},
                   {"implementation": "RING"}, {"implementation": "nccl"},
                   {"implementation": "AUTO"}, {"implementation": "MPI"}, {"implementation": 3},
                   {"bytes_per_pack": 50, "timeout_seconds": 2.0, "implementation": "NCCL"}],
        "heldout": [{"bytes_per_pack": 7, "implementation": "auto"}, {"bytes_per_pack": 0},
                    {"timeout_seconds": 30}, {"implementation": ""},
                    {"bytes_per_pack": 9, "timeout_seconds": 0.5, "implementation": "ring"}],
    }[variant]
    cases = [{"arguments": a, **common.outcome(lambda: {"options": fields(make(**a))}, FRAGMENTS)}
             for a in arguments]
    good = [a for a, c in zip(arguments, cases) if "options" in c]
    for first, second in itertools.product(good, good + [None]):
        merged = make(**first).merge(None if second is None else make(**second))
        cases.append({"arguments": first, "merged_with": second, "options": fields(merged)})
    if variant == "public":
        hints = collective_util.Hints(50, 1)
        cases.append({"hints": [50, 1], "options": fields(hints)})
    return common.numbered("PO", cases)


def generate(variant, out):
    common.write(out / "packing.json", {}, group_by_size=group_cases(variant),
                 concat_and_split=concat_cases(variant), options=option_cases(variant))
