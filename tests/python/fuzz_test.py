"""Random calls of the public functions and methods of `cairn` with random arguments, valid and absurd,
on one launched server: only documented exceptions come out, the server lives, and a healthy client
afterwards reads what it wrote. CAIRN_FUZZ_SEED repeats a run, CAIRN_FUZZ_CALLS makes it longer."""
import decimal
import fractions
import os
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import tap  # noqa: E402

try:
    import numpy as np
    import torch
    import cairn
    import api_calls
    MISSING = None
except ImportError as error:  # python3-numpy and python3-torch belong to /usr/bin/python3
    MISSING = str(error)

CALLS = int(os.environ.get("CAIRN_FUZZ_CALLS", "2000"))
# Calls that start processes, and how rarely they are drawn.
SLOW = {"launch": 0.02, "train": 0.02}
DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "uint64", "bool", "complex64",
          ">f4", "<i2", "U3", "datetime64[s]", "object")


class Fuzzer:
    def __init__(self, fixture, seed):
        self.fixture, self.random = fixture, random.Random(seed)
        self.calls = [c for c in api_calls.public_calls() if api_calls.parameters_of(c[1])]
        self.outcomes = {}
        self.weights = [SLOW.get(name, 1) for name, _ in self.calls]

    def array(self):
        shape = tuple(self.random.choice((0, 1, 2, 3, 5)) for _ in range(self.random.randrange(4)))
        array = np.ones(shape, self.random.choice(DTYPES))
        way = self.random.randrange(6)
        if way == 0:
            array.flags.writeable = False
        elif way == 1:
            array = array.T
        elif way == 2 and array.ndim:
            array = array[::-1]
        elif way == 3:
            array = np.ma.masked_array(array)
        return array

    def tensor(self):
        dtype = self.random.choice((torch.float32, torch.float64, torch.bfloat16, torch.int64,
                                    torch.int32, torch.bool))
        tensor = torch.ones(self.random.choice(((), (1,), (2,), (3, 2), (2, 2), (0,))), dtype=dtype)
        if self.random.random() < 0.2 and tensor.dim() == 2:
            return tensor.to_sparse()
        if self.random.random() < 0.2 and dtype.is_floating_point:
            return tensor.requires_grad_()
        return tensor

    def part(self):
        """A part of a pull or push, often a wrong one."""
        f = self.fixture
        return tuple(self.random.choice((f.w, f.t, self.array(), [1], None, api_calls.GRADIENT,
                                         api_calls.ROW)) for _ in range(self.random.randrange(5)))

    def value(self):
        f = self.fixture
        return self.random.choice((
            lambda: self.random.choice(list(api_calls.ABSURD.values())), self.array, self.tensor,
            self.part, lambda: [self.part() for _ in range(self.random.randrange(3))],
            lambda: self.random.choice((f.w, f.t, f.client, f.cluster, cairn, type, len)),
            lambda: self.random.choice((1, 2, 7, 255, 1 << 31, 1 << 63, -(1 << 63), 0.5, -0.0, 1e308)),
            lambda: self.random.choice((np.int8(3), np.float16(2), np.float32("nan"), np.bool_(True),
                                        decimal.Decimal(1), fractions.Fraction(1, 3))),
            lambda: self.random.choice(("async", "sync", "adam", "zeros", "float32", "int8", "top_k",
                                        "momentum", "libsvm", "sum", "a/b", "..", "%s", "é" * 50)),
            lambda: {"type": self.random.choice(("adam", "sgd", "uniform", 3)), "learning_rate": 0.1},
            lambda: (x for x in [[1]]), lambda: slice(1, None, 0), lambda: [[[[1.5]]]],
            lambda: iter("ab"), lambda: range(3), lambda: {1, 2}))()

    def pushes(self):
        f, keys = self.fixture, self.keys()
        return self.random.choice((
            [], [(f.w, api_calls.GRADIENT)], [(f.t, keys, np.ones((*keys.shape, 2), np.float32))],
            [(f.w, [0, 2, 0], np.ones((3, 2), np.float32)), (f.t, [1], api_calls.ROW)]))

    def keys(self):
        shape = self.random.choice(((), (0,), (1,), (7,), (2, 3), (1000,)))
        return np.array([self.random.choice((3, -3, self.random.getrandbits(63)))
                         for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)

    def fitting(self, parameter):
        """A value that the parameter accepts, or None where this table has none."""
        f, choice = self.fixture, self.random.choice
        return {
            "keys": self.keys, "rows": lambda: choice(([0], 2, [[0, 1], [1, 2]], None)),
            "pushes": self.pushes,
            "pulls": lambda: choice(([], [f.w], [(f.t, self.keys())], [(f.w, [1]), f.w])),
            "timeout": lambda: choice((5, 0.5, None)), "format": lambda: choice(
                ("plain", "float16", "bfloat16", "int8", "top_k")),
            "position": lambda: choice((b"", "1", b"\xff" * 512)),
            "shape": lambda: choice(((), (0,), (2,), (3, 0), (5, 7), (4, 3, 2))),
            "dim": lambda: self.random.randint(1, 64), "dtype": lambda: choice(DTYPES),
            "shards": lambda: self.random.randint(1, 9),
            "optimizer": lambda: choice(("adam", "ftrl", cairn.optim.SGD(0.1, momentum=0.5),
                                         cairn.optim.Lion(cairn.optim.CosineDecay(0.1, 9)))),
            "initializer": lambda: choice(("ones", cairn.init.Normal(), cairn.init.Uniform(-1, 1))),
            "out": lambda: choice((np.zeros((3, 2), np.float32), np.zeros((1, 2), np.float32))),
            "learning_rate": self.random.random, "batch_size": lambda: self.random.randint(1, 9),
        }.get(parameter, lambda: None)()

    def step(self):
        name, function = self.random.choices(self.calls, self.weights)[0]
        target, arguments = api_calls.prepare(self.fixture, name, function)
        # The errors of a closure are the program's own.
        parameters = [p for p in api_calls.parameters_of(function) if p != "closure"]
        for parameter in self.random.sample(parameters, self.random.randint(1, min(3, len(parameters)))):
            value = self.fitting(parameter) if self.random.random() < 0.6 else self.value()
            if value is not None:
                arguments[parameter] = value
        try:
            result = target(**arguments)
        except (cairn.InternalError, cairn.UnknownError) as error:
            if name in SLOW:  # a program that ended
                return
            raise AssertionError(f"{name}: a fault of Cairn itself: {error}") from error
        except (cairn.Error, OSError) as error:
            self.outcomes[type(error).__name__] = self.outcomes.get(type(error).__name__, 0) + 1
            return
        except Exception as error:
            shown = {k: api_calls.shown(v) for k, v in arguments.items()}
            raise AssertionError(f"{name}({shown}): {type(error).__name__}: {error}") from error
        self.outcomes["no error"] = self.outcomes.get("no error", 0) + 1
        for end in ("stop", "close"):
            if hasattr(result, end):
                getattr(result, end)()
                break


@unittest.skipIf(MISSING, f"PyTorch, numpy or the package: {MISSING}")
class Fuzz(unittest.TestCase):
    def test_random_calls(self):
        seed = int(os.environ.get("CAIRN_FUZZ_SEED") or random.SystemRandom().randrange(1 << 32))
        print(f"# CAIRN_FUZZ_SEED={seed}", flush=True)
        random.seed(seed)
        torch.manual_seed(seed)
        with tempfile.TemporaryDirectory() as folder:
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            fixture = api_calls.Fixture(folder)
            self.addCleanup(fixture.close)
            fuzzer = Fuzzer(fixture, seed)
            for _ in range(CALLS):
                fuzzer.step()

            print(f"# {fuzzer.outcomes}", flush=True)
            self.assertGreater(fuzzer.outcomes["no error"], CALLS // 10)
            self.assertIsNone(fixture.cluster.processes[0].poll(), fixture.cluster.log(0)[-2000:])
            client = fixture.connect(job="healthy", worker=0)
            w = client.variable("w", (3,), optimizer=cairn.optim.SGD(1.0))
            t = client.embedding("t", 2, optimizer=cairn.optim.SGD(1.0))
            gradient, rows = np.arange(3, dtype=np.float32), np.ones((2, 2), np.float32)
            client.push([(w, gradient), (t, [7, -7], rows)])
            np.testing.assert_array_equal(w[...], -gradient)
            np.testing.assert_array_equal(t[[-7, 7]], -rows)
            client.leave()
            os.chdir("/")


if __name__ == "__main__":
    tap.main()
