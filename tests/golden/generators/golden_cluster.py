"""cluster.json: cluster descriptions, roles, Slurm, and placement by replica_device_setter."""

import contextlib
import itertools
import json
import os

import golden_common as common
from golden_common import tf
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver

FRAGMENTS = [
    "Invalid hostlist format",
    "Invalid tasks-per-node list format",
    "Disallowed task type found in cluster spec",
    "Unrecognized task_type",
    "not found in cluster_spec",
    "There must be at most one 'chief' job",
    "There must be at most one 'evaluator' job",
    "exceeds the maximum id of",
    "Unexpected `task_type`",
    "There is no id for task_type",
    "should be dict or a `tf.train.ClusterSpec`",
    "No such job in cluster",
    "No task with index",
    "must be a list or a dictionary from integers to strings",
    "must be bytes or unicode",
    "`cluster` must be a dictionary mapping one or more job names to lists of network addresses",
    "argument of type 'int' is not iterable",
    "int() argument must be a string",
    "Expecting value",
    "Expecting property name",
    "Expecting ',' delimiter",
    "invalid literal for int()",
    "'>=' not supported between instances of",
    "'evaluator'",
    "max() arg is an empty sequence",
    "Requested more GPUs per node than available",
    "tasks but only",
    "not found in environment. Not running inside a SLURM step?",
    "range() arg 3 must not be zero",
    "ps_strategy must be callable",
]


def result_of(action):
    return common.outcome(lambda: {"value": action()}, FRAGMENTS)


# --- TF_CONFIG -------------------------------------------------------------------------------------

W0, W1, W2 = "worker0.example:2222", "worker1.example:2222", "worker2.example:2222"
P0, P1 = "ps0.example:2222", "ps1.example:2222"
C0, E0 = "chief.example:2222", "evaluator.example:2222"

TF_CONFIGS = {
    "public": {
        "absent": None,
        "empty": {},
        "full": {"cluster": {"chief": [C0], "worker": [W0, W1], "ps": [P0, P1]},
                 "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"},
        "string_index": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": "1"}},
        "number_type": {"cluster": {"worker": [W0, W1]}, "task": {"type": 123456, "index": 1}},
        "no_task": {"cluster": {"worker": [W0, W1]}},
        "empty_task": {"cluster": {"worker": [W0, W1]}, "task": {}},
        "no_index": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker"}},
        "no_type": {"cluster": {"worker": [W0, W1]}, "task": {"index": 0}},
        "index_out_of_range": {"cluster": {"worker": [W0, W1]},
                               "task": {"type": "worker", "index": 2}},
        "negative_index": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": -1}},
        "text_index": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": "one"}},
        "unknown_type": {"cluster": {"worker": [W0, W1]}, "task": {"type": "ps", "index": 0}},
        "sparse_worker": {"cluster": {"worker": {"1": W1}}, "task": {"type": "worker", "index": 1}},
        "sparse_hole": {"cluster": {"worker": {"0": W0, "3": W2}, "ps": [P0]},
                        "task": {"type": "worker", "index": 3}},
        "dense_dict": {"cluster": {"worker": {"0": W0, "1": W1}},
                       "task": {"type": "worker", "index": 0}},
        "one_worker": {"cluster": {"worker": [W0]}, "task": {"type": "worker", "index": 0}},
        "one_worker_rpc": {"cluster": {"worker": [W0]}, "task": {"type": "worker", "index": 0},
                           "rpc_layer": "grpc"},
        "one_chief_one_worker": {"cluster": {"chief": [C0], "worker": [W0]},
                                 "task": {"type": "chief", "index": 0}},
        "evaluator_not_listed": {"cluster": {"chief": [C0], "worker": [W0]},
                                 "task": {"type": "evaluator", "index": 0}},
        "evaluator": {"cluster": {"chief": [C0], "worker": [W0], "evaluator": [E0]},
                      "task": {"type": "evaluator", "index": 0}},
        "session_master": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": 0},
                           "session_master": "master.example:2222", "rpc_layer": "grpc"},
        "environment": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": 0},
                        "environment": "cloud"},
        "cluster_is_list": {"cluster": [W0, W1], "task": {"type": "worker", "index": 0}},
        "job_is_text": {"cluster": {"worker": W0}, "task": {"type": "worker", "index": 0}},
        "job_is_number": {"cluster": {"worker": 3}, "task": {"type": "worker", "index": 0}},
        "address_is_number": {"cluster": {"worker": [2222]}, "task": {"type": "worker", "index": 0}},
        "dict_with_text_key": {"cluster": {"worker": {"a": W0}},
                               "task": {"type": "worker", "index": 0}},
        "empty_job": {"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}},
        "two_chiefs": {"cluster": {"chief": [C0, W0], "worker": [W1]},
                       "task": {"type": "chief", "index": 0}},
        "unknown_job": {"cluster": {"worker": [W0], "other_job": [W1]},
                        "task": {"type": "worker", "index": 0}},
        "not_json": "{cluster:",
        "json_list": "[]",
        "json_number": "3",
        "empty_text": "",
    },
    "heldout": {
        "ps_task": {"cluster": {"worker": [W0, W1, W2], "ps": [P0]},
                    "task": {"type": "ps", "index": 0}},
        "sparse_ps": {"cluster": {"worker": [W0], "ps": {"2": P1, "0": P0}},
                      "task": {"type": "ps", "index": "2"}},
        "dict_out_of_order": {"cluster": {"worker": {"1": W1, "0": W0, "2": W2}},
                              "task": {"type": "worker", "index": 2}},
        "wrong_sparse_index": {"cluster": {"worker": {"1": W1}},
                               "task": {"type": "worker", "index": 0}},
        "float_index": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": 1.0}},
        "null_index": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": None}},
        "null_cluster": {"cluster": None, "task": {"type": "worker", "index": 0}},
        "empty_cluster": {"cluster": {}, "task": {"type": "worker", "index": 0}},
        "chief_only": {"cluster": {"chief": [C0]}, "task": {"type": "chief", "index": 0}},
        "two_evaluators": {"cluster": {"worker": [W0, W1], "evaluator": [E0, W2]},
                           "task": {"type": "evaluator", "index": 1}},
        "rpc_other": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": 0},
                      "rpc_layer": "test"},
        "empty_rpc": {"cluster": {"worker": [W0, W1]}, "task": {"type": "worker", "index": 0},
                      "rpc_layer": ""},
        "task_is_list": {"cluster": {"worker": [W0, W1]}, "task": ["worker", 0]},
        "duplicate_address": {"cluster": {"worker": [W0, W0]},
                              "task": {"type": "worker", "index": 1}},
        "truncated": '{"cluster": {"worker": ["worker0.example:2222"',
    },
}

CONSTRUCTORS = {
    "public": [{}, {"task_type": "ps", "task_id": 0}, {"task_id": "1"}, {"rpc_layer": "other"},
               {"environment": "here"}],
    "heldout": [{}, {"task_type": "worker"}, {"task_type": "worker", "task_id": 1,
                                              "rpc_layer": "grpcs"}],
}


def spec_dict(spec):
    """as_dict with text keys, because JSON has only these."""
    return {job: {str(k): v for k, v in tasks.items()} if isinstance(tasks, dict) else tasks
            for job, tasks in spec.as_dict().items()}


def tf_config_cases(variant):
    """The results of TFConfigClusterResolver for TF_CONFIG. `master_of` calls master(type, id)."""
    cases = []
    full = ("full", "one_worker", "no_task", "ps_task", "sparse_ps")
    for (name, config), arguments in itertools.product(
            TF_CONFIGS[variant].items(), CONSTRUCTORS[variant]):
        if arguments and name not in full:
            continue
        os.environ.pop("TF_CONFIG", None)
        if config is not None:
            os.environ["TF_CONFIG"] = config if isinstance(config, str) else json.dumps(config)
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(**arguments)
        cases.append({
            "name": name, "tf_config": os.environ.get("TF_CONFIG"), "arguments": arguments,
            "cluster": result_of(lambda: spec_dict(resolver.cluster_spec())),
            "task_type": result_of(lambda: resolver.task_type),
            "task_id": result_of(lambda: resolver.task_id),
            "rpc_layer": result_of(lambda: resolver.rpc_layer),
            "environment": result_of(lambda: resolver.environment),
            "master": result_of(resolver.master),
            "master_of": {"worker/1": result_of(lambda: resolver.master("worker", 1)),
                          "ps/0": result_of(lambda: resolver.master("ps", 0, "other"))}})
        os.environ.pop("TF_CONFIG", None)
    return common.numbered("CT", cases)


# --- ClusterSpec -----------------------------------------------------------------------------------

CLUSTERS = {
    "public": {
        "workers": {"worker": ["w0:1", "w1:1"]},
        "sparse": {"worker": {0: "w0:1", 3: "w3:1"}},
        "ps_and_workers": {"ps": ["p0:1", "p1:1"], "worker": ["w0:1"]},
        "empty": {},
        "empty_job": {"worker": []},
    },
    "heldout": {
        "text_keys": {"worker": {"2": "w2:1", "0": "w0:1"}, "ps": ["p0:1"]},
        "one_hole": {"ps": {1: "p1:1"}},
        "chief": {"chief": ["c:1"], "worker": ["w0:1", "w1:1", "w2:1"]},
    },
}


def cluster_spec_cases(variant):
    cases = []
    for name, cluster in CLUSTERS[variant].items():
        spec = tf.train.ClusterSpec(cluster)
        cases.append({
            "name": name,
            "cluster": {job: {str(k): v for k, v in t.items()} if isinstance(t, dict) else t
                        for job, t in cluster.items()},
            "truthy": bool(spec), "jobs": sorted(spec.jobs), "as_dict": spec_dict(spec),
            "num_tasks": {j: result_of(lambda: spec.num_tasks(j)) for j in ["worker", "ps"]},
            "task_indices": {j: result_of(lambda: list(spec.task_indices(j)))
                             for j in ["worker", "ps"]},
            "job_tasks": {j: result_of(lambda: spec.job_tasks(j)) for j in ["worker", "ps"]},
            "task_address": {f"{j}/{i}": result_of(lambda: spec.task_address(j, i))
                             for j in ["worker", "ps"] for i in [0, 1, 3]},
            "equals_copy": spec == tf.train.ClusterSpec(spec.as_cluster_def()),
        })
    return common.numbered("CS", cases)


def union_cases():
    """UnionClusterResolver of two cluster descriptions."""
    simple = tf.distribute.cluster_resolver.SimpleClusterResolver
    pairs = {
        "lists_join": ({"worker": ["a:1"]}, {"worker": ["b:1"], "ps": ["p:1"]}),
        "dicts_merge": ({"worker": {0: "a:1"}}, {"worker": {2: "b:1"}}),
        "duplicate_key": ({"worker": {1: "a:1"}}, {"worker": {1: "b:1"}}),
        "list_and_dict": ({"worker": ["a:1"]}, {"worker": {1: "b:1"}}),
        "list_and_dict_clash": ({"worker": ["a:1", "c:1"]}, {"worker": {1: "b:1"}}),
    }
    cases = []
    for name, (first, second) in pairs.items():
        def union():
            return spec_dict(tf.distribute.cluster_resolver.UnionResolver(
                simple(tf.train.ClusterSpec(first)),
                simple(tf.train.ClusterSpec(second))).cluster_spec())
        result = common.outcome(lambda: {"value": union()},
                                FRAGMENTS + ["Duplicate keys detected when merging two ClusterSpecs"])
        cases.append({"name": name, "first": spec_dict(tf.train.ClusterSpec(first)),
                      "second": spec_dict(tf.train.ClusterSpec(second)), **result})
    return common.numbered("CU", cases)


# --- Roles -----------------------------------------------------------------------------------------

ROLE_CLUSTERS = {
    "public": {
        "chief": {"chief": ["c:1"], "worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]},
        "no_chief": {"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]},
        "workers_only": {"worker": ["w0:1", "w1:1", "w2:1"]},
        "evaluator": {"chief": ["c:1"], "worker": ["w0:1"], "evaluator": ["e:1"]},
        "evaluator_not_listed": {"chief": ["c:1"], "worker": ["w0:1"]},
        "two_chiefs": {"chief": ["c:1", "d:1"], "worker": ["w0:1"]},
        "two_evaluators": {"worker": ["w0:1"], "evaluator": ["e:1", "f:1"]},
        "unknown_job": {"worker": ["w0:1"], "other": ["o:1"]},
        "empty": {},
    },
    "heldout": {
        "many": {"chief": ["c:1"], "worker": ["w0:1", "w1:1", "w2:1", "w3:1"], "ps": ["p0:1"],
                 "evaluator": ["e:1"]},
        "ps_only": {"ps": ["p0:1"]},
        "chief_only": {"chief": ["c:1"]},
        "one_worker": {"worker": ["w0:1"]},
    },
}


def role_cases(variant):
    """is_chief, worker_count, id_in_cluster and the leaders for every task."""
    tasks = [("chief", 0), ("worker", 0), ("worker", 1), ("worker", 3), ("ps", 0), ("evaluator", 0),
             ("other", 0)]
    cases = []
    for (name, cluster), (task_type, task_id) in itertools.product(
            ROLE_CLUSTERS[variant].items(), tasks):
        cases.append({
            "cluster_name": name, "cluster": cluster, "task_type": task_type, "task_id": task_id,
            "is_chief": result_of(lambda: multi_worker_util.is_chief(cluster, task_type, task_id)),
            "worker_count": result_of(lambda: multi_worker_util.worker_count(cluster, task_type)),
            "id_in_cluster": result_of(
                lambda: multi_worker_util.id_in_cluster(cluster, task_type, task_id)),
            "collective_leader": result_of(
                lambda: multi_worker_util.collective_leader(cluster, task_type, task_id)),
            "coordination_leader": result_of(
                lambda: multi_worker_util.coordination_leader(cluster))})
    return common.numbered("CR", cases)


# --- Slurm -----------------------------------------------------------------------------------------

HOSTLISTS = {
    "public": ["n1", "n1,n2", "n[1-2],m5,o[3-4,6,7-9]", "n[0001-0003]", "n[8-11]", "n[08-11]",
               "a[1,3,5]", "n[1-2]x", "n[1-2][3-4]", "", "n[", "n[1", "n]1", "n[1-2-3]", "n[a-b]",
               "n[3-1]", ",n1", "n1,", "n1,,n2", "rack-1-n[1-2]", "[1-2]", "n[]", "n[1,]"],
    "heldout": ["t02n[13,41,43]", "n[099-101]", "x,y[1-3],z[10]", "n[1-2],", "a-b[1-2],c[5]",
                "n[01-3]", "n[1 - 2]", "n[1-2]]"],
}
TASK_LISTS = {
    "public": ["3(x2),2,1", "3(x2),2,11(x4)", "1", "2,2", "4(x1)", "3(x0)", "", "a", "3(x)", "3x2",
               "3(x2),", "-1", "3 (x2)", "0"],
    "heldout": ["2(x2),1", "13(x3),1(x2),7", "5(x10)", "2(x-1)", "2(x2", "1,2,3(x3)"],
}
SLURM_RUNS = {
    "public": [
        {"env": {"PROCID": "0", "STEP_NUM_TASKS": "3", "STEP_NODELIST": "n[1-3]",
                 "STEP_TASKS_PER_NODE": "1(x3)"}, "arguments": {"gpus_per_node": 1}},
        {"env": {"PROCID": "3", "STEP_NUM_TASKS": "5", "STEP_NODELIST": "t02n13,t02n41,t02n43",
                 "STEP_TASKS_PER_NODE": "2(x2),1"},
         "arguments": {"jobs": {"ps": 1, "worker": 4}, "port_base": 8888, "gpus_per_node": 2,
                       "gpus_per_task": 1}},
        {"env": {"PROCID": "1", "STEP_NUM_TASKS": "2", "STEP_NODELIST": "n[1-2]",
                 "STEP_TASKS_PER_NODE": "1(x2)"},
         "arguments": {"jobs": {"worker": 3}, "gpus_per_node": 1}},
        {"env": {"PROCID": "0", "STEP_NUM_TASKS": "4", "STEP_NODELIST": "n[1-2]",
                 "STEP_TASKS_PER_NODE": "2(x2)"},
         "arguments": {"gpus_per_node": 2, "gpus_per_task": 2}},
        {"env": {"PROCID": "2", "STEP_NUM_TASKS": "4", "STEP_NODELIST": "m2,m1",
                 "STEP_TASKS_PER_NODE": "3,1"},
         "arguments": {"jobs": {"worker": 2, "chief": 1, "ps": 1}, "gpus_per_node": 6}},
        {"env": {"PROCID": "1", "STEP_NUM_TASKS": "4", "STEP_NODELIST": "n[1-2]"},
         "arguments": {"tasks_per_node": 2, "gpus_per_node": 4, "port_base": 1000}},
        {"env": {"PROCID": "0", "STEP_NUM_TASKS": "2", "STEP_NODELIST": "n[1-2]"},
         "arguments": {"gpus_per_node": 1}},
        {"env": {}, "arguments": {"gpus_per_node": 1}},
        {"env": {"PROCID": "0", "STEP_NUM_TASKS": "2", "STEP_NODELIST": "n[1-2]",
                 "STEP_TASKS_PER_NODE": "1(x2)"}, "arguments": {"gpus_per_node": 0}},
        {"env": {"PROCID": "0", "STEP_NUM_TASKS": "6", "STEP_NODELIST": "n[9-10],n2",
                 "STEP_TASKS_PER_NODE": "2(x3)"}, "arguments": {"gpus_per_node": 2}},
    ],
    "heldout": [
        {"env": {"PROCID": "1", "STEP_NUM_TASKS": "5", "STEP_NODELIST": "t02n13,t02n41,t02n43",
                 "STEP_TASKS_PER_NODE": "2(x2),1"},
         "arguments": {"jobs": {"ps": 1, "worker": 4}, "port_base": 8888, "gpus_per_node": 2,
                       "gpus_per_task": 1}},
        {"env": {"PROCID": "1", "STEP_NUM_TASKS": "5", "STEP_NODELIST": "t02n13,t02n41,t02n43",
                 "STEP_TASKS_PER_NODE": "2(x2),1"},
         "arguments": {"jobs": {"ps": 1, "worker": 4}, "port_base": 8888, "gpus_per_node": 4,
                       "gpus_per_task": 2}},
        {"env": {"PROCID": "5", "STEP_NUM_TASKS": "6", "STEP_NODELIST": "b1,a1",
                 "STEP_TASKS_PER_NODE": "2,4"},
         "arguments": {"jobs": {"evaluator": 1, "ps": 2, "worker": 3}, "gpus_per_node": 8}},
    ],
}


def slurm_cases(variant):
    hosts = [{"call": "expand_hostlist", "input": text,
              **result_of(lambda: slurm_cluster_resolver.expand_hostlist(text))}
             for text in HOSTLISTS[variant]]
    tasks = [{"call": "expand_tasks_per_node", "input": text,
              **result_of(lambda: slurm_cluster_resolver.expand_tasks_per_node(text))}
             for text in TASK_LISTS[variant]]
    runs = []
    for run in SLURM_RUNS[variant]:
        for key in [k for k in os.environ if k.startswith("SLURM_")] + ["CUDA_VISIBLE_DEVICES"]:
            os.environ.pop(key, None)
        os.environ.update({"SLURM_" + k: v for k, v in run["env"].items()})

        def resolve():
            resolver = slurm_cluster_resolver.SlurmClusterResolver(**run["arguments"])
            return {"cluster": spec_dict(resolver.cluster_spec()),
                    "task_type": resolver.task_type, "task_id": resolver.task_id,
                    "master": resolver.master(),
                    "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
                    "gpus_per_task": resolver.num_accelerators()["GPU"]}

        runs.append({"call": "SlurmClusterResolver", "environment": run["env"],
                     "arguments": run["arguments"], **result_of(resolve)})
        for key in [k for k in os.environ if k.startswith("SLURM_")] + ["CUDA_VISIBLE_DEVICES"]:
            os.environ.pop(key, None)
    return common.numbered("CL", hosts + tasks + runs)


# --- replica_device_setter -------------------------------------------------------------------------

# (name, pinned device or None, is a variable)
PROGRAMS = {
    "public": {
        "five_variables": [("a", None, True), ("b", None, True), ("c", None, True),
                           ("d", None, True), ("e", None, True)],
        "with_op": [("v", None, True), ("w", None, True), ("sum", None, False), ("x", None, True)],
        "pinned": [("v", None, True), ("w", "/job:moon", True), ("x", "/job:ps", True),
                   ("y", "/cpu:0", True), ("z", "/job:ps/task:1", True), ("last", None, True),
                   ("op", "/job:worker/task:3", False)],
    },
    "heldout": {
        "seven_variables": [(n, None, True) for n in "tuvwxyz"],
        "pinned": [("a", "/job:ps/cpu:1", True), ("b", None, True), ("c", "/job:worker", True),
                   ("d", "/task:2", True), ("op", "/cpu:0", False), ("e", None, True),
                   ("f", "/gpu:0", True)],
    },
}


def device_setter_cases(variant):
    """The device of each op of a small program, built in order under replica_device_setter."""
    cases = []
    for (name, program), ps, merge, worker in itertools.product(
            PROGRAMS[variant].items(), [0, 1, 2, 3, 4], [True, False],
            ["/job:worker", "/job:worker/task:1"]):
        if worker.endswith("1") and not merge:
            continue
        placed = []

        def build():
            with tf.Graph().as_default():
                setter = tf.compat.v1.train.replica_device_setter(
                    ps_tasks=ps, worker_device=worker, merge_devices=merge)
                with tf.compat.v1.device(setter):
                    for op, pin, is_variable in program:
                        with tf.compat.v1.device(pin) if pin else contextlib.nullcontext():
                            if is_variable:
                                made = tf.compat.v1.Variable([1.0], name=op, use_resource=True)
                                placed.append([op, made.device])
                            else:
                                placed.append([op, tf.constant(1.0, name=op).device])
            return placed

        cases.append({"program_name": name, "ps": ps, "merge_devices": merge,
                      "worker_device": worker,
                      "program": [{"name": n, "pin": p, "variable": v} for n, p, v in program],
                      **result_of(build)})
    if variant == "public":
        cases.append({"program_name": "strategy_not_callable", **result_of(
            lambda: tf.compat.v1.train.replica_device_setter(ps_tasks=1, ps_strategy=3))})
    return common.numbered("CD", cases)


def generate(variant, out):
    sections = {"tf_config": tf_config_cases(variant), "cluster_spec": cluster_spec_cases(variant),
                "roles": role_cases(variant), "slurm": slurm_cases(variant),
                "device_setter": device_setter_cases(variant)}
    if variant == "public":
        sections["union"] = union_cases()
    common.write(out / "cluster.json", {}, **sections)
