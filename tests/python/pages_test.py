"""The programs of worker/python/README.md and examples/python, with real servers, to the quality
that they state; cairn.train and cairn.load."""
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import python_packages  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402
from package import MISSING, cairn, np  # noqa: E402

BUILD = sys.argv[1]
SAFETENSORS = "safetensors==0.6.2"

try:
    import torch
    NO_TORCH = MISSING
    torch.set_num_threads(1)
except ImportError as error:
    NO_TORCH = str(error)

EXAMPLES = os.path.join(processes.TOP, "examples", "python")
README = os.path.join(processes.TOP, "worker", "python", "README.md")


def run(*command):
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False,
                           timeout=200)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def number(name, text):
    return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Pages(unittest.TestCase):
    def blocks(self):
        with open(README, encoding="utf-8") as file:
            return re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)

    @unittest.skipIf(NO_TORCH, f"PyTorch: {NO_TORCH}")
    def test_quickstart_trains(self):
        torch_block = self.blocks()[0]
        self.assertLessEqual(len(torch_block.splitlines()), 40)
        self.assertGreater(number("auc", run("-c", torch_block)), 0.9)

    def test_numpy_programs_run(self):
        numpy_block, calls = self.blocks()[1:]
        self.assertLessEqual(len(numpy_block.splitlines()), 32)
        self.assertGreater(number("auc", run("-c", numpy_block)), 0.9)
        run("-c", calls)

    def test_logistic_regression(self):
        folder = processes.data("a9a")
        output = run(os.path.join(EXAMPLES, "logistic_regression.py"), folder)
        self.assertGreater(number("auc", output), 0.900)

    @unittest.skipIf(NO_TORCH, f"PyTorch: {NO_TORCH}")
    def test_dlrm_with_two_workers(self):
        self.assertGreater(number("auc", run(os.path.join(EXAMPLES, "dlrm.py"))), 0.99)

    def test_word2vec_with_two_workers(self):
        output = run(os.path.join(EXAMPLES, "word2vec.py"), "--nearest", "t3_w7")
        self.assertGreaterEqual(number("same_topic", output), 0.95)
        neighbours = output.splitlines()[0].split()
        self.assertGreaterEqual(sum(word.startswith("t3_") for word in neighbours), 9)

    def test_matrix_factorization(self):
        with tempfile.TemporaryDirectory() as folder:
            make = os.path.join(processes.TOP, "examples", "make_ratings.py")
            paths = [os.path.join(folder, name) for name in ("train.dat", "eval.dat")]
            run(make, paths[0], "--rows", "40000", "--users", "300", "--items", "400")
            run(make, paths[1], "--rows", "5000", "--users", "300", "--items", "400", "--seed", "2")
            output = run(os.path.join(EXAMPLES, "matrix_factorization.py"), *paths)
        self.assertLess(number("rmse", output), 0.66)


JOB = {
    "name": "adult", "model": {"type": "linear", "loss": "sigmoid_cross_entropy"},
    "data": {"format": "libsvm", "features": 123, "train": ["a9a/train.libsvm*"],
             "eval": ["a9a/test.libsvm*"], "batch_size": 128, "epochs": 1},
    "optimizer": {"type": "adagrad", "learning_rate": 0.3}}


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Jobs(scene.FolderTest):
    def test_train_and_load_an_export(self):
        for suffix in ("npz", "safetensors"):
            export = os.path.join(self.folder, f"model.{suffix}")
            report = cairn.train(JOB, data_root=processes.DATA, overrides={
                "storage.directory": os.path.join(self.folder, suffix), "output.export": export})
            self.assertEqual((report.status, report.examples), ("completed", 32561))
            self.assertGreater(report.eval["auc"], 0.89)
            values = cairn.load(export)
            self.assertIn((123, 1), [v.shape for v in values.values()] +
                          [v.reshape(-1, 1).shape for v in values.values()])

    def test_the_package_safetensors_reads_an_export(self):
        export = os.path.join(self.folder, "model.safetensors")
        rows = os.path.join(self.folder, "rows.tsv")
        with open(rows, "w", encoding="ascii") as file:
            for i in range(40):
                keys = [f"{i * column % 7:08x}" for column in range(26)]
                print(i % 2, *[i] * 13, *keys, sep="\t", file=file)
        cairn.train({"model": {"type": "wide_deep", "hidden": [4],
                               "embedding": {"dim": 2, "vocabulary": "dynamic"}},
                     "data": {"format": "criteo_tsv", "train": [rows], "batch_size": 10},
                     "optimizer": {"type": "adagrad", "learning_rate": 0.1}},
                    overrides={"output.export": export})
        sys.path.append(python_packages.site_packages(BUILD, "safetensors", SAFETENSORS))
        import safetensors.numpy  # noqa: PLC0415
        read = safetensors.numpy.load_file(export)
        values = cairn.load(export)
        self.assertEqual(set(read), set(values))
        self.assertGreater(len(read), 3)
        for name, value in values.items():
            np.testing.assert_array_equal(read[name], value, name)

    def test_train_on_servers(self):
        report = cairn.train(JOB, servers=2, workers=2, data_root=processes.DATA)
        self.assertGreater(report.eval["auc"], 0.89)

    def test_a_bar_shows_progress(self):
        try:
            import tqdm  # noqa: F401
        except ImportError:
            with self.assertRaisesRegex(cairn.InvalidArgumentError, "pip install tqdm"):
                cairn.train(JOB, data_root=processes.DATA, progress=True)
            self.skipTest("tqdm is not installed")
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown), self.assertLogs("cairn", "INFO") as logs:
            self.train_many_epochs(progress=True)
        # tqdm draws a bar again and again on one line, here with \r between them.
        bars = shown.getvalue().split("\r")
        self.assertRegex(bars[-1], r"adult: 100%.*step \d+, \d+ rows/s, loss 0\.\d+")
        self.assertGreater(len(bars), 2)
        self.assertFalse([line for line in logs.output if "% done" in line])

    def test_lines_of_progress_go_to_the_log(self):
        with self.assertLogs("cairn", "INFO") as logs:
            self.train_many_epochs()
        self.assertTrue([line for line in logs.output if "% done" in line])

    def train_many_epochs(self, **arguments):
        """Long enough for several lines of progress."""
        cairn.train({**JOB, "data": {**JOB["data"], "epochs": 30}}, data_root=processes.DATA,
                    overrides={"output.progress_seconds": 0.05,
                               "storage.directory": os.path.join(self.folder, "data")}, **arguments)

    def test_paths_of_a_job_may_have_characters_beyond_16_bits(self):
        rows = self.path("\\ud83d \U0001f600 \u00e4", "rows.libsvm")
        os.mkdir(os.path.dirname(rows))
        scene.write_rows(rows, 200, 8)
        report = cairn.train({**JOB, "data": {"format": "libsvm", "features": 8, "train": [rows],
                                              "batch_size": 10}},
                             overrides={"storage.directory": self.path("data")})
        self.assertEqual(report.examples, 200)

    def test_wrong_jobs(self):
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "did you mean 'optimizer'"):
            cairn.train({**JOB, "optimzer": {}}, data_root=processes.DATA)
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "need servers"):
            cairn.train(JOB, workers=2)
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "^cairn-worker: job: data.format: is missing"):
            cairn.train({"model": {"type": "linear"}})
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "^cairn-worker: overrides: unknown key 'foo'"):
            cairn.train(JOB, overrides={"data.foo": 1}, data_root=processes.DATA)

    def test_load_a_checkpoint(self):
        with cairn.launch(servers=2) as cluster, cluster.connect(job="kept", worker=0) as client:
            w = client.variable("w", (3,))
            w.assign([1, 2, 3])
            t = client.embedding("t", 2, optimizer="sgd")
            t.assign([5, -6], [[1, 2], [3, 4]])
            folder = client.checkpoint(self.folder, step=1)
        values = cairn.load(folder)
        np.testing.assert_array_equal(values["w"], [1, 2, 3])
        keys, rows = values["t"]
        order = np.argsort(keys)
        np.testing.assert_array_equal(keys[order], [-6, 5])
        np.testing.assert_array_equal(rows[order], [[3, 4], [1, 2]])

    def test_load_a_checkpoint_whose_rows_are_too_old(self):
        with cairn.launch() as cluster, cluster.connect(job="old") as client:
            t = client.embedding("t", 1, optimizer="sgd", expire_after=1)
            t.assign([5, 6], [[1], [2]])
            folder = client.checkpoint(self.folder)
        variables = cairn.client.Client.variables

        def later(client):
            """Returns the restored variables once another server has deleted the same rows."""
            found = variables(client)
            with cairn.launch(in_process=True) as other:
                with other.connect(job="old") as restorer:
                    restorer.restore(folder)
                with other.connect(job="old") as reader:
                    table = variables(reader)["t"]
                    processes.wait_for(lambda: len(table.scan()[0]) == 0, 60, "rows to expire")
            return found

        with unittest.mock.patch.object(cairn.client.Client, "variables", later):
            keys, rows = cairn.load(folder)["t"]
        self.assertEqual(dict(zip(keys.tolist(), rows[:, 0].tolist())), {5: 1, 6: 2})

    def test_what_cannot_be_loaded(self):
        with self.assertRaises(cairn.NotFoundError):
            cairn.load(os.path.join(self.folder, "absent.npz"))
        with self.assertRaisesRegex(cairn.NotFoundError, "no MANIFEST.json"):
            cairn.load(self.folder)
        path = os.path.join(self.folder, "cut.safetensors")
        with open(path, "wb") as file:
            file.write((1000).to_bytes(8, "little") + b"{}")
        with self.assertRaisesRegex(cairn.DataLossError, "is no safetensors file"):
            cairn.load(path)
        for header in (b"[1]", b"{", b'{"w": 1}', b'{"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
                       b'{"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}'):
            with open(path, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header + b"1234")
            with self.assertRaisesRegex(cairn.DataLossError, "header is corrupt"):
                cairn.load(path)
        path = os.path.join(self.folder, "cut.npz")
        array = io.BytesIO()
        np.save(array, np.ones(2))
        for content in (b"", b"PK\x03\x04", b"text", array.getvalue()):
            with open(path, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(cairn.DataLossError, "is no .npz file"):
                cairn.load(path)
        for manifest in ("{", "[1]", "{}", '{"job": 3}'):
            with open(os.path.join(self.folder, "MANIFEST.json"), "w", encoding="utf-8") as file:
                file.write(manifest)
            with self.assertRaisesRegex(cairn.DataLossError, "MANIFEST.json is corrupt .*load another"):
                cairn.load(self.folder)


if __name__ == "__main__":
    tap.main()
