"""Every parameter of every public function and method of `cairn` refuses absurd values at once, with
InvalidArgumentError that names the parameter, and accepts the values that it should."""
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import tap  # noqa: E402

try:
    import numpy as np
    import cairn
    import api_calls
    MISSING = None
except ImportError as error:  # python3-numpy and python3-torch belong to /usr/bin/python3
    MISSING = str(error)


@unittest.skipIf(MISSING, f"PyTorch, numpy or the package: {MISSING}")
class Arguments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        cls.fixture = api_calls.Fixture(folder.name)
        cls.addClassCleanup(cls.fixture.close)

    def outcome(self, call, function, parameter, value):
        """Returns what the healthy call raises with one argument replaced, or None."""
        target, healthy = api_calls.prepare(self.fixture, call, function)
        try:
            result = target(**{**healthy, parameter: value})
        except (cairn.Error, OSError) as error:
            return error
        for end in ("stop", "close"):
            if hasattr(result, end):
                getattr(result, end)()
                break
        return None

    def test_every_parameter_has_a_kind(self):
        seen = 0
        for call, function in api_calls.public_calls():
            for parameter in api_calls.parameters_of(function):
                seen += 1
                self.assertIsNotNone(api_calls.accepted(call, parameter),
                                     f"{call}({parameter}): add it to KINDS of api_calls.py")
        self.assertGreater(seen, 150)

    def test_healthy_calls(self):
        for call, function in api_calls.public_calls():
            target, healthy = api_calls.prepare(self.fixture, call, function)
            for name, value in healthy.items():
                with self.subTest(call=call):
                    error = self.outcome(call, function, name, value)
                    self.assertNotIsInstance(error, TypeError)

    def test_absurd_values(self):
        wrong = []
        for call, function in api_calls.public_calls():
            for parameter in api_calls.parameters_of(function):
                allowed = api_calls.accepted(call, parameter) or set()
                for name, value in api_calls.ABSURD.items():
                    case = f"{call}({parameter}=<{name}>)"
                    try:
                        error = self.outcome(call, function, parameter, value)
                    except Exception as other:  # of another package, or Python's own
                        wrong.append(f"{case}: {type(other).__name__}: {str(other)[:200]}")
                        continue
                    if name in allowed:
                        if isinstance(error, TypeError):
                            wrong.append(f"{case}: is refused: {str(error)[:200]}")
                        continue
                    if call in api_calls.UNSUPPORTED and isinstance(error, cairn.UnimplementedError):
                        continue
                    if error is None:
                        wrong.append(f"{case}: is accepted")
                    elif not isinstance(error, cairn.InvalidArgumentError):
                        wrong.append(f"{case}: {type(error).__name__}: {str(error)[:200]}")
                    elif not re.search(api_calls.MENTIONS.get(parameter, parameter), str(error)):
                        wrong.append(f"{case}: does not name it: {str(error)[:300]}")
                    elif len(str(error)) > 1000:
                        wrong.append(f"{case}: has {len(str(error))} characters")
        self.assertFalse(wrong, "\n".join(wrong))


    def refused(self, text, function, *arguments, **named):
        with self.assertRaises(cairn.InvalidArgumentError) as caught:
            function(*arguments, **named)
        self.assertIn(text, str(caught.exception))

    def test_texts(self):
        f = self.fixture
        self.refused("timeout is 0; expected seconds above 0 and at most 1e9, or None for the client's "
                     "own timeout", f.w.pull, timeout=0)
        self.refused("timeout is -1.5; expected seconds above 0", f.client.flush, timeout=-1.5)
        self.refused("dim is 2.5 (float); expected an integer from 1 to 1048576", f.client.embedding,
                     "e", 2.5, optimizer="sgd")
        self.refused("shape[1] is -3; expected an integer from 0", f.client.variable, "v", (2, -3))
        self.refused("shape is 'ab' (str); expected a list of integers", f.client.variable, "v", "ab")
        self.refused("name is ''; expected a text that is not empty", f.client.variable, "", ())
        self.refused("worker is '1' (str); expected the index of a worker, \"auto\", or None",
                     cairn.connect, f.cluster.addresses, worker="1")
        self.refused("tls is ('a', 'b'); expected three paths", cairn.connect, f.cluster.addresses,
                     tls=("a", "b"))
        self.refused("beta_1 is 2; expected a number from 0 to 1", cairn.optim.Adam, beta_1=2)
        self.refused("position has 513 bytes; expected a text or bytes of at most 512 bytes", f.w.push,
                     np.ones((3, 2), np.float32), position="x" * 513)
        self.refused("gradients: dtype is float64", f.w.push, np.ones((3, 2)))
        self.refused("pushes[1]: shape is [2]; expected [3, 2]", f.client.push,
                     [(f.t, [1], [[1, 1]]), (f.w, np.ones(2, np.float32))])
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'mometum'"):
            cairn.optim.SGD(mometum=0.9)

    def test_values_that_a_dtype_cannot_hold(self):
        v = self.fixture.client.variable("int32", (2,), "int32")
        for values in ([1.5, 2], [1 << 40, 0], [True, False], ["1", "2"], [None, 1]):
            self.refused("values is", v.assign, values)
        v.assign([7, -7])
        np.testing.assert_array_equal(v[...], [7, -7])
        for values in ([1e300, 0], ["1", "2"], [None, 1]):
            self.refused("values is", self.fixture.w.assign, [values] * 3)

    def test_arrays_whose_library_fails(self):
        class Device:
            def __dlpack__(self, stream=None):
                raise KeyError("no such memory")

            def __dlpack_device__(self):
                return self.answer

        for Device.answer in ((1, 0), (), "cpu", None):
            for text, function in (("gradients", self.fixture.w.push), ("keys", self.fixture.t.pull)):
                self.refused(f"{text} cannot be viewed through DLPack", function, Device())

    def test_arrays_that_may_not_change(self):
        class Immutable:
            def __dlpack__(self, stream=None):
                return values.__dlpack__()

            def __dlpack_device__(self):
                return values.__dlpack_device__()

        values = np.zeros((3, 2), np.float32)
        self.fixture.w.pull(Immutable())
        for module in ("jaxlib.xla_extension", "pyarrow.lib", "tensorflow.python.framework.ops"):
            Immutable.__module__ = module
            self.refused("out is read-only", self.fixture.w.pull, Immutable())
            self.fixture.w.push(Immutable())

    def test_variables_of_another_client(self):
        other = self.fixture.connect().variable("w", (3, 2), optimizer="sgd")
        self.refused("belongs to another client", self.fixture.client.pull, [other])
        self.refused("belongs to another client", self.fixture.client.push,
                     [(other, np.ones((3, 2), np.float32))])

    def test_nothing_iterates_without_end(self):
        for stored in (self.fixture.t, self.fixture.w):
            with self.assertRaises(TypeError):
                iter(stored)
            with self.assertRaises(TypeError):
                3 in stored


if __name__ == "__main__":
    tap.main()
