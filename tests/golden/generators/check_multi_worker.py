"""Checks the conformance cases that need two MultiWorkerMirroredStrategy workers on loopback.

Usage: check_multi_worker.py starts both workers. The last check breaks the collectives permanently,
and the timeout check has its own pair of workers."""

import json
import os
import sys
import time

import golden_common as common
from golden_common import tf
import golden_input
import multi_worker_run
from check_base import case, equal, refuses, registered, run_all, same

AGG = tf.VariableAggregation


def task():
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def mine(first, second):
    return (first, second)[task()]


def local(value):
    part, = strategy.experimental_local_results(value)
    return part.numpy()


def steps(dataset):
    return [[int(x) for x in local(v)] for v in dataset]


def distributed(n, batch, policy="AUTO", drop=False, known=True):
    dataset = tf.data.Dataset.range(n).batch(batch, drop_remainder=drop)
    if not known:
        dataset = dataset.map(lambda x: x)
    return strategy.experimental_distribute_dataset(golden_input.with_policy(dataset, policy))


@case("A6")
def _():
    one = tf.constant(1.0)
    with strategy.scope():
        equal(strategy.reduce("SUM", one, axis=None), 2)
        equal(strategy.extended.reduce_to("SUM", one, "CPU:0"), 2)
        equal([x.numpy() for x in strategy.extended.batch_reduce_to(
            "SUM", [(one, "CPU:0"), (one, "CPU:0")])], [2, 2])


@case("A4", "A5")
def _():
    with strategy.scope():
        equal(strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0) * 1), axis=None), 2)
        v = strategy.run(lambda: tf.constant([1.0, 2.0]) * 1)
        equal(strategy.reduce("MEAN", v, axis=0), 1.5)
        equal(strategy.reduce("SUM", v, axis=0), 6)


@case("A20")
def _():
    with strategy.scope():
        rows = strategy.run(lambda: tf.ones([task() + 1, 1]))
        same(tuple(strategy.gather(rows, axis=0).shape), (3, 1))


@case("B9")
def _():
    with strategy.scope():
        total = tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=AGG.SUM)

    def step():
        total.assign_add(2.0 + task())
    strategy.run(step)
    with strategy.scope():
        equal(total.read_value(), 7)


@case("C2")
def _():
    found = steps(distributed(9, 2))
    same(found, mine([[0], [2], [4], [6], [8]], [[1], [3], [5], [7], []]))
    found = steps(distributed(9, 2, drop=True))
    same(found, mine([[0], [2], [4], [6]], [[1], [3], [5], [7]]))


@case("C6", "C7")
def _():
    same(steps(distributed(12, 8, "OFF")), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    same(steps(distributed(12, 8, "OFF", known=False)),
         [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11]])


@case("C8")
def _():
    for policy in ("AUTO", "DATA"):
        same(steps(distributed(8, 3, policy)), mine([[0, 1], [3, 4], [6]], [[2], [5], [7]]))


@case("C9")
def _():
    dataset = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.range(8 + context.input_pipeline_id).batch(2))
    found = steps(dataset)
    same(found, [[0, 1], [2, 3], [4, 5], [6, 7], mine([], [8])])


@case("C10")
def _():
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64, aggregation=AGG.SUM)
    dataset = distributed(10, 4)

    @tf.function
    def train(iterable):
        for x in iterable:
            strategy.run(lambda y: total.assign_add(tf.reduce_sum(y * y)), (x,))
    train(dataset)
    equal(total, 285)


@case("C11")
def _():
    same(steps(distributed(14, 8))[1], mine([8, 9, 10], [11, 12, 13]))


@case("C12")
def _():
    dataset = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.range(14).shard(2, context.input_pipeline_id).batch(4))
    same(steps(dataset)[1], mine([8, 10, 12], [9, 11, 13]))
    # Batched for both workers, then sharded by batch.
    dataset = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.range(14).batch(4).shard(2, context.input_pipeline_id))
    same(steps(dataset)[1], mine([8, 9, 10, 11], [12, 13]))


@case("C13")
def _():
    def make(context):
        batch = context.get_per_replica_batch_size(10)
        return tf.data.Dataset.range(100).batch(batch).shard(2, context.input_pipeline_id)
    first = next(iter(strategy.distribute_datasets_from_function(make)))
    same(sum(int(x) for x in local(first)), mine(10, 35))


@case("F1", "F2")
def _():
    with strategy.scope():
        v = strategy.run(lambda: tf.constant(1.0 + task()) * 1)
        equal(local(strategy.extended.reduce_to("SUM", v, v)), 3)
        equal(local(strategy.extended.reduce_to("MEAN", v, v)), 1.5)
        pairs = strategy.run(lambda: (tf.constant(1.0 + 2 * task()) * 1, tf.constant(2.0 + 2 * task()) * 1))
        for op, expected in [("SUM", [4, 6]), ("MEAN", [2, 3])]:
            equal([local(x) for x in strategy.extended.batch_reduce_to(
                op, [(pairs[0], pairs[0]), (pairs[1], pairs[1])])], expected)


@case("F3", "F4")
def _():
    for parts, indices, values in [
            ((([1.0, 2.0], [0, 1]), ([3.0, 4.0], [1, 2])), [0, 1, 1, 2], [1, 2, 3, 4]),
            ((([1.0], [0]), ([2.0, 3.0, 4.0], [0, 1, 2])), [0, 0, 1, 2], [1, 2, 3, 4])]:
        def step():
            x, i = parts[task()]
            slices = tf.IndexedSlices(tf.constant(x), tf.constant(i), tf.constant([5]))
            reduced = tf.distribute.get_replica_context().all_reduce("SUM", slices)
            return reduced.indices, reduced.values
        i, x = strategy.run(step)
        same(local(i).tolist(), indices)
        equal(local(x), values)


@case("A21")
def _():
    def gather(shape):
        return strategy.run(lambda: tf.distribute.get_replica_context().all_gather(
            tf.zeros(shape), axis=0))
    refuses(tf.errors.InvalidArgumentError, "Shape mismatch", lambda: gather([1, 1 + task()]))


def check_timeout():
    """Only worker 0 reduces."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=1.0)

    @tf.function
    def reduce_alone():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(
            "SUM", tf.constant(1.0), options))
    if task() == 0:
        refuses(tf.errors.DeadlineExceededError, "", reduce_alone)
    else:
        time.sleep(5)


if __name__ == "__main__":
    if "TF_CONFIG" not in os.environ:
        reports = (multi_worker_run.launch("check_multi_worker.py", 2)
                   + multi_worker_run.launch("check_multi_worker.py", 2, "timeout"))
        for report in reports:
            print("failed:", report["failed"], "held:", " ".join(report["held"]))
        sys.exit(1 if any(r["failed"] for r in reports) else 0)
    common.set_up_logical_cpus(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if sys.argv[1:] == ["timeout"]:
        registered.clear()
        case("F5")(check_timeout)
    bad = run_all()
    print(json.dumps({"failed": bad, "held": [i for i in registered if i not in bad]}), flush=True)
    os._exit(0)
