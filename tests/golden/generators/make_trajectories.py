"""Training trajectories of real TensorFlow on real data: an end-to-end oracle for one worker and
one epoch.

Every run starts from values given by a formula, reads rows in file order, and applies one optimizer
step per batch, so another implementation must reproduce the losses, not only the final quality.
Usage: make_trajectories.py --variant public|heldout --data DIR --out FILE"""
import argparse, gzip, json, os, struct, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf
from sklearn.metrics import roc_auc_score, log_loss


def f9(x):
    return float(np.format_float_positional(np.float32(x), precision=9, unique=False, fractional=False))


def read_libsvm(path, width, zero_based=False):
    rows, labels = [], []
    for line in open(path) if os.path.exists(path) else gzip.open(path + ".gz", "rt"):
        parts = line.split()
        labels.append(float(parts[0]))
        row = np.zeros(width, np.float32)
        for p in parts[1:]:
            k, v = p.split(":")
            row[int(k) - (0 if zero_based else 1)] = float(v)
        rows.append(row)
    return np.stack(rows), np.array(labels, np.float32)


def read_idx(path):
    data = gzip.open(path).read()
    rank = data[3]
    dims = struct.unpack(">" + "I" * rank, data[4:4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(dims)


def wave(shape, scale):
    """value[i] = scale * cos(0.37 * i), i the flat row-major index, computed in float64 and rounded to float32."""
    n = int(np.prod(shape))
    return (scale * np.cos(0.37 * np.arange(n, dtype=np.float64))).astype(np.float32).reshape(shape)


OPTIMIZERS = {
    "sgd": lambda p: tf.keras.optimizers.SGD(**p),
    "adagrad": lambda p: tf.keras.optimizers.Adagrad(**p),
    "adam": lambda p: tf.keras.optimizers.Adam(**p),
    "rmsprop": lambda p: tf.keras.optimizers.RMSprop(**p),
    "ftrl": lambda p: tf.keras.optimizers.Ftrl(**p),
}


def run(case, x, y, xt, yt):
    model = case["model"]
    width, classes = x.shape[1], case.get("classes", 1)
    init = (lambda s: np.zeros(s, np.float32)) if case["init"] == "zeros" else (lambda s: wave(s, case["init_scale"]))
    if model == "mlp":
        sizes = [width] + case["hidden"] + [classes]
        variables = []
        for i in range(len(sizes) - 1):
            variables.append(tf.Variable(init((sizes[i], sizes[i + 1])), name=f"dense_{i}/kernel"))
            variables.append(tf.Variable(np.zeros(sizes[i + 1], np.float32), name=f"dense_{i}/bias"))
    elif model == "fm":
        k = case["factors"]
        variables = [tf.Variable(np.zeros((width, 1), np.float32), name="linear"),
                     tf.Variable(init((width, k)), name="factors"),
                     tf.Variable(np.zeros(1, np.float32), name="bias")]
    else:
        variables = [tf.Variable(init((width, classes)), name="kernel"),
                     tf.Variable(np.zeros(classes, np.float32), name="bias")]

    def logits(v, b):
        if model == "mlp":
            h = b
            for i in range(0, len(v) - 2, 2):
                h = tf.nn.relu(h @ v[i] + v[i + 1])
            return h @ v[-2] + v[-1]
        if model == "fm":
            s = b @ v[1]
            second = 0.5 * tf.reduce_sum(s * s - (b * b) @ (v[1] * v[1]), axis=1, keepdims=True)
            return b @ v[0] + second + v[2]
        return b @ v[0] + v[1]

    def loss_fn(z, t):
        if case["loss"] == "sigmoid_cross_entropy":
            return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=t[:, None], logits=z))
        if case["loss"] == "softmax_cross_entropy":
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(t, tf.int64), logits=z))
        return tf.reduce_mean(tf.square(z[:, 0] - t))

    opt = OPTIMIZERS[case["optimizer"]](case["optimizer_args"])
    opt.build(variables)

    @tf.function(reduce_retracing=True)
    def step(bx, by):
        with tf.GradientTape() as tape:
            loss = loss_fn(logits(variables, bx), by)
        opt.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    losses, batch, limit = {}, case["batch_size"], case.get("steps", 10**9)
    n = 0
    for start in range(0, len(x), batch):
        if n >= limit:
            break
        value = step(tf.constant(x[start:start + batch]), tf.constant(y[start:start + batch]))
        n += 1
        if n <= 5 or n % case["every"] == 0:
            losses[n] = f9(value)
    out = dict(case)
    out["steps_run"] = n
    out["losses"] = [[k, v] for k, v in losses.items()]
    out["final"] = {v.path if hasattr(v, "path") else v.name.split(":")[0]:
                    {"shape": list(v.shape), "sum": f9(tf.reduce_sum(v)), "l2": f9(tf.norm(v)),
                     "first": [f9(a) for a in v.numpy().ravel()[:12]], "last": [f9(a) for a in v.numpy().ravel()[-4:]]}
                    for v in variables}
    z = logits(variables, tf.constant(xt)).numpy()
    if case["loss"] == "sigmoid_cross_entropy":
        p = 1 / (1 + np.exp(-z[:, 0].astype(np.float64)))
        out["test"] = {"auc": float(f"{roc_auc_score(yt, z[:, 0]):.6f}"), "log_loss": float(f"{log_loss(yt, p):.6f}"),
                       "accuracy": float(f"{np.mean((z[:, 0] > 0) == (yt > 0.5)):.6f}")}
    elif case["loss"] == "softmax_cross_entropy":
        out["test"] = {"accuracy": float(f"{np.mean(np.argmax(z, 1) == yt):.6f}")}
    else:
        out["test"] = {"rmse": float(f"{np.sqrt(np.mean((z[:, 0] - yt) ** 2)):.6f}")}
    return out


def a9a(d):
    x, y = read_libsvm(f"{d}/a9a/train.libsvm", 123)
    xt, yt = read_libsvm(f"{d}/a9a/test.libsvm", 123)
    return x, (y > 0).astype(np.float32), xt, (yt > 0).astype(np.float32)


def agaricus(d):
    x, y = read_libsvm(f"{d}/agaricus/train.libsvm", 127, zero_based=True)
    xt, yt = read_libsvm(f"{d}/agaricus/test.libsvm", 127, zero_based=True)
    return x, y, xt, yt


def dna(d):
    x, y = read_libsvm(f"{d}/dna/train.libsvm", 180)
    xt, yt = read_libsvm(f"{d}/dna/test.libsvm", 180)
    return x, y - min(y), xt, yt - min(y)


def abalone(d):
    x, y = read_libsvm(f"{d}/abalone/train.libsvm", 8)
    return x[:3342], y[:3342], x[3342:], y[3342:]


def mnist(d):
    def load(p):
        return read_idx(f"{d}/mnist/{p}")
    x = load("train-images-idx3-ubyte.gz").reshape(-1, 784).astype(np.float32) / np.float32(255)
    xt = load("t3k-images-idx3-ubyte.gz").reshape(-1, 784).astype(np.float32) / np.float32(255)
    return x, load("train-labels-idx1-ubyte.gz").astype(np.float32), xt, load("t3k-labels-idx1-ubyte.gz").astype(np.float32)


def w6a(d):
    x, y = read_libsvm(f"{d}/w6a/w6a_300d_train.libsvm", 300)
    xt, yt = read_libsvm(f"{d}/w6a/w6a_300d_test.libsvm", 300)
    return x, (y > 0).astype(np.float32), xt, (yt > 0).astype(np.float32)


DATA = {"a9a": a9a, "agaricus": agaricus, "dna": dna, "abalone": abalone, "mnist": mnist, "w6a": w6a}
SIG, SOFT, MSE = "sigmoid_cross_entropy", "softmax_cross_entropy", "mean_squared_error"

PUBLIC = [
    dict(name="a9a_sgd", data="a9a", model="linear", loss=SIG, init="zeros", batch_size=100, every=50, optimizer="sgd", optimizer_args=dict(learning_rate=0.1)),
    dict(name="a9a_nesterov", data="a9a", model="linear", loss=SIG, init="zeros", batch_size=100, every=50, optimizer="sgd", optimizer_args=dict(learning_rate=0.02, momentum=0.9, nesterov=True)),
    dict(name="a9a_adagrad", data="a9a", model="linear", loss=SIG, init="zeros", batch_size=100, every=50, optimizer="adagrad", optimizer_args=dict(learning_rate=0.1, initial_accumulator_value=0.1, epsilon=1e-7)),
    dict(name="a9a_adam", data="a9a", model="linear", loss=SIG, init="zeros", batch_size=100, every=50, optimizer="adam", optimizer_args=dict(learning_rate=0.005)),
    dict(name="a9a_rmsprop", data="a9a", model="linear", loss=SIG, init="zeros", batch_size=100, every=50, optimizer="rmsprop", optimizer_args=dict(learning_rate=0.003, rho=0.9)),
    dict(name="a9a_ftrl", data="a9a", model="linear", loss=SIG, init="zeros", batch_size=100, every=50, optimizer="ftrl", optimizer_args=dict(learning_rate=0.1, l1_regularization_strength=0.02, l2_regularization_strength=0.01)),
    dict(name="dna_softmax", data="dna", model="linear", classes=3, loss=SOFT, init="zeros", batch_size=32, every=10, optimizer="sgd", optimizer_args=dict(learning_rate=0.2)),
    dict(name="abalone_regression", data="abalone", model="linear", loss=MSE, init="zeros", batch_size=64, every=10, optimizer="adam", optimizer_args=dict(learning_rate=0.1)),
    dict(name="agaricus_fm", data="agaricus", model="fm", factors=4, loss=SIG, init="wave", init_scale=0.05, batch_size=64, every=20, optimizer="adagrad", optimizer_args=dict(learning_rate=0.1, initial_accumulator_value=0.1, epsilon=1e-7)),
    dict(name="mnist_mlp", data="mnist", model="mlp", hidden=[64], classes=10, loss=SOFT, init="wave", init_scale=0.05, batch_size=64, steps=300, every=25, optimizer="sgd", optimizer_args=dict(learning_rate=0.1)),
]
HELDOUT = [
    dict(name="w6a_sgd", data="w6a", model="linear", loss=SIG, init="zeros", batch_size=77, every=25, optimizer="sgd", optimizer_args=dict(learning_rate=0.3)),
    dict(name="w6a_adam", data="w6a", model="linear", loss=SIG, init="zeros", batch_size=50, every=25, optimizer="adam", optimizer_args=dict(learning_rate=0.01)),
    dict(name="w6a_ftrl", data="w6a", model="linear", loss=SIG, init="zeros", batch_size=64, every=25, optimizer="ftrl", optimizer_args=dict(learning_rate=0.2, l1_regularization_strength=0.01, l2_regularization_strength=0.05)),
    dict(name="a9a_fm", data="a9a", model="fm", factors=8, loss=SIG, init="wave", init_scale=0.03, batch_size=256, every=25, optimizer="adam", optimizer_args=dict(learning_rate=0.005)),
    dict(name="dna_mlp", data="dna", model="mlp", hidden=[48, 24], classes=3, loss=SOFT, init="wave", init_scale=0.1, batch_size=50, every=5, optimizer="adagrad", optimizer_args=dict(learning_rate=0.05, initial_accumulator_value=0.1, epsilon=1e-7)),
    dict(name="mnist_mlp2", data="mnist", model="mlp", hidden=[48, 32], classes=10, loss=SOFT, init="wave", init_scale=0.08, batch_size=100, steps=250, every=25, optimizer="rmsprop", optimizer_args=dict(learning_rate=0.001, rho=0.9)),
]

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["public", "heldout"], required=True)
    p.add_argument("--data", required=True, action="append")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    cases = []
    for case in PUBLIC if a.variant == "public" else HELDOUT:
        root = next(d for d in a.data if os.path.isdir(f"{d}/{case['data']}"))
        cases.append(run(case, *DATA[case["data"]](root)))
        print(case["name"], cases[-1]["losses"][0], cases[-1]["losses"][-1], cases[-1]["test"], file=sys.stderr)
    doc = {"source": "TensorFlow %s, Keras optimizers, one device, float32" % tf.__version__,
           "reading": "rows in file order, batches of batch_size, the last one short, one epoch or `steps` steps; loss is the mean over the batch before its update",
           "features": "libsvm columns as a dense row (a9a, dna, abalone, w6a 1-based: column k is feature k-1; agaricus 0-based, width 127); labels: a9a, w6a +1 -> 1; dna minus its smallest label; abalone: first 3,342 rows train, the rest test; mnist pixels / 255",
           "init": "zeros, or wave: value[i] = init_scale * cos(0.37 * i), i the flat row-major index, float64 rounded to float32; biases and FM linear weights zero",
           "tolerance": {"losses_relative": 1e-4, "final_relative": 1e-3, "test_absolute": 1e-3},
           "cases": cases}
    json.dump(doc, open(a.out, "w"), indent=1)
