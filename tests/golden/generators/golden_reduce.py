"""reduce.json: reductions, broadcasts and gathers across replicas, in and outside of run."""

import itertools
import json
import sys

import golden_common as common
from golden_common import tf
import numpy as np

OPS = ["SUM", "MEAN"]
AXES = [None, 0, 1, [0, 1], -1, 2, -3]

FRAGMENTS = [
    "Invalid reduction dimension",
    "Inputs to operation AddN of type AddN must have the same size and shape",
    "destinations must be one of",
    "destinations can not be empty",
    "gather does not support IndexedSlices",
    "gather method requires cross-replica context, use get_replica_context().all_gather() instead",
    "Shape mismatch",
    "in both shapes must be equal",
    "Ranks of all input tensors should match",
    "Expected concatenating dimensions in the range",
    "Can't concatenate scalars",
    "Requires start <= limit",
    "unhashable type",
    "Value passed to parameter 'reduction_indices' has DataType string",
    "is not a valid ReduceOp",
    "'float' object has no attribute",
]

PARAMETERS = {
    "public": {
        "replicas": [2, 3],
        "shapes": {
            "scalars": [[], [], []],
            "vectors": [[3], [3], [3]],
            "unequal_vectors": [[1], [3], [2]],
            "vectors_with_empty": [[3], [0], [1]],
            "matrices": [[2, 2], [2, 2], [2, 2]],
            "unequal_rows": [[3, 2], [1, 2], [2, 2]],
            "rows_with_empty": [[2, 3], [0, 3], [1, 3]],
            "all_empty": [[0, 2], [0, 2], [0, 2]],
        },
        "scale": 1.5, "offset": -2,
    },
    "heldout": {
        "replicas": [2, 4],
        "shapes": {
            "scalars": [[], [], [], []],
            "unequal_vectors": [[4], [2], [1], [5]],
            "vectors_with_empty": [[0], [5], [0], [2]],
            "cubes": [[2, 2, 3], [2, 2, 3], [2, 2, 3], [2, 2, 3]],
            "unequal_rows": [[1, 3], [4, 3], [2, 3], [5, 3]],
            "rows_with_empty": [[0, 2], [4, 2], [3, 2], [0, 2]],
            "unequal_columns": [[2, 1], [2, 4], [2, 2], [2, 3]],
        },
        "scale": 0.7, "offset": 3,
    },
}


def fill(shape, dtype, start, parameters):
    """Row-major offset + scale * (start, start + 1, ...), whole numbers for integer dtypes."""
    count = int(np.prod(shape, dtype=int))
    values = parameters["offset"] + parameters["scale"] * (start + np.arange(count))
    return tf.constant(np.asarray(values).astype(dtype).reshape(shape), dtype)


def components(shapes, dtype, parameters):
    return [fill(shape, dtype, 4 * r + 1, parameters) for r, shape in enumerate(shapes)]


def as_axis(axis):
    return tuple(axis) if isinstance(axis, list) else axis


def run_outcome(action):
    def encoded():
        return {"value": common.encode(action())}
    return common.outcome(encoded, FRAGMENTS)


def reduce_cases(parameters):
    """strategy.reduce of one tensor per replica, over every op and axis."""
    cases = []
    for (name, shapes), replicas, dtype in itertools.product(
            parameters["shapes"].items(), parameters["replicas"], ["float32", "int32"]):
        if dtype == "int32" and name not in ("unequal_vectors", "rows_with_empty", "scalars"):
            continue
        values = components(shapes[:replicas], dtype, parameters)
        results = []
        per_strategy = {}
        for kind in ["mirrored", "central"]:
            strategy = common.make_strategy(kind, replicas)
            per_strategy[kind] = []
            for op, axis in itertools.product(OPS, AXES):
                with strategy.scope():
                    value = common.per_replica(strategy, values)
                    result = run_outcome(lambda: strategy.reduce(op, value, axis=as_axis(axis)))
                per_strategy[kind].append({"op": op, "axis": axis, **result})
        results = per_strategy["mirrored"]
        differing = [i for i, r in enumerate(results)
                     if r.get("value") != per_strategy["central"][i].get("value")]
        if differing:
            raise AssertionError(f"mirrored and central differ: {name} {differing}")
        cases.append({"values_name": name, "replicas": replicas, "dtype": dtype,
                      "strategies": ["mirrored", "central"],
                      "values": common.encode(values), "results": results})
    return common.numbered("R", cases)


def plain_values(parameters):
    """The results of reduce for values that are not per replica, and the values themselves."""
    matrix = fill([2, 2], "float32", 1, parameters)
    return {
        "number_zero": np.float32(0), "number": np.float32(parameters["scale"]),
        "array_zero": np.zeros([2], np.float32), "array": np.array([1, 2], np.float32),
        "tensor_zero": tf.zeros([2]), "tensor": matrix, "tensor_int": fill([3], "int64", 1, parameters),
    }


def plain_cases(parameters):
    cases = []
    for kind, replicas in [("mirrored", 2), ("mirrored", 1), ("central", 2), ("one_device", 1),
                           ("default", 1)]:
        strategy = common.make_strategy(kind, replicas)
        for (name, value), op, axis in itertools.product(
                plain_values(parameters).items(), OPS, [None, 0]):
            if axis == 0 and np.ndim(value) == 0:
                continue
            with strategy.scope():
                result = run_outcome(lambda: strategy.reduce(op, value, axis=axis))
            cases.append({"strategy": kind, "replicas": replicas, "value_name": name,
                          "input": common.encode(value), "op": op, "axis": axis, **result})
    return common.numbered("RP", cases)


def placed_outcome(strategy, action):
    """Like run_outcome, with the device of every component of every result."""
    def placed(result):
        if isinstance(result, list):
            return [placed(r) for r in result]
        return [{"device": common.device_of(part), **common.tensor(part)}
                for part in strategy.experimental_local_results(result)]
    return common.outcome(lambda: {"value": placed(action())}, FRAGMENTS)


def destination_cases(parameters):
    """extended.reduce_to, batch_reduce_to and broadcast_to for devices and variables."""
    cases = []
    for kind, replicas in [("mirrored", 2), ("mirrored", parameters["replicas"][-1]), ("central", 2)]:
        strategy = common.make_strategy(kind, replicas)
        shapes = [[2]] * replicas
        first = components(shapes, "float32", parameters)
        second = [2 * v + 1 for v in first]
        with strategy.scope():
            variable = tf.Variable([0.0, 0.0])
            one, two = common.per_replica(strategy, first), common.per_replica(strategy, second)
            for op, (where, destination) in itertools.product(
                    ["SUM", "MEAN"],
                    [("device:CPU:0", "CPU:0"), ("device:CPU:1", "CPU:1"), ("variable", variable),
                     ("value", one), ("list", ["CPU:0"]), ("empty", "")]):
                reduce_op = tf.distribute.ReduceOp[op]

                def reduce_to():
                    return strategy.extended.reduce_to(reduce_op, one, destination)

                def batch_reduce_to():
                    return strategy.extended.batch_reduce_to(
                        reduce_op, [(one, destination), (two, destination)])

                base = {"strategy": kind, "replicas": replicas, "op": op, "destination": where}
                cases.append({"call": "reduce_to", **base, "values": common.encode(first),
                              **placed_outcome(strategy, reduce_to)})
                cases.append({"call": "batch_reduce_to", **base,
                              "values": [common.encode(first), common.encode(second)],
                              **placed_outcome(strategy, batch_reduce_to)})
            for where, destination in [("device:CPU:1", "CPU:1"), ("variable", variable)]:
                def broadcast_to():
                    return strategy.extended.broadcast_to(first[0], destination)

                cases.append({"call": "broadcast_to", "strategy": kind, "replicas": replicas,
                              "destination": where, "values": common.encode(first[:1]),
                              **placed_outcome(strategy, broadcast_to)})
    return common.numbered("RD", cases)


def gather_inputs(replicas):
    """Name -> (component shapes, axis)."""
    return {
        "vectors": ([[3]] * replicas, 0),
        "unequal_vectors": ([[r + 1] for r in range(replicas)], 0),
        "one_empty_vector": ([[0 if r == 1 else 2] for r in range(replicas)], 0),
        "matrices_axis_1": ([[1, 3]] * replicas, 1),
        "unequal_rows": ([[r + 1, 2] for r in range(replicas)], 0),
        "unequal_columns": ([[2, r + 1] for r in range(replicas)], 1),
        "last_axis": ([[1, 2, r + 1] for r in range(replicas)], -1),
        "mismatch_off_axis": ([[1, r + 1] for r in range(replicas)], 0),
        "ranks_differ": ([[1] * (1 + r % 2) for r in range(replicas)], 0),
        "axis_out_of_range": ([[2]] * replicas, 1),
        "scalars": ([[]] * replicas, 0),
    }


# After a failed collective all later ones in the process fail, so these have their own process.
COLLECTIVE_FAILURES = ["mismatch_off_axis", "ranks_differ"]


def gather_call(strategy, values, axis, call):
    """`call` is gather, from the scope, or all_gather, from run."""
    value = common.per_replica(strategy, values)
    if call == "gather":
        with strategy.scope():
            return strategy.gather(value, axis=axis)

    def step(x):
        return tf.distribute.get_replica_context().all_gather(x, axis=axis)
    return list(strategy.experimental_local_results(strategy.run(step, args=(value,))))


def gather_cases(parameters, variant):
    """strategy.gather in the scope and all_gather in run."""
    cases = []
    for kind, replicas in itertools.product(["mirrored", "central"], parameters["replicas"]):
        strategy = common.make_strategy(kind, replicas)
        for name, (shapes, axis) in gather_inputs(replicas).items():
            values = components(shapes, "float32", parameters)
            results = {}
            for call in ["gather", "all_gather"]:
                if kind == "mirrored" and name in COLLECTIVE_FAILURES:
                    results[call] = common.from_own_process(
                        "golden_reduce.py", variant, str(replicas), name, call)
                else:
                    results[call] = run_outcome(lambda: gather_call(strategy, values, axis, call))
            cases.append({"strategy": kind, "replicas": replicas, "values_name": name, "axis": axis,
                          "values": common.encode(values), **results})

        # A structure, slices, and gather called inside run.
        flat = components([[2]] * replicas, "float32", parameters)
        wide = components([[1, 2]] * replicas, "float32", parameters)
        nested = common.per_replica(strategy, [{"a": f, "b": [w]} for f, w in zip(flat, wide)])

        def all_gather_nested():
            def step(a, b):
                return tf.distribute.get_replica_context().all_gather({"a": a, "b": b}, axis=0)
            result = strategy.run(step, args=(nested["a"], nested["b"]))
            return list(strategy.experimental_local_results(result))

        cases.append({"strategy": kind, "replicas": replicas, "values_name": "structure", "axis": 0,
                      "values": [{"a": common.encode(f), "b": [common.encode(w)]}
                                 for f, w in zip(flat, wide)],
                      "all_gather": run_outcome(all_gather_nested)})
        sparse = common.per_replica(strategy, [
            tf.IndexedSlices(f, tf.constant([0, 1], tf.int64), tf.constant([4], tf.int64))
            for f in flat])

        def gather_slices():
            with strategy.scope():
                return strategy.gather(sparse, axis=0)

        def gather_plain_slices():
            with strategy.scope():
                return strategy.gather(strategy.experimental_local_results(sparse)[0], axis=0)

        def all_gather_slices():
            step = lambda x: tf.distribute.get_replica_context().all_gather(x, axis=0)
            return list(strategy.experimental_local_results(strategy.run(step, args=(sparse,))))

        def gather_in_run():
            return strategy.run(lambda x: strategy.gather(x, axis=0), args=(nested["a"],))

        cases.append({"strategy": kind, "replicas": replicas, "values_name": "slices", "axis": 0,
                      "gather": run_outcome(gather_slices),
                      "all_gather": run_outcome(all_gather_slices)})
        cases.append({"strategy": kind, "replicas": replicas, "values_name": "plain_slices",
                      "axis": 0, "gather": run_outcome(gather_plain_slices)})
        cases.append({"strategy": kind, "replicas": replicas, "values_name": "gather_inside_run",
                      "axis": 0, "gather": run_outcome(gather_in_run)})
    return common.numbered("RG", cases)


def all_reduce_cases(parameters):
    """ReplicaContext.all_reduce of tensors, structures and slices, and its gradient."""
    cases = []
    for kind, replicas, op, graph in itertools.product(
            ["mirrored", "central"], parameters["replicas"], OPS, [False, True]):
        strategy = common.make_strategy(kind, replicas)
        reduce_op = tf.distribute.ReduceOp[op]
        scalars = components([[]] * replicas, "float32", parameters)
        vectors = components([[2]] * replicas, "float32", parameters)
        whole = components([[2]] * replicas, "int64", parameters)

        def local(value):
            return list(strategy.experimental_local_results(value))

        def replicate(step, *arguments):
            values = [common.per_replica(strategy, list(a)) for a in arguments]
            run = lambda *v: strategy.run(step, args=v)
            return local((tf.function(run) if graph else run)(*values))

        def reduce_all(value):
            return tf.distribute.get_replica_context().all_reduce(reduce_op, value)

        base = {"strategy": kind, "replicas": replicas, "op": op, "in_function": graph}
        cases.append({**base, "values_name": "tensor", "values": common.encode(scalars),
                      **run_outcome(lambda: replicate(reduce_all, scalars))})
        cases.append({**base, "values_name": "integers", "values": common.encode(whole),
                      **run_outcome(lambda: replicate(reduce_all, whole))})
        cases.append({
            **base, "values_name": "structure",
            "values": [{"x": common.encode(s), "y": [common.encode(v), common.encode(2 * v)]}
                       for s, v in zip(scalars, vectors)],
            **run_outcome(lambda: replicate(
                lambda s, v: reduce_all({"x": s, "y": [v, 2 * v]}), scalars, vectors))})

        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = reduce_all(x) * (x + 1)
            return tape.gradient(y, x)

        # d/dx_r of the sum over replicas s of all_reduce(x) * (x_s + 1).
        cases.append({**base, "values_name": "gradient", "values": common.encode(scalars),
                      **run_outcome(lambda: replicate(gradient, scalars))})

        indices = [[r, r + 1] for r in range(replicas)]
        def slices_step(v, i):
            reduced = reduce_all(tf.IndexedSlices(v, i, tf.constant([replicas + 1], tf.int64)))
            return {"indices": reduced.indices, "values": reduced.values}
        cases.append({
            **base, "values_name": "slices",
            "values": [{"indices": i, "values": common.encode(v)} for i, v in zip(indices, vectors)],
            **run_outcome(lambda: replicate(
                slices_step, vectors, [tf.constant(i, tf.int64) for i in indices]))})
    return common.numbered("RA", cases)


def misuse_cases():
    """Calls that reduce refuses."""
    strategy = common.mirrored(2)
    cases = []
    with strategy.scope():
        value = common.per_replica(strategy, [tf.constant([1.0]), tf.constant([2.0])])
        variable = tf.Variable([1.0, 2.0])
        synced = tf.Variable([1.0, 2.0], synchronization=tf.VariableSynchronization.ON_READ,
                             aggregation=tf.VariableAggregation.SUM)
        calls = {
            "axis_list": lambda: strategy.reduce("SUM", value, axis=[0]),
            "axis_text_mean": lambda: strategy.reduce("MEAN", value, axis="0"),
            "unknown_op": lambda: strategy.reduce("MAX", value, axis=None),
            "lower_case_op": lambda: strategy.reduce("mean", value, axis=0),
            "mirrored_variable_mean": lambda: strategy.reduce("MEAN", variable, axis=None),
            "mirrored_variable_sum": lambda: strategy.reduce("SUM", variable, axis=None),
            "mirrored_variable_sum_axis_0": lambda: strategy.reduce("SUM", variable, axis=0),
            "sync_on_read_variable_sum": lambda: strategy.reduce("SUM", synced, axis=None),
            "sync_on_read_variable_mean": lambda: strategy.reduce("MEAN", synced, axis=None),
            "python_zero": lambda: strategy.reduce("SUM", 0.0, axis=None),
        }
        for name, call in calls.items():
            cases.append({"strategy": "mirrored", "replicas": 2, "call": name, **run_outcome(call)})
    return common.numbered("RM", cases)


def generate(variant, out):
    parameters = PARAMETERS[variant]
    sections = {"reduce": reduce_cases(parameters), "plain": plain_cases(parameters),
                "destinations": destination_cases(parameters), "gather": gather_cases(parameters, variant),
                "all_reduce": all_reduce_cases(parameters)}
    if variant == "public":
        sections["misuse"] = misuse_cases()
    meta = {"parameters": {k: parameters[k] for k in ("scale", "offset")}}
    common.write(out / "reduce.json", meta, **sections)


def main():
    """One failing gather: golden_reduce.py VARIANT REPLICAS NAME gather|all_gather"""
    variant, replicas, name, call = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    common.set_up_logical_cpus()
    shapes, axis = gather_inputs(replicas)[name]
    values = components(shapes, "float32", PARAMETERS[variant])
    strategy = common.mirrored(replicas)
    print(json.dumps(run_outcome(lambda: gather_call(strategy, values, axis, call))))


if __name__ == "__main__":
    main()
