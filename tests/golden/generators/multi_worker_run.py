"""MultiWorkerMirroredStrategy on loopback: one process per worker, each with one CPU replica.

As a module: input_steps(variant) and results(variant). As a program, one worker, which TF_CONFIG
determines: multi_worker_run.py VARIANT"""

import itertools
import json
import os
import socket
import subprocess
import sys

import golden_common as common

INPUT_PARAMETERS = {
    "public": [{"n": n, "batch": b, "policy": p, "batch_known": k, "drop_remainder": d}
               for (n, b), p, k, d in itertools.product(
                   [(9, 2), (8, 3), (14, 8), (12, 8), (3, 4)], ["AUTO", "OFF", "DATA"],
                   [True, False], [False, True])
               if not d or (k and p == "AUTO")],
    "heldout": [{"n": n, "batch": b, "policy": p, "batch_known": k, "drop_remainder": d}
                for (n, b), p, k, d in itertools.product(
                    [(11, 4), (7, 2), (13, 6), (10, 3)], ["AUTO", "OFF"],
                    [True, False], [False, True])
                if not d or (k and p == "AUTO")],
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(script, workers, *arguments, timeout=300):
    """Runs `script` once per worker; returns the JSON on the last line of each output."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(workers)]
    running = []
    for index in range(workers):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        running.append(subprocess.Popen(
            [sys.executable, str(common.HERE / script), *arguments], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    results = []
    try:
        for process in running:
            stdout, stderr = process.communicate(timeout=timeout)
            if process.returncode != 0:
                raise RuntimeError(f"{script} failed:\n{stderr[-4000:]}")
            results.append(json.loads(stdout.splitlines()[-1]))
    finally:
        for process in running:
            process.kill()
    return results


def input_steps(variant):
    """The steps of every worker for the same range(n).batch(batch), distributed over two workers."""
    by_worker = launch("multi_worker_run.py", 2, variant)
    return [{"workers": 2, "replicas": 1, **case,
             "steps_of_worker": [steps[i] for steps in by_worker]}
            for i, case in enumerate(INPUT_PARAMETERS[variant])]


def main():
    tf = common.tf
    common.set_up_logical_cpus(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    import golden_input
    results = []
    for case in INPUT_PARAMETERS[sys.argv[1]]:
        dataset = tf.data.Dataset.range(case["n"]).batch(
            case["batch"], drop_remainder=case["drop_remainder"])
        if not case["batch_known"]:
            dataset = dataset.map(lambda x: x)
        dataset = golden_input.with_policy(dataset, case["policy"])
        steps = []
        for value in strategy.experimental_distribute_dataset(dataset):
            part, = strategy.experimental_local_results(value)
            steps.append([int(x) for x in part.numpy()])
        results.append(steps)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
