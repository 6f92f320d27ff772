"""ParameterServerStrategy V2 on an in-process cluster of loopback servers.

Prints one JSON object: the effects of ops on variables, or, with a number of servers, the placement
of variables. Usage: parameter_server_cluster.py public|heldout [SERVERS]"""

import itertools
import json
import os
import socket
import sys

import golden_common as common
from golden_common import tf
import golden_variables
import numpy as np

WORKERS, SERVERS = 2, 2


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def start_cluster(workers, servers):
    """Starts every server in this process; returns the resolver for a coordinator."""
    ports = free_ports(workers + servers)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    spec = {"worker": addresses[:workers], "ps": addresses[workers:]}
    # Functions on different servers wait for each other, so more threads than cores are needed.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=16)
    running = []
    for job, tasks in spec.items():
        for index in range(len(tasks)):
            running.append(tf.distribute.Server(
                tf.train.ClusterSpec(spec), job_name=job, task_index=index, protocol="grpc",
                config=config))
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec), rpc_layer="grpc")
    return resolver, running


def variables(strategy, coordinator, parameters):
    """One fresh variable per attempt. `run` means: a scheduled function calls strategy.run."""
    cases = []
    number, initial = parameters["number"], parameters["initial"]
    for dtype, synchronization, aggregation in itertools.product(
            golden_variables.DTYPES, golden_variables.SYNCHRONIZATIONS,
            golden_variables.AGGREGATIONS):
        case = {"strategy": "parameter_server", "replicas": 1, "workers": WORKERS, "ps": SERVERS,
                "dtype": dtype, "synchronization": synchronization, "aggregation": aggregation,
                "shape": [], "initial": [initial]}
        attempts = []
        for op, where in itertools.product(golden_variables.OPS, ["schedule_run", "cross_number"]):
            variable = golden_variables.new_variable(strategy, {**case, "initial": initial})
            value = tf.constant(number, dtype)

            def change():
                getattr(variable, op)(value)

            def apply():
                if where == "cross_number":
                    with strategy.scope():
                        change()
                    return
                step = tf.function(lambda: strategy.run(change))
                for _ in range(2):
                    coordinator.schedule(step)
                coordinator.join()

            result = common.outcome(apply, golden_variables.FRAGMENTS)
            after = {} if result is None else {"failure": result}
            attempts.append({"op": op, "where": where, "number": number,
                             "times": 2 if where == "schedule_run" else 1, **after,
                             "read": [common.number(variable.numpy())]})
        cases.append({**case, "attempts": attempts})
    return common.numbered("VP", cases)


PLACED = {
    "public": {
        # name -> (initial value as rows x columns or scalar shape, partitioner)
        "whole": [("a", [4, 2]), ("b", []), ("c", [1, 3]), ("d", [6])],
        "fixed(2)": [("a", [5, 2]), ("b", [6, 1]), ("scalar", []), ("one_row", [1, 3]), ("c", [3])],
        "fixed(4)": [("a", [10]), ("b", [3]), ("c", [2, 2])],
        "min(default)": [("a", [10]), ("b", [4, 4])],
        "max(16)": [("a", [8, 1]), ("b", [3, 4]), ("c", [2])],
    },
    "heldout": {
        "whole": [("p", [3]), ("q", [2, 2]), ("r", []), ("s", [5]), ("t", [7])],
        "fixed(3)": [("p", [7]), ("q", [2, 4]), ("r", [9, 1]), ("s", [])],
        "fixed(5)": [("p", [5, 1]), ("q", [11])],
        "max(12)": [("p", [10]), ("q", [4, 2])],
    },
}
INVALID_PARTITIONS = {"none": None, "empty": [], "zero": [0, 1, 1], "second_axis": [2, 2, 1],
                      "too_short": [2], "not_a_list": 2}


def partitioner(name):
    library = tf.distribute.experimental.partitioners
    return {"whole": None, "fixed(2)": library.FixedShardsPartitioner(2),
            "fixed(3)": library.FixedShardsPartitioner(3),
            "fixed(4)": library.FixedShardsPartitioner(4),
            "fixed(5)": library.FixedShardsPartitioner(5),
            "min(default)": library.MinSizePartitioner(),
            "max(12)": library.MaxSizePartitioner(12), "max(16)": library.MaxSizePartitioner(16)}[name]


def task_of(variable):
    return variable.device.split("/task:")[1].split("/")[0]


def placed(strategy, name, shape):
    """Creates a variable whose values count up from 0; returns placement and contents of its
    parts."""
    size = int(np.prod(shape, dtype=int))
    with strategy.scope():
        variable = tf.Variable(lambda: tf.reshape(tf.range(size, dtype=tf.float32), shape), name=name)
    sharded = hasattr(variable, "variables")
    parts = variable.variables if sharded else [variable]
    return {"name": name, "shape": shape, "sharded": sharded,
            "parts": [{"name": v.name.split(":")[0], "ps": int(task_of(v)), "shape": list(v.shape),
                       "data": [common.number(x) for x in v.numpy().ravel()]} for v in parts]}


def placement(resolver, servers, variant):
    """The variables of a program under each partitioner, in creation order, on a fresh strategy."""
    cases = []
    for name, variables_of_program in PLACED[variant].items():
        strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner(name))
        cases.append({"ps": servers, "partitioner": name,
                      "variables": [placed(strategy, n, s) for n, s in variables_of_program]})
    if variant == "public" and servers == 2:
        for name, partitions in INVALID_PARTITIONS.items():
            strategy = tf.distribute.ParameterServerStrategy(resolver, lambda **_: partitions)
            result = common.outcome(lambda: placed(strategy, "v", [4, 4, 4]),
                                    ["variable_partitioner", "'int' object is not subscriptable"])
            cases.append({"ps": servers, "partitions": partitions, "invalid": name, **result})
        # Variables colocated with another one skip the counter and stay whole.
        strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner("fixed(2)"))
        steps = [placed(strategy, "a", [4])]
        with strategy.scope():
            first = tf.Variable([1.0, 2.0, 3.0])
            with strategy.extended.colocate_vars_with(first.variables[1]):
                follower = tf.Variable([1.0, 2.0])
        steps.append({"name": "colocated", "sharded": hasattr(follower, "variables"),
                      "with_ps": int(task_of(first.variables[1])), "ps": int(task_of(follower))})
        steps.append(placed(strategy, "b", [4]))
        cases.append({"ps": servers, "partitioner": "fixed(2)", "colocation": steps})
    return cases


def main():
    variant = sys.argv[1]
    servers = int(sys.argv[2]) if len(sys.argv) > 2 else SERVERS
    tf.config.threading.set_inter_op_parallelism_threads(16)
    common.set_up_logical_cpus(1)
    resolver, running = start_cluster(WORKERS, servers)
    if len(sys.argv) > 2:
        result = {"placement": placement(resolver, servers, variant)}
    else:
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        parameters = golden_variables.PARAMETERS[variant]
        result = {"variables": variables(strategy, coordinator, parameters)}
    if common.unmatched:
        raise LookupError(common.unmatched)
    print(json.dumps(result), flush=True)
    os._exit(0)  # the servers cannot be stopped


if __name__ == "__main__":
    main()
