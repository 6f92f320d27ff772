"""examples/predict.py computes the same predictions from an export as cairn-worker, including keys
that training never saw, and the test vectors of examples/USE_ELSEWHERE.md are correct."""
import json
import os
import random
import re
import struct
import subprocess
import sys
import unittest
import zipfile

import numpy

sys.dont_write_bytecode = True
EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "examples"))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
sys.path.insert(0, EXAMPLES)
import predict  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

TOLERANCE = 1e-6


class Vectors(unittest.TestCase):
    def test_vectors_of_the_page_are_correct(self):
        with open(os.path.join(EXAMPLES, "USE_ELSEWHERE.md"), encoding="utf-8") as f:
            text = f.read()
        names = {**vars(predict), "UNIFORM": {"type": "uniform", "seed": 0, "minval": -0.05,
                                              "maxval": 0.05},
                 "NORMAL": {"type": "normal", "seed": 0, "mean": 0.0, "stddev": 0.1}}
        found = re.findall(r"^    (\S.*?\)(?: \* 1000 >> 64)?) +=((?: -?[\dx.a-f]+)+)$", text, re.M)
        self.assertEqual(len(found), 12)
        for expression, values in found:
            result = eval(expression, names)  # pylint: disable=eval-used
            if isinstance(result, numpy.ndarray):
                numpy.testing.assert_allclose(result, [float(v) for v in values.split()], rtol=1e-6)
            else:
                self.assertEqual(result, int(values, 0), expression)


class Idl(unittest.TestCase):
    def test_the_comment_of_the_idl_has_the_same_hash_of_keys(self):
        with open(os.path.join(processes.TOP, "thrift", "cairn.thrift"), encoding="utf-8") as f:
            comment = " ".join(f.read().split("namespace cpp")[0].replace("\n *", " ").split())
        rule = re.search(r"hash bucket (\(mix\(k\) >> \d+\) \* N >> \d+) ", comment)[1]
        steps = re.search(r"mix\(x\): (.+?); x = (.+?); x = (.+?); return (.+?) mix\(0\)",
                          comment).groups()

        def mix(x):
            self.assertTrue(steps[0].startswith("x += "), steps)
            for step in (f"x + {steps[0].removeprefix('x += ')}", *steps[1:]):
                x = eval(step, {"x": x}) & predict.M64  # pylint: disable=eval-used
            return x

        drawn = random.Random(9)
        for key in (0, 17, *(drawn.getrandbits(64) - 2 ** 63 for _ in range(100))):
            self.assertEqual(mix(key & predict.M64), predict.mix(key & predict.M64), key)
            for buckets in (1, 16, 4096):
                named = {"mix": mix, "k": key & predict.M64, "N": buckets}
                self.assertEqual(eval(rule, named),  # pylint: disable=eval-used
                                 predict.bucket_of_key(key, buckets), key)
        self.assertEqual(int(re.search(r"mix\(0\) is (0x\w+);", comment)[1], 0), predict.mix(0))
        buckets = re.search(r"with (\d+) buckets, key (\d+) is in bucket (\d+) and key (\d+) in "
                            r"bucket (\d+)\.", comment)
        count, *pairs = map(int, buckets.groups())
        for key, bucket in zip(pairs[::2], pairs[1::2]):
            self.assertEqual(predict.bucket_of_key(key, count), bucket, key)


class Predictions(scene.FolderTest):
    def run_worker(self, job, *flags):
        done = subprocess.run([processes.WORKER, "--job", job, *flags], capture_output=True,
                              text=True, timeout=120, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def check(self, model, files, data_format, suffix="npz", data=None):
        """Trains, exports, and predicts with both programs; returns the export."""
        train, evaluated = files
        job = self.path("job.yaml")
        with open(job, "w", encoding="ascii") as f:
            json.dump({"name": "used", "model": model,
                       "data": {"format": data_format, "train": [train], "eval": [evaluated],
                                "batch_size": 32, **(data or {})},
                       "optimizer": {"type": "adagrad", "learning_rate": 0.1},
                       "storage": {"directory": self.path("state")}}, f)
        export, scores = self.path(f"model.{suffix}"), self.path("scores")
        self.run_worker(job, "--export", export)
        if suffix != "npz":
            return export
        self.run_worker(job, "--mode", "predict", "--predictions", scores)
        wanted = numpy.loadtxt(scores, ndmin=2)
        model = predict.Export(export)
        got = predict.predict(model, evaluated)
        self.assertEqual(got.shape, wanted.shape)
        self.assertGreater(numpy.ptp(wanted), 0)
        self.assertLessEqual(numpy.abs(got - wanted).max(), TOLERANCE)
        return model

    def libsvm(self):
        for name, rows in (("train", 600), ("eval", 100)):
            scene.write_rows(self.path(name), rows, 20, noise=1.0)
        return self.path("train"), self.path("eval")

    def clicks(self):
        """Rows of Criteo, and others with additional tokens."""
        draw = random.Random(5)
        for name, rows, tokens in (("train", 400, 40), ("eval", 100, 80)):
            with open(self.path(name), "w", encoding="ascii") as f:
                for _ in range(rows):
                    numbers = [draw.choice(["", "-1", str(draw.randint(0, 900))]) for _ in range(13)]
                    words = [draw.choice(["", f"{draw.randrange(tokens):08x}"]) for _ in range(26)]
                    f.write("\t".join([str(draw.randint(0, 1)), *numbers, *words]) + "\n")
        return self.path("train"), self.path("eval")

    def unseen(self, export, table):
        """The number of keys in the evaluated rows for which the table has no row."""
        _, keys = predict.read_criteo(self.path("eval"), 0)
        return len(set().union(*keys) - set(export[table + "/keys"].tolist()))

    def test_linear(self):
        self.check({"type": "linear"}, self.libsvm(), "libsvm", data={"features": 20})

    def test_softmax_and_mlp(self):
        train, evaluated = self.libsvm()
        self.check({"type": "mlp", "hidden": [8, 4], "classes": 2,
                    "loss": "softmax_cross_entropy"}, (train, evaluated), "libsvm",
                   data={"features": 20})

    def test_matrix_factorization(self):
        draw = random.Random(3)
        for name, rows, users in (("train", 500, 30), ("eval", 100, 50)):
            with open(self.path(name), "w", encoding="ascii") as f:
                for _ in range(rows):
                    f.write(f"{draw.randrange(users)}::{draw.randrange(20)}::{draw.randint(1, 5)}::0\n")
        export = self.check({"type": "matrix_factorization", "factors": 5},
                            (self.path("train"), self.path("eval")), "movielens")
        users, _ = predict.read_ratings(self.path("eval"))
        self.assertGreater(len(set(users) - set(export["user/keys"])), 5)

    def test_wide_deep(self):
        export = self.check({"type": "wide_deep", "hidden": [8], "embedding": {"dim": 4}},
                            self.clicks(), "criteo_tsv")
        self.assertGreater(self.unseen(export, "embedding/all"), 5)

    def test_wide_deep_with_hash_buckets(self):
        self.check({"type": "wide_deep", "hidden": [8], "embedding": {"dim": 4, "hash_buckets": 50}},
                   self.clicks(), "criteo_tsv")

    def test_wide_deep_with_a_table_for_each_column(self):
        for embedding in ({"dim": 4}, {"dim": 4, "hash_buckets": 50}):
            export = self.check({"type": "wide_deep", "hidden": [8], "tables": "per_column",
                                 "embedding": embedding}, self.clicks(), "criteo_tsv")
            self.assertIn("embedding/C26/keys", export)
            self.assertNotIn("embedding/all/keys", export)

    def test_columns_with_one_vocabulary(self):
        for embedding in ({"dim": 4}, {"dim": 4, "hash_buckets": 50}):
            export = self.check({"type": "wide_deep", "hidden": [8], "tables": "shared_vocabulary",
                                 "embedding": embedding}, self.clicks(), "criteo_tsv")
            self.assertIn("embedding/vocabulary/keys", export)

    def test_dlrm(self):
        export = self.check({"type": "dlrm", "bottom_hidden": [8], "top_hidden": [8, 4],
                             "embedding": {"dim": 4}}, self.clicks(), "criteo_tsv")
        self.assertGreater(self.unseen(export, "embedding/all"), 5)

    def test_mlp_over_keys(self):
        self.check({"type": "mlp", "hidden": [8], "embedding": {"dim": 4}}, self.clicks(),
                   "criteo_tsv")

    def test_safetensors_has_the_same_metadata(self):
        export = self.check({"type": "linear"}, self.libsvm(), "libsvm", "safetensors",
                            data={"features": 20})
        with open(export, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        about = json.loads(header["__metadata__"]["cairn"])
        self.run_worker(self.path("job.yaml"), "--export", self.path("model.npz"))
        with zipfile.ZipFile(self.path("model.npz")) as archive:
            self.assertEqual(about, json.loads(archive.comment))
        self.assertEqual(about["model"]["type"], "linear")
        self.assertEqual(about["variables"][0]["names"], ["kernel"])


if __name__ == "__main__":
    tap.main()
