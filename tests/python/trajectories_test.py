"""Every case of trajectories.json, recorded from TensorFlow, by a training loop in numpy: cairn.data
reads, two servers update. Losses of the recorded steps, final variables and test metrics are within
the file's tolerances."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402
from package import MISSING, cairn, np  # noqa: E402

GOLDEN = processes.golden("trajectories.json")
FEATURES = {"a9a": (123, 1), "dna": (180, 1), "abalone": (8, 1), "agaricus": (127, 0),
            "w6a": (300, 1)}
ABALONE_TRAIN_ROWS = 3342


def read(case, part):
    """Rows [n, features] and labels [n] of "train" or "test"."""
    model = {"type": "mlp" if case["model"] == "mlp" else "linear", "loss": case["loss"]}
    if "classes" in case:
        model["classes"] = case["classes"]
    if case["data"] == "mnist":
        prefix = processes.data("mnist") + ("/train" if part == "train" else "/t3k")
        files = [{"images": prefix + "-images-idx3-ubyte.gz",
                  "labels": prefix + "-labels-idx1-ubyte.gz"}]
        reader = cairn.data.read(files, "idx", batch_size=4096, evaluate=True, model=model)
        batches = list(reader)
        return np.concatenate([b.dense for b in batches]), np.concatenate(
            [b.labels for b in batches])
    features, base = FEATURES[case["data"]]
    more = {"label_base": 1} if case["data"] == "dna" else {}
    rows, labels = [], []
    for batch in cairn.data.read(processes.data(case["data"], part + ".libsvm"), "libsvm",
                                 features=features, index_base=base, batch_size=4096,
                                 evaluate=True, model=model, **more):
        x = np.zeros((len(batch), features), np.float32)
        x[np.repeat(np.arange(len(batch)), np.diff(batch.sparse.offsets)),
          batch.sparse.columns] = batch.sparse.values
        rows.append(x)
        labels.append(batch.labels)
    return np.concatenate(rows), np.concatenate(labels)


def load(case):
    """Rows and labels to train on, and to test with."""
    if case["data"] == "abalone":
        x, y = read(case, "train")
        n = ABALONE_TRAIN_ROWS
        return x[:n], y[:n], x[n:], y[n:]
    return (*read(case, "train"), *read(case, "test"))


def wave(shape, scale):
    i = np.arange(np.prod(shape), dtype=np.float64)
    return (scale * np.cos(0.37 * i)).astype(np.float32).reshape(shape)


def forward(model, values, x):
    """Logits [n, classes], and what the gradients need."""
    if model == "fm":
        linear, factors, bias = values
        s = x @ factors
        second = 0.5 * (s * s - (x * x) @ (factors * factors)).sum(1, keepdims=True)
        return x @ linear + second + bias, s
    layers = [x]
    for i in range(0, len(values) - 2, 2):
        layers.append(np.maximum(layers[-1] @ values[i] + values[i + 1], 0))
    return layers[-1] @ values[-2] + values[-1], layers


def gradients(model, values, x, kept, d):
    """Of all variables, from that of the logits."""
    if model == "fm":
        factors = values[1]
        return [x.T @ d, x.T @ (d * kept) - factors * ((x * x).T @ d), d.sum(0)]
    found = []
    for i in range(len(values) - 2, -1, -2):
        layer = kept[i // 2]
        found[:0] = [layer.T @ d, d.sum(0)]
        d = (d @ values[i].T) * (layer > 0)
    return found


def loss_and_gradient(loss, z, y):
    """The mean loss of a batch, and its gradient by the logits."""
    n = len(y)
    if loss == "sigmoid_cross_entropy":
        z, t = z[:, 0].astype(np.float64), y.astype(np.float64)
        value = np.maximum(z, 0) - z * t + np.log1p(np.exp(-np.abs(z)))
        return value.mean(), (((1 / (1 + np.exp(-z)) - t) / n)[:, None]).astype(np.float32)
    if loss == "softmax_cross_entropy":
        z = z.astype(np.float64)
        log_p = z - z.max(1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
        d = np.exp(log_p)
        chosen = np.arange(n), y.astype(int)
        value = -log_p[chosen].mean()
        d[chosen] -= 1
        return value, (d / n).astype(np.float32)
    return ((z[:, 0] - y) ** 2).mean(), 2 * (z - y[:, None]) / np.float32(n)


def auc(scores, y):
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # ties share their mean rank
    positive = (y > 0.5).sum()
    return ((rank[y > 0.5].sum() - positive * (positive + 1) / 2) /
            (positive * (len(y) - positive)))


def metrics(case, z, y):
    if case["loss"] == "sigmoid_cross_entropy":
        return {"auc": auc(z[:, 0], y), "log_loss": loss_and_gradient(case["loss"], z, y)[0],
                "accuracy": np.mean((z[:, 0] > 0) == (y > 0.5))}
    if case["loss"] == "softmax_cross_entropy":
        return {"accuracy": np.mean(z.argmax(1) == y)}
    return {"rmse": np.sqrt(np.mean((z[:, 0] - y) ** 2))}


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Trajectories(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = processes.Cluster.of_class(cls, 2, ["--durability=off"])

    def check_final(self, name, value, want):
        near = self.tolerance["final_relative"]
        flat = value.astype(np.float64).ravel()
        # Elements and sums may cancel, so errors are also relative to the variable's own scale.
        scale = want["l2"] / np.sqrt(flat.size)
        for part, got in (("first", flat[:len(want["first"])]), ("last", flat[-len(want["last"]):])):
            np.testing.assert_array_less(np.abs(got - want[part]),
                                         near * (np.abs(want[part]) + scale) + 1e-30, f"{name} {part}")
        self.assertLessEqual(abs(np.linalg.norm(flat) - want["l2"]), near * want["l2"], name)
        self.assertLessEqual(abs(flat.sum() - want["sum"]), near * (abs(want["sum"]) + want["l2"]),
                             name)

    def run_case(self, client, case):
        x, y, test_x, test_y = load(case)
        optimizer = {"type": case["optimizer"], **case["optimizer_args"]}
        variables = [client.variable(name, want["shape"], optimizer=optimizer)
                     for name, want in case["final"].items()]
        if case["init"] == "wave":
            for variable, name in zip(variables, case["final"]):
                if "kernel" in name or name == "factors":
                    variable.assign(wave(variable.shape, case["init_scale"]))
        recorded, steps = dict(case["losses"]), 0
        values = client.pull(variables)
        for begin in range(0, len(x), case["batch_size"]):
            if steps == case["steps_run"]:
                break
            rows = slice(begin, begin + case["batch_size"])
            z, kept = forward(case["model"], values, x[rows])
            loss, d = loss_and_gradient(case["loss"], z, y[rows])
            pushed = gradients(case["model"], values, x[rows], kept, d)
            values = client.push_pull(list(zip(variables, pushed)), variables)
            steps += 1
            if steps in recorded:
                want = recorded.pop(steps)
                self.assertLessEqual(abs(loss - want), self.tolerance["losses_relative"] * want,
                                     f"loss of step {steps}: {loss}, recorded {want}")
        self.assertEqual((steps, recorded), (case["steps_run"], {}))
        for value, (name, want) in zip(values, case["final"].items()):
            self.check_final(name, value, want)
        got = metrics(case, forward(case["model"], values, test_x)[0], test_y)
        for name, want in case["test"].items():
            self.assertLessEqual(abs(got[name] - want), self.tolerance["test_absolute"], name)


def add_cases():
    """Adds a test for each case. Returns the data sets that other cases need."""
    with open(GOLDEN, encoding="ascii") as file:
        golden = json.load(file)
    Trajectories.tolerance = golden["tolerance"]
    missing = set()
    for case in golden["cases"]:
        if processes.data(case["data"]) is None:
            missing.add(case["data"])
            continue

        def test(self, case=case):
            with cairn.connect(self.cluster.addresses, job=case["name"], worker=0) as client:
                self.run_case(client, case)

        setattr(Trajectories, f"test_{case['name']}", test)
    return sorted(missing)


if GOLDEN is None:
    class NoGolden(unittest.TestCase):
        def test_trajectories(self):
            self.skipTest("the golden set has no trajectories.json")
else:
    ABSENT = add_cases()

    class DataSets(unittest.TestCase):
        def test_every_data_set_is_here(self):
            self.assertTrue(any(name.startswith("test_") for name in vars(Trajectories)))
            if ABSENT:
                self.skipTest(f"{processes.DATA} lacks {ABSENT}: examples/data/get.py downloads")


if __name__ == "__main__":
    tap.main()
