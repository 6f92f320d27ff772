"""Checks the cases in which a server process dies: every server is its own process on loopback.

Usage: check_failures.py [ID...] for the checks; check_failures.py serve SPEC JOB INDEX is one server.
"""

import json
import os
import subprocess
import sys
import threading
import time

import golden_common as common
from golden_common import tf
from parameter_server_cluster import free_ports
from check_base import case, equal, run_all, same

errors = tf.errors


def serve():
    spec, job, index = json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=16)
    server = tf.distribute.Server(tf.train.ClusterSpec(spec), job_name=job, task_index=index,
                                  protocol="grpc", config=config)
    print("started", flush=True)
    server.join()


class Cluster:
    def __init__(self, workers, servers):
        addresses = [f"127.0.0.1:{port}" for port in free_ports(workers + servers)]
        self.spec = {"worker": addresses[:workers], "ps": addresses[workers:]}
        self.processes = {}
        for job, tasks in self.spec.items():
            for index in range(len(tasks)):
                self.start(job, index)
        self.strategy = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(self.spec), rpc_layer="grpc"))
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def start(self, job, index):
        process = subprocess.Popen(
            [sys.executable, __file__, "serve", json.dumps(self.spec), job, str(index)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        process.stdout.readline()
        self.processes[job, index] = process

    def kill(self, job, index):
        self.processes[job, index].kill()
        self.processes[job, index].wait()

    def variable(self, value):
        with self.strategy.scope():
            return tf.Variable(value)


@case("H10", "H12")
def worker_dies():
    cluster = Cluster(1, 1)
    v, iterations = cluster.variable(0.0), cluster.variable(0)

    @tf.function
    def step():
        iterations.assign_add(1)
        return v + 1.0, v - 1.0

    for _ in range(2):
        cluster.coordinator.schedule(step)
    cluster.coordinator.join()
    before = cluster.coordinator.schedule(tf.function(lambda: (v + 1.0, v - 1.0)))
    equal(before.fetch(), [1, -1])
    cluster.kill("worker", 0)
    cluster.start("worker", 0)
    equal(before.fetch(), [1, -1])
    for _ in range(2):
        cluster.coordinator.schedule(step)
    cluster.coordinator.join()
    same(int(iterations), 4)

    @tf.function
    def long_step():
        iterations.assign_add(1)
        return tf.while_loop(lambda i: i < 300_000, lambda i: [i + 1], [tf.constant(0)],
                             parallel_iterations=1)[0]
    iterations.assign(0)
    results = [cluster.coordinator.schedule(long_step) for _ in range(4)]
    time.sleep(0.3)
    cluster.kill("worker", 0)
    cluster.start("worker", 0)
    cluster.coordinator.join()
    same(int(iterations) >= 4, True)
    same([int(r.fetch()) for r in results], [300_000] * 4)
    for process in cluster.processes.values():
        process.kill()


@case("H11")
def ps_dies():
    os.environ["TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES"] = "0"
    cluster = Cluster(1, 1)
    v = cluster.variable(0.0)
    step = tf.function(lambda: v.assign_add(1.0))
    cluster.coordinator.schedule(step)
    cluster.coordinator.join()
    cluster.kill("ps", 0)
    kinds = (errors.UnavailableError, errors.NotFoundError, errors.FailedPreconditionError)
    seen = []

    def until_refused(action):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                action()
            except kinds as error:
                seen.append(type(error).__name__)
                return
            time.sleep(0.05)
        raise AssertionError("no error")

    def schedule_and_join():
        cluster.coordinator.schedule(step)
        cluster.coordinator.join()
    until_refused(schedule_and_join)
    until_refused(lambda: cluster.coordinator.schedule(step))
    print("H11:", seen, file=sys.stderr)
    for process in cluster.processes.values():
        process.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    elif len(sys.argv) == 1:
        # A coordinator can connect to only one cluster in its lifetime.
        codes = [subprocess.run([sys.executable, __file__, *ids], timeout=200).returncode
                 for ids in (["H10", "H12"], ["H11"])]
        sys.exit(max(codes))
    else:
        tf.config.threading.set_inter_op_parallelism_threads(16)
        common.set_up_logical_cpus(1)
        os._exit(1 if run_all(sys.argv[1:]) else 0)
