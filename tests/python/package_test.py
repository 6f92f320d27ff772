"""The package `cairn` against real servers: data round trips without copies, exactly-once pushes,
synchronous steps, and every misuse as an exception that says what to do."""
import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402
from package import MISSING, cairn, np  # noqa: E402


class OnServers(unittest.TestCase):
    """Two real servers for all tests of a class; each test has a job of its own."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = processes.Cluster.of_class(cls, 2)

    def connect(self, **arguments):
        client = cairn.connect(self.cluster.addresses, job=self.id().rsplit(".", 1)[-1],
                               **arguments)
        self.addCleanup(client.close)
        return client


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Data(OnServers):
    def test_dense_rows_and_slots(self):
        client = self.connect(worker=0)
        w = client.variable("w", (4, 3), optimizer=cairn.optim.SGD(0.5, momentum=0.9),
                            initializer=cairn.init.Constant(2))
        w.push(np.ones((4, 3), np.float32))
        np.testing.assert_allclose(w[...], 1.5)
        np.testing.assert_allclose(w.pull(slot="momentum"), -0.5)
        w.assign([[1, 2, 3]], rows=[2])
        np.testing.assert_array_equal(w[[2, 2]], [[1, 2, 3]] * 2)
        scalar = client.variable("s", (), optimizer="sgd")
        scalar.push(np.float32(1.0))
        self.assertAlmostEqual(float(scalar[...]), -0.01, places=6)

    def test_indexes_and_numpy(self):
        client = self.connect()
        w = client.variable("w", (4, 2), optimizer="sgd")
        w.assign(np.arange(8, dtype=np.float32).reshape(4, 2))
        np.testing.assert_array_equal(np.asarray(w), w[...])
        self.assertEqual(np.asarray(w, np.float64).dtype, np.float64)
        np.testing.assert_array_equal(w[1:3], [[2, 3], [4, 5]])
        np.testing.assert_array_equal(w[::-2], [[6, 7], [2, 3]])
        np.testing.assert_array_equal(w[3], [6, 7])
        for index in ((1, 1), None, slice("a")):
            with self.assertRaisesRegex(TypeError, "rows is"):
                w[index]
        t = client.embedding("t", 2, optimizer="sgd")
        np.testing.assert_array_equal(np.asarray(t[[5]]), [[0, 0]])
        with self.assertRaisesRegex(TypeError, r"table\.scan"):
            np.asarray(t)
        for index in (..., slice(3)):
            with self.assertRaisesRegex(TypeError, r"table\.scan"):
                t[index]

    def test_every_dtype(self):
        client = self.connect()
        for name in ("float32", "float64", "float16", "int32", "int64"):
            v = client.variable(name, (2, 2), name)
            v.assign(np.arange(4, dtype=name).reshape(2, 2))
            self.assertEqual(v[...].dtype, np.dtype(name))
            np.testing.assert_array_equal(v[...], [[0, 1], [2, 3]])
        b = client.variable("b", (2,), "bfloat16")
        b.assign(np.array([0x3f80, 0x4000], np.uint16))  # 1, 2
        np.testing.assert_array_equal(b[...], [0x3f80, 0x4000])
        for numbers in ([1, 2], [1.0, 2.0]):  # neither values nor bits for certain
            with self.assertRaisesRegex(cairn.DTypeError, "bfloat16 takes a torch.bfloat16 tensor"):
                b.assign(numbers)

    def test_arrays_that_are_not_aligned_are_copied(self):
        t = self.connect().embedding("t", 2, optimizer="sgd")
        keys = np.frombuffer(b"." + np.array([5, 6]).tobytes(), np.int64, offset=1)
        values = np.frombuffer(b"." + np.float32([1, 2, 3, 4]).tobytes(), np.float32, offset=1)
        self.assertFalse(keys.flags.aligned or values.flags.aligned)
        t.assign(keys, values.reshape(2, 2))
        np.testing.assert_array_equal(t[keys], [[1, 2], [3, 4]])
        memory = np.frombuffer(bytearray(17), np.float32, offset=1).reshape(2, 2)
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "not aligned"):
            t.pull([5, 6], out=memory)

    def test_paths_may_have_characters_beyond_16_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            directory = os.path.join(folder, "\\ud83d \U0001f600 \u00e4")
            with cairn.launch(in_process=True, directory=directory) as cluster, \
                    cluster.connect(job="a") as client:
                client.variable("w", (1,)).assign([3])
            self.assertEqual(os.listdir(folder), [os.path.basename(directory)])

    def test_the_logger_may_be_configured_after_the_import(self):
        program = """
import logging, sys
import cairn
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
with cairn.launch(in_process=True) as cluster:
    cluster.connect(job="a").close()
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120)
        self.assertIn("INFO:cairn:", done.stdout, done.stderr)

    def test_the_collector_closes_nothing_in_the_log_function(self):
        """The library holds a lock while it calls that function."""
        closed, library = [], cairn._library

        class Collects(logging.Handler):
            def emit(self, record):
                gc.collect()
        closes = library.lib.cairn_close

        def close(handle):
            closes(handle)
            closed.append(threading.current_thread())
        client = cairn.connect(self.cluster.addresses, job="collected")
        cycle = [client]
        cycle.append(cycle)
        handler = Collects()
        logging.getLogger("cairn").addHandler(handler)
        gc.collect()
        del client, cycle
        try:
            with unittest.mock.patch.object(library.lib, "cairn_close", close):
                library._log(None, 1, b"file", 1, b"a message")
                processes.wait_for(lambda: closed, 60, "the client to be closed")
        finally:
            logging.getLogger("cairn").removeHandler(handler)
        self.assertNotIn(threading.current_thread(), closed)

    def test_the_collector_closes_a_client_while_a_handler_has_its_lock(self):
        """The client's thread of heartbeats waits for that lock, to log that the server is gone."""
        program = """
import gc, logging, threading
import cairn
waits = threading.Event()
class Collects(logging.Handler):
    def acquire(self):
        if threading.current_thread() is not threading.main_thread():
            waits.set()
        super().acquire()
    def emit(self, record):
        if record.name == "app":
            assert waits.wait(60)
            gc.collect()
logging.getLogger().addHandler(Collects())
cluster = cairn.launch()
client = cairn.connect(cluster.addresses, job="collected", worker=0)
cycle = [client]
cycle.append(cycle)
gc.disable()
cluster.processes[0].kill()
del client, cycle
logging.getLogger("app").warning("a message")
print("returned", flush=True)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=100)
        self.assertEqual(done.stdout, "returned\n", done.stderr)

    def test_tables(self):
        client = self.connect(worker=0)
        t = client.embedding("t", 2, optimizer=cairn.optim.SGD(1.0))
        keys = np.array([[7, -3], [7, 2**62]], np.int64)
        t.push(keys, np.ones((2, 2, 2), np.float32))
        np.testing.assert_array_equal(t[keys], [[[-2, -2], [-1, -1]], [[-2, -2], [-1, -1]]])
        found, values = t.scan()
        order = np.argsort(found)
        np.testing.assert_array_equal(found[order], [-3, 7, 2**62])
        np.testing.assert_array_equal(values[order], [[-1, -1], [-2, -2], [-1, -1]])
        self.assertEqual(t[[]].shape, (0, 2))
        np.testing.assert_array_equal(t[np.array([7], np.uint8)], [[-2, -2]])
        t.assign([1], [[5, 6]])
        np.testing.assert_array_equal(t[[1]], [[5, 6]])

    def test_lists_of_keys_below_and_above_the_middle_of_64_bits(self):
        t = self.connect().embedding("t", 1, optimizer=cairn.optim.SGD(1.0))
        t.push([2**63 + 5, 7, -1, 2**64 - 2], [[1], [2], [3], [4]])
        found, values = t.scan()
        self.assertEqual(dict(zip(found.tolist(), values[:, 0].tolist())),
                         {5 - 2**63: -1, 7: -2, -1: -3, -2: -4})
        np.testing.assert_array_equal(t[[[2**64 - 1, -2]]], [[[-3], [-4]]])
        for keys in ([2**63 + 5, -1.5], [2**64, 1]):
            with self.assertRaisesRegex(TypeError, "expected integers of at most 64 bits$"):
                t.pull(keys)

    def test_repeats_combine(self):
        client = self.connect(worker=0)
        t = client.embedding("t", 2, optimizer=cairn.optim.SGD(1.0))
        keys = np.array([[7, -3], [7, 9]], np.int64)
        t.combines_repeats = True
        self.assertTrue(t.combines_repeats)
        t.push(keys, np.ones((2, 2, 2), np.float32))
        before = client.counters().bytes_pulled
        for _ in range(2):  # the second by the items of the first
            np.testing.assert_array_equal(t.pull(keys[0].repeat(3)), [[-2, -2]] * 3 + [[-1, -1]] * 3)
        self.assertEqual(client.counters().bytes_pulled - before, 2 * 2 * 2 * 4)
        np.testing.assert_array_equal(t[keys], [[[-2, -2], [-1, -1]], [[-2, -2], [-1, -1]]])
        t.assign([1], [[5, 6]])
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "1 is named twice"):
            t.assign([1, 1], [[5, 6], [7, 8]])
        t.combines_repeats = False
        np.testing.assert_array_equal(t.pull(np.array([1, 1])), [[5, 6], [5, 6]])

    def test_repeated_pulls_of_one_shape(self):
        t = self.connect().embedding("t", 2, optimizer="sgd")
        t.assign([1, 2, 3], [[1, 1], [2, 2], [3, 3]])
        for keys in ([1, 2], [3, 1], [2, 9]):  # from the second on by the items of the first
            for array in (np.array(keys), np.array(keys, np.int32), np.array([keys[0], 7, keys[1]])[::2]):
                expected = [[key, key] if key < 4 else [0, 0] for key in keys]
                np.testing.assert_array_equal(t.pull(array), expected)
            frozen = np.array(keys)
            frozen.flags.writeable = False
            np.testing.assert_array_equal(t.pull(frozen), expected)
        for count in range(1, 200):  # more shapes than are kept
            np.testing.assert_array_equal(t.pull(np.full(count, 2)), np.full((count, 2), 2.0))

    def test_row_rules(self):
        client = self.connect()
        t = client.embedding("t", 1, optimizer=cairn.optim.SGD(1.0), admit_after=3, max_rows=5000,
                             expire_after=3600, storage={"values": "float16"})
        for expected in (0, 0, -1):
            t.push([9], np.ones((1, 1), np.float32))
            self.assertEqual(t[[9]][0, 0], expected)
        description = self.connect().variables()["t"].description
        self.assertEqual(description["expire_after_seconds"], 3600)
        self.assertEqual(description["row_storage"], {"values": "float16", "slots": "float32"})

    def test_out_is_written_in_place(self):
        client = self.connect()
        t = client.embedding("t", 2, optimizer="sgd", initializer="ones")
        memory = np.zeros((4, 2), np.float32)
        result = t.pull([1, 2], out=memory[1:3])
        self.assertIs(result.base, memory)
        np.testing.assert_array_equal(memory, [[0, 0], [1, 1], [1, 1], [0, 0]])

    def test_calls_over_several_variables(self):
        client = self.connect(worker=0)
        w = client.variable("w", (2,), optimizer=cairn.optim.SGD(1.0))
        t = client.embedding("t", 2, optimizer=cairn.optim.SGD(1.0))
        gradients = [(w, np.ones(2, np.float32)), (t, [5], np.ones((1, 2), np.float32))]
        client.push(gradients, position="one")
        values, rows = client.push_pull(gradients, [w, (t, [5, 6])], position=b"two")
        np.testing.assert_array_equal(values, [-2, -2])
        np.testing.assert_array_equal(rows, [[-2, -2], [0, 0]])
        client.assign([(w, np.zeros(2, np.float32))])
        (values,) = client.pull([(w, [1])])
        np.testing.assert_array_equal(values, [0])
        self.assertEqual(client.counters().retries, 0)
        client.leave()
        self.assertEqual(self.connect(worker=0).position, b"two")

    def test_wire_formats_round(self):
        client = self.connect()
        w = client.variable("w", (1000,), optimizer=cairn.optim.SGD(1.0))
        gradient = np.linspace(-1, 1, 1000, dtype=np.float32)
        w.push(gradient, format="int8")
        np.testing.assert_allclose(w[...], -gradient, atol=1 / 127)
        np.testing.assert_allclose(w.pull(format="float16"), -gradient, atol=1 / 120)

    def test_what_a_compact_push_leaves_out_comes_later(self):
        client = self.connect()
        gradient = np.linspace(0.5, 1, 100, dtype=np.float32)
        for name, format in (("k", "top_k"), ("i", "int8"), ("h", "bfloat16")):
            w = client.variable(name, (100,), optimizer=cairn.optim.SGD(1.0))
            w.push(gradient, format=format, kept_fraction=0.25)
            if format == "top_k":
                self.assertEqual(np.count_nonzero(w[...]), 25)
            for _ in range(40):
                w.push(np.zeros(100, np.float32), format=format, kept_fraction=0.25)
            np.testing.assert_allclose(w[...], -gradient, rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "kept_fraction is 0"):
            w.push(gradient, format="top_k", kept_fraction=0)
        with self.assertRaisesRegex(ValueError, "whole variables"):
            w.push(gradient[:1], rows=[1], format="top_k")
        doubles = client.variable("d", (2,), "float64", optimizer="sgd")
        with self.assertRaisesRegex(ValueError, "float64"):
            doubles.push(np.zeros(2), format="top_k")

    def test_norms_are_clipped_wherever_the_rows_are(self):
        client = self.connect()
        for shards in (1, 2):
            w = client.variable(f"w{shards}", (2,), shards=shards,
                                optimizer=cairn.optim.SGD(1.0, clipnorm=1.0))
            w.push(np.array([3, 4], np.float32))
            np.testing.assert_allclose(w[...], [-0.6, -0.8], rtol=1e-6)
            w.push(np.array([1, 2, 4], np.float32), rows=[0, 0, 1])
            np.testing.assert_allclose(w[...], [-1.2, -1.6], rtol=1e-6)
        t = client.embedding("t", 2, initializer="zeros",
                             optimizer=cairn.optim.SGD(1.0, clipnorm=1.0))
        keys = np.concatenate([np.arange(100), np.arange(100)])  # on both servers
        for combines in (False, True):
            t.combines_repeats = combines
            before = t[keys[:100]]
            t.push(keys, np.ones((200, 2), np.float32))
            change = t[keys[:100]] - before
            self.assertAlmostEqual(float(np.linalg.norm(change)), 1, places=5)
        t.push(keys[:1], np.full((1, 2), 0.1, np.float32))  # a small one stays as it is
        np.testing.assert_allclose(t[keys[:2]], [[-0.1 - 2**0.5 / 10] * 2, [-2**0.5 / 10] * 2],
                                   rtol=1e-5)

    def test_a_norm_of_all_variables_is_refused(self):
        with self.assertRaisesRegex(ValueError, "global_clipnorm: is the norm of all variables"):
            self.connect().variable("w", (2,), optimizer={"type": "sgd", "global_clipnorm": 1})

    def test_shards_stay_where_they_are(self):
        """As after a restore on another number of servers, or after a server has joined."""
        first = self.connect(worker=0, partitioner={"type": "fixed_shards", "num_shards": 2})
        w = first.variable("w", (7, 2), optimizer="sgd")
        w.assign(np.arange(14, dtype=np.float32).reshape(7, 2))
        first.close()
        for partitioner in (None, {"type": "fixed_shards", "num_shards": 3}):
            client = self.connect(worker=0, partitioner=partitioner)
            w = client.variable("w", (7, 2), optimizer="sgd")
            np.testing.assert_array_equal(w[...], np.arange(14, dtype=np.float32).reshape(7, 2))
            self.assertEqual(client.variables()["w"].description["shards"], 2)
            client.variable("w", (7, 2), optimizer="sgd", shards=2)
            with self.assertRaisesRegex(cairn.AlreadyExistsError, "shards"):
                client.variable("w", (7, 2), optimizer="sgd", shards=3)
            client.close()

    def test_dlpack_without_a_copy(self):
        class Foreign:  # an array of another library
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        client = self.connect()
        w = client.variable("w", (3,), optimizer=cairn.optim.SGD(1.0))
        w.push(Foreign(np.ones(3, np.float32)))
        memory = np.zeros(3, np.float32)
        w.pull(Foreign(memory))
        np.testing.assert_array_equal(memory, [-1, -1, -1])

    def test_checkpoint_and_restore(self):
        client = self.connect()
        w = client.variable("w", (2,))
        w.assign([1, 2])
        folder = client.checkpoint(os.path.join(self.cluster.folder, "checkpoints"), step=3)
        self.assertTrue(os.path.exists(os.path.join(folder, "MANIFEST.json")))
        w.assign([3, 4])
        client.restore(folder)
        np.testing.assert_array_equal(self.connect().variables()["w"][...], [1, 2])
        with self.assertRaises(cairn.NotFoundError):
            client.restore(os.path.join(self.cluster.folder, "absent"))

    def test_many_threads(self):
        client = self.connect(worker=0)
        t = client.embedding("t", 1, optimizer=cairn.optim.SGD(1.0))
        threads = [threading.Thread(target=lambda: [
            t.push([1, 2], -np.ones((2, 1), np.float32)) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        np.testing.assert_array_equal(t[[1, 2]], [[200], [200]])


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Kills(unittest.TestCase):
    def test_pushes_count_once_when_servers_are_killed(self):
        with tempfile.TemporaryDirectory() as folder, processes.Cluster(folder, 2) as cluster:
            client = cairn.connect(cluster.addresses, job="kills", worker=0)
            t = client.embedding("t", 1, optimizer=cairn.optim.SGD(1.0))
            keys = np.arange(50)
            for step in range(1, 401):
                t.push(keys, -np.ones((50, 1), np.float32), position=str(step))
                if step % 50 == 0:
                    victim = step // 50 % 2
                    cluster.processes[victim].kill()
                    cluster.processes[victim].wait(60)
                    cluster.spawn(victim, cluster.addresses[victim])
            np.testing.assert_array_equal(t[keys][:, 0], 400)
            self.assertGreater(client.counters().retries, 0)
            client.leave()


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Steps(OnServers):
    def test_sync_applies_the_weighted_mean_once(self):
        workers = [self.connect(worker=i, workers=2, consistency="sync") for i in range(2)]
        seen = {}

        def train(index):
            client = workers[index]
            w = client.variable("w", (1,), optimizer=cairn.optim.SGD(1.0))
            (value,) = client.step([], [w])
            for _ in range(3):
                gradient = np.full(1, 4.0 * index, np.float32)
                (value,) = client.step([(w, gradient)], [w], rows=1 + 2 * index)
            seen[index] = float(value[0])
            client.end_steps()

        threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        # The mean of 0 (1 row) and 4 (3 rows) is 3.
        self.assertEqual(seen, {0: -9.0, 1: -9.0})

    def test_a_wait_for_a_worker_names_it(self):
        client = self.connect(worker=0, workers=2, consistency="sync")
        w = client.variable("w", (1,), optimizer="sgd")
        client.step([], [w])
        with self.assertRaises(cairn.DeadlineExceededError) as caught:
            client.step([(w, np.ones(1, np.float32))], [w], timeout=1)
        self.assertIn("worker", str(caught.exception))


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Errors(OnServers):
    def setUp(self):
        self.client = self.connect(worker=0)
        self.w = self.client.variable("w", (2, 2), optimizer="sgd")
        self.t = self.client.embedding("t", 2, optimizer="sgd")

    def refused(self, kind, text, function, *arguments, **named):
        with self.assertRaises(kind) as caught:
            function(*arguments, **named)
        self.assertIn(text, str(caught.exception))

    def test_wrong_dtype(self):
        self.refused(cairn.DTypeError, "dtype is float64; the variable has float32", self.w.push,
                     np.ones((2, 2)))
        self.refused(TypeError, "dtype is int32", self.w.pull, np.ones((2, 2), np.int32))
        self.refused(cairn.DTypeError, "out is a list", self.w.pull, [0.0])
        self.refused(cairn.DTypeError, "dtype is float8", self.client.variable, "v", (1,), "float8")
        b = self.client.variable("b", (2,), "bfloat16")
        self.refused(cairn.DTypeError, "give a torch.bfloat16 tensor, or its bits as a numpy.uint16",
                     b.assign, np.ones(2, np.float16))  # astype would make other bits of it

    def test_wrong_shape(self):
        self.refused(cairn.InvalidArgumentError, "shape is [4]; expected [2, 2]", self.w.push,
                     np.ones(4, np.float32))
        self.refused(ValueError, "shape is [2, 3]; expected [2, 2]", self.t.pull, [1, 2],
                     np.empty((2, 3), np.float32))
        self.refused(cairn.InvalidArgumentError, "row 2", self.w.pull, rows=[2])

    def test_out_that_cannot_be_written(self):
        wide = np.zeros((2, 4), np.float32)
        self.refused(cairn.InvalidArgumentError, "not contiguous", self.w.pull, wide[:, ::2])
        frozen = np.zeros((2, 2), np.float32)
        frozen.flags.writeable = False
        self.refused(cairn.InvalidArgumentError, "read-only", self.w.pull, frozen)

    def test_gradients_may_be_strided(self):
        wide = np.arange(8, dtype=np.float32).reshape(2, 4)
        self.w.push(-wide[:, ::2])
        np.testing.assert_allclose(self.w[...], wide[:, ::2] * 0.01)

    def test_keys_that_are_no_integers(self):
        self.refused(cairn.DTypeError, "keys are float64", self.t.pull, np.array([-1.5]))
        self.refused(cairn.DTypeError, "keys are float64", self.t.push, [-2.0],
                     np.ones((1, 2), np.float32))
        self.refused(cairn.DTypeError, "keys are bool", self.t.pull, [True])

    def test_memory_of_a_gpu(self):
        class OnGpu:
            def __dlpack__(self, stream=None):
                raise AssertionError("must not be asked for its memory")

            def __dlpack_device__(self):
                return 2, 0

        self.refused(cairn.DTypeError, ".cpu()", self.w.push, OnGpu())
        self.refused(cairn.DTypeError, ".cpu()", self.w.pull, OnGpu())
        self.refused(cairn.DTypeError, ".cpu()", self.t.pull, OnGpu())

    def test_closed_client(self):
        self.client.close()
        self.client.close()
        self.assertTrue(self.client.closed)
        self.refused(cairn.ClosedError, "is closed", self.w.pull)
        self.refused(cairn.FailedPreconditionError, "is closed", self.client.flush)
        self.assertIn("closed", repr(self.client))

    def test_fork_after_connect(self):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.w.pull()
            except cairn.FailedPreconditionError as error:
                own = cairn.connect(self.cluster.addresses, job="child")
                own.flush()
                own.close()
                status = 0 if "forked" in str(error) else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(self.w.pull().shape, (2, 2))

    def test_pickle(self):
        self.refused(TypeError, "connect in each process", pickle.dumps, self.client)
        self.refused(TypeError, "connect in each process", pickle.dumps, self.w)

    def test_texts_of_the_engine(self):
        self.refused(cairn.AlreadyExistsError, "[2, 2]", self.client.variable, "w", (3,))
        self.refused(cairn.AlreadyExistsError, "adam", self.client.variable, "w", (2, 2),
                     optimizer="adam")
        self.refused(cairn.InvalidArgumentError, "did you mean 'adam'", self.client.variable, "v",
                     (1,), optimizer="adma")
        self.refused(cairn.InvalidArgumentError, "beta_3", self.client.variable, "v", (1,),
                     optimizer={"type": "adam", "beta_3": 1})
        self.refused(cairn.InvalidArgumentError, "expected a cluster file", cairn.connect)
        self.refused(cairn.NotFoundError, "absent.yaml", cairn.connect, "/absent.yaml")
        self.refused(TypeError, "unexpected keyword argument 'typo'", cairn.connect,
                     self.cluster.addresses, typo=1)
        self.refused(cairn.InvalidArgumentError, "must be finite", self.w.push,
                     np.full((2, 2), np.nan, np.float32))
        self.refused(cairn.InvalidArgumentError, "needs keys", self.client.pull, [self.t])
        self.refused(cairn.InvalidArgumentError, "pushes[0] is", self.client.push, [self.t])
        self.refused(cairn.InvalidArgumentError, "timeout is -1", self.client.flush, timeout=-1)


    def test_settings_without_effect(self):
        for text, arguments in (
                ("sync_mean: has no effect with consistency async", {"sync_mean": "rows"}),
                ("staleness_bound_steps: has no effect with consistency sync",
                 {"consistency": "sync", "staleness_bound_steps": 2}),
                ("replicas_to_aggregate: has no effect", {"replicas_to_aggregate": 1}),
                ("at most the number of workers, 1",
                 {"consistency": "sync", "workers": 1, "replicas_to_aggregate": 5}),
                ("consistency: sync has no effect without worker", {"consistency": "sync"}),
                ("sync needs workers", {"consistency": "sync", "worker": 0}),
                ("consistency: ssp has no effect without worker",
                 {"consistency": "ssp", "staleness_bound_steps": 1}),
                ("worker: found \"auto\"", {"worker": "auto"})):
            self.refused(cairn.InvalidArgumentError, text, cairn.connect, self.cluster.addresses,
                         **arguments)

    def test_errors_name_no_flags_and_no_files_of_the_programs(self):
        for call in (lambda: self.client.variable("w", (3,)),
                     lambda: self.client.variable("v", (1,), optimizer={"type": "adma"}),
                     lambda: cairn.connect(["nohost"]),
                     lambda: cairn.connect(self.cluster.addresses, worker="auto"),
                     lambda: cairn.connect(self.cluster.addresses, token_file="absent"),
                     lambda: cairn.connect(self.cluster.addresses, tls=("a", "b", "c")),
                     lambda: cairn.data.read("absent", "libsvm", features=3),
                     lambda: cairn.data.read("absent", "libsvm", featurs=3)):
            with self.assertRaises(cairn.Error) as caught:
                call()
            for word in ("--", ":1:", "yaml", "description"):
                self.assertNotIn(word, str(caught.exception))

    def test_an_error_of_every_server_is_said_once(self):
        wide = self.client.variable("wide", (4,), optimizer="sgd", shards=2)
        with self.assertRaises(cairn.NotFoundError) as caught:
            wide.pull(slot="absent")
        self.assertEqual(str(caught.exception).count("has no slot"), 1, caught.exception)
        for address in self.cluster.addresses:
            self.assertIn(address, str(caught.exception))


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Launch(unittest.TestCase):
    def test_servers_that_come_back(self):
        with tempfile.TemporaryDirectory() as folder:
            for in_process, expected in ((True, 0), (False, 1), (True, 2)):
                with cairn.launch(servers=2, directory=folder, in_process=in_process) as cluster:
                    with cluster.connect(job="kept", worker=0) as client:
                        w = client.variable("w", (1,), optimizer=cairn.optim.SGD(1.0))
                        self.assertEqual(w[...][0], expected)
                        w.push(np.full(1, -1, np.float32))
                    self.assertEqual(len(cluster.addresses), 2)
                self.assertIn("stopped", repr(cluster))

    def test_memory_and_flags_of_servers_in_process(self):
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "flags is .* no flags with in_process"):
            cairn.launch(in_process=True, flags=["--memory_budget_bytes=1000000000"])
        for in_process in (True, False):
            with self.subTest(in_process=in_process), cairn.launch(
                    in_process=in_process, memory_budget_bytes=128 << 20) as cluster:
                client = cluster.connect(job="budget")
                with self.assertRaises(cairn.ResourceExhaustedError) as caught:
                    client.variable("w", (40 << 20,))
                self.assertIn("seven eighths of memory_budget_bytes", str(caught.exception))

    def test_servers_end_with_the_program(self):
        program = """
import os, sys, threading
import cairn
clusters = []
thread = threading.Thread(target=lambda: clusters.append(
    cairn.launch(servers=2, directory=sys.argv[1])))
thread.start()
thread.join()  # the end of the thread that started the servers does not end them
while os.path.exists(f"/proc/self/task/{thread.native_id}"):
    pass
with clusters[0].connect(job="ended") as client:
    client.variable("w", (1,))
print(*[process.pid for process in clusters[0].processes], flush=True)
threading.Event().wait()
"""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                with subprocess.Popen([sys.executable, "-c", program, folder], text=True,
                                      stdout=subprocess.PIPE) as process:
                    servers = [int(pid) for pid in process.stdout.readline().split()]
                    self.addCleanup(self.kill_all, servers)
                    process.send_signal(number)
                self.assertEqual(len(servers), 2)
                processes.wait_for(lambda: all(map(processes.gone, servers)), 60,
                                   "the servers to end")
                with open(os.path.join(folder, "ps-0.log"), encoding="utf-8") as log:
                    self.assertIn(f"process {process.pid}, which started this server, has ended",
                                  log.read())

    @staticmethod
    def kill_all(pids):
        for pid in pids:
            if not processes.gone(pid):
                os.kill(pid, signal.SIGKILL)

    def test_a_server_that_is_gone(self):
        with cairn.launch() as cluster:
            client = cluster.connect(job="gone", ps_wait_seconds=0.3)
            cluster.processes[0].kill()
            cluster.processes[0].wait(60)
            with self.assertRaises(cairn.UnavailableError) as caught:
                client.flush()
            self.assertIn("ps:0", str(caught.exception))

    def test_a_server_that_is_gone_is_waited_for_once(self):
        with cairn.launch() as cluster:
            w = cluster.connect(job="gone", ps_wait_seconds=10).variable("w", (1,))
            cluster.processes[0].kill()
            cluster.processes[0].wait(60)
            begin = time.monotonic()
            with self.assertRaises(cairn.UnavailableError):
                w.pull()
            self.assertLess(time.monotonic() - begin, 16)  # 12, and 20 where it waits twice

    def test_a_cluster_keeps_no_closed_clients(self):
        with cairn.launch() as cluster:
            client = cluster.connect(job="first")
            client.close()
            closed = weakref.ref(client)
            del client
            cluster.connect(job="second")
            gc.collect()
            self.assertIsNone(closed())

    def test_a_client_keeps_its_servers(self):
        for in_process in (True, False):
            for closes in (True, False):
                with self.subTest(in_process=in_process, closes=closes):
                    cluster = cairn.launch(in_process=in_process)
                    ended, folder = weakref.ref(cluster), cluster.directory
                    w = cluster.connect(job="kept").variable("w", (1,))
                    del cluster
                    gc.collect()
                    w.assign([3])
                    np.testing.assert_array_equal(w[...], [3])
                    self.assertIsNotNone(ended())
                    if closes:
                        w.client.close()
                    else:
                        del w
                    self.assertIsNone(ended())
                    self.assertFalse(os.path.exists(folder))

    def test_a_server_that_cannot_start(self):
        with self.assertRaises(cairn.InternalError) as caught:
            cairn.launch(flags=["--no_such_flag"])
        self.assertIn("no_such_flag", str(caught.exception))

    def test_a_signal_handler_calls_the_library_during_a_wait(self):
        program = """
import os, signal
import cairn, numpy as np
with cairn.launch() as cluster:
    client = cluster.connect(job="handler", worker=0)
    w = client.variable("w", (1,), optimizer="sgd")
    w.pull()
    server = cluster.processes[0].pid
    os.kill(server, signal.SIGSTOP)
    os.waitpid(server, os.WUNTRACED)
    def save(number, frame):
        for _ in range(5):
            try:
                w.pull(timeout=0.3)
            except cairn.DeadlineExceededError:
                print("in the handler: late", flush=True)
    signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        w.pull(timeout=5)
    except cairn.DeadlineExceededError:
        print("late", flush=True)
    os.kill(server, signal.SIGCONT)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.stdout, "in the handler: late\n" * 5 + "late\n", done.stderr)
        self.assertNotIn("Error", done.stderr)

    def test_a_signal_handler_calls_the_library_at_the_end_of_a_server(self):
        """Not in the log function, where the thread holds locks of the library."""
        program = """
import os, signal, threading
import cairn
with cairn.launch() as cluster:
    w = cluster.connect(job="end", ps_wait_seconds=1).variable("w", (1,))
    w.pull()
    server = cluster.processes[0].pid
    os.kill(server, signal.SIGSTOP)
    os.waitpid(server, os.WUNTRACED)
    def pull(place, **timeout):
        try:
            w.pull(**timeout)
        except (cairn.UnavailableError, cairn.DeadlineExceededError):
            print(place, flush=True)
    signal.signal(signal.SIGTERM, lambda number, frame: pull("in the handler", timeout=0.3))
    threading.Timer(0.55, lambda: (os.kill(os.getpid(), signal.SIGTERM),
                                   os.kill(server, signal.SIGKILL))).start()
    pull("in the program")
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.stdout, "in the handler\nin the program\n", done.stderr)

    def test_a_signal_handler_pushes_while_its_thread_waits_for_another_push(self):
        program = """
import os, signal, threading
import cairn, numpy as np
with cairn.launch() as cluster:
    client = cluster.connect(job="handler", worker=0)
    w = client.variable("w", (1,), optimizer="sgd")
    w.push(np.ones(1, np.float32))
    server = cluster.processes[0].pid
    os.kill(server, signal.SIGSTOP)
    os.waitpid(server, os.WUNTRACED)
    ended = []
    def push(timeout):
        try:
            w.push(np.ones(1, np.float32), timeout=timeout)
        except cairn.Error:
            ended.append(timeout)
    signal.signal(signal.SIGALRM, lambda number, frame: push(1.5))
    begun = threading.Event()
    other = threading.Thread(target=lambda: (begun.set(), push(8)))
    other.start()
    begun.wait()
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    push(4)
    other.join()
    os.kill(server, signal.SIGCONT)
    print(sorted(ended), flush=True)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.stdout, "[1.5, 4, 8]\n", done.stderr)
        self.assertNotIn("Error", done.stderr)

    def test_ctrl_c_ends_flush_on_two_servers(self):
        program = """
import os, signal, sys, threading
import cairn, numpy as np
with cairn.launch(servers=2) as cluster:
    client = cluster.connect(job="flush", worker=0)
    w = client.variable("w", (4,), optimizer="sgd", shards=2)
    w.push(np.ones(4, np.float32))
    server = cluster.processes[1].pid
    os.kill(server, signal.SIGSTOP)
    os.waitpid(server, os.WUNTRACED)
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        client.flush()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        os.kill(server, signal.SIGCONT)
"""
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.stdout, "interrupted\n", done.stderr)
        self.assertNotIn("Error", done.stderr)
        self.assertLess(time.monotonic() - begin, 60)  # without the signal: 120 s

    def test_ctrl_c_together_with_the_end_of_a_server(self):
        """As a terminal sends it. The connection breaks before the wait is due for its next check, and
        the library logs that at once."""
        program = """
import os, signal, sys, threading
import cairn
connected = []
with cairn.launch() as cluster:
    def connect():
        connected.append(cluster.connect(job="end", ps_wait_seconds=60))
    if sys.argv[1] == "main":
        connect()
    else:
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
    w = connected[0].variable("w", (1,))
    w.pull()
    server = cluster.processes[0].pid
    os.kill(server, signal.SIGSTOP)
    os.waitpid(server, os.WUNTRACED)
    threading.Timer(0.55, lambda: (os.kill(os.getpid(), signal.SIGINT),
                                   os.kill(server, signal.SIGKILL))).start()
    try:
        w.pull()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
        for thread in ("main", "another"):
            with self.subTest(thread):
                begin = time.monotonic()
                done = subprocess.run([sys.executable, "-c", program, thread], capture_output=True,
                                      text=True, timeout=200)
                self.assertEqual(done.stdout, "interrupted\n", done.stderr)
                self.assertNotIn("ignored", done.stderr)
                self.assertLess(time.monotonic() - begin, 30)

    def test_ctrl_c_at_the_beginning_of_the_log_function(self):
        """Python runs the handler there before the function's first statement, outside its `try`."""
        program = """
import contextvars, ctypes, itertools, signal
from cairn import _library
interrupt = getattr(ctypes.CDLL(None), "raise")
try:
    # No bytecode, which would run the handler, comes between the two calls.
    list(itertools.starmap(contextvars.Context().run, (
        (interrupt, signal.SIGINT), (_library._log_callback, None, 1, b"file", 1, b"a message"))))
except KeyboardInterrupt:
    print("too early", flush=True)
print(_library.parked, flush=True)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual((done.stdout, done.stderr), ("[KeyboardInterrupt()]\n", ""))

    def test_ctrl_c_is_raised_although_the_call_succeeds(self):
        """The second checkpoint is made before the server stops, and `checkpoint` only logs that the
        first one cannot be deleted."""
        program = """
import logging, os, signal, sys, threading
logging.getLogger("cairn").setLevel(logging.INFO)
import cairn
with cairn.launch() as cluster:
    client = cluster.connect(job="kept")
    client.variable("w", (1,))
    folder = os.path.join(cluster.directory, "checkpoints")
    os.mkdir(folder)
    client.checkpoint(folder, keep=1)
    server = cluster.processes[0].pid
    class Stop(logging.Handler):
        def emit(self, record):
            if "checkpoint of step 2" in record.getMessage():
                os.kill(server, signal.SIGSTOP)
                os.waitpid(server, os.WUNTRACED)
                if sys.argv[1] == "later":
                    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                else:
                    os.kill(os.getpid(), signal.SIGINT)
    logging.getLogger("cairn").addHandler(Stop())
    try:
        client.checkpoint(folder, step=2, keep=1)
        print("swallowed", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        os.kill(server, signal.SIGCONT)
    client.flush()
    print("usable", flush=True)
"""
        for when in ("later", "in the handler of a message"):
            with self.subTest(when):
                done = subprocess.run([sys.executable, "-c", program, when], capture_output=True,
                                      text=True, timeout=120)
                self.assertEqual(done.stdout, "interrupted\nusable\n", done.stderr)
                self.assertNotIn("Error", done.stderr)

    def test_ctrl_c_ends_a_wait(self):
        program = """
import linecache, os, signal, sys, threading
import cairn, numpy as np
with cairn.launch() as cluster:
    client = cluster.connect(job="wait", worker=0)
    w = client.variable("w", (1,), optimizer="sgd")
    w.pull()
    server = cluster.processes[0].pid
    def interrupt():  # when the main thread is in the call, which releases the GIL
        main = threading.main_thread().ident
        while "cairn_push" not in linecache.getline(*where(sys._current_frames()[main])):
            threading.Event().wait(0.001)
        threading.Event().wait(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    def where(frame):
        return frame.f_code.co_filename, frame.f_lineno
    for attempt in range(5):
        os.kill(server, signal.SIGSTOP)
        os.waitpid(server, os.WUNTRACED)
        threading.Thread(target=interrupt).start()
        try:
            w.push(np.ones(1, np.float32))
        except KeyboardInterrupt:
            os.kill(server, signal.SIGCONT)
        try:
            w.push(np.ones(1, np.float32))
        except cairn.FailedPreconditionError as error:
            print("refused", error, flush=True)
            break
        # On a busy machine the signal may come just before the call begins.
    client.close()
    with cluster.connect(job="wait", worker=0) as again:
        again.variable("w", (1,), optimizer="sgd").push(np.ones(1, np.float32))
    print("interrupted", flush=True)
"""
        begin = time.monotonic()
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                               check=False, timeout=100)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("refused", ended.stdout)
        self.assertIn("interrupted", ended.stdout)
        self.assertLess(time.monotonic() - begin, 60)


if __name__ == "__main__":
    tap.main()
