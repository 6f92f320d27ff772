"""variables.json, scatter.json: assign and scatter on variables of every synchronization and aggregation."""

import itertools

import golden_common as common
from golden_common import tf
import numpy as np

SYNCHRONIZATIONS = ["ON_WRITE", "ON_READ"]
AGGREGATIONS = ["NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"]
DTYPES = ["float32", "int64"]
OPS = ["assign", "assign_add", "assign_sub"]
SCATTER_OPS = ["scatter_add", "scatter_sub", "scatter_mul", "scatter_div", "scatter_min",
               "scatter_max", "scatter_update"]

# replica_*: inside run. cross_*: in the strategy's scope. update_*: in the function of
# extended.update. *_number is the same number on every replica; *_tensor is one tensor that every
# replica passes; *_values is one tensor per replica.
WHERES = ["replica_values", "replica_number", "replica_tensor", "cross_number", "cross_values",
          "update_number", "update_values"]

FRAGMENTS = [
    "Could not convert from `tf.VariableAggregation`",
    "'PerReplica' object has no attribute",
    "unsupported operand type(s) for /: 'PerReplica'",
    "Tensor conversion requested dtype int64 for Tensor with dtype float64",
    "Flattening a PerReplica to components is not supported in replica context",
    "'AggregatingVariable' object has no attribute",
    "'PerReplica' object is not iterable",
]

PARAMETERS = {
    "public": {
        "replicas": [2, 3], "shape": [], "initial": 5, "first": 2, "per_replica": 3, "number": 4,
        "scatter_replicas": [2, 3], "scatter_initial": [4, 9, 16, 25],
        "scatter_first": 2, "scatter_values": 2,
    },
    "heldout": {
        "replicas": [2, 4], "shape": [], "initial": 24, "first": 6, "per_replica": 2, "number": 8,
        "scatter_replicas": [4], "scatter_initial": [8, 18, 2, 50, 32],
        "scatter_first": 3, "scatter_values": 5,
    },
}


def new_variable(strategy, case):
    with strategy.scope():
        return tf.Variable(
            tf.constant(case["initial"], case["dtype"], case["shape"]),
            synchronization=tf.VariableSynchronization[case["synchronization"]],
            aggregation=tf.VariableAggregation[case["aggregation"]])


def flat(value):
    return [common.number(x) for x in np.asarray(value).ravel()]


def components(strategy, variable):
    return [flat(part.numpy()) for part in strategy.experimental_local_results(variable)]


def cross_read(strategy, variable):
    with strategy.scope():
        return common.outcome(lambda: flat(variable.read_value().numpy()), FRAGMENTS)


def apply_step(strategy, variable, step, case, graph=False):
    """One op on `variable`. `graph` runs replica functions inside a tf.function."""
    def tensor(values):
        return tf.constant(values, case["dtype"], case["shape"])

    def change(target, value):
        getattr(target, step["op"])(value)

    place, kind = step["where"].split("_")
    if kind == "number":
        value = float(step["number"]) if case["dtype"] == "float32" else step["number"]
    elif kind == "tensor":
        value = tensor(step["values"][0])
    else:
        value = common.per_replica(strategy, [tensor(v) for v in step["values"]])

    if place == "cross":
        with strategy.scope():
            change(variable, value)
    elif place == "update":
        with strategy.scope():
            strategy.extended.update(variable, change, args=(value,))
    elif kind == "values":
        def on_replicas(x):
            strategy.run(lambda y: change(variable, y), args=(x,))
        (tf.function(on_replicas) if graph else on_replicas)(value)
    else:
        def on_replicas():
            strategy.run(lambda: change(variable, value))
        (tf.function(on_replicas) if graph else on_replicas)()


def attempt(strategy, case, step, graph=False):
    """`step` on a new variable: its components and cross-replica read, or the error and components."""
    variable = new_variable(strategy, case)
    result = common.outcome(lambda: apply_step(strategy, variable, step, case, graph), FRAGMENTS)
    after = {} if result is None else {"failure": result}
    after["components"] = components(strategy, variable)
    if result is None:
        after["read"] = cross_read(strategy, variable)
    return after


def steps_for(case, parameters, ops, wheres):
    size = int(np.prod(case["shape"], dtype=int))
    def values(base):
        return [base + i for i in range(size)]
    for op, where in itertools.product(ops, wheres):
        step = {"op": op, "where": where}
        if where.endswith("number"):
            step["number"] = parameters["number"]
        elif where.endswith("tensor"):
            step["values"] = [values(parameters["number"])]
        else:
            step["values"] = [values(parameters["first"] + parameters["per_replica"] * r)
                              for r in range(case["replicas"])]
        yield step


def grid(parameters):
    """Every synchronization x aggregation x dtype x op x place, each on a new variable."""
    kinds = [("mirrored", r) for r in parameters["replicas"]]
    kinds += [("central", r) for r in parameters["replicas"]]
    kinds += [("one_device", 1), ("default", 1)]
    cases = []
    size = int(np.prod(parameters["shape"], dtype=int))
    for (name, replicas), dtype, synchronization, aggregation in itertools.product(
            kinds, DTYPES, SYNCHRONIZATIONS, AGGREGATIONS):
        strategy = common.make_strategy(name, replicas)
        case = {"strategy": name, "replicas": replicas, "dtype": dtype,
                "synchronization": synchronization, "aggregation": aggregation,
                "shape": parameters["shape"],
                "initial": [parameters["initial"] + i for i in range(size)]}
        created = common.outcome(lambda: new_variable(strategy, case) and None, FRAGMENTS)
        if created is not None:
            cases.append({**case, "create": created})
            continue
        # The default strategy has no cross-replica context and its values are plain tensors.
        wheres = [w for w in WHERES if name != "default" or w.startswith("replica")]
        attempts = []
        for step in steps_for(case, parameters, OPS, wheres):
            after = attempt(strategy, case, step)
            if step["where"].startswith("replica") and step["op"] == "assign_add":
                in_graph = attempt(strategy, case, step, graph=True)
                if in_graph != after:
                    raise AssertionError(f"graph and eager differ: {case} {step}: {in_graph} {after}")
            attempts.append({**step, **after})
        cases.append({**case, "attempts": attempts})
    return common.numbered("V", cases)


def sequences(parameters):
    """Several consecutive ops on one variable; the components and the read after each."""
    value, number, first = parameters["initial"], parameters["number"], parameters["first"]
    def per_replica(replicas, factor):
        return [[first + factor * r, first * factor + r] for r in range(replicas)]
    cases = []
    kinds = [(n, r) for n in ("mirrored", "central") for r in parameters["replicas"]]
    for (name, replicas), synchronization, aggregation in itertools.product(
            kinds, SYNCHRONIZATIONS, AGGREGATIONS):
        strategy = common.make_strategy(name, replicas)
        case = {"strategy": name, "replicas": replicas, "dtype": "float32",
                "synchronization": synchronization, "aggregation": aggregation,
                "shape": [2], "initial": [value, value + 1]}
        variable = new_variable(strategy, case)
        steps = [
            {"op": "assign_add", "where": "replica_values", "values": per_replica(replicas, 2)},
            {"op": "assign_sub", "where": "replica_values", "values": per_replica(replicas, 3)},
            {"op": "assign", "where": "cross_tensor", "values": [[number, number + 1]]},
            {"op": "assign_add", "where": "replica_tensor", "values": [[number, number - 1]]},
            {"op": "assign_add", "where": "update_values", "values": per_replica(replicas, 1)},
            {"op": "assign_sub", "where": "cross_tensor", "values": [[first, first - 1]]},
            {"op": "assign", "where": "replica_values", "values": per_replica(replicas, 5)},
        ]
        done = []
        for step in steps:
            result = common.outcome(lambda: apply_step(strategy, variable, step, case), FRAGMENTS)
            after = {} if result is None else {"failure": result}
            done.append({**step, **after, "components": components(strategy, variable),
                         "read": cross_read(strategy, variable)})
        cases.append({**case, "steps": done})
    return common.numbered("VS", cases)


def scatter(parameters):
    """Scatter ops with one slice set per replica, in run and in the scope, each on a new variable."""
    rows = len(parameters["scatter_initial"])
    first = parameters["scatter_first"]
    cases = []
    kinds = [(n, r) for n in ("mirrored", "central") for r in parameters["scatter_replicas"]]
    for (name, replicas), dtype, synchronization, aggregation in itertools.product(
            kinds, DTYPES, SYNCHRONIZATIONS, AGGREGATIONS):
        if dtype == "int64" and aggregation == "MEAN":
            continue
        strategy = common.make_strategy(name, replicas)
        case = {"strategy": name, "replicas": replicas, "dtype": dtype,
                "synchronization": synchronization, "aggregation": aggregation,
                "shape": [rows], "initial": parameters["scatter_initial"]}
        # Replica r changes rows r and r + 1, so that neighbours share a row.
        deltas = [{"indices": [r % rows, (r + 1) % rows],
                   "values": [first + r, first + parameters["scatter_values"] * r]}
                  for r in range(replicas)]
        attempts = []
        for op, where in itertools.product(SCATTER_OPS, ["replica_slices", "cross_slices"]):
            variable = new_variable(strategy, case)
            used = deltas if where == "replica_slices" else deltas[:1]
            slices = [tf.IndexedSlices(tf.constant(d["values"], dtype),
                                       tf.constant(d["indices"], tf.int64),
                                       tf.constant([rows], tf.int64)) for d in used]

            def change(delta):
                getattr(variable, op)(delta)

            def apply():
                if where == "cross_slices":
                    with strategy.scope():
                        change(slices[0])
                else:
                    values = common.per_replica(strategy, slices)
                    strategy.run(change, args=(values,))

            result = common.outcome(apply, FRAGMENTS)
            after = {} if result is None else {"failure": result}
            attempts.append({"op": op, "where": where, "slices": used, **after,
                             "components": components(strategy, variable)})
        cases.append({**case, "attempts": attempts})
    return common.numbered("VC", cases)


def creation():
    """Synchronization, aggregation and trainable as the variable reports them, and refusals."""
    cases = []
    for name, replicas in [("mirrored", 2), ("central", 2), ("one_device", 1), ("default", 1)]:
        strategy = common.make_strategy(name, replicas)
        for synchronization in [None, "AUTO", "NONE", "ON_WRITE", "ON_READ"]:
            for aggregation in [None, "SUM"]:
                for trainable in [None, True, False]:
                    arguments = {}
                    if synchronization is not None:
                        arguments["synchronization"] = tf.VariableSynchronization[synchronization]
                    if aggregation is not None:
                        arguments["aggregation"] = tf.VariableAggregation[aggregation]
                    if trainable is not None:
                        arguments["trainable"] = trainable

                    def create():
                        with strategy.scope():
                            variable = tf.Variable(1.0, name="v", **arguments)
                        parts = strategy.experimental_local_results(variable)
                        return {"trainable": variable.trainable,
                                "synchronization": variable.synchronization.name,
                                "aggregation": variable.aggregation.name,
                                "names": [part.name.split(":")[0] for part in parts],
                                "devices": [common.device_of(part) for part in parts]}

                    cases.append({"strategy": name, "replicas": replicas,
                                  "synchronization": synchronization, "aggregation": aggregation,
                                  "trainable": trainable, "result": common.outcome(create, FRAGMENTS)})
    return common.numbered("VN", cases)


def generate(variant, out, parameter_server):
    parameters = PARAMETERS[variant]
    meta = {"parameters": parameters}
    sections = {"grid": grid(parameters), "sequences": sequences(parameters),
                "parameter_server": parameter_server}
    if variant == "public":
        sections["creation"] = creation()
    common.write(out / "variables.json", meta, **sections)
    common.write(out / "scatter.json", meta, scatter=scatter(parameters))
