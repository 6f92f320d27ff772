#!/usr/bin/env python3
"""Writes golden numbers for Cairn's kernels by executing TensorFlow, Keras and scikit-learn.

    make_numeric_golden.py --seed N --out-dir DIR

One JSON file per subject. Inputs are drawn from the seed; the same seed gives the same bytes.
Expected values come from the executed library. Every update rule is also a text (RULES, SCHEDULES)
that NumPy executes for comparison: in float32, where it must agree to 1e-6, and in double, where it
must agree to the tolerance written into the file. Takes ten seconds on a CPU."""
import argparse
import inspect
import json
import os
import pathlib
import socket

os.environ.update(TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3",
                  KERAS_BACKEND="tensorflow")
import keras
import numpy as np
import sklearn.metrics
import tensorflow as tf
import tf_keras

f32 = np.float32
TF, KERAS = f"TensorFlow {tf.__version__}", f"Keras {keras.__version__}"
# |got - want| <= atol + rtol * |want|.
OPTIMIZER_TOLERANCE = {"variable_after_step_1": {"rtol": 1e-6, "atol": 1e-6},
                       "variable": {"rtol": 1e-5, "atol": 3e-6},
                       "slots": {"rtol": 5e-5, "atol": "the case's slot_atol"}}
SCHEDULE_TOLERANCE = {"rtol": 1e-5, "atol": 1e-7}


# ---- Output and input --------------------------------------------------------------------------

def plain(x):
    """Nested lists, strings, numbers of 9 significant digits; "nan", "inf", "-inf" as strings."""
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if hasattr(x, "numpy") or isinstance(x, (np.ndarray, np.generic)):
        return plain((x.numpy() if hasattr(x, "numpy") else x).tolist())
    if isinstance(x, float):
        return float(f"{x:.9g}") if np.isfinite(x) else f"{x}"
    return x


def write(path, source, tolerance, cases):
    """One field per line, so that a diff of two runs names the changes."""
    def block(d):
        return ",\n".join(f"  {json.dumps(k)}: {json.dumps(plain(v))}" for k, v in d.items())
    body = ",\n".join("{\n" + block(c) + "\n}" for c in cases)
    head = block({"source": source, "tolerance": tolerance})
    path.write_text("{\n" + head + ',\n  "cases": [\n' + body + "\n]}\n")
    json.loads(path.read_text(), parse_constant=lambda c: 1 / 0)  # a bare NaN is not JSON
    assert path.stat().st_size < 300_000, path
    assert len({c["name"] for c in cases}) == len(cases), path
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


def check(what, got, want, rtol=1e-6, atol=1e-7):
    got, want = np.asarray(got, float), np.asarray(want, float)
    np.testing.assert_allclose(got, want, rtol, atol, err_msg=what)


class Draw:
    """All inputs, from a single seeded generator whose stream NumPy guarantees."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def number(self, low, high):
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.3g}")

    def decay(self, low=0.8, high=0.999):  # 0.9 is as likely as 0.99
        return float(f"{1 - self.number(1 - high, 1 - low):.6g}")

    def size(self, low, high):
        return int(self.rng.randint(low, high + 1))

    def array(self, *shape, scale=0.5):
        return np.round(self.rng.standard_normal(shape) * scale, 4).astype(f32)

    def start(self, *shape):  # positive, negative and zero entries
        w = self.array(*shape)
        w.reshape(-1)[self.rng.choice(w.size, 2, replace=False)] = 0
        return w

    def gradients(self, n):
        """Six steps; entries of different magnitudes; a zero step, a large step, an entry that is
        always 0."""
        g = (self.rng.standard_normal((6, n)) * 10.0 ** self.rng.uniform(-3, 0.5, n)).astype(f32)
        zero, large = self.rng.choice(np.arange(1, 6), 2, replace=False)
        g[large] += 50 * np.sign(g[large])
        g[zero] = 0
        g[:, self.size(0, n - 1)] = 0
        return g


# ---- Optimizers: rules, and how each library is driven -------------------------------------------
# Executed as Python. w: variable; g, g2: gradient and its square; lr: learning rate; t: 1 on the
# first step; slots and hyperparameters by Keras name, except those in SHORT. Arrays and lr are
# float32. Keras holds hyperparameters in double, so that 1 - beta_2 is rounded once; the raw ops
# hold them in float32. F(x) rounds to float32; pow(x, y) is F(x) to the power F(y).
SHORT = {"momentum": "mu", "learning_rate_power": "lr_power", "l1_regularization_strength": "l1",
         "l2_regularization_strength": "l2", "l2_shrinkage_regularization_strength": "l2_shrinkage"}
DECAY = "w = w - w * weight_decay * lr\n"
SQUARES = "velocity = rho * velocity + (1 - rho) * g2\n"
CENTER = SQUARES + "average_gradient = rho * average_gradient + (1 - rho) * g\n"
SPEED = "w = w - momentum"
PLAIN = "lr * g / sqrt(velocity + epsilon)"
CENTERED = "lr * g / sqrt(velocity - square(average_gradient) + epsilon)"
ADAM = """alpha = lr * sqrt(1 - pow(beta_2, t)) / (1 - pow(beta_1, t))
momentum = momentum + (g - momentum) * (1 - beta_1)
velocity = velocity + (g2 - velocity) * (1 - beta_2)
"""
RULES = {
    "sgd": "w = w - lr * g",
    "sgd_weight_decay": DECAY + "w = w - lr * g",
    "momentum_keras": """momentum = mu * momentum - lr * g
w = w + (mu * momentum - lr * g if nesterov else momentum)""",
    "momentum_raw": """momentum = mu * momentum + g
w = w - (lr * g + lr * mu * momentum if nesterov else lr * momentum)""",
    "adagrad_keras": """accumulator = accumulator + g2
w = w - lr * g / sqrt(accumulator + epsilon)""",
    "adagrad_raw": """accumulator = accumulator + g2
w = w - lr * g / (sqrt(accumulator) + epsilon)""",
    "rmsprop": SQUARES + f"w = w - {PLAIN}",
    "rmsprop_momentum": SQUARES + f"momentum = mu * momentum + {PLAIN}\n" + SPEED,
    "rmsprop_centered": CENTER + f"w = w - {CENTERED}",
    "rmsprop_centered_momentum": CENTER + f"momentum = mu * momentum + {CENTERED}\n" + SPEED,
    "adam": ADAM + "w = w - alpha * momentum / (sqrt(velocity) + epsilon)",
    "adam_nesterov": ADAM + """m = g * (1 - beta_1) + beta_1 * momentum
w = w - alpha * m / (sqrt(velocity) + epsilon)""",
    "amsgrad": ADAM + """velocity_hat = maximum(velocity_hat, velocity)
w = w - alpha * momentum / (sqrt(velocity_hat) + epsilon)""",
    "lazy_adam": """alpha = lr * sqrt(1 - pow(beta_2, t)) / (1 - pow(beta_1, t))
momentum = beta_1 * momentum + (1 - beta_1) * g
velocity = beta_2 * velocity + (1 - beta_2) * g2
w = w - alpha * momentum / (sqrt(velocity) + epsilon)""",
    "adadelta": """accumulated_grad = rho * accumulated_grad + (1 - rho) * g2
step = sqrt(accumulated_delta_var + epsilon) * g / sqrt(accumulated_grad + epsilon)
accumulated_delta_var = rho * accumulated_delta_var + (1 - rho) * square(step)
w = w - lr * step""",
    "adamax": """momentum = momentum + (g - momentum) * (1 - beta_1)
norm = maximum(beta_2 * norm, abs(g))
w = w - lr * momentum / ((1 - pow(beta_1, t)) * (norm + epsilon))""",
    "nadam": """u = beta_1 * (1 - 0.5 * pow(0.96, t))
u_next = beta_1 * (1 - 0.5 * pow(0.96, t + 1))
u_product = u_product * u
momentum = momentum + (g - momentum) * (1 - F(beta_1))
velocity = velocity + (g2 - velocity) * (1 - F(beta_2))
m_hat = u_next * momentum / (1 - u_product * u_next) + (1 - u) * g / (1 - u_product)
w = w - m_hat * lr / (sqrt(velocity / (1 - pow(beta_2, t))) + epsilon)""",
    "lion": """w = w - lr * sign(F(beta_1) * momentum + (1 - F(beta_1)) * g)
momentum = F(beta_2) * momentum + (1 - F(beta_2)) * g""",
    "ftrl": """before = pow(accumulator, -lr_power)
accumulator = accumulator + g2
after = pow(accumulator, -lr_power)
linear = linear + g + 2 * l2_shrinkage * w - (after - before) / lr * w
w = (clip(linear, -l1, l1) - linear) / (after / lr + 2 * (l2 + beta / (2 * lr)))""",
}
RULES |= {"adamw": DECAY + RULES["adam"], "adamw_amsgrad": DECAY + RULES["amsgrad"]}
# Slot and hyperparameter names of the raw ops, and Keras' names for the same.
RAW_SLOTS = {
    "GradientDescent": {},
    "Momentum": {"accum": "momentum"}, "KerasMomentum": {"accum": "momentum"},
    "AdagradV2": {"accum": "accumulator"}, "RMSProp": {"ms": "velocity", "mom": "momentum"},
    "CenteredRMSProp": {"mg": "average_gradient", "ms": "velocity", "mom": "momentum"},
    "Adam": {"m": "momentum", "v": "velocity"}, "AdaMax": {"m": "momentum", "v": "norm"},
    "AdamWithAmsgrad": {"m": "momentum", "v": "velocity", "vhat": "velocity_hat"},
    "Adadelta": {"accum": "accumulated_grad", "accum_update": "accumulated_delta_var"},
    "FtrlV2": {"accum": "accumulator", "linear": "linear"},
}
RAW_NAMES = {"beta1": "beta_1", "beta2": "beta_2", "use_nesterov": "nesterov", "epsilon": "epsilon",
             "rho": "rho", **{v: k for k, v in SHORT.items() if v != "mu"}, "momentum": "momentum"}


def replay(rule, start, slots, hyper, rates, steps, F, raw):
    """Runs a rule over steps (g, g2, rows or None for all): w after each step, and the slots."""
    state = {"w": start.astype(F), **{k: np.array(v, F) for k, v in slots.items()}}
    names = {SHORT.get(k, k): F(v) if raw and type(v) is float else v for k, v in hyper.items()}
    names |= {f: getattr(np, f) for f in "sqrt square maximum abs sign clip".split()}
    names |= {"F": F, "pow": lambda x, y: np.power(F(x), F(y))}
    history = []
    for t, (lr, (g, g2, rows)) in enumerate(zip(rates, steps), 1):
        at = slice(None) if rows is None else rows
        local = {k: v[at] if v.ndim else v for k, v in state.items()}
        local |= names | {"lr": F(lr), "t": t, "g": g[at].astype(F), "g2": g2[at].astype(F)}
        exec(RULES[rule], local)
        for k, v in state.items():
            v[at if v.ndim else ...] = local[k]
        history.append(state["w"].copy())
    return history, {k: v for k, v in state.items() if k != "w"}


def run_keras(name, start, hyper, rates, grads, schedule=None, library=keras):
    opt = getattr(library.optimizers, name)(learning_rate=schedule or rates[0], **hyper)
    opt.jit_compile = False
    w, history = tf.Variable(start, name="w"), []
    for lr, g in zip(rates, grads):
        if schedule is None:
            opt.learning_rate = lr
        opt.apply_gradients([(g, w)])
        history.append(w.numpy())
    own = [v for v in opt.variables if not v.name.startswith(("iteration", "learning_rate"))]
    end = {v.name[4:] if v.name.startswith("w_0_") else "u_product": v.numpy() for v in own}
    return history, end


def run_raw(name, start, slots, hyper, rates, pushes):
    """pushes: dense gradients, or (ids, gradients) for the sparse form of the op."""
    w, history = tf.Variable(start), []
    own = {k: tf.Variable(np.array(v, f32)) for k, v in slots.items()}
    sparse = isinstance(pushes[0], tuple)
    op = getattr(tf.raw_ops, f"Resource{'Sparse' * sparse}Apply{name}", None)  # no sparse SGD
    accepted = inspect.signature(op or tf.raw_ops.ResourceScatterSub).parameters
    args = {a: own[k].handle for a, k in RAW_SLOTS[name].items()}
    args |= {a: hyper[k] for a, k in RAW_NAMES.items() if k in hyper and a in accepted}
    for t, (lr, g) in enumerate(zip(rates, pushes), 1):
        if name == "GradientDescent" and sparse:
            tf.raw_ops.ResourceScatterSub(resource=w.handle, indices=g[0], updates=f32(lr) * g[1])
        elif name == "GradientDescent":
            op(var=w.handle, alpha=lr, delta=g)
        else:
            for a in {"beta1_power", "beta2_power"} & set(accepted):
                args[a] = np.power(f32(args[a[:5]]), f32(t))
            push = {"indices": g[0], "grad": g[1]} if sparse else {"grad": g}
            op(var=w.handle, lr=lr, **push, **args)
        history.append(w.numpy())
    return history, {k: v.numpy() for k, v in own.items()}


def verified(case, rule, steps, raw):
    """Adds the rule to a case that NumPy reproduces: to 1e-6 in float32, to tolerance in double.

    Entries of signed slots can cancel: their error is measured against the largest entry."""
    end = case["slots"]
    atol = {k: 1e-6 * np.abs(v).max() if np.min(v) < 0 else 0.0 for k, v in end.items()}
    inputs = [case[k] for k in ("initial", "initial_slots", "hyperparameters", "learning_rates")]
    for F, (first, later, slot) in (
            (f32, [(1e-6, 3e-7), (1e-6, 3e-7), (1e-6, None)]),
            (np.float64, [tuple(t.values()) for t in OPTIMIZER_TOLERANCE.values()])):
        w, slots = replay(rule, *inputs, steps, F, raw)
        check(f"{case['name']}, {F}", case["expected"][0], w[0], *first)
        check(f"{case['name']}, {F}", case["expected"], w, *later)
        for k in end:
            check(f"{case['name']}, {F}, {k}", end[k], slots[k], slot[0], atol[k])
    return {**case, "slot_atol": atol, "hyperparameter_precision": "float32" if raw else "double",
            "rule": rule, "formula": RULES[rule]}


# ---- Optimizers: cases ---------------------------------------------------------------------------

def dense_case(d, name, op, rule, slots, rates=None, schedule=None, **hyper):
    """op: a class of keras.optimizers, or raw:X for tf.raw_ops.ResourceApplyX."""
    raw, n = op.startswith("raw:"), d.size(7, 13)
    start, grads = d.start(n), d.gradients(n)
    rates = rates or [d.number(1e-3, 0.03)] * 6
    slots = {k: np.full(() if k == "u_product" else n, v, f32) for k, v in slots.items()}
    if raw:
        expected, end = run_raw(op[4:], start, slots, hyper, rates, list(grads))
    else:
        known = {k: v for k, v in hyper.items() if v is not False}
        tensors = [tf.constant(g) for g in grads]
        expected, end = run_keras(op, start, known, rates, tensors, schedule)
    source = f"{TF} tf.raw_ops.ResourceApply{op[4:]}" if raw else f"{KERAS} {op}"
    case = {"name": name, "source": source, "hyperparameters": hyper, "learning_rates": rates,
            "initial": start, "initial_slots": slots, "gradients": grads, "expected": expected,
            "slots": end}
    return verified(case, rule, [(g, g * g, None) for g in grads], raw)


def ftrl_settings(d, keras_only):
    """(name, hyperparameters): every regulariser alone, then all together."""
    lambdas = [f"{n}_regularization_strength" for n in ("l1", "l2", "l2_shrinkage")]
    none = {"learning_rate_power": -0.5, **dict.fromkeys(lambdas, 0.0), "beta": 0.0}
    yield "defaults", none
    for n in lambdas:
        yield n.split("_reg")[0], {**none, n: d.number(0.02, 2)}
    yield "power", {**none, "learning_rate_power": -d.number(0.3, 0.9)}
    yield "all", {"learning_rate_power": -d.number(0.3, 0.9), "beta": d.number(0.1, 1) * keras_only,
                  **{n: d.number(0.02, 0.5) for n in lambdas}}
    if keras_only:
        yield "beta", {**none, "beta": d.number(0.1, 1)}


def betas(d, **more):
    return {"beta_1": d.decay(), "beta_2": d.decay(0.9), "epsilon": d.number(1e-8, 1e-3), **more}


MU, MV = {"momentum": 0.0}, {"momentum": 0.0, "velocity": 0.0}
MVV, MVA = MV | {"velocity_hat": 0.0}, MV | {"average_gradient": 0.0}
ADAM_DEFAULTS = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}


def dense_cases(d):
    def changing():  # tells apart conventions that agree while the rate is constant
        return {"rates": [d.number(3e-3, 0.05) for _ in range(6)]}

    rate, decay = d.number(0.05, 0.2), d.decay(0.5, 0.95)
    schedule = keras.optimizers.schedules.ExponentialDecay(rate, 2, decay)
    todo = [("SGD", "sgd", {}, {}), ("raw:GradientDescent", "sgd", {}, {}),
            ("SGD, weight decay", "sgd_weight_decay", {}, {"weight_decay": d.number(0.01, 0.5)}),
            ("SGD, ExponentialDecay", "sgd", {},
             {"schedule": schedule, "rates": [float(schedule(t)) for t in range(6)]})]
    for nesterov in (False, True):
        for tag, rates in (("", {}), (", changing rate", changing())):
            h = {"momentum": d.decay(0.5, 0.99), "nesterov": nesterov, **rates}
            tag = ", Nesterov" * nesterov + tag
            todo += [("SGD, momentum" + tag, "momentum_keras", MU, h),
                     ("raw:Momentum" + tag, "momentum_raw", MU, h),
                     ("raw:KerasMomentum" + tag, "momentum_keras", MU, h)]
    for tag, start, epsilon in (("defaults", 0.1, 1e-7),
                                ("drawn", d.number(0.01, 1), d.number(1e-8, 1e-6)),
                                ("large epsilon", 0.0, d.number(1e-3, 1e-2))):
        a, h = {"accumulator": start}, {"epsilon": epsilon}
        todo += [("Adagrad, " + tag, "adagrad_keras", a, {"initial_accumulator_value": start, **h}),
                 ("raw:AdagradV2, " + tag, "adagrad_raw", a, h)]
    for tag, rho, epsilon in (("defaults", 0.9, 1e-7),
                              ("drawn", d.decay(0.8, 0.99), d.number(1e-8, 1e-6)),
                              ("large epsilon", d.decay(0.8, 0.99), d.number(1e-3, 1e-1))):
        for center in (False, True):
            slots = MVA if center else MV
            rule = "rmsprop" + "_centered" * center
            h = {"rho": rho, "epsilon": epsilon, "momentum": 0.0, "centered": center}
            also = ", centered" * center + ", " + tag
            without = {k: v for k, v in slots.items() if k != "momentum"}
            todo += [("RMSprop" + also, rule, without, h)]
            h, rule = {**h, "momentum": d.decay(0.5, 0.95)}, rule + "_momentum"
            todo += [("RMSprop, momentum" + also, rule, slots, h),
                     (f"raw:{'Centered' * center}RMSProp, {tag}", rule, slots, h)]
    for tag, h in (("defaults", ADAM_DEFAULTS), ("drawn", betas(d)),
                   ("changing rate", betas(d, **changing())),
                   ("large epsilon", betas(d, epsilon=d.number(1e-2, 1e-1)))):
        todo += [("Adam, " + tag, "adam", MV, h), ("raw:Adam, " + tag, "adam", MV, h),
                 ("Adam, amsgrad, " + tag, "amsgrad", MVV, {**h, "amsgrad": True}),
                 ("AdamW, " + tag, "adamw", MV, {"weight_decay": d.number(0.004, 0.5), **h}),
                 ("Adamax, " + tag, "adamax", MU | {"norm": 0.0}, h),
                 ("Nadam, " + tag, "nadam", MV | {"u_product": 1.0}, h)]
    todo += [("AdamW, amsgrad", "adamw_amsgrad", MVV, betas(d, weight_decay=0.02, amsgrad=True)),
             ("raw:Adam, Nesterov", "adam_nesterov", MV, betas(d, nesterov=True)),
             ("raw:AdamWithAmsgrad", "amsgrad", MVV, betas(d)),
             ("raw:AdaMax", "adamax", MU | {"norm": 0.0}, betas(d)),
             ("Lion, defaults", "lion", MU, {"beta_1": 0.9, "beta_2": 0.99}),
             ("Lion, drawn", "lion", MU, {"beta_1": d.decay(), "beta_2": d.decay()}),
             ("Lion, short memory", "lion", MU,
              {"beta_1": d.decay(0.9, 0.99), "beta_2": d.decay(0.4, 0.7)})]
    drawn = {"rho": d.decay(), "epsilon": d.number(1e-6, 1e-4), "rates": [0.3] * 6}
    for tag, h in (("defaults", {"rho": 0.95, "epsilon": 1e-7}), ("drawn", drawn)):
        slots = {"accumulated_grad": 0.0, "accumulated_delta_var": 0.0}
        todo += [("Adadelta, " + tag, "adadelta", slots, h),
                 ("raw:Adadelta, " + tag, "adadelta", slots, h)]
    for op in ("Ftrl", "raw:FtrlV2"):
        for tag, h in ftrl_settings(d, op == "Ftrl"):
            start = d.number(0.05, 1) if tag == "all" else 0.1
            own = {"initial_accumulator_value": start} if op == "Ftrl" else {}
            todo += [(f"{op}, {tag}", "ftrl", {"accumulator": start, "linear": 0.0},
                      {**h, **own, "rates": [d.number(0.05, 0.5)] * 6})]
    cases = []
    for name, rule, slots, h in todo:
        title = "raw op " + name[4:] if name.startswith("raw:") else "Keras " + name
        cases.append(dense_case(d, title, name.split(",")[0], rule, slots, **h))
    return cases


def draw_pushes(d, rows, dim):
    """A repeated id; other rows; an id three times; no ids; every row but row 0; a zero row."""
    order = 1 + d.rng.permutation(rows - 1)
    a, b, c = order[:3]
    ids = [[a, b, a], order[3:6], [b, c, b, b], [], np.concatenate([order, order[:2]]), [c, a]]
    ids = [np.array(i, np.int64) for i in ids]
    spread = 10.0 ** d.rng.uniform(-3, 0.5, (rows, dim))
    grads = [(d.rng.standard_normal((len(i), dim)) * spread[i]).astype(f32) for i in ids]
    grads[1] += 20 * np.sign(grads[1])
    grads[5][0] = 0
    return list(zip(ids, grads))


def summed(ids, values):
    """The first step of tf_keras and TensorFlow 1 optimizers: one row per id, duplicates added."""
    unique, position = tf.unique(ids)
    return unique.numpy(), tf.math.unsorted_segment_sum(values, position, tf.size(unique)).numpy()


def sparse_case(d, name, op, rule, touched, duplicates, slots, **hyper):
    """touched: rows that the rule runs on, "pushed" or "all". op None: the rule itself is the
    source."""
    rows, dim = d.size(7, 9), d.size(2, 4)
    start, pushes = d.start(rows, dim), draw_pushes(d, rows, dim)
    rates = [d.number(0.05, 0.5)] * 6 if rule == "ftrl" else [d.number(3e-3, 0.03) for _ in pushes]
    slots = {k: np.full((rows, dim), v, f32) for k, v in slots.items()}
    given = [summed(*p) if duplicates == "summed" else p for p in pushes]
    if duplicates == "one by one":  # every id is a separate push
        given = [(i[k:k + 1], g[k:k + 1]) for i, g in pushes for k in range(len(i))]
    steps = []
    for ids, g in given:
        dense, squares = np.zeros((2, rows, dim), f32)
        np.add.at(dense, ids, g)
        np.add.at(squares, ids, g * g)
        steps.append((dense, squares, np.unique(ids) if touched == "pushed" else None))
    raw = op is None or op.startswith("raw:")
    if op is None:
        source = "derived: TensorFlow Addons' LazyAdam formula, evaluated by NumPy in float32"
        expected, end = replay(rule, start, slots, hyper, rates, steps, f32, True)
    elif raw:
        source = f"{TF} tf.raw_ops.Resource" + \
            ("ScatterSub(lr * g)" if rule == "sgd" else f"SparseApply{op[4:]}")
        expected, end = run_raw(op[4:], start, slots, hyper, rates,
                                pushes if duplicates == "one by one" else given)
    else:
        source, known = f"{KERAS} {op}", {k: v for k, v in hyper.items() if v is not False}
        slices = [tf.IndexedSlices(g, i, (rows, dim)) for i, g in given]
        expected, end = run_keras(op, start, known, rates, slices)
        if duplicates == "summed":  # tf_keras adds duplicates by itself, and must agree
            slices = [tf.IndexedSlices(g, i, (rows, dim)) for i, g in pushes]
            check(name, run_keras(op, start, known, rates, slices, library=tf_keras)[0], expected,
                  2e-6, 1e-6)
    case = {"name": name, "source": source, "touched_rows": touched, "duplicates": duplicates,
            "hyperparameters": hyper, "learning_rates": rates, "initial": start,
            "initial_slots": slots, "pushes": [{"ids": i, "gradients": g} for i, g in pushes],
            "expected": expected, "slots": end}
    if duplicates == "one by one":
        lengths = [len(i) for i, _ in pushes]
        each = np.repeat(rates, lengths)
        history, _ = replay(rule, start, slots, hyper, each, steps, f32, True)
        after = [history[n - 1] for n in np.cumsum(lengths)]
        check(name, expected, after, atol=3e-7)
        return {**case, "slot_atol": dict.fromkeys(slots, 1e-6),
                "hyperparameter_precision": "float32", "rule": rule, "formula": RULES[rule]}
    return verified(case, rule, steps, raw)


def sparse_cases(d):
    def mu(nesterov=False):
        return {"momentum": d.decay(0.5, 0.99), "nesterov": nesterov}

    def rho(**more):
        return {"rho": d.decay(0.8, 0.99), "epsilon": d.number(1e-8, 1e-4), **more}

    acc, al = {"accumulator": 0.1}, {"accumulator": 0.1, "linear": 0.0}
    epsilon, speed = {"epsilon": d.number(3e-3, 3e-2)}, {"momentum": d.decay(0.5, 0.95)}
    adagrad = {"initial_accumulator_value": 0.1, **epsilon}
    todo = [("GradientDescent", "sgd", {}, {}), ("Momentum", "momentum_raw", MU, mu()),
            ("Momentum, Nesterov", "momentum_raw", MU, mu(True)),
            ("KerasMomentum", "momentum_keras", MU, mu()),
            ("KerasMomentum, Nesterov", "momentum_keras", MU, mu(True)),
            ("AdagradV2", "adagrad_raw", acc, epsilon),
            ("RMSProp", "rmsprop_momentum", MV, rho(**speed)),
            ("CenteredRMSProp", "rmsprop_centered_momentum", MVA, rho(**speed)),
            ("LazyAdam, defaults", "lazy_adam", MV, ADAM_DEFAULTS),
            ("LazyAdam", "lazy_adam", MV, betas(d))]
    todo += [(f"FtrlV2, {tag}", "ftrl", al, h) for tag, h in ftrl_settings(d, False)]
    cases = []
    for name, rule, slots, h in todo:
        op = None if rule == "lazy_adam" else "raw:" + name.split(",")[0]
        title = "pushed rows, " + ("raw op " if op else "") + name
        cases.append(sparse_case(d, title, op, rule, "pushed", "summed", slots, **h))
    ftrl = dict(ftrl_settings(d, True))
    todo = [("SGD", "sgd", {}, {}), ("SGD, momentum", "momentum_keras", MU, mu()),
            ("SGD, momentum, Nesterov", "momentum_keras", MU, mu(True)),
            ("Adagrad", "adagrad_keras", acc, adagrad),
            ("RMSprop", "rmsprop", {"velocity": 0.0}, rho()),
            ("RMSprop, centered, momentum", "rmsprop_centered_momentum", MVA,
             rho(centered=True, **speed)),
            ("Adam, defaults", "adam", MV, ADAM_DEFAULTS), ("Adam", "adam", MV, betas(d)),
            ("Adam, amsgrad", "amsgrad", MVV, betas(d, amsgrad=True)),
            ("AdamW", "adamw", MV, betas(d, weight_decay=d.number(0.01, 0.5))),
            ("Ftrl, defaults", "ftrl", al, ftrl["defaults"]),
            ("Ftrl, all", "ftrl", al, ftrl["all"])]
    cases += [sparse_case(d, "all rows, Keras " + name, name.split(",")[0], rule, "all", "summed",
                          slots, **h) for name, rule, slots, h in todo]
    cases += [sparse_case(d, "squares summed, Keras " + name, name.split(",")[0], rule, "all",
                          "squares summed", slots, **h) for name, rule, slots, h in todo
              if name in ("Adagrad", "RMSprop", "Adam", "Ftrl, defaults")]
    todo = [("Momentum", "momentum_raw", MU, mu()), ("AdagradV2", "adagrad_raw", acc, epsilon)]
    return cases + [sparse_case(d, "one by one, raw op " + op, "raw:" + op, rule, "pushed",
                                "one by one", slots, **h) for op, rule, slots, h in todo]


# ---- Schedules -----------------------------------------------------------------------------------
SCHEDULES = {
    "ExponentialDecay": """p = step / decay_steps
lr = initial_learning_rate * pow(decay_rate, floor(p) if staircase else p)""",
    "PiecewiseConstantDecay": "lr = values[sum(step > b for b in boundaries)]",
    "PolynomialDecay": """d = decay_steps * (max(1, ceil(step / decay_steps)) if cycle else 1)
left = pow(1 - min(step, d) / d, power)
lr = (initial_learning_rate - end_learning_rate) * left + end_learning_rate""",
    "InverseTimeDecay": """p = step / decay_steps
lr = initial_learning_rate / (1 + decay_rate * (floor(p) if staircase else p))""",
    "CosineDecay": """warmup = 0 if warmup_target is None else warmup_steps
top = initial_learning_rate if warmup_target is None else warmup_target
done = min(step - warmup, decay_steps) / decay_steps
lr = (initial_learning_rate + (top - initial_learning_rate) * step / warmup if step < warmup
      else top * ((1 - alpha) * 0.5 * (1 + cos(pi * done)) + alpha))""",
    "CosineDecayRestarts": """done = step / first_decay_steps
i = floor(done) if t_mul == 1 else floor(log(1 - done * (1 - t_mul)) / log(t_mul))
done = done - i if t_mul == 1 else (done - (1 - pow(t_mul, i)) / (1 - t_mul)) / pow(t_mul, i)
lr = initial_learning_rate * ((1 - alpha) * 0.5 * pow(m_mul, i) * (1 + cos(pi * done)) + alpha)""",
}


def schedule_cases(d):
    def rate(high=1.0):
        return {"initial_learning_rate": d.number(0.01, high)}

    todo = []
    for staircase in (False, True):
        n = {"decay_steps": d.size(3, 120), "staircase": staircase}
        todo += [("ExponentialDecay", {**rate(), **n, "decay_rate": d.decay(0.5, 0.99)}),
                 ("InverseTimeDecay", {**rate(), **n, "decay_rate": d.number(0.1, 3)})]
    for cycle in (False, True):
        for n, power in ((10, 1.0), (d.size(20, 100), d.number(0.4, 3)), (d.size(2, 9), 2.0)):
            end = {"end_learning_rate": d.number(1e-4, 1e-2)}
            todo += [("PolynomialDecay", {**rate(), **end, "decay_steps": n, "power": power,
                                          "cycle": cycle})]
    bounds = d.rng.choice([1, 5, 9, 10, 49, 50, 100, 249, 999], 3, replace=False)
    for bounds in (sorted(bounds.tolist()), [50]):
        values = [d.number(1e-3, 1) for _ in range(len(bounds) + 1)]
        todo += [("PiecewiseConstantDecay", {"boundaries": bounds, "values": values})]
    for alpha in (0.0, d.number(0.01, 0.5)):
        for target, warmup in ((None, 0), (d.number(0.1, 1), d.size(5, 60)), (None, 10)):
            todo += [("CosineDecay", {**rate(0.1), "decay_steps": d.size(3, 120), "alpha": alpha,
                                      "warmup_target": target, "warmup_steps": warmup})]
        for n, t_mul, m_mul in ((10, 1.0, 1.0), (d.size(11, 40), 2.0, d.decay(0.5, 0.95)),
                                (d.size(11, 40), d.number(1.2, 3), 1.0)):
            todo += [("CosineDecayRestarts", {**rate(), "first_decay_steps": n, "t_mul": t_mul,
                                              "m_mul": m_mul, "alpha": alpha})]
    steps, cases = [0, 1, 2, 5, 9, 10, 11, 50, 99, 100, 101, 250, 1000], []
    for name, h in todo:
        schedule = getattr(keras.optimizers.schedules, name)(**h)
        expected = [f32(schedule(step)) for step in steps]
        for F, tolerance in ((f32, (2e-6, 1e-8)), (np.float64, tuple(SCHEDULE_TOLERANCE.values()))):
            for step, want in zip(steps, expected):
                names = {k: F(v) if type(v) is float else v for k, v in h.items()}
                names |= {f: getattr(np, f) for f in "floor ceil log cos pi".split()}
                names |= {"pow": lambda x, y: np.power(F(x), F(y)), "step": F(step)}
                exec(SCHEDULES[name], names)
                check(f"{name} {h} at {step}, {F}", want, names["lr"], *tolerance)
        cases.append({"name": f"{name} {len(cases)}", "schedule": name, "hyperparameters": h,
                      "formula": SCHEDULES[name], "steps": steps, "expected": expected})
    return cases


# ---- Gradient clipping ---------------------------------------------------------------------------

def clipping_cases(d):
    cases = []

    def add(name, function, tensors, limit, expected, **more):
        cases.append({"name": name, "function": function, "tensors": tensors, "limit": limit,
                      **more, "expected": expected})

    def both_norms(tag, tensors, limit):
        add("norm, " + tag, "tf.clip_by_norm", tensors, limit,
            [tf.clip_by_norm(t, limit) for t in tensors])
        clipped, norm = tf.clip_by_global_norm(tensors, limit)
        add("global norm, " + tag, "tf.clip_by_global_norm", tensors, limit, clipped,
            global_norm=norm)
        return clipped, norm

    tensors = [d.array(*shape, scale=1.0) for shape in
               ((d.size(5, 9),), (d.size(2, 4), d.size(2, 4)), (1,), (d.size(2, 3), 2, 2))]
    tensors += [np.zeros(3, f32)]
    norm = np.sqrt(sum(np.sum(t.astype(float) ** 2) for t in tensors))
    limit = d.number(0.3, 0.9)
    for tag, c in (("clipped", limit), ("unchanged", 100.0)):
        clipped, found = both_norms(tag, tensors, c)
        check(tag, found, norm)
        keras_clipped = keras.optimizers.SGD(global_clipnorm=c)._clip_gradients(
            [tf.constant(t) for t in tensors])
        for t, a, b in zip(tensors, clipped, keras_clipped):
            check(tag, a, t * min(1, c / norm))
            check(tag + ", Keras global_clipnorm", a, b)
    both_norms("limit 0", tensors, 0.0)
    both_norms("zeros", [np.zeros(3, f32), np.zeros((2, 2), f32)], limit)
    for tag, bad in (("inf", np.inf), ("-inf", -np.inf), ("nan", np.nan), ("overflow", 3e38)):
        both_norms(tag, [tensors[0], np.array([0.5, bad, 0.0, -1.5], f32)], limit)
    low, high = -d.number(0.1, 0.9), d.number(0.1, 0.9)
    odd = [np.array([3, np.inf, -np.inf, 0, -2], f32), np.array([1, np.nan, 0], f32)]
    for tag, given in (("value", tensors), ("value, not finite", odd)):
        add(tag, "tf.clip_by_value", given, [low, high],
            [tf.clip_by_value(t, low, high) for t in given])
    ids, rows = np.array([2, 0, 2]), d.array(3, 2, scale=2.0)
    slices = tf.IndexedSlices(rows, ids, (3, 2))
    (clipped,), norm = tf.clip_by_global_norm([slices], limit)
    check("the norm of rows as pushed, not as added", norm, np.linalg.norm(rows))
    add("global norm, repeated ids", "tf.clip_by_global_norm", [rows], limit, [clipped.values],
        ids=ids, global_norm=norm)
    add("norm, repeated ids", "tf.clip_by_norm", [rows], limit,
        [tf.clip_by_norm(slices, limit).values], ids=ids)
    return cases


# ---- Losses and metrics --------------------------------------------------------------------------

def gradients(function, upstream, **inputs):
    """The output, and the gradient of sum(output * upstream) with respect to every input."""
    variables = {k: tf.Variable(v) for k, v in inputs.items()}
    with tf.GradientTape() as tape:
        output = function(**variables)
        total = tf.reduce_sum(output * upstream)
    found = tape.gradient(total, list(variables.values()))
    return output, {f"d_{k}": tf.convert_to_tensor(g) for k, g in zip(inputs, found)}


def loss_cases(d):
    cases = []

    def add(name, function, formula, inputs, **expected):
        cases.append({"name": name, "function": function, "formula": formula, "inputs": inputs,
                      "expected": expected})

    edges = np.array([0, 20, 50, 88.8, 100, 104, 1e4] + [d.number(0.01, 1e3) for _ in "1234"], f32)
    logits = np.concatenate([edges, -edges, d.array(6, scale=3.0)])
    x, soft = logits.astype(float), np.round(d.rng.random_sample(logits.shape), 3).astype(f32)
    for tag, y in (("label 1", soft * 0 + 1), ("label 0", soft * 0), ("soft labels", soft)):
        loss, grad = gradients(lambda logits: tf.nn.sigmoid_cross_entropy_with_logits(y, logits),
                               1.0, logits=logits)
        check(tag, loss, np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x))))
        add(f"sigmoid cross entropy, {tag}", "tf.nn.sigmoid_cross_entropy_with_logits",
            "loss = max(x, 0) - x * y + log1p(exp(-abs(x))); d_logits = sigmoid(x) - y",
            {"logits": logits, "labels": y}, loss=loss, **grad)
    n, c = d.size(6, 10), d.size(3, 5)
    x, y = d.array(n, scale=2.0), (d.rng.random_sample(n) < 0.5).astype(f32)
    p, target, w = d.array(n, c), d.array(n, c), np.abs(d.array(n)) + f32(0.1)
    bce, mse = keras.losses.BinaryCrossentropy(from_logits=True), keras.losses.MeanSquaredError()
    each = tf.nn.sigmoid_cross_entropy_with_logits(y, x).numpy()
    for tag, weights in (("", None), (", weights", w)):
        scale = 1 if weights is None else weights
        loss, grad = gradients(lambda logits: bce(y[:, None], logits[:, None], weights),
                               1.0, logits=x)
        check("mean" + tag, loss, np.mean(each * scale))
        add("mean sigmoid cross entropy" + tag, f"{KERAS} BinaryCrossentropy(from_logits=True)",
            "sum(weight * loss) / n: divided by the count, not by the sum of weights",
            {"logits": x, "labels": y, "weights": weights}, loss=loss, **grad)
        loss, grad = gradients(lambda predictions: mse(target, predictions, weights),
                               1.0, predictions=p)
        check("mse" + tag, loss, np.mean(np.mean((p - target) ** 2, 1) * scale))
        add("mean squared error" + tag, f"{KERAS} MeanSquaredError",
            "sum over rows of weight * mean((p - y)^2), divided by the number of rows",
            {"predictions": p, "targets": target, "weights": weights}, loss=loss, **grad)
    far = [[1e3, -1e3] + [0] * (c - 2), [-1e3, 1e3] + [d.number(1, 900)] * (c - 2)]
    x = np.concatenate([d.array(n, c, scale=2.0), np.zeros((1, c)), np.full((1, c), 1e4), far])
    x = x.astype(f32)
    y = np.concatenate([d.rng.randint(0, c, n + 2), [0, 0]])
    loss, grad = gradients(lambda logits: tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits),
                           1.0, logits=x)
    z = x.astype(float) - x.max(1, keepdims=True)
    check("softmax", loss, np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y])
    add("softmax cross entropy", "tf.nn.sparse_softmax_cross_entropy_with_logits",
        "z = x - max(x); loss = log(sum(exp(z))) - z[label]; d_logits = softmax(x) - onehot(label)",
        {"logits": x, "labels": y}, loss=loss, **grad)
    metric_cases(d, add)
    return cases


def metric_cases(d, add):
    def auc(name, p, w=None):
        weight = np.ones(n) if w is None else w.astype(float)
        pairs = weight[y == 1][:, None] * weight[y == 0]
        diff = p[y == 1][:, None].astype(float) - p[y == 0]
        exact = sklearn.metrics.roc_auc_score(y, p, sample_weight=w)
        check(name, exact, np.sum(pairs * ((diff > 0) + 0.5 * (diff == 0))) / np.sum(pairs), 1e-9)
        found = {}
        for curve in ("ROC", "PR"):
            metric = keras.metrics.AUC(num_thresholds=200, curve=curve)
            metric.update_state(y, p, sample_weight=w)
            found[f"keras_{curve.lower()}_200"] = metric.result()
        add("AUC, " + name, f"scikit-learn {sklearn.__version__} roc_auc_score; {KERAS} AUC",
            "auc = sum over pairs (positive, negative) of w+ * w- * (1, 1/2 or 0 as s+ >, =, < s-),"
            " over sum of w+ * w-. keras_*: for reference; thresholds -1e-7, i/199, 1 + 1e-7; a"
            " score is positive where score > threshold",
            {"labels": y, "scores": p, "weights": w}, auc=exact, **found)

    n = d.size(30, 40)
    y, p = (d.rng.random_sample(n) < 0.4).astype(np.int64), d.rng.random_sample(n).astype(f32)
    y[:2], w = (0, 1), np.round(d.rng.random_sample(n) * 3, 2).astype(f32)
    w[3] = 0
    tied = (np.round(p * 7) / 8).astype(f32)
    for name, scores in (("distinct scores", p), ("ties", tied), ("separable", (y + p) / 2),
                         ("inverted", (1 - y + p) / 2), ("constant score", p * 0 + 0.25)):
        auc(name, scores.astype(f32))
    auc("ties, weights", tied, w)
    sure = np.where(p < 0.2, 0, np.where(p > 0.8, 1, p)).astype(f32)
    p[:4] = 0.5
    for also, weights in (("", None), (", weights", w)):
        for tag, s in (("", np.clip(p, 0.01, 0.99)), (", scores of 0 and 1", sure)):
            add("log loss" + tag + also, f"scikit-learn log_loss; {KERAS} BinaryCrossentropy",
                "-(y log p + (1 - y) log(1 - p)). log_loss: in double, p clipped to"
                " [2^-52, 1 - 2^-52], weighted mean. keras: in float32, p clipped to"
                " [1e-7, 1 - 1e-7], weighted sum / n",
                {"labels": y, "scores": s, "weights": weights},
                log_loss=sklearn.metrics.log_loss(y, s.astype(float), sample_weight=weights),
                keras=keras.losses.BinaryCrossentropy()(y[:, None], s[:, None], weights))
        metric = keras.metrics.BinaryAccuracy()
        metric.update_state(y[:, None], p[:, None], weights)
        check("accuracy", metric.result(), np.average((p > 0.5) == (y == 1), weights=weights))
        add("accuracy, binary" + also, f"{KERAS} BinaryAccuracy",
            "weighted mean of (score > 0.5) == label",
            {"labels": y, "scores": p, "weights": weights}, accuracy=metric.result())
    scores, y = np.round(d.array(n, 4) * 2) / 2 + f32(0), d.rng.randint(0, 4, n)  # + 0: no -0.0
    metric = keras.metrics.SparseCategoricalAccuracy()
    metric.update_state(y, scores)
    check("accuracy", metric.result(), np.mean(np.argmax(scores, 1) == y))
    add("accuracy, classes with ties", f"{KERAS} SparseCategoricalAccuracy",
        "mean of argmax, the first of equals, == label", {"labels": y, "scores": scores},
        accuracy=metric.result())


# ---- Ops, forward and backward -------------------------------------------------------------------

def op_cases(d):
    cases = []

    def add(name, source, function, formula, extra=None, **inputs):
        upstream = d.array(*function(**{k: tf.constant(v) for k, v in inputs.items()}).shape)
        output, found = gradients(function, upstream, **inputs)
        cases.append({"name": name, "source": f"{TF} {source}", "formula": formula,
                      "inputs": {**inputs, **(extra or {})}, "upstream": upstream,
                      "expected": {"output": output, **found}})
        return output.numpy()

    b, i, o = d.size(3, 5), d.size(3, 6), d.size(2, 4)
    dense = {"x": d.array(b, i), "w": d.array(i, o), "b": d.array(o)}
    add("dense", "tf.matmul", lambda x, w, b: tf.matmul(x, w) + b, "x @ w + b", **dense)
    add("dense, relu", "tf.nn.relu(tf.matmul(x, w) + b)",
        lambda x, w, b: tf.nn.relu(tf.matmul(x, w) + b), "max(x @ w + b, 0)", **dense)
    x = np.round(d.array(b, i) * 4) / 4
    x[0, :3] = 0.0, -0.0, 1e-30
    add("relu", "tf.nn.relu", lambda x: tf.nn.relu(x), "max(x, 0); gradient 0 where x <= 0", x=x)
    parts = {k: d.array(b, d.size(1, 4)) for k in "abc"}
    add("concat", "tf.concat(axis=1)", lambda a, b, c: tf.concat([a, b, c], 1),
        "the columns of a, then b, then c", **parts)
    f = d.size(3, 6)
    e, pairs = d.array(b, f, d.size(2, 5)), [(i, j) for i in range(f) for j in range(i)]
    products = [[row[i] @ row[j] for i, j in pairs] for row in e.astype(float)]
    got = add("factorization machine, second order", "tf.reduce_sum", lambda e: 0.5 * tf.reduce_sum(
        tf.reduce_sum(e, 1) ** 2 - tf.reduce_sum(e ** 2, 1), 1),
        "e[b, f] = x_f * v_f; sum over k of 0.5 * ((sum_f e)^2 - sum_f e^2)", e=e)
    check("factorization machine", got, np.sum(products, 1), 1e-5, 1e-6)
    where = [i * f + j for i, j in pairs]
    got = add("dot interaction", "tf.matmul(e, e, transpose_b=True)", lambda e: tf.gather(
        tf.reshape(tf.matmul(e, e, transpose_b=True), (b, f * f)), where, axis=1),
        "e[i] . e[j] for i > j, in the order (1,0), (2,0), (2,1), (3,0) ...", e=e)
    check("dot interaction", got, products, 1e-5, 1e-6)
    for safe in (False, True):
        for combiner in ("sum", "mean", "sqrtn"):
            for weighted in (False, True):
                embedding_case(d, add, safe, combiner, weighted)
    embedding_case(d, add, True, "mean", True, default_id=1)
    return cases


def embedding_case(d, add, safe, combiner, weighted, default_id=None):
    table = d.array(d.size(5, 8), d.size(2, 4))
    ids = [d.rng.randint(0, len(table), n).tolist() for n in (d.size(2, 4), 1, 0, d.size(2, 5))]
    ids[0].append(ids[0][0])  # a repeated id
    if safe:  # empty rows at both ends, ids below 0, a row without any valid id
        ids = [[]] + ids + [[-1, -3], [ids[0][0], -2], []]
    row = np.repeat(np.arange(len(ids)), [len(i) for i in ids])
    place = np.array([(r, k) for r, i in enumerate(ids) for k in range(len(i))])
    flat, inputs = np.concatenate(ids).astype(np.int64), {"table": table}
    if weighted:
        inputs["weights"] = np.abs(d.array(len(flat))) + f32(0.1)
        if safe:  # dropped, except by "sum"
            inputs["weights"][[0, 2]] = 0, -inputs["weights"][2]
    name = "safe_" * safe + "embedding_lookup_sparse"
    options = {"default_id": default_id} if safe else {}

    def function(table, weights=None):
        sparse = [v if v is None else tf.SparseTensor(place, v, (len(ids), 9))
                  for v in (flat, weights)]
        return getattr(tf.nn, name)(table, *sparse, combiner=combiner, **options)

    label = f"{name}, {combiner}" + ", weights" * weighted
    got = add(label + ", default id" * (default_id is not None), f"tf.nn.{name}", function,
              "sum: sum(w e); mean: sum(w e) / sum(w); sqrtn: sum(w e) / sqrt(sum(w^2))",
              {"combiner": combiner, "rows": len(ids), "row_of_id": row, "ids": flat, **options},
              **inputs)
    w = inputs.get("weights", np.ones(len(flat), f32)).astype(float)
    for r in range(len(ids)):
        m = (flat >= 0) & ((w > 0) | (combiner == "sum")) & (row == r)
        scale = {"sum": 1.0, "mean": w[m].sum(), "sqrtn": np.sqrt((w[m] ** 2).sum())}[combiner]
        empty = np.zeros(table.shape[1]) if default_id is None else table[default_id]
        check(label, got[r], (w[m] @ table[flat[m]]) / scale if m.any() else empty, 1e-5)


# ---- Partitioners --------------------------------------------------------------------------------

def local_strategy(partitions):
    """A ParameterServerStrategy on servers in this process, partitioning as partitions[0] says."""
    def address():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return f"localhost:{s.getsockname()[1]}"

    jobs = {"ps": [address(), address()], "worker": [address()], "chief": [address()]}
    cluster = tf.train.ClusterSpec(jobs)
    servers = [tf.distribute.Server(cluster, job_name=job, task_index=i)
               for job, i in (("ps", 0), ("ps", 1), ("worker", 0))]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver, lambda shape, dtype: partitions[0])
    return servers, strategy


def partitions_by_formula(name, a, shape, dtype):
    size = a.get("bytes_per_string", 16) if dtype == "string" else tf.as_dtype(dtype).size
    dim, total = shape[0], int(np.prod(shape)) * size
    if name == "FixedShards":
        return min(a["num_shards"], dim)
    if name == "MinSize":
        by_bytes = -(-total // a.get("min_shard_bytes", 256 << 10))
        return max(1, min(dim, a.get("max_shards", 1), by_bytes))
    per_shard = max(1, a["max_shard_bytes"] // (total // dim))
    return min(-(-dim // per_shard), a.get("max_shards", dim))


def partitioner_cases(d):
    few, some, many = (2, 9), (10, 99), (1000, 9999)
    shapes = [[1], [d.size(*few)], [d.size(*some)], [d.size(*few), 3],
              [d.size(*some), d.size(*few)], [d.size(*many), 16], [d.size(*some), 3, d.size(*few)],
              [1, d.size(*many)], [d.size(50000, 99999), d.size(4, 20)]]
    todo = [("FixedShards", {"num_shards": n}) for n in (1, 2, d.size(3, 8), d.size(9, 20))]
    todo += [("MinSize", a) for a in (
        {}, {"max_shards": d.size(3, 20)},
        {"min_shard_bytes": d.size(1, 64), "max_shards": d.size(*few)},
        {"min_shard_bytes": d.size(100, 5000), "max_shards": d.size(10, 40),
         "bytes_per_string": d.size(1, 40)})]
    todo += [("MaxSize", a) for a in (
        {"max_shard_bytes": d.size(1, 64)}, {"max_shard_bytes": d.size(20000, 400000)},
        {"max_shard_bytes": d.size(100, 5000), "max_shards": d.size(3, 20)},
        {"max_shard_bytes": d.size(2000, 9000), "max_shards": d.size(9, 40),
         "bytes_per_string": d.size(1, 40)})]
    odd = [("FixedShards", {"num_shards": n}, [5, 2]) for n in (0, -2)]
    odd += [("MinSize", {k: 0}, [5, 2]) for k in
            ("min_shard_bytes", "max_shards", "bytes_per_string")]
    odd += [("MaxSize", {"max_shard_bytes": 4, **a}, [5, 2]) for a in (
        {"max_shard_bytes": 0}, {"bytes_per_string": 0}, {"max_shards": 0}, {"max_shards": -1})]
    odd += [(name, a, shape) for shape in ([0, 4], [4, 0], []) for name, a in (
        ("FixedShards", {"num_shards": 2}), ("MinSize", {"max_shards": 2}),
        ("MaxSize", {"max_shard_bytes": 4}))]
    partitions, cases = [None], []
    servers, strategy = local_strategy(partitions)

    def shards(shape):
        with strategy.scope():
            v = tf.Variable(tf.zeros(shape), name="w")
        sizes = [int(p.shape[0]) for p in getattr(v, "variables", [v])]
        return [[int(o), n] for o, n in zip(np.cumsum([0] + sizes), sizes)]

    def case(name, arguments, shape, dtype):
        name += "Partitioner"
        cases.append({"name": f"{name} {len(cases)}", "partitioner": name, "arguments": arguments,
                      "shape": shape, "dtype": dtype})
        return cases[-1], getattr(tf.distribute.experimental.partitioners, name)

    for name, arguments in todo:
        for shape in shapes:
            for dtype in ("float32", "float64", "int64", "string")[:1 if "Fixed" in name else 4]:
                c, make = case(name, arguments, shape, dtype)
                partitions[0] = make(**arguments)(tf.TensorShape(shape), tf.as_dtype(dtype))
                c["partitions"], n = partitions[0], partitions[0][0]
                assert n == partitions_by_formula(name, arguments, shape, dtype), c
                if n <= 24:
                    c["shards"] = shards(shape)
                    sizes = [shape[0] // n + (i < shape[0] % n) for i in range(n)]
                    check(c["name"], c["shards"], list(zip(np.cumsum([0] + sizes), sizes)))
    for name, arguments, shape in odd:
        (c, make), where = case(name, arguments, shape, "float32"), "constructor"
        try:
            part, where = make(**arguments), "call"
            partitions[0] = c["partitions"] = part(tf.TensorShape(shape), tf.float32)
            where = "variable creation"
            c["shards"] = shards(shape)
        except Exception as e:  # any exception is the expected value
            text = str(e).split("\n")[0][:160]
            c["error"] = {"at": where, "type": type(e).__name__, "text": text}
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out-dir", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    optimizers = f"{TF} tf.raw_ops, {KERAS}, tf_keras {tf_keras.__version__}"
    files = (
        ("optimizers_dense", optimizers, OPTIMIZER_TOLERANCE, dense_cases),
        ("optimizers_sparse", optimizers, OPTIMIZER_TOLERANCE, sparse_cases),
        ("schedules", f"{KERAS} keras.optimizers.schedules", SCHEDULE_TOLERANCE, schedule_cases),
        ("clipping", f"{TF} tf.clip_by_*", {"rtol": 2e-6, "atol": 1e-7}, clipping_cases),
        ("losses_metrics", f"{TF}, {KERAS}, scikit-learn {sklearn.__version__}",
         {"rtol": 1e-5, "atol": 1e-7, "auc_atol": 1e-8}, loss_cases),
        ("ops", TF, {"rtol": 1e-5, "atol": 1e-6}, op_cases),
        ("partitioners", f"{TF} tf.distribute", "exact", partitioner_cases))
    for k, (name, source, tolerance, make) in enumerate(files):
        draw = Draw(1000 * args.seed + k)  # independent of other files' cases
        write(args.out_dir / f"{name}.json", source, tolerance, make(draw))


if __name__ == "__main__":
    main()
