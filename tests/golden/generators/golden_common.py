"""Shared parts of the golden generators: encoding of values and errors, devices, output files.

Encoding
  tensor  {"dtype": "float32", "shape": [2, 3], "data": [row-major values]}
  slices  {"indices": [..], "values": tensor}                       (tf.IndexedSlices)
  error   {"error": "ValueError", "contains": "a stable part of the message"}
Floats carry nine significant digits, which identify every float32.
"""

import json
import math
import os
import pathlib
import re
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import numpy as np
import tensorflow as tf

HERE = pathlib.Path(__file__).resolve().parent
MAX_FILE_BYTES = 400_000
LOGICAL_CPUS = 4

# Stable parts of TensorFlow's messages, most specific first. An error whose message contains none
# of them prevents its file from being written: add the part that a test should match.
STABLE_FRAGMENTS = [
    "cannot be reduced with the given reduce op",
    "You must specify an aggregation method to update a AggregatingVariable in Replica Context",
    "does not support `assign_add` in cross-replica context when aggregation is set to",
    "does not support `assign_sub` in cross-replica context when aggregation is set to",
    "creating distributed tf.Variable with aggregation=MEAN and a non-floating dtype is not",
    "`NONE` variable synchronization mode is not supported",
    "Invalid variable synchronization mode",
    "Invalid variable aggregation mode",
    "doesn't support `scatter_",
    "is only supported for mirrored variable",
    "could not convert",
]


# (type, fragment) -> the first complete message; make_distribute_golden.py --show-errors prints
# them.
seen_errors = {}
# Messages without a stable fragment -> type. `write` fails if there are any.
unmatched = {}


def set_up_logical_cpus(count=LOGICAL_CPUS):
    """Splits the one CPU into `count` logical devices. Call before any other TensorFlow call."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)])
    tf.get_logger().setLevel("ERROR")
    tf.autograph.set_verbosity(0)


def cpu_names(count):
    return [f"CPU:{i}" for i in range(count)]


def mirrored(replicas):
    # Without its own key range, a strategy of another size in the same process fails with "Device
    # ... is joining a group with size3, but that group has size 2".
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
    return tf.distribute.MirroredStrategy(cpu_names(replicas))


def central(replicas, parameter_device="CPU:0"):
    return tf.distribute.experimental.CentralStorageStrategy(
        compute_devices=cpu_names(replicas), parameter_device=parameter_device)


def one_device():
    return tf.distribute.OneDeviceStrategy("CPU:1")


def make_strategy(name, replicas):
    """Builds the strategy with the golden files' `name` and `replicas`."""
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "one_device":
        return one_device()
    return {"mirrored": mirrored, "central": central}[name](replicas)


def number(value):
    """A JSON number with nine significant digits; bool and int are unchanged; nan and inf become
    text."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    value = float(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.9g}")


def tensor(value):
    array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    if array.dtype.kind in "OSU":
        data = [x.decode() if isinstance(x, bytes) else str(x) for x in array.ravel()]
        return {"dtype": "string", "shape": list(array.shape), "data": data}
    return {"dtype": array.dtype.name, "shape": list(array.shape),
            "data": [number(x) for x in array.ravel()]}


def slices(value):
    return {"indices": [int(i) for i in value.indices.numpy()], "values": tensor(value.values)}


def encode(value):
    """Tensors, slices and nests of them."""
    if isinstance(value, tf.IndexedSlices):
        return slices(value)
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return tensor(value)


def per_replica(strategy, values):
    """A PerReplica value whose component r is a copy of values[r] on replica r's device."""
    devices = (strategy.extended.worker_devices if strategy.num_replicas_in_sync > 1 else [None])

    def value_of(context):
        replica = context.replica_id_in_sync_group
        with tf.device(devices[replica]):
            return tf.nest.map_structure(tf.identity, values[replica], expand_composites=True)

    return strategy.experimental_distribute_values_from_function(value_of)


def device_of(value):
    """The device without its task: "CPU:1"."""
    return value.device.split("device:")[-1]


def error_of(exception, fragments=()):
    """The golden form of an exception. `fragments` precede the shared table."""
    message = re.sub(r"\s+", " ", str(exception))
    if isinstance(exception, AssertionError) and not message:
        return {"error": "AssertionError", "contains": ""}
    for fragment in list(fragments) + STABLE_FRAGMENTS:
        if fragment in message:
            seen_errors.setdefault((type(exception).__name__, fragment), message)
            return {"error": type(exception).__name__, "contains": fragment}
    unmatched[message[:400]] = type(exception).__name__
    return {"error": type(exception).__name__, "contains": None}


def outcome(action, fragments=()):
    """The result of `action`, or the golden form of its exception."""
    try:
        return action()
    except Exception as exception:  # every exception is an outcome to record
        return error_of(exception, fragments)


def from_own_process(script, *arguments):
    """The JSON output of `script`. For parts that need a cluster or another device setup."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    done = subprocess.run([sys.executable, str(HERE / script), *arguments], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def numbered(prefix, cases):
    """Adds ids prefix0001, prefix0002, ... before the fields of each case."""
    return [{"id": f"{prefix}{i:04d}", **case} for i, case in enumerate(cases, 1)]


def write(path, meta, **sections):
    """Writes one golden file: one case per line, so that a change shows up as the changed lines."""
    if unmatched:
        raise LookupError("no stable fragment for:\n" + "\n".join(
            f"{kind}: {message}" for message, kind in unmatched.items()))
    lines = ["{", f'"meta": {json.dumps({"tensorflow": tf.__version__, **meta})}']
    for name, cases in sections.items():
        lines[-1] += ","
        if isinstance(cases, list):
            lines.append(f'"{name}": [')
            lines.extend(json.dumps(case, separators=(",", ":")) + ("," if i + 1 < len(cases) else "")
                         for i, case in enumerate(cases))
            lines.append("]")
        else:
            lines.append(f'"{name}": {json.dumps(cases, separators=(",", ":"))}')
    lines.append("}")
    text = "\n".join(lines) + "\n"
    json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    if len(text) >= MAX_FILE_BYTES:
        raise ValueError(f"{path.name} has {len(text)} bytes; the limit is {MAX_FILE_BYTES}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    counts = {name: len(cases) for name, cases in sections.items() if isinstance(cases, list)}
    print(f"{path.name}: {len(text)} bytes, {sum(counts.values())} cases {counts}")
