"""Checks the conformance cases that need an in-process ParameterServerStrategy cluster.

Usage: check_parameter_server.py [ID...]
"""

import os
import sys
import tempfile

import golden_common as common
from golden_common import tf
import parameter_server_cluster
from check_base import case, equal, refuses, run_all, same
from tensorflow.python.distribute.coordinator import cluster_coordinator

WORKERS, SERVERS = 5, 3
partitioners = tf.distribute.experimental.partitioners
errors = tf.errors


def strategy_with(partitioner=None, servers=SERVERS):
    """A strategy that sees the first `servers` parameter servers of the one cluster."""
    strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner)
    strategy.extended._num_ps = servers
    return strategy


def ps_of(variable):
    return int(parameter_server_cluster.task_of(variable))


def coordinator_of(strategy):
    return tf.distribute.coordinator.ClusterCoordinator(strategy)


@case("E5")
def _():
    s = strategy_with()
    outside = tf.Variable(0.0)
    same("/job:chief" in outside.device or "localhost" in outside.device, True)
    with s.scope():
        same([ps_of(tf.Variable(0.0)) for _ in range(4)], [0, 1, 2, 0])


@case("E6")
def _():
    s = strategy_with()
    with s.scope():
        found = []
        for device in ["/job:ps/task:2", "/job:ps/task:2", "/job:ps/task:0", "/job:worker/task:0"]:
            with tf.device(device):
                found.append(ps_of(tf.Variable(0.0)))
    same(found, [0, 1, 2, 0])


@case("E7")
def _():
    def pin(next_creator, **arguments):
        with tf.device("/job:ps/task:1"):
            return next_creator(**arguments)

    s = strategy_with()
    with s.scope(), tf.variable_creator_scope(pin):
        same([ps_of(tf.Variable(0.0)) for _ in range(3)], [0, 1, 2])
    s = strategy_with()
    with tf.variable_creator_scope(pin):
        with s.scope():
            found = [ps_of(tf.Variable(0.0)) for _ in range(3)]
    same(found, [1, 1, 1])
    s = strategy_with()
    with s.scope():
        first = tf.Variable(0.0)
        with s.extended.colocate_vars_with(first):
            same(ps_of(tf.Variable(0.0)), ps_of(first))


@case("E11")
def _():
    s = strategy_with(partitioners.FixedShardsPartitioner(2), 2)
    with s.scope():
        v = tf.Variable(tf.reshape(tf.range(10, dtype=tf.float32), [5, 2]))
        w = tf.Variable(tf.reshape(tf.range(6, dtype=tf.float32), [6, 1]))
    same([x.shape.as_list() for x in v.variables], [[3, 2], [2, 2]])
    same([x.shape.as_list() for x in w.variables], [[3, 1], [3, 1]])
    same([ps_of(x) for x in v.variables], [0, 1])


@case("E12")
def _():
    s = strategy_with(partitioners.FixedShardsPartitioner(4), 2)
    with s.scope():
        v = tf.Variable([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    same([x.numpy().tolist() for x in v.variables], [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]])
    same([ps_of(x) for x in v.variables], [0, 1, 0, 1])
    s = strategy_with(partitioners.FixedShardsPartitioner(4), 2)
    with s.scope():
        v = tf.Variable([0, 1, 2])
    same([ps_of(x) for x in v.variables], [0, 1, 0])


@case("E13")
def _():
    s = strategy_with(partitioners.MinSizePartitioner(min_shard_bytes=64 << 20, max_shards=2), 2)
    with s.scope():
        parts = [tf.Variable(tf.zeros([5, 2])), tf.Variable(tf.zeros([6, 1]))]
    same([hasattr(v, "variables") for v in parts], [False, False])
    same([ps_of(v) for v in parts], [0, 1])
    s = strategy_with(partitioners.FixedShardsPartitioner(2), 2)
    with s.scope():
        v = tf.Variable(tf.zeros([4, 1]))
        with s.extended.colocate_vars_with(v.variables[0]):
            w = tf.Variable(tf.zeros([4, 1]))
    same(hasattr(w, "variables"), False)
    same(w.device, v.variables[0].device)
    for partitions in [None, [], [0, 1, 1], [2, 2, 1]]:
        s = strategy_with(lambda *a, **k: partitions, 2)
        with s.scope():
            refuses(ValueError, "variable_partitioner", lambda: tf.Variable(tf.zeros([4, 4, 4])))


@case("E14")
def _():
    with tempfile.TemporaryDirectory() as folder:
        s = strategy_with(partitioners.FixedShardsPartitioner(2), 2)
        with s.scope():
            v = tf.Variable(tf.ones([4]))
        path = tf.train.Checkpoint(v=v).write(os.path.join(folder, "saved"))
        for count in (2, 4):
            t = strategy_with(partitioners.FixedShardsPartitioner(count), 2)
            with t.scope():
                w = tf.Variable(tf.zeros([4]))
            tf.train.Checkpoint(v=w).read(path)
            same(len(w.variables), count)
            equal(w.numpy(), [1] * 4)


@case("H1")
def _():
    s = strategy_with()
    same(coordinator_of(s) is coordinator_of(s), True)
    same(coordinator_of(s) is shared, False)
    # Intended as a ValueError, but the attribute is read before the check.
    for other in (tf.distribute.get_strategy(), tf.distribute.OneDeviceStrategy("CPU:0")):
        refuses(AttributeError, "_cluster_coordinator", lambda: coordinator_of(other))


def variable(value, **arguments):
    with shared.strategy.scope():
        return tf.Variable(value, **arguments)


@case("H2")
def _():
    v = variable(3.0)

    @tf.function
    def nested():
        x = tf.constant(1)
        return x + 1, (x + 2, x + 3), [x + 4], {"v": x}
    found = shared.fetch(shared.schedule(nested))
    same(str(found).replace("np.int32(", "").replace(")", "").replace("(", ""),
         "2, 3, 4, [5], {'v': 1}")


@case("H3")
def _():
    v = variable(0.0)
    add = tf.function(lambda: v.assign_add(2.0))
    for expected in (10, 20):
        for _ in range(5):
            shared.schedule(add)
        shared.join()
        equal(v, expected)
    same(shared.done(), True)
    for _ in range(3):
        shared.join()


@case("H4")
def _():
    f = tf.function(lambda x=1.0: tf.constant(1.0))
    value = shared.schedule(f)
    refuses(ValueError, "", lambda: shared.schedule(f, args=(value,)))
    refuses(TypeError, "", lambda: shared.schedule(lambda: 1))
    shared.join()


def range_of_worker():
    index = tf.distribute.coordinator.experimental_get_current_worker_index()
    return tf.data.Dataset.range(10).shard(WORKERS, index)


@tf.function
def sum_of_two(iterator):
    return next(iterator) + next(iterator)


@case("H5")
def _():
    # Any worker may run any function, so repeat until every worker has answered.
    found = set()
    for _ in range(200):
        iterators = [iter(shared.create_per_worker_dataset(range_of_worker)) for _ in range(WORKERS)]
        results = [shared.schedule(sum_of_two, args=(i,)) for i in iterators]
        found |= {int(r.fetch()) for r in results}
        if len(found) == WORKERS:
            break
    same(sorted(found), [5, 7, 9, 11, 13])


@case("H6")
def _():
    s, v = shared.strategy, variable(1.0)
    w = variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    replicas = s.num_replicas_in_sync

    @tf.function
    def both(x):
        pair = s.run(lambda y: (y + v, y - v), (x,))
        return s.reduce("SUM", pair[0], axis=None), s.reduce("SUM", pair[1], axis=None)
    a, b = shared.schedule(both, args=(tf.constant(3.0),)).fetch()
    equal([a, b], [4 * replicas, 2 * replicas])

    @tf.function
    def add(x):
        s.run(lambda y: w.assign_add(y), (x,))
    for _ in range(2):
        shared.schedule(add, args=(tf.constant(3.0),))
    shared.join()
    equal(w, 6)


def failing():
    tf.debugging.assert_equal(tf.random.uniform([]) < 2.0, False)
    return tf.constant(1.0)


@case("H7")
def _():
    fail, good = tf.function(failing), tf.function(lambda: tf.constant(1.0))
    # One failure among several is raised only once.
    shared.schedule(fail)
    queued = []
    raised = 0
    for _ in range(3000):
        try:
            queued.append(shared.schedule(good))
        except errors.InvalidArgumentError:
            raised += 1
    try:
        shared.join()
    except errors.InvalidArgumentError:
        raised += 1
    same(raised, 1)
    shared.join()
    equal(shared.schedule(good).fetch(), 1)
    # A function that is still queued when another fails.
    queue = cluster_coordinator._CoordinatedClosureQueue()
    running_closure = cluster_coordinator.Closure(good, queue._cancellation_mgr)
    queued_closure = cluster_coordinator.Closure(good, queue._cancellation_mgr)
    queue.put(running_closure)
    queue.get()
    queue.put(queued_closure)
    result = queued_closure.build_output_remote_value()
    queue.mark_failed(errors.InvalidArgumentError(None, None, "chosen"))
    refuses(errors.InvalidArgumentError, "chosen", queue.wait)
    refuses(errors.CancelledError, "Please reschedule the function", result.fetch)
    queue.stop()


@case("H8")
def _():
    long_wait = tf.function(lambda: tf.while_loop(
        lambda i: i < 100_000_000, lambda i: [i + 1], [tf.constant(0)], parallel_iterations=1)[0])
    good, fail = tf.function(lambda: tf.constant(1.0)), tf.function(failing)
    for _ in range(3):
        shared.schedule(good)
    slow = shared.schedule(long_wait)
    shared.schedule(fail)
    refuses(errors.InvalidArgumentError, "", shared.join)
    refuses(errors.CancelledError, "", slow.fetch)
    for _ in range(3):
        equal(shared.schedule(good).fetch(), 1)


@case("H9")
def _():
    def bad_dataset():
        tf.debugging.assert_equal(tf.random.uniform([]) < 2.0, False)
        return tf.data.Dataset.range(3)
    step = tf.function(lambda iterator: next(iterator))
    iterator = iter(shared.create_per_worker_dataset(bad_dataset))
    shared.schedule(step, args=(iterator,))
    refuses(cluster_coordinator.ClosureInputError, "", shared.join)

    outside = tf.data.Dataset.range(3)
    def captured():
        return outside.map(lambda x: x + 1)
    iterator = iter(shared.create_per_worker_dataset(captured))
    shared.schedule(step, args=(iterator,))
    refuses(cluster_coordinator.ClosureInputError, "", shared.join)

    def with_variable():
        v = tf.Variable(1)
        return tf.data.Dataset.range(3)
    refuses(ValueError, "", lambda: shared.create_per_worker_dataset(with_variable))


@case("H13")
def _():
    s = shared.strategy
    s.run(lambda: tf.constant(1.0))
    dataset = s.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2))
    refuses(ValueError, "", lambda: iter(dataset))


if __name__ == "__main__":
    tf.config.threading.set_inter_op_parallelism_threads(16)
    common.set_up_logical_cpus(1)
    resolver, running = parameter_server_cluster.start_cluster(WORKERS, SERVERS)
    shared = coordinator_of(tf.distribute.ParameterServerStrategy(resolver))
    bad = run_all(sys.argv[1:])
    os._exit(1 if bad else 0)
