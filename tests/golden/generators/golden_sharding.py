"""sharding.json: partitioners, the layout of sharded variables, and their operations."""

import itertools

import golden_common as common
from golden_common import tf
import numpy as np
from tensorflow.python.distribute import sharded_variable

FRAGMENTS = [
    "Index out of range using input dim",
    "out of bounds",
    "using Tensor for indexing is not allowed",
    "using Tensor in slice_spec is not allowed",
    "slice step cannot be zero",
    "indices must be 1D Tensor",
    "does not conform to \"div\" sharding",
    "should be a non-empty list of",
    "must have the same dtype",
    "must have the same shapes except",
    "must be positive",
    "must be a positive",
]


def result_of(action):
    return common.outcome(lambda: {"value": action()}, FRAGMENTS)


SHARDS = {
    "public": {"dims": [1, 2, 3, 5, 6, 7, 10, 16, 32], "counts": [1, 2, 3, 4, 5]},
    "heldout": {"dims": [4, 8, 9, 11, 13, 20, 33], "counts": [2, 3, 5, 6, 7]},
}


def div_sizes(rows, count):
    base, extra = divmod(rows, count)
    return [base + 1] * extra + [base] * (count - extra)


def make_sharded(values, sizes):
    parts = np.split(np.asarray(values), np.cumsum(sizes)[:-1])
    return sharded_variable.ShardedVariable([tf.Variable(part) for part in parts])


def row_cases(variant):
    """The shard of row i and its local row, in the div layout; -1 if the row does not exist."""
    cases = []
    for rows, count in itertools.product(SHARDS[variant]["dims"], SHARDS[variant]["counts"]):
        if count > rows:
            continue
        sizes = div_sizes(rows, count)
        variable = make_sharded(np.arange(rows, dtype=np.int64), sizes)
        local, shard = variable._decompose_indices(tf.range(rows, dtype=tf.int64))
        cases.append({"rows": rows, "shards": count, "shard_rows": sizes,
                      "shard_of_row": shard.numpy().tolist(),
                      "local_rows_of_shard": [part.numpy().tolist() for part in local]})
    return common.numbered("SR", cases)


def key_items(key):
    """An index expression as a list: a number, "newaxis", "...", "tensor", {"slice": [start, stop,
    step]} with null for omitted values, or {"mask": [...]}."""
    if isinstance(key, tuple):
        return [item for part in key for item in key_items(part)]
    if key is None:
        return ["newaxis"]
    if key is Ellipsis:
        return ["..."]
    if isinstance(key, slice):
        parts = ["tensor" if isinstance(v, tf.Tensor) else v for v in (key.start, key.stop, key.step)]
        return [{"slice": parts}]
    if isinstance(key, tf.Tensor):
        return ["tensor"]
    if isinstance(key, np.ndarray):
        return [{"mask": key.tolist()}]
    return [key]


def beside_dense(result, dense_result):
    """Adds the result of the same call on one unsharded tensor, if TensorFlow's shards differ."""
    if "value" in result and "value" in dense_result and result != dense_result:
        return {**result, "unsharded": dense_result["value"]}
    return result


def slicing_cases(variant):
    """Python indexing of a sharded matrix whose element (i, j) is 10 * i + j."""
    s = np.s_
    layouts = {"public": [(8, 2, [3, 3, 2]), (5, 3, [2, 2, 1]), (4, 2, [4])],
               "heldout": [(10, 3, [4, 3, 3]), (6, 2, [1, 2, 3]), (7, 1, [2, 2, 2, 1])]}[variant]
    keys = {
        "public": [s[:], s[5:], s[:3], s[2:6], s[::3], s[::-1], s[2::-1], s[6::-6], s[-3:], s[:-2],
                   s[1:7:2], s[7:1:-2], s[3:3], s[5:2], s[0], s[3], s[-1], s[100], s[-100], s[:, 0],
                   s[2:5, 1], s[1, 1], s[..., 0], s[...], s[None], s[None, 2:4], s[2:4, None],
                   s[::0], s[20:], s[:20], s[-20:], s[::100], s[tf.constant(1)],
                   s[tf.constant(1):], np.array([True, False] * 4), s[0, 0, 0], s[3::2, ::-1]],
        "heldout": [s[1:-1], s[-2::-3], s[::4], s[4::-1], s[9], s[-7], s[6:0:-1], s[2:9:3],
                    s[None, 0], s[..., -1], s[3:, 0:1], s[-1:-5:-2], s[:-100], s[5:-5:-1], s[-11]],
    }[variant]
    cases = []
    for (rows, columns, sizes), key in itertools.product(layouts, keys):
        dense = (10 * np.arange(rows)[:, None] + np.arange(columns)).astype(np.float32)
        variable = make_sharded(dense, sizes)
        if isinstance(key, np.ndarray):
            key = key[:rows]
        result = result_of(lambda: common.tensor(variable[key]))
        if "value" in result:
            result = beside_dense(result, result_of(lambda: common.tensor(tf.constant(dense)[key])))
        cases.append({"rows": rows, "columns": columns, "shard_rows": sizes,
                      "key": key_items(key), **result})
    return common.numbered("SL", cases)


def sharded_op_cases(variant):
    """assign, scatter, sparse_read and embedding lookups of a sharded matrix."""
    layouts = {"public": [(5, 2, [2, 2, 1]), (6, 3, [3, 3]), (32, 1, [11, 11, 10]), (5, 2, [1, 2, 2])],
               "heldout": [(7, 2, [3, 2, 2]), (10, 1, [3, 3, 2, 2]), (6, 2, [1, 2, 3])]}[variant]
    cases = []
    for rows, columns, sizes in layouts:
        dense = (1 + np.arange(rows * columns)).reshape(rows, columns).astype(np.float32)
        delta = (0.5 * np.arange(rows * columns)).reshape(rows, columns).astype(np.float32)
        ids = [rows - 1, 0, rows // 2, 0, 1]
        updates = np.arange(len(ids) * columns).reshape(-1, columns).astype(np.float32) + 2
        base = {"rows": rows, "columns": columns, "shard_rows": sizes}

        def shards_after(action):
            variable = make_sharded(dense, sizes)
            action(variable)
            return [common.tensor(v) for v in variable.variables]

        for op in ["assign", "assign_add", "assign_sub"]:
            cases.append({**base, "op": op, "delta": common.tensor(delta), **result_of(
                lambda: shards_after(lambda v: getattr(v, op)(tf.constant(delta))))})
        slices = tf.IndexedSlices(tf.constant(updates), tf.constant(ids, tf.int64))
        unique = tf.IndexedSlices(tf.constant(updates[:3]), tf.constant(ids[:3], tf.int64))
        for op in ["scatter_add", "scatter_sub", "scatter_mul", "scatter_div", "scatter_min",
                   "scatter_max", "scatter_update"]:
            used = unique if op == "scatter_update" else slices
            cases.append({**base, "op": op, "slices": common.slices(used), **result_of(
                lambda: shards_after(lambda v: getattr(v, op)(used)))})

        variable = make_sharded(dense, sizes)
        read = result_of(lambda: common.tensor(variable.sparse_read(tf.constant(ids, tf.int64))))
        rows_read = {"value": common.tensor(tf.gather(dense, ids))}
        cases.append({**base, "op": "sparse_read", "ids": ids, **beside_dense(read, rows_read)})
        cases.append({**base, "op": "sparse_read", "ids": [ids], **result_of(
            lambda: common.tensor(variable.sparse_read(tf.constant([ids], tf.int64))))})
        cases.append({**base, "op": "embedding_lookup", "ids": ids, **result_of(
            lambda: common.tensor(tf.nn.embedding_lookup(variable, tf.constant(ids, tf.int64))))})
        if sizes != div_sizes(rows, len(sizes)):
            continue
        sparse = tf.SparseTensor([[0, 0], [0, 1], [2, 0], [3, 0], [3, 1], [3, 2]],
                                 tf.constant([0, 1, rows - 1, 2, 2, 0], tf.int64), [4, 3])
        weights = tf.SparseTensor(sparse.indices, [1.0, 2.0, 0.5, 1.0, 3.0, 0.25], [4, 3])
        for combiner, weighted in itertools.product(["sum", "mean", "sqrtn"], [False, True]):
            used = weights if weighted else None
            base_sparse = {**base, "combiner": combiner,
                           "row_of_value": sparse.indices.numpy()[:, 0].tolist(),
                           "ids": sparse.values.numpy().tolist(),
                           "weights": common.tensor(weights.values)["data"] if weighted else None}
            # Row 1 has no ids.
            cases.append({**base_sparse, "op": "safe_embedding_lookup_sparse", **result_of(
                lambda: common.tensor(tf.nn.safe_embedding_lookup_sparse(
                    variable, sparse, used, combiner=combiner)))})
            cases.append({**base_sparse, "op": "embedding_lookup_sparse", **result_of(
                lambda: common.tensor(tf.nn.embedding_lookup_sparse(
                    variable.variables, sparse, used, combiner=combiner)))})
    if variant == "public":
        one, two = tf.Variable([1.0]), tf.Variable([[1.0]])
        for name, parts in {"no_parts": [], "not_variables": [1, 2], "one_variable": one,
                            "dtypes": [one, tf.Variable([1])], "shapes": [one, two]}.items():
            cases.append({"op": "construct", "name": name, **result_of(
                lambda: list(sharded_variable.ShardedVariable(parts).shape))})
    return common.numbered("SO", cases)


def partitioner_cases(variant):
    """Number of parts per dimension for a shape."""
    p = tf.distribute.experimental.partitioners
    shapes = {"public": [[10, 3], [6, 1], [1, 5], [1000, 64], [3], [0, 4], [262144, 1]],
              "heldout": [[7, 7], [2048], [2048, 1024], [5, 1, 3], [1], [100000, 16]]}[variant]
    makers = {
        "public": {
            "fixed(2)": lambda: p.FixedShardsPartitioner(2),
            "fixed(20)": lambda: p.FixedShardsPartitioner(20),
            "min(4,max=2)": lambda: p.MinSizePartitioner(4, max_shards=2),
            "min(4,max=10)": lambda: p.MinSizePartitioner(4, max_shards=10),
            "min(default)": lambda: p.MinSizePartitioner(),
            "min(262144,max=8)": lambda: p.MinSizePartitioner(262144, max_shards=8),
            "max(4)": lambda: p.MaxSizePartitioner(4),
            "max(4,max=2)": lambda: p.MaxSizePartitioner(4, max_shards=2),
            "max(1024)": lambda: p.MaxSizePartitioner(1024),
            "fixed(0)": lambda: p.FixedShardsPartitioner(0),
            "min(0)": lambda: p.MinSizePartitioner(0),
            "min(4,max=0)": lambda: p.MinSizePartitioner(4, max_shards=0),
            "min(4,bytes=0)": lambda: p.MinSizePartitioner(4, bytes_per_string=0),
            "max(0)": lambda: p.MaxSizePartitioner(0),
            "max(4,max=-1)": lambda: p.MaxSizePartitioner(4, max_shards=-1),
        },
        "heldout": {
            "fixed(3)": lambda: p.FixedShardsPartitioner(3),
            "min(2048,max=100)": lambda: p.MinSizePartitioner(2048, max_shards=100),
            "min(262144,max=100)": lambda: p.MinSizePartitioner(262144, max_shards=100),
            "min(262144,max=16)": lambda: p.MinSizePartitioner(262144, max_shards=16),
            "max(7)": lambda: p.MaxSizePartitioner(7),
            "max(65536)": lambda: p.MaxSizePartitioner(65536),
            "max(65536,max=3)": lambda: p.MaxSizePartitioner(65536, max_shards=3),
        },
    }[variant]
    cases = []
    for name, maker in makers.items():
        made = common.outcome(lambda: maker() and None, FRAGMENTS)
        if made is not None:
            cases.append({"partitioner": name, **made})
            continue
        for shape, dtype in itertools.product(shapes, ["float32", "float64", "string"]):
            if dtype != "float32" and shape != shapes[0] and shape != shapes[3]:
                continue
            result = common.outcome(
                lambda: {"value": list(maker()(tf.TensorShape(shape), tf.as_dtype(dtype)))},
                FRAGMENTS + ["division by zero", "float division by zero", "must be positive",
                             "fully defined", "must have at least one"])
            cases.append({"partitioner": name, "shape": shape, "dtype": dtype, **result})
    return common.numbered("SP", cases)


def placement_cases(variant):
    """ParameterServerStrategy V2: the ps task of every variable, whole or sharded."""
    counts = {"public": [1, 2, 3], "heldout": [2, 4]}[variant]
    cases = []
    for ps in counts:
        cases += common.from_own_process("parameter_server_cluster.py", variant, str(ps))["placement"]
    return common.numbered("SV", cases)


def generate(variant, out):
    common.write(out / "sharding.json", {}, rows=row_cases(variant),
                 slicing=slicing_cases(variant), ops=sharded_op_cases(variant),
                 partitioners=partitioner_cases(variant), placement=placement_cases(variant))
