"""input.json: batch splitting, sharding, and the elements of every replica at every step."""

import itertools
import os
import tempfile

import golden_common as common
from golden_common import tf
import multi_worker_run
from tensorflow.python.data.experimental.ops import distribute as data_distribute
from tensorflow.python.distribute import input_lib
from tensorflow.python.distribute import input_ops

FRAGMENTS = [
    "Could not apply FILE based sharding",
    "Could not apply DATA based sharding",
    "is not enough for the required",
    "Found an unshardable source dataset",
    "Did not find a shardable source",
    "Call the `batch` method on the input Dataset",
    "Perhaps your input dataset is not batched",
    "expects every worker to have the same number of replicas",
    "is not divisible by `num_replicas_in_sync`",
    "list index out of range",
]

PARAMETERS = {
    "public": {
        "batch_sizes": [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 17, 24, 31, 33],
        "rebatch": [
            (8, 4, [2, 2]), (5, 4, [2, 2]), (9, 4, [2, 2]), (10, 4, [3, 1]), (8, 4, [1, 1, 1, 1, 0]),
            (8, 4, [0, 1]), (8, 4, [1, 0]), (12, 4, [6]), (7, 3, [2, 1]), (7, 3, [1, 2]),
            (10, 5, [2, 1, 2]), (11, 4, [0, 3, 1]), (6, 6, [2, 2, 1, 1]), (3, 8, [2, 2, 2, 2]),
            (0, 4, [2, 2]), (13, 5, [4]), (9, 9, [3, 3, 3]), (14, 7, [3, 2, 2]),
        ],
        "legacy": [(n, b, r) for n, b in [(8, 4), (9, 4), (7, 3), (6, 6), (5, 8), (0, 4), (10, 5)]
                   for r in [1, 2, 3, 4]],
        "streams": {"sizes": [(8, 3), (14, 8), (9, 2), (12, 8), (15, 4), (3, 4)],
                    "cluster": [(1, 2), (2, 1), (2, 2), (3, 1)]},
        "distributed": {"n": [0, 1, 4, 6, 7, 9, 12], "batch": [2, 3, 4, 6], "replicas": [2, 3]},
        "from_function": {"n": [3, 4, 9], "batch": [1, 2, 4], "replicas": [2, 3]},
        "files": [([3, 3, 3, 3], 2), ([4, 2, 3], 4), ([5], 2), ([2, 2, 2, 2, 2], 5)],
        "file_cluster": [(1, 3), (2, 1), (2, 2), (4, 1)],
        "shard": [(10, 3), (4, 4), (3, 5), (0, 2)],
        "per_replica": [(g, n) for g in [1, 4, 6, 12, 13, 32] for n in [1, 2, 3, 6]],
    },
    "heldout": {
        "batch_sizes": [9, 10, 13, 14, 15, 18, 19, 22, 25, 27, 29, 37],
        "rebatch": [
            (10, 5, [3, 2]), (9, 5, [3, 2]), (11, 6, [2, 2, 2]), (12, 6, [1, 1, 1, 1, 1, 1, 0]),
            (6, 3, [0, 2, 1]), (6, 3, [2, 0, 1]), (20, 5, [7]), (13, 4, [1, 1, 2]),
            (17, 8, [3, 3, 2]), (2, 5, [2, 2, 1]), (16, 3, [5, 1]),
        ],
        "legacy": [(n, b, r) for n, b in [(10, 4), (11, 5), (9, 7), (3, 6), (14, 6)]
                   for r in [2, 3, 5]],
        "streams": {"sizes": [(10, 3), (13, 6), (11, 5), (17, 9), (5, 7)],
                    "cluster": [(1, 3), (2, 1), (2, 2), (4, 1)]},
        "distributed": {"n": [2, 5, 8, 10, 13], "batch": [2, 5, 7], "replicas": [2, 4]},
        "from_function": {"n": [5, 7, 10], "batch": [2, 3], "replicas": [2, 4]},
        "files": [([2, 5, 1], 3), ([4, 4], 3), ([1, 2, 3, 4, 5, 6], 4)],
        "file_cluster": [(1, 4), (2, 1), (3, 1)],
        "shard": [(11, 4), (2, 2), (2, 6)],
        "per_replica": [(g, n) for g in [8, 15, 18, 21, 64] for n in [2, 3, 5, 7]],
    },
}


def lists(dataset):
    """Every element of a dataset of vectors, as lists."""
    return [[x.decode() if isinstance(x, bytes) else int(x) for x in element]
            for element in dataset.as_numpy_iterator()]


def batch_size_cases(parameters):
    """Sizes of the sub-batches of one global batch, in the order in which worker w splits them."""
    cases = []
    for batch, workers, replicas in itertools.product(parameters["batch_sizes"], [1, 2, 3, 4],
                                                      [1, 2, 3]):
        sizes = [data_distribute.batch_sizes_for_worker(
            tf.constant(batch, tf.int64), workers, replicas, w).numpy().tolist()
            for w in range(workers)]
        cases.append({"global_batch": batch, "workers": workers, "replicas": replicas,
                      "sizes_of_worker": sizes})
    return common.numbered("IB", cases)


def rebatch_cases(parameters):
    """range(n).batch(batch) split again: by a list of sizes, and by the legacy rule into
    `splits`."""
    cases = []
    for (n, batch, sizes), drop in itertools.product(parameters["rebatch"], [False, True]):
        dataset = tf.data.Dataset.range(n).batch(batch).rebatch(sizes, drop_remainder=drop)
        cases.append({"rule": "sizes", "n": n, "batch": batch, "sizes": sizes,
                      "drop_remainder": drop, "elements": lists(dataset)})
    for n, batch, splits in parameters["legacy"]:
        dataset = data_distribute._LegacyRebatchDataset(
            tf.data.Dataset.range(n).batch(batch), splits)
        cases.append({"rule": "legacy", "n": n, "batch": batch, "splits": splits,
                      "elements": lists(dataset)})
    return common.numbered("IR", cases)


def compute_batch_size_cases():
    """The batch size that a pipeline reports; -1 is unknown."""
    def base(n=16):
        return tf.data.Dataset.range(n)
    pipelines = {
        "range,batch(4)": base().batch(4),
        "range,batch(4,drop)": base().batch(4, drop_remainder=True),
        "range,batch(4),take(5)": base().batch(4).take(5),
        "range,batch(4),skip(1)": base().batch(4).skip(1),
        "range,batch(4),repeat": base().batch(4).repeat(2),
        "range,batch(4),shuffle": base().batch(4).shuffle(8),
        "range,batch(4),prefetch": base().batch(4).prefetch(2),
        "range,batch(4),cache": base().batch(4).cache(),
        "range,batch(4),filter": base().batch(4).filter(lambda x: True),
        "range,batch(4),map": base().batch(4).map(lambda x: x),
        "range,batch(4,drop),map": base().batch(4, drop_remainder=True).map(lambda x: x),
        "range,map,batch(4)": base().map(lambda x: x).batch(4),
        "zip(batch(4),batch(4))": tf.data.Dataset.zip((base().batch(4), base().batch(4))),
        "zip(batch(4),batch(8))": tf.data.Dataset.zip((base().batch(4), base().batch(8))),
        "zip(batch(4,drop),batch(8))": tf.data.Dataset.zip(
            (base().batch(4, drop_remainder=True), base().batch(8))),
        "zip(batch(4),tensor of 4 rows)": tf.data.Dataset.zip(
            (base().batch(4), tf.data.Dataset.from_tensors([1, 2, 3, 4]).repeat())),
        "concatenate(batch(4),batch(8))": base().batch(4).concatenate(base().batch(8)),
        "range,batch(4),batch(2)": base().batch(4).batch(2),
        "range,batch(4),unbatch,batch(2)": base().batch(4).unbatch().batch(2),
        "range,batch(4),interleave": base().batch(4).interleave(
            lambda x: tf.data.Dataset.from_tensor_slices(x).batch(3)),
        "range,batch(4),flat_map": base().batch(4).flat_map(
            lambda x: tf.data.Dataset.from_tensors(x)),
        "range,padded_batch(4)": base().padded_batch(4),
        "range,window,flat_map(batch(4))": base().window(4).flat_map(lambda x: x.batch(4)),
        "range,batch(4),enumerate": base().batch(4).enumerate(),
        "range,batch(4),shard": base().batch(4).shard(2, 0),
        "tensor_slices of 3x4": tf.data.Dataset.from_tensor_slices([[1, 2, 3, 4]] * 3),
        "range,batch(4),rebatch(2)": base().batch(4).rebatch(2),
    }
    cases = []
    for text, dataset in pipelines.items():
        result = common.outcome(
            lambda: {"batch_size": int(data_distribute.compute_batch_size(dataset))}, FRAGMENTS)
        cases.append({"pipeline": text, **result})
    return common.numbered("IC", cases)


def with_policy(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return dataset.with_options(options)


def worker_streams(dataset, workers, replicas):
    """The elements of one worker after the other: sub-batches, which its replicas take round
    robin."""
    strategy = common.mirrored(max(replicas, 1))
    streams = []
    for worker in range(workers):
        def stream():
            devices = common.cpu_names(replicas)
            context = tf.distribute.InputContext(workers, worker, workers * replicas)
            distributed = input_lib.DistributedDataset(
                input_lib.InputWorkers([("CPU:0", devices)]), strategy, dataset,
                num_replicas_in_sync=workers * replicas, input_context=context)
            return lists(distributed._cloned_datasets[0])
        streams.append(common.outcome(stream, FRAGMENTS))
    return streams


def stream_cases(parameters):
    """range(n).batch(batch) distributed over W workers with R replicas under every policy.

    `batch_known` false hides the batch size behind a map, which selects the legacy rule.
    """
    cases = []
    for (n, batch), (workers, replicas), known, policy in itertools.product(
            parameters["streams"]["sizes"], parameters["streams"]["cluster"], [True, False],
            ["OFF", "AUTO", "DATA", "FILE"]):
        if policy == "FILE" and workers > 1 and not known:
            continue
        dataset = tf.data.Dataset.range(n).batch(batch)
        if not known:
            dataset = dataset.map(lambda x: x)
        cases.append({"n": n, "batch": batch, "batch_known": known, "policy": policy,
                      "workers": workers, "replicas": replicas,
                      "stream_of_worker": worker_streams(with_policy(dataset, policy), workers,
                                                         replicas)})
    return common.numbered("IS", cases)


def write_files(folder, counts, kind):
    """One file per count; record j of file i is the text "f<i>r<j>"."""
    paths = []
    for i, count in enumerate(counts):
        path = os.path.join(folder, f"{kind}_{i}")
        records = [f"f{i}r{j}" for j in range(count)]
        if kind == "tfrecord":
            with tf.io.TFRecordWriter(path) as writer:
                for record in records:
                    writer.write(record)
        else:
            with open(path, "w") as out:
                out.write("".join(record + "\n" for record in records))
        paths.append(path)
    return paths


def file_pipelines(paths, reader, batch):
    """Ways to read the same files. Every one ends in batch(batch)."""
    names = tf.data.Dataset.from_tensor_slices(paths)
    return {
        "reader(files)": reader(paths).batch(batch),
        "files,flat_map(reader)": names.flat_map(reader).batch(batch),
        "files,interleave(reader)": names.interleave(reader, cycle_length=2).batch(batch),
        "files,flat_map(reader),prefetch": names.flat_map(reader).batch(batch).prefetch(1),
        "files,flat_map(reader),take(5)": names.flat_map(reader).take(5).batch(batch),
        "list_files,flat_map(reader)": tf.data.Dataset.list_files(
            paths, shuffle=False).flat_map(reader).batch(batch),
        "concatenate(reader(first),reader(rest))": reader(paths[:1]).concatenate(
            reader(paths[1:] or paths)).batch(batch),
    }


def file_cases(parameters):
    """Files behind a reader, distributed over W workers with R replicas under every policy."""
    cases = []
    readers = {"tfrecord": tf.data.TFRecordDataset, "textline": tf.data.TextLineDataset}
    with tempfile.TemporaryDirectory() as folder:
        for kind, (counts, batch), (workers, replicas), policy in itertools.product(
                readers, parameters["files"], parameters["file_cluster"],
                ["OFF", "AUTO", "DATA", "FILE"]):
            paths = write_files(folder, counts, kind)
            for name, dataset in file_pipelines(paths, readers[kind], batch).items():
                plain = name in ("reader(files)", "files,flat_map(reader)")
                if kind == "textline" and not plain:
                    continue
                if not plain and (policy != "FILE" or workers == 1):
                    continue
                cases.append({
                    "reader": kind, "records_per_file": counts, "pipeline": name, "batch": batch,
                    "policy": policy, "workers": workers, "replicas": replicas,
                    "stream_of_worker": worker_streams(with_policy(dataset, policy), workers,
                                                       replicas)})
    return common.numbered("IF", cases)


def shard_cases(parameters):
    """Only AutoShardDataset: range(n) over `shards` workers, and files under FILE."""
    cases = []
    for (n, shards), policy in itertools.product(parameters["shard"], ["DATA", "AUTO", "FILE"]):
        for index in range(shards + 1):
            dataset = with_policy(tf.data.Dataset.range(n), policy)
            result = common.outcome(lambda: {"elements": [
                int(x) for x in input_ops.auto_shard_dataset(
                    dataset, shards, index).as_numpy_iterator()]},
                FRAGMENTS + ["must be between 0 and", "should be <", "invalid index",
                             "index must be"])
            cases.append({"n": n, "policy": policy, "shards": shards, "index": index, **result})
    return common.numbered("IA", cases)


def steps_of(strategy, iterable, limit=50):
    """Per step, the list that every replica receives; plus the error that ended the iteration, if
    any."""
    steps = []

    def walk():
        for value in itertools.islice(iterable, limit):
            steps.append([[int(x) for x in part.numpy()]
                          for part in strategy.experimental_local_results(value)])
        return {}
    ended = common.outcome(walk, FRAGMENTS)
    return {"steps": steps, **ended}


def distributed_cases(parameters):
    """experimental_distribute_dataset(range(n).batch(batch)): the value of every replica per step."""
    grid = parameters["distributed"]
    cases = []
    for kind, replicas, n, batch, drop, known in itertools.product(
            ["mirrored", "central"], grid["replicas"], grid["n"], grid["batch"], [False, True],
            [True, False]):
        if kind == "central" and (not known or drop):
            continue
        strategy = common.make_strategy(kind, replicas)
        dataset = tf.data.Dataset.range(n).batch(batch, drop_remainder=drop)
        if not known:
            dataset = dataset.map(lambda x: x)
        distributed = strategy.experimental_distribute_dataset(dataset)
        cases.append({"strategy": kind, "replicas": replicas, "n": n, "batch": batch,
                      "drop_remainder": drop, "batch_known": known,
                      **steps_of(strategy, distributed)})
    return common.numbered("ID", cases)


def from_function_cases(parameters):
    """distribute_datasets_from_function: every replica takes one batch of the function's dataset."""
    grid = parameters["from_function"]
    modes = {"PER_WORKER": None, "PER_REPLICA": tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False)}
    cases = []
    for kind, replicas, n, batch, drop, mode in itertools.product(
            ["mirrored", "central"], grid["replicas"], grid["n"], grid["batch"], [False, True],
            modes):
        if kind == "central" and (mode == "PER_REPLICA" or drop):
            continue
        strategy = common.make_strategy(kind, replicas)
        contexts = []

        def dataset_fn(context):
            contexts.append([context.num_input_pipelines, context.input_pipeline_id,
                             context.num_replicas_in_sync])
            return tf.data.Dataset.range(n).batch(batch, drop_remainder=drop)

        distributed = strategy.distribute_datasets_from_function(dataset_fn, modes[mode])
        cases.append({"strategy": kind, "replicas": replicas, "n": n, "batch": batch,
                      "drop_remainder": drop, "mode": mode, "input_contexts": contexts,
                      **steps_of(strategy, distributed)})
    return common.numbered("IN", cases)


def refused_cases():
    """Inputs that are refused before the first element."""
    batched = tf.data.Dataset.range(4).batch(2)
    per_replica = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA)
    on_device = tf.distribute.InputOptions(experimental_place_dataset_on_device=True)
    both = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_place_dataset_on_device=True, experimental_fetch_to_device=True)
    fragments = ["is only supported in `distribute_datasets_from_function`",
                 "is only supported in `experimental_distribute_datasets_from_function`",
                 "you must also specify `PER_REPLICA` for the replication mode",
                 "can not be set to True when experimental_fetch_to_device is True",
                 "'InputOptions' object has no attribute"] + FRAGMENTS
    cases = []
    for kind in ["mirrored", "central", "one_device"]:
        strategy = common.make_strategy(kind, 1 if kind == "one_device" else 2)
        calls = {
            "unbatched": lambda: strategy.experimental_distribute_dataset(tf.data.Dataset.range(4)),
            "per_replica_dataset":
                lambda: strategy.experimental_distribute_dataset(batched, per_replica),
            "per_replica_function": lambda: strategy.distribute_datasets_from_function(
                lambda _: batched, per_replica),
            "place_on_device": lambda: strategy.distribute_datasets_from_function(
                lambda _: batched, on_device),
            "fetch_and_place_on_device": lambda: strategy.distribute_datasets_from_function(
                lambda _: batched, both),
        }
        for name, call in calls.items():
            def attempt():
                call()
                return {"ok": True}
            cases.append({"strategy": kind, "call": name, **common.outcome(attempt, fragments)})
    return common.numbered("IX", cases)


def per_replica_batch_cases(parameters):
    """InputContext.get_per_replica_batch_size."""
    cases = []
    for batch, replicas in parameters["per_replica"]:
        context = tf.distribute.InputContext(2, 1, replicas)
        result = common.outcome(
            lambda: {"per_replica": context.get_per_replica_batch_size(batch)}, FRAGMENTS)
        cases.append({"global_batch": batch, "replicas": replicas, "text": str(context), **result})
    return common.numbered("IP", cases)


def generate(variant, out):
    parameters = PARAMETERS[variant]
    meta = {}
    sections = {
        "batch_sizes": batch_size_cases(parameters), "rebatch": rebatch_cases(parameters),
        "per_replica_batch": per_replica_batch_cases(parameters),
        "distributed": distributed_cases(parameters),
        "from_function": from_function_cases(parameters),
        "multi_worker": common.numbered("IM", multi_worker_run.input_steps(variant)),
    }
    if variant == "public":
        sections["batch_size"] = compute_batch_size_cases()
        sections["refused"] = refused_cases()
    common.write(out / "input.json", meta, **sections)
    common.write(out / "input_sharding.json", meta, streams=stream_cases(parameters),
                 files=file_cases(parameters), shard=shard_cases(parameters))
