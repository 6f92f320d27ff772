"""SyncReplicasOptimizer on an in-process cluster: one scenario per process.

Usage: sync_replicas_cluster.py SCENARIO, where SCENARIO is one of golden_sync_replicas.py as JSON.
Prints the state after every round as JSON.
"""

import json
import os
import sys
import threading
import time

import golden_common as common
from golden_common import tf
import parameter_server_cluster

tf1 = tf.compat.v1
QUIET_SECONDS = 0.6  # without changes for this long, the round is over
BLOCKED_SECONDS = 2.0


class Worker:
    """The graph of one worker, as every worker of between-graph replication builds it."""

    def __init__(self, index, scenario, target):
        self.running = None
        self.graph = tf.Graph()
        with self.graph.as_default():
            with tf1.device("/job:ps/task:0"):
                self.global_step = tf1.Variable(0, name="global_step", trainable=False)
                self.v0 = tf1.Variable(scenario["v0"], name="v0")
            with tf1.device("/job:ps/task:1"):
                self.v1 = tf1.Variable(scenario["v1"], name="v1")
                self.sparse = tf1.Variable(scenario["sparse"], name="v_sparse")
            gradient = scenario["gradients"][index]
            with tf1.device(f"/job:worker/task:{index}"):
                gradients = [
                    tf.constant(gradient["v0"]), tf.constant(gradient["v1"]),
                    tf.IndexedSlices(tf.constant(gradient["sparse_values"]),
                                     tf.constant(gradient["sparse_indices"], tf.int64),
                                     tf.constant([len(scenario["sparse"]), 1], tf.int64))]
                optimizer = tf1.train.SyncReplicasOptimizer(
                    tf1.train.GradientDescentOptimizer(scenario["learning_rate"]),
                    replicas_to_aggregate=scenario["aggregate"],
                    total_num_replicas=scenario["workers"])
                self.train = optimizer.apply_gradients(
                    zip(gradients, [self.v0, self.v1, self.sparse]), global_step=self.global_step)
                self.local_step = optimizer._local_step
                hook = optimizer.make_session_run_hook(
                    index == 0, num_tokens=scenario["initial_tokens"])
            self.session = tf1.train.MonitoredTrainingSession(
                master=target, is_chief=index == 0, hooks=[hook])

    def start_training_step(self):
        self.running = threading.Thread(target=lambda: self.session.run(self.train), daemon=True)
        self.running.start()

    def value(self, tensor):
        # Outside the hooks, which would otherwise take part in every plain run.
        return self.session.run_step_fn(lambda step_context: step_context.session.run(tensor))


def state(workers):
    first = workers[0]
    values = first.value([first.v0, first.v1, first.sparse, first.global_step])
    return {"v0": common.number(values[0]), "v1": common.number(values[1]),
            "sparse": [common.number(x) for x in values[2].ravel()], "global_step": int(values[3]),
            "local_steps": [int(w.value(w.local_step)) if not busy(w) else None for w in workers]}


def busy(worker):
    return worker.running is not None and worker.running.is_alive()


def settled_state(workers):
    """The state once it no longer changes; a busy worker is blocked and its local step is
    unknown."""
    last, since = state(workers), time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        time.sleep(0.05)
        now = state(workers)
        if now != last:
            last, since = now, time.monotonic()
    return last


def play(scenario):
    resolver, servers = parameter_server_cluster.start_cluster(scenario["workers"], 2)
    spec = resolver.cluster_spec()
    targets = [f"grpc://{address}" for address in spec.job_tasks("worker")]
    workers = [Worker(i, scenario, targets[i]) for i in range(scenario["workers"])]
    states = [settled_state(workers)]
    for round_workers in scenario["rounds"]:
        for index in round_workers:
            # One after the other, so that gradients are always summed in the same order. A blocked
            # worker continues by itself once the others have contributed.
            workers[index].start_training_step()
            workers[index].running.join(BLOCKED_SECONDS)
        for index in round_workers:
            workers[index].running.join(BLOCKED_SECONDS)
        states.append({**settled_state(workers),
                       "blocked": [i for i, w in enumerate(workers) if busy(w)]})
    return states


def main():
    tf1.disable_v2_behavior()
    tf.get_logger().setLevel("ERROR")
    print(json.dumps(play(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # the servers cannot be stopped


if __name__ == "__main__":
    main()
