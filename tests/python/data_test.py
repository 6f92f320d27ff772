"""cairn.data: the rows of the data sets, shared among workers without loss, and resumed exactly."""
import concurrent.futures
import gzip
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402
from package import MISSING, cairn, np  # noqa: E402

if not MISSING:
    from cairn.data._open_reader import OpenReader


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Data(unittest.TestCase):
    def a9a(self, **arguments):
        return cairn.data.read(processes.data("a9a", "test.libsvm"), "libsvm", features=123,
                               batch_size=100, **arguments)

    def test_libsvm_rows_are_the_files(self):
        lines = processes.read_lines(processes.data("a9a", "test.libsvm"))
        seen = 0
        with self.a9a(evaluate=True) as reader:
            for batch in reader:
                for row in range(len(batch)):
                    parts = lines[seen].split()
                    seen += 1
                    self.assertEqual(batch.labels[row], float(float(parts[0]) > 0))
                    begin, end = batch.sparse.offsets[row:row + 2]
                    self.assertEqual(batch.sparse.columns[begin:end].tolist(),
                                     [int(p.split(":")[0]) - 1 for p in parts[1:]])
                self.assertIsNone(batch.dense)
        self.assertEqual(seen, len(lines))
        with self.assertRaises(cairn.ClosedError):
            next(reader)

    def test_workers_share_the_rows_and_resume(self):
        whole = sum(len(batch) for batch in self.a9a())
        shares = [list(self.a9a(worker=i, workers=3)) for i in range(3)]
        self.assertEqual(sum(len(b) for share in shares for b in share), whole)
        for at in (0, 7):
            rest = list(self.a9a(worker=1, workers=3, position=shares[1][at].position))
            self.assertEqual(len(rest), len(shares[1]) - at - 1)
            np.testing.assert_array_equal(rest[0].labels, shares[1][at + 1].labels)
            np.testing.assert_array_equal(rest[0].sparse.columns, shares[1][at + 1].sparse.columns)

    def test_threads_share_a_reader(self):
        reader, seen = self.a9a(evaluate=True), []

        def read():
            for batch in reader:
                seen.append((int(batch.sparse.offsets[-1]), batch.position))
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        alone = [(int(batch.sparse.offsets[-1]), batch.position) for batch in self.a9a(evaluate=True)]
        self.assertEqual(sorted(seen), sorted(alone))

    def test_a_reader_that_is_closed_while_it_is_read_is_closed_after_the_batch(self):
        closed, reads, goes_on = [], threading.Event(), threading.Event()

        class Blocked(OpenReader):
            def read(self):
                with self._reading() as handle:
                    reads.set()
                    found = goes_on.wait(60), list(closed)
                return handle, found
        reader = Blocked("here", closed.append)
        reader._handle = 7
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            result = pool.submit(reader.read)
            self.assertTrue(reads.wait(60))
            reader.close()
            self.assertEqual(closed, [])
            goes_on.set()
            self.assertEqual(result.result(60), (7, (True, [])))
        self.assertEqual(closed, [7])
        with self.assertRaises(cairn.ClosedError):
            reader.read()
        reader.close()
        self.assertEqual(closed, [7])

    def test_ctrl_c_ends_a_wait_for_a_file(self):
        program = """
import os, signal, sys, threading
import cairn
path = sys.argv[1]
with open(path, "w") as file:
    file.write("1 1:1\\n")
reader = cairn.data.read(path, "libsvm", features=3)
os.unlink(path)
os.mkfifo(path)  # stands for a stalled mount: without a writer, an open of it does not return
for _ in range(2):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        for batch in reader:
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
reader.close()
print("closed", flush=True)
"""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", program, os.path.join(folder, "rows")],
                                  capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.stdout, "interrupted\ninterrupted\nclosed\n", done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_idx_pairs(self):
        pixels, labels = bytes(range(12)), bytes([3, 0, 9])
        with tempfile.TemporaryDirectory() as directory:
            pair = {"images": os.path.join(directory, "images"),
                    "labels": pathlib.Path(directory, "labels.gz")}
            with open(pair["images"], "wb") as file:
                file.write(struct.pack(">4i", 0x803, 3, 2, 2) + pixels)
            with gzip.open(pair["labels"], "wb") as file:
                file.write(struct.pack(">2i", 0x801, 3) + labels)
            for files in (pair, [pair], (pair, pair)):
                batches = list(cairn.data.read(files, "idx", evaluate=True))
                times = len(files) if isinstance(files, tuple) else 1
                np.testing.assert_array_equal(batches[0].labels, [3, 0, 9] * times)
                np.testing.assert_array_equal(
                    batches[0].dense, np.tile(np.arange(12, dtype=np.float32).reshape(3, 4) /
                                              np.float32(255), (times, 1)))
        for files in ("images.gz", ["images.gz"], [], {}, {"images": "a"}, [{**pair, "more": "a"}],
                      {"images": 1, "labels": "b"}):
            with self.assertRaisesRegex(cairn.InvalidArgumentError, "^files"):
                cairn.data.read(files, "idx")
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "^files"):
            cairn.data.read([pair], "libsvm", features=1)

    def test_criteo_has_dense_columns_and_keys(self):
        path = os.path.join(processes.DATA, "criteo-sample", "*.csv*")
        batches = list(cairn.data.read([path], "criteo_csv", batch_size=64, epochs=2))
        self.assertEqual(sum(len(b) for b in batches), 400)
        self.assertEqual(batches[0].dense.shape, (64, 13))
        self.assertEqual(batches[0].keys.shape, (64, 26))
        self.assertIsNone(batches[0].sparse)

    def test_errors_name_the_place(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.libsvm")
            with open(path, "w", encoding="ascii") as file:
                file.write("1 1:1\n1 x:1\n")
            with self.assertRaisesRegex(cairn.InvalidArgumentError, "bad.libsvm:2:"):
                list(cairn.data.read(path, "libsvm", features=3))
            for arguments, text in (({"features": 3, "worker": 2}, "worker below workers"),
                                    ({"features": 3, "evaluate": True, "epochs": 5},
                                     "epochs is 5; expected 1 with evaluate"),
                                    ({}, "data.features"),
                                    ({"features": 3, "position": "x"}, "position of a batch"),
                                    ({"features": 3, "epocs": 3}, "did you mean 'epochs'")):
                with self.assertRaisesRegex(cairn.InvalidArgumentError, text):
                    cairn.data.read(path, "libsvm", **arguments)
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "absent"):
            cairn.data.read("/absent.libsvm", "libsvm", features=3)
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "expected one of libsvm"):
            cairn.data.read("x", "parquet")


if __name__ == "__main__":
    tap.main()
