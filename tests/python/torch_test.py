"""cairn.torch against real servers: the same gradients and values as torch's own modules, rows and
parameters that train, prefetch, and every step once when workers and servers are killed."""
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import tap  # noqa: E402

try:
    import numpy as np
    import torch
    import cairn
    import cairn.torch
    MISSING = None
except ImportError as error:  # python3-torch belongs to /usr/bin/python3
    MISSING = str(error)


class LossScaler:
    """What torch.cuda.amp.GradScaler, which needs a GPU, does to the gradients of an optimizer."""

    def __init__(self, scale):
        self.scale = scale
        self.found_inf = None

    def unscale_(self, optimizer):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]
                     if p.grad is not None]
        for gradient in gradients:
            gradient.mul_(1 / self.scale)
        self.found_inf = not all(bool(torch.isfinite(g).all()) for g in gradients)

    def step(self, optimizer):
        """Returns whether the optimizer made its step."""
        if self.found_inf is None:
            self.unscale_(optimizer)
        if not self.found_inf:
            optimizer.step()
        return not self.found_inf


def default_device(name):
    """`with torch.device(name)`, which PyTorch has from 2.0 on."""
    if hasattr(torch.device, "__enter__"):
        return torch.device(name)

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if function in (torch.empty, torch.zeros, torch.full, torch.tensor):
                kwargs.setdefault("device", name)
            return function(*args, **kwargs)

    return Mode()


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@unittest.skipIf(MISSING, f"PyTorch or the package: {MISSING}")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.cluster = processes.Cluster.of_class(cls, 2)

    def connect(self, **arguments):
        arguments.setdefault("worker", 0)
        client = cairn.connect(self.cluster.addresses, job=self.id().rsplit(".", 1)[-1],
                               **arguments)
        self.addCleanup(client.close)
        return client

    def same_weights(self, module, rows):
        """Gives rows 0 … rows-1 random values; returns them as a parameter of torch's own."""
        values = torch.randn(rows, module.dim)
        if module.padding_idx is not None:
            values[module.padding_idx] = 0
        module.table.assign(torch.arange(rows), values)
        return values.clone().requires_grad_()

    def check_updated(self, module, weight):
        """SGD with rate 1 from the same gradients: the servers' rows are weight - gradient."""
        expected = (weight - weight.grad).detach().numpy()
        np.testing.assert_allclose(module.table.pull(np.arange(len(weight))), expected, rtol=1e-5,
                                   atol=1e-6)

    def test_embedding_is_torchs(self):
        module = cairn.torch.Embedding(self.connect(), "t", 3, optimizer=cairn.optim.SGD(1.0),
                                       padding_idx=2)
        weight = self.same_weights(module, 6)
        keys = torch.tensor([[1, 2, 5], [5, 5, 2]])
        scale = torch.randn(2, 3, 3)
        ours = module(keys)
        theirs = torch.nn.functional.embedding(keys, weight, padding_idx=2)
        torch.testing.assert_close(ours, theirs)
        (ours * scale).sum().backward()
        (theirs * scale).sum().backward()
        self.check_updated(module, weight)

    def check_bag(self, mode, padding, keys, offsets=None, weights=None):
        module = cairn.torch.EmbeddingBag(
            self.client, f"t{mode}{padding}{offsets is None}{weights is None}", 4,
            optimizer=cairn.optim.SGD(1.0), mode=mode, padding_idx=padding)
        weight = self.same_weights(module, 8)
        ours = module(keys, offsets, weights)
        theirs = torch.nn.functional.embedding_bag(keys, weight, offsets, mode=mode,
                                                   per_sample_weights=weights, padding_idx=padding)
        torch.testing.assert_close(ours, theirs)
        scale = torch.randn_like(ours)
        (ours * scale).sum().backward()
        (theirs * scale).sum().backward()
        self.check_updated(module, weight)

    def test_embedding_bag_is_torchs(self):
        self.client = self.connect()
        square = torch.tensor([[1, 3, 3], [7, 0, 1]])
        flat, offsets = torch.tensor([1, 3, 3, 0, 7]), torch.tensor([0, 2, 2])
        for mode in ("sum", "mean", "max"):
            for padding in (None, 3):
                self.check_bag(mode, padding, square)
                self.check_bag(mode, padding, flat, offsets)
        self.check_bag("sum", None, square, weights=torch.rand(2, 3))
        self.check_bag("sum", 3, flat, offsets, torch.rand(5))

    def test_many_repeats_are_torchs(self):
        for padding in (None, 4):
            module = cairn.torch.Embedding(self.connect(), f"t{padding}", 8, padding_idx=padding,
                                           optimizer=cairn.optim.SGD(1.0))
            weight = self.same_weights(module, 50)
            keys = torch.randint(0, 50, (64, 26))
            scale = torch.randn(64, 26 * 8)
            ours = module(keys).reshape(64, -1)
            theirs = torch.nn.functional.embedding(keys, weight, padding_idx=padding).reshape(64, -1)
            torch.testing.assert_close(ours, theirs)
            (ours * scale).sum().backward()
            (theirs * scale).sum().backward()
            expected = (weight - weight.grad).detach().numpy()
            np.testing.assert_allclose(module.table.pull(np.arange(50)), expected, rtol=1e-4,
                                       atol=1e-4)

    def test_empty_and_repeated_batches(self):
        module = cairn.torch.Embedding(self.connect(), "t", 2, optimizer=cairn.optim.SGD(1.0),
                                       initializer="zeros", padding_idx=0)
        self.assertEqual(module(torch.zeros(0, dtype=torch.long)).shape, (0, 2))
        torch.testing.assert_close(module(torch.tensor([0, 0])), torch.zeros(2, 2))
        for _ in range(3):
            module(torch.tensor([4, 4])).sum().backward()
        np.testing.assert_array_equal(module.table[[4]], [[-6, -6]])
        with torch.no_grad():
            self.assertFalse(module(torch.tensor([4])).requires_grad)
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "expected integers"):
            module(torch.tensor([-1.5]))
        bags = cairn.torch.EmbeddingBag(self.connect(), "bags", 2, optimizer="sgd")
        empty = torch.zeros(0, dtype=torch.long)
        self.assertEqual(bags(torch.zeros(0, 2, dtype=torch.long)).shape, (0, 2))
        torch.testing.assert_close(bags(empty, torch.zeros(2, dtype=torch.long)), torch.zeros(2, 2))
        with self.assertRaisesRegex(cairn.InvalidArgumentError, r"keys has shape \[2, 0\]"):
            bags(torch.zeros(2, 0, dtype=torch.long))

    def test_batches_of_no_keys_or_padding_have_a_graph(self):
        client, empty = self.connect(), torch.zeros(0, dtype=torch.long)
        padding, offsets = torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 0])
        module = cairn.torch.Embedding(client, "t", 2, optimizer="sgd", padding_idx=0)
        rows = [module(empty), module(padding)]
        for mode in ("sum", "mean", "max"):
            bags = cairn.torch.EmbeddingBag(client, mode, 2, optimizer="sgd", padding_idx=0,
                                            mode=mode)
            rows += [bags(empty, offsets), bags(padding)]
        for adopted in (False, True):
            if adopted:
                optimizer = cairn.torch.ServerOptimizer([], client, tables=[module],
                                                        optimizer="sgd")
                rows = [module(empty), module(padding)]
            for found in rows:
                self.assertEqual(float(found.abs().sum()), 0)
                found.sum().backward()
        optimizer.step()
        self.assertEqual(len(module.table.scan()[0]), 0)

    def test_rows_may_be_changed_in_place(self):
        module = cairn.torch.Embedding(self.connect(), "t", 2, initializer="zeros",
                                       optimizer=cairn.optim.SGD(1.0))
        shift = torch.tensor([[1.0, -1.0], [2.0, 3.0]], requires_grad=True)
        rows = module(torch.tensor([4, 5]))
        rows += shift
        torch.nn.ReLU(inplace=True)(rows).sum().backward()
        np.testing.assert_array_equal(rows.detach(), [[1, 0], [2, 3]])
        np.testing.assert_array_equal(module.table[[4, 5]], [[-1, 0], [-1, -1]])
        np.testing.assert_array_equal(shift.grad, [[1, 0], [1, 1]])

    def test_kept_gradients_have_their_own_memory(self):
        client = self.connect()
        table = cairn.torch.Embedding(client, "t", 1, initializer="zeros",
                                      optimizer=cairn.optim.SGD(1.0))
        optimizer = cairn.torch.ServerOptimizer([], client, tables=[table], optimizer="sgd")
        keys, gradient = torch.zeros(2, dtype=torch.long), torch.zeros(2, 1)
        for i in range(3):
            keys.copy_(torch.tensor([2 * i, 2 * i + 1]))
            gradient.fill_(i + 1.0)
            table(keys).backward(gradient)
        keys.zero_()
        gradient.zero_()
        optimizer.step()
        np.testing.assert_array_equal(table.table[np.arange(6)][:, 0], [-1, -1, -2, -2, -3, -3])
        rows = table(keys)
        keys.fill_(9)  # before backward
        rows.sum().backward()
        optimizer.step()
        np.testing.assert_array_equal(table.table[[0, 9]][:, 0], [-3, 0])

    def test_tables_are_frozen_by_requires_grad(self):
        client, keys = self.connect(), torch.tensor([[1, 2]])
        for kind in (cairn.torch.Embedding, cairn.torch.EmbeddingBag):
            module = kind(client, kind.__name__, 1, initializer="zeros",
                          optimizer=cairn.optim.SGD(1.0))
            top = torch.nn.Parameter(torch.ones(1))
            self.assertIs(module.requires_grad_(False), module)
            self.assertFalse(module(keys).requires_grad)
            (module(keys) * top).sum().backward()
            self.assertEqual(len(module.table.scan()[0]), 0)
            module.requires_grad_()
            (module(keys) * top).sum().backward()
            self.assertEqual(len(module.table.scan()[0]), 2)
            with self.assertRaisesRegex(TypeError, "requires_grad is"):
                module.requires_grad_("no")

    def check_defaults(self, name):
        """Modules and their optimizer, whatever torch's default dtype and device are."""
        client, keys = self.connect(), torch.tensor([[0, 1]], device="cpu")
        tables = [kind(client, name + kind.__name__, 2, padding_idx=0, initializer="zeros",
                       optimizer=cairn.optim.SGD(1.0), **arguments) for kind, arguments in
                  ((cairn.torch.Embedding, {}), (cairn.torch.EmbeddingBag, {"mode": "sum"}))]
        weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))
        bare = cairn.torch.ServerOptimizer([], client, tables=tables[1:], name=name + "bare",
                                           optimizer="sgd")
        with unittest.mock.patch.object(cairn.torch._optimizer, "_on_host", lambda tensor: False):
            optimizer = cairn.torch.ServerOptimizer([weight], client, tables=tables[:1], name=name,
                                                    optimizer=cairn.optim.SGD(1.0))
        self.assertEqual(float(optimizer.clip_grad_norm_(1.0)), 0)
        for scales in (False, True):
            optimizer.zero_grad()
            bare.zero_grad()
            for table in tables:
                rows = table(keys)
                self.assertEqual((rows.dtype, rows.device.type), (torch.float32, "cpu"))
                rows.sum().backward()
            weight.sum().backward()
            if scales:
                optimizer.clip_grad_norm_(100.0)
                for group in bare.param_groups:
                    for parameter in group["params"]:
                        parameter.grad.mul_(0.5)
            optimizer.step()
            bare.step()
        np.testing.assert_array_equal(weight.detach().numpy(), [-2])
        np.testing.assert_array_equal(tables[0].table[[1]], [[-2, -2]])
        np.testing.assert_array_equal(tables[1].table[[1]], [[-1.5, -1.5]])

    def test_defaults_of_torch_do_not_matter(self):
        for i, context in enumerate((default_dtype(torch.float64), default_dtype(torch.bfloat16),
                                     default_dtype(torch.float16), default_device("meta"))):
            with self.subTest(context=i), context:
                self.check_defaults(f"n{i}")

    def test_server_optimizer_is_an_optimizer_of_torch(self):
        client, model = self.connect(), torch.nn.Linear(2, 1)
        optimizer = cairn.torch.ServerOptimizer(model.parameters(), client,
                                                optimizer=cairn.optim.SGD(0.5))
        self.assertIsInstance(optimizer, torch.optim.Optimizer)
        (group,) = optimizer.param_groups
        self.assertEqual(group["lr"], 0.5)
        self.assertEqual([id(p) for p in group["params"]], [id(p) for p in model.parameters()])
        before, x = model.weight.detach().clone(), torch.ones(1, 2)

        def closure():
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        self.assertAlmostEqual(float(loss), float(before.sum() + model.bias + 0.5), places=5)
        torch.testing.assert_close(model.weight.detach(), before - 0.5)
        optimizer.zero_grad(set_to_none=False)
        self.assertEqual(float(model.weight.grad.abs().sum()), 0)

    def test_state_of_a_server_optimizer_is_on_the_servers(self):
        client, model = self.connect(), torch.nn.Linear(2, 1)
        optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.Adam(0.1))
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        state, weight = optimizer.state_dict(), model.weight.detach().clone()
        self.assertEqual(state["state"], {})
        self.assertEqual(state["param_groups"][0]["lr"], 0.1)
        optimizer.load_state_dict(state)
        torch.testing.assert_close(model.weight.detach(), weight)
        local = torch.optim.Adam(model.parameters())
        local.step()
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "Client.restore"):
            optimizer.load_state_dict(local.state_dict())
        with self.assertRaisesRegex(NotImplementedError, "another name"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            pickle.dumps(optimizer)

    def test_schedulers_of_torch_are_refused(self):
        client, model = self.connect(), torch.nn.Linear(2, 1)
        schedule = cairn.optim.CosineDecay(0.1, 100)
        for i, rate in enumerate((0.5, schedule)):
            optimizer = cairn.torch.ServerOptimizer(model, client, name=f"n{i}",
                                                    optimizer=cairn.optim.SGD(rate))
            for scheduler in (torch.optim.lr_scheduler.StepLR, torch.optim.lr_scheduler.LambdaLR):
                with self.assertRaisesRegex(NotImplementedError, "cairn.optim.CosineDecay"):
                    scheduler(optimizer, 3 if scheduler.__name__ == "StepLR" else lambda _: 0.5)
            with self.assertRaisesRegex(NotImplementedError, "the servers apply the learning rate"):
                optimizer.param_groups[0]["lr"] = 0.25
            self.assertEqual(optimizer.param_groups[0].get("lr"), 0.5 if i == 0 else None)

    def test_wrong_arguments(self):
        client = self.connect()
        for params in (torch.ones(2), [{"params": []}], [1.0], 3):
            with self.assertRaisesRegex(TypeError, "params"):
                cairn.torch.ServerOptimizer(params, client, optimizer="sgd")
        with self.assertRaisesRegex(TypeError, r"tables\[0\]"):
            cairn.torch.ServerOptimizer([], client, optimizer="sgd", tables=[torch.nn.Linear(1, 1)])
        bag = cairn.torch.EmbeddingBag(client, "t", 2, optimizer="sgd")
        keys = torch.tensor([1, 2])
        for arguments, text in (((keys,), "keys has shape"), ((keys, [0]), "offsets is"),
                                ((keys, torch.tensor([0.0])), "offsets is"),
                                ((keys, torch.tensor([1])), "for 2 keys; expected 0 first"),
                                ((keys, torch.tensor([0, 2, 1])), "expected 0 first"),
                                ((keys, torch.tensor([0, 3])), "at most the number of keys"),
                                ((keys, torch.tensor([0]), torch.ones(2)), "mode 'mean'"),
                                (([1, 2],), "keys is")):
            with self.assertRaisesRegex(cairn.InvalidArgumentError, text):
                bag(*arguments)
        with self.assertRaisesRegex(cairn.InvalidArgumentError, "keys_of is"):
            cairn.torch.prefetch([], {"t": len})

    def check_server_optimizer(self, device="cpu"):
        client = self.connect()
        torch.manual_seed(1)

        def layers():
            return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(),
                                       torch.nn.Linear(3, 1)).to(device)

        ours, theirs = layers(), layers()
        theirs.load_state_dict(ours.state_dict())
        server = cairn.torch.ServerOptimizer(ours, client,
                                             optimizer=cairn.optim.SGD(0.1, momentum=0.9))
        local = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9)
        for step in range(5):
            x = torch.randn(8, 4).to(device)
            for model, optimizer in ((ours, server), (theirs, local)):
                optimizer.zero_grad()
                (model(x) ** 2).mean().backward()
                optimizer.step()
            for mine, yours in zip(ours.parameters(), theirs.parameters()):
                torch.testing.assert_close(mine, yours, msg=f"step {step}")
        # A worker that starts later takes the servers' values.
        late = layers()
        cairn.torch.ServerOptimizer(late, self.connect(worker=1),
                                    optimizer=cairn.optim.SGD(0.1, momentum=0.9))
        for mine, yours in zip(ours.parameters(), late.parameters()):
            torch.testing.assert_close(mine, yours)

    def test_server_optimizer_is_torchs(self):
        self.check_server_optimizer()

    def test_parameters_elsewhere_are_updated_through_copies(self):
        with unittest.mock.patch.object(cairn.torch._optimizer, "_on_host", lambda tensor: False):
            self.check_server_optimizer()

    def test_parameters_whose_memory_is_not_row_major(self):
        torch.manual_seed(1)
        ours = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        theirs = torch.nn.Conv2d(3, 4, 3)
        theirs.load_state_dict(ours.state_dict())
        server = cairn.torch.ServerOptimizer(ours, self.connect(), optimizer=cairn.optim.SGD(0.1))
        local = torch.optim.SGD(theirs.parameters(), 0.1)
        for _ in range(3):
            x = torch.randn(2, 3, 5, 5)
            for model, optimizer in ((ours, server), (theirs, local)):
                optimizer.zero_grad()
                (model(x.to(memory_format=torch.channels_last)) ** 2).mean().backward()
                optimizer.step()
            torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
        self.assertTrue(ours.weight.is_contiguous(memory_format=torch.channels_last))

    def test_values_loaded_after_the_optimizer_are_refused(self):
        client = self.connect()
        model, pretrained = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.SGD(1.0))
        initial = model.weight.detach().clone()
        model.load_state_dict(pretrained.state_dict())
        model(torch.ones(1, 2)).sum().backward()
        for _ in range(2):
            with self.assertRaisesRegex(cairn.FailedPreconditionError,
                                        "'dense/weight' was changed .*load_state_dict"):
                optimizer.step()
        torch.testing.assert_close(torch.tensor(client.variables()["dense/weight"][...]), initial)

        # A second start takes the servers' values, and loading the same ones changes nothing.
        optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.SGD(1.0))
        model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
        optimizer.step()
        torch.testing.assert_close(model.weight.detach(), initial - 1)

    def test_optimizers_of_a_job_need_different_names(self):
        client, small, large = self.connect(), torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        large.more = torch.nn.Parameter(torch.ones(2))
        cairn.torch.ServerOptimizer(small, client, optimizer="sgd")
        for _ in range(2):  # the failed one has created nothing
            with self.assertRaisesRegex(cairn.FailedPreconditionError, "'dense/more'.* name="):
                cairn.torch.ServerOptimizer(large, client, optimizer="sgd")
        torch.testing.assert_close(large.more.detach(), torch.ones(2))
        cairn.torch.ServerOptimizer(large, client, optimizer="sgd", name="dense2")
        torch.testing.assert_close(large.more.detach(), torch.ones(2))
        cairn.torch.ServerOptimizer(large, self.connect(), optimizer="sgd", name="dense2")

    def test_workers_may_make_a_new_optimizer_at_once(self):
        """Worker 0 makes all of its optimizer while worker 1 makes its own, at every point."""
        client, late = self.connect(), self.connect(worker=1)
        client.variable("variables1/ready", (), "int32")  # by a start that was killed
        for method, call in (("variables", 1), ("variable", 1), ("variable", 3)):
            name, calls = f"{method}{call}", []
            first, second = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
            original = getattr(late, method)

            def with_the_other(*arguments, **options):
                calls.append(arguments)
                listed = original() if method == "variables" else None
                if len(calls) == call:
                    cairn.torch.ServerOptimizer(first, client, optimizer="sgd", name=name)
                return listed or original(*arguments, **options)

            with self.subTest(name), unittest.mock.patch.object(late, method, with_the_other):
                cairn.torch.ServerOptimizer(second, late, optimizer="sgd", name=name)
                torch.testing.assert_close(second.state_dict(), first.state_dict())

    def test_a_failed_optimizer_adopts_no_table(self):
        client = self.connect()
        table = cairn.torch.Embedding(client, "t", 1, optimizer=cairn.optim.SGD(1.0),
                                      initializer="zeros")
        client.variable("dense/0", (3,))
        with self.assertRaises(cairn.AlreadyExistsError):
            cairn.torch.ServerOptimizer([torch.nn.Parameter(torch.zeros(2))], client,
                                        tables=[table], optimizer="sgd")
        table(torch.tensor([5])).sum().backward()
        np.testing.assert_array_equal(table.table[[5]], [[-1]])

    def test_bfloat16_tensors_are_read_and_written_in_place(self):
        variable = self.connect().variable("b", (2, 2), torch.bfloat16)
        values = torch.tensor([[1, -2], [0.5, 3]], dtype=torch.bfloat16, requires_grad=True)
        variable.assign(values)
        memory = torch.zeros(2, 2, dtype=torch.bfloat16)
        variable.pull(memory)
        torch.testing.assert_close(memory, values.detach())
        np.testing.assert_array_equal(variable[0], [0x3f80, 0xc000])
        variable.assign(values.t())
        np.testing.assert_array_equal(variable[0], [0x3f80, 0x3f00])
        with self.assertRaisesRegex(cairn.DTypeError, "values cannot be viewed through DLPack"):
            variable.assign(values.detach().to_sparse())

    def test_bfloat16_tensors_are_no_keys(self):
        client, keys = self.connect(), torch.tensor([1, 2], dtype=torch.bfloat16)
        table, w = client.embedding("t", 1, optimizer="sgd"), client.variable("w", (3, 1))
        values = np.ones((2, 1), np.float32)
        for what, call in (("keys", lambda: table.pull(keys)),
                           ("keys", lambda: table.push(keys, values)),
                           ("keys", lambda: table.assign(keys, values)),
                           ("keys", lambda: client.pull([(table, keys)])),
                           ("rows", lambda: w.pull(rows=keys)),
                           ("rows", lambda: w.assign(values, rows=keys))):
            with self.assertRaisesRegex(cairn.DTypeError, what + " are bfloat16; expected integers"):
                call()
        self.assertEqual(len(table.scan()[0]), 0)

    @unittest.skipUnless(not MISSING and torch.cuda.is_available(), "PyTorch finds no GPU")
    def test_parameters_on_a_gpu(self):
        self.check_server_optimizer("cuda")

    @unittest.skipUnless(not MISSING and torch.cuda.is_available(), "PyTorch finds no GPU")
    def test_rows_on_a_gpu(self):
        client = self.connect()
        functions = torch.nn.functional
        for kind, function in ((cairn.torch.Embedding, functions.embedding),
                               (cairn.torch.EmbeddingBag, functions.embedding_bag)):
            with self.subTest(kind=kind.__name__):
                module = kind(client, kind.__name__, 3, optimizer=cairn.optim.SGD(1.0),
                              padding_idx=2)
                weight = self.same_weights(module, 6)
                keys = torch.tensor([[1, 2, 5], [5, 5, 2]])
                theirs = function(keys, weight, padding_idx=2)
                ours = module(keys.cuda())
                self.assertTrue(ours.is_cuda)
                torch.testing.assert_close(ours.cpu(), theirs)
                (ours ** 2).sum().backward()
                (theirs ** 2).sum().backward()
                self.check_updated(module, weight)

    def test_tables_and_parameters_are_one_update(self):
        client = self.connect()

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = cairn.torch.Embedding(client, "t", 2, initializer="zeros",
                                                   optimizer=cairn.optim.SGD(1.0))
                self.bias = torch.nn.Parameter(torch.zeros(2))

            def forward(self, keys):
                return self.table(keys) + self.bias

        model = Model()
        optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.SGD(1.0))
        before = client.counters().bytes_pushed
        model(torch.tensor([3, 3])).sum().backward()
        self.assertEqual(client.counters().bytes_pushed, before)  # kept until the step
        optimizer.step(position="after 1")
        np.testing.assert_array_equal(model.table.table[[3]], [[-2, -2]])
        np.testing.assert_array_equal(model.bias.detach().numpy(), [-2, -2])
        client.leave()
        self.assertEqual(self.connect().position, b"after 1")

    def test_modules_that_share_a_table(self):
        client, rate = self.connect(), cairn.optim.SGD(1.0)
        keys, scale = torch.tensor([[1, 3, 3], [0, 1, 5]]), torch.randn(2, 3, 2)
        for clips in (False, True):
            words = cairn.torch.Embedding(client, f"words{clips}", 2, optimizer=rate)
            bags = cairn.torch.EmbeddingBag(client, f"words{clips}", 2, optimizer=rate, mode="sum")
            optimizer = cairn.torch.ServerOptimizer([], client, tables=[bags, words],
                                                    name=f"dense{clips}", optimizer=rate)
            weight = self.same_weights(words, 6)
            for _ in range(2):
                ((words(keys) * scale).sum() + (bags(keys) ** 2).sum()).backward()
                theirs = torch.nn.functional.embedding_bag(keys, weight, mode="sum")
                ((torch.nn.functional.embedding(keys, weight) * scale).sum() +
                 (theirs ** 2).sum()).backward()
            if clips:
                torch.testing.assert_close(optimizer.clip_grad_norm_(0.5),
                                           torch.nn.utils.clip_grad_norm_([weight], 0.5))
            optimizer.step()
            self.check_updated(words, weight)

    def clipped_pair(self, name):
        """A table and a parameter on the servers, with a gradient of norm 5 after backward."""
        client = self.connect()
        table = cairn.torch.Embedding(client, f"t{name}", 1, initializer="zeros",
                                      optimizer=cairn.optim.SGD(1.0))
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = cairn.torch.ServerOptimizer([weight], client, tables=[table], name=name,
                                                optimizer=cairn.optim.SGD(1.0))

        def backward(scale=1.0):
            # Key 1 twice, and in two passes: its gradients add up to 3.
            ((table(torch.tensor([1, 1])).sum() + 4 * weight.sum()) * scale).backward()
            (table(torch.tensor([1])).sum() * scale).backward()

        return table, weight, optimizer, backward

    def test_norms_include_tables(self):
        table, weight, optimizer, backward = self.clipped_pair("dense")
        backward()
        self.assertAlmostEqual(float(optimizer.clip_grad_norm_(1.0)), 5, places=5)
        self.assertAlmostEqual(float(optimizer.clip_grad_norm_(10.0)), 1, places=5)
        optimizer.step()
        np.testing.assert_allclose(table.table[[1]], [[-0.6]], rtol=1e-5)
        np.testing.assert_allclose(weight.detach(), [-0.8], rtol=1e-5)
        optimizer.zero_grad()
        self.assertEqual(float(optimizer.clip_grad_norm_(1.0)), 0)
        optimizer.step()
        np.testing.assert_allclose(table.table[[1]], [[-0.6]], rtol=1e-5)
        with self.assertRaisesRegex(ValueError, "max_norm is -1"):
            optimizer.clip_grad_norm_(-1)

    def test_torchs_own_clipping_of_the_group_includes_tables(self):
        table, weight, optimizer, backward = self.clipped_pair("dense")
        backward()
        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 2.0)
        optimizer.step()
        np.testing.assert_allclose(table.table[[1]], [[-1.5]], rtol=1e-5)  # half, as the others
        np.testing.assert_allclose(weight.detach(), [-2], rtol=1e-5)

    def test_loss_scaling_reaches_tables(self):
        for unscales in (False, True):
            table, weight, optimizer, backward = self.clipped_pair(f"dense{unscales}")
            scaler = LossScaler(1024.0)
            optimizer.zero_grad()
            backward(1024)
            if unscales:
                scaler.unscale_(optimizer)
                self.assertAlmostEqual(float(optimizer.clip_grad_norm_(100.0)), 5, places=5)
            self.assertTrue(scaler.step(optimizer))
            np.testing.assert_allclose(table.table[[1]], [[-3]], rtol=1e-6)
            np.testing.assert_allclose(weight.detach(), [-4], rtol=1e-6)

    def test_loss_scaling_sees_overflows_of_tables(self):
        table, weight, optimizer, backward = self.clipped_pair("dense")
        scaler = LossScaler(1024.0)
        (table(torch.tensor([1])).sum() * float("inf")).backward()
        weight.sum().backward()
        self.assertFalse(scaler.step(optimizer))  # skipped
        optimizer.zero_grad()
        scaler = LossScaler(1024.0)
        backward(1024)
        self.assertTrue(scaler.step(optimizer))
        np.testing.assert_allclose(table.table[[1]], [[-3]], rtol=1e-6)

    def test_a_table_belongs_to_its_last_optimizer(self):
        table, _, first, backward = self.clipped_pair("dense")
        last = cairn.torch.ServerOptimizer([], table.table.client, tables=[table], name="last",
                                           optimizer=cairn.optim.SGD(1.0))
        backward()
        first.step()
        np.testing.assert_array_equal(table.table[[1]], [[0]])
        last.step()
        np.testing.assert_array_equal(table.table[[1]], [[-3]])

    def test_two_synchronous_workers_agree(self):
        models = {}

        def train(index):
            client = self.connect(worker=index, workers=2, consistency="sync")
            torch.manual_seed(index)
            model = torch.nn.Linear(3, 1)
            optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.SGD(0.1))
            generator = torch.Generator().manual_seed(index)
            for _ in range(20):
                x = torch.randn(16, 3, generator=generator)
                optimizer.zero_grad()
                ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
                optimizer.step(rows=16)
            optimizer.finish()
            models[index] = model.weight.detach().numpy().copy()

        threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        np.testing.assert_array_equal(models[0], models[1])
        np.testing.assert_allclose(models[0], [[1, 1, 1]], atol=0.1)

    def test_the_clusters_first_worker_sets_the_initial_values(self):
        tf_config = {"cluster": {"ps": self.cluster.addresses, "worker": [addresses.own_address()]},
                     "task": {"type": "worker", "index": 0}}
        client = cairn.connect(json.dumps(tf_config), job="auto", worker="auto")
        self.addCleanup(client.close)
        self.assertEqual(client.worker, 0)
        layer = torch.nn.Linear(2, 1)
        begin = layer.weight.detach().clone()
        optimizer = cairn.torch.ServerOptimizer(layer, client, optimizer=cairn.optim.SGD(1.0))
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        np.testing.assert_allclose(layer.weight.detach(), begin - 1, rtol=1e-6)

    def test_prefetch_pulls_ahead(self):
        client = self.connect()
        module = cairn.torch.Embedding(client, "t", 2, optimizer=cairn.optim.SGD(1.0),
                                       initializer="zeros")
        batches = [torch.tensor([i, i + 1]) for i in range(10)]
        seen = []
        for batch in cairn.torch.prefetch(batches, {module: lambda keys: keys}):
            self.assertIsNotNone(module._ahead)
            module(batch).sum().backward()
            self.assertIsNone(module._ahead)
            seen.append(batch)
        self.assertEqual([b.tolist() for b in seen], [b.tolist() for b in batches])
        np.testing.assert_array_equal(module.table[np.arange(11)][:, 0], [-1] + [-2] * 9 + [-1])

        # Rows that no forward pass took are not those of a later one.
        for batch in cairn.torch.prefetch(batches, {module: lambda keys: keys}):
            break
        self.assertIsNone(module._ahead)
        module.table.assign(batches[0], torch.full((2, 2), 7.0))
        np.testing.assert_array_equal(module(batches[0]).detach(), np.full((2, 2), 7))

        def broken(_):
            raise KeyError("no keys in this batch")

        with self.assertRaisesRegex(KeyError, "no keys"):
            list(cairn.torch.prefetch(batches, {module: broken}))


    def test_prefetched_keys_may_move(self):
        """Keys of another device, or of another integer type, are compared by value."""
        class Elsewhere(torch.Tensor):
            """Keys on a GPU, which torch.equal refuses beside keys of the host."""

            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                if function is torch.equal:
                    raise RuntimeError("Expected all tensors to be on the same device")
                result = super().__torch_function__(function, types, args, kwargs or {})
                return result.as_subclass(torch.Tensor) if function is torch.Tensor.cpu else result

        module = cairn.torch.Embedding(self.connect(), "t", 2, optimizer="sgd")
        for move in (lambda keys: keys.clone().as_subclass(Elsewhere),
                     lambda keys: keys.to(torch.int32)):
            ahead = module._prepare(torch.tensor([4, 5]))
            module._ahead = ahead
            moved = move(torch.tensor([4, 5]))
            looked = module._look_up(moved)
            self.assertIs(looked.rows, ahead.rows)
            self.assertIs(looked.keys, moved)
            module._ahead = ahead
            self.assertIsNot(module._look_up(move(torch.tensor([4, 6]))).rows, ahead.rows)

    def test_dlrm_is_torchs(self):
        """examples/python/dlrm.py with its tables on the servers and in one torch process."""
        sys.path.insert(0, os.path.join(processes.TOP, "examples", "python"))
        import dlrm
        dense, hashed, labels = dlrm.read(processes.data("criteo-sample", "criteo_sample.csv"))
        keys = torch.stack([torch.unique(column, return_inverse=True)[1] for column in hashed.T], 1)
        client = self.connect()
        models, optimizers = [dlrm.on_servers(client)], []
        torch.manual_seed(1)
        models.append(dlrm.Dlrm(torch.nn.Embedding(int(column.max()) + 1, dlrm.DIM)
                                for column in keys.T))
        for ours, theirs in zip(models[0].tables, models[1].tables):
            ours.table.assign(torch.arange(len(theirs.weight)), theirs.weight.detach())
        for part in ("bottom", "top"):
            getattr(models[0], part).load_state_dict(getattr(models[1], part).state_dict())
        optimizers.append(cairn.torch.ServerOptimizer(models[0], client,
                                                      optimizer=cairn.optim.Adagrad(0.1)))
        optimizers.append(torch.optim.Adagrad(models[1].parameters(), 0.1,
                                              initial_accumulator_value=0.1))
        train, test = torch.arange(200) % 4 != 0, torch.arange(200) % 4 == 0
        scores = []
        for model, optimizer in zip(models, optimizers):
            for _ in range(3):
                for rows in torch.split(torch.nonzero(train)[:, 0], 10):
                    optimizer.zero_grad()
                    torch.nn.functional.binary_cross_entropy_with_logits(
                        model(dense[rows], keys[rows]), labels[rows]).backward()
                    optimizer.step()
            with torch.no_grad():
                scores.append(model(dense[test], keys[test]))
        torch.testing.assert_close(*scores, rtol=0.01, atol=0.01)
        aucs = [dlrm.auc(s, labels[test]) for s in scores]
        self.assertAlmostEqual(*aucs, delta=0.002)

    def test_ddp_beside_a_table(self):
        """Dense layers by DistributedDataParallel, and a table that backward pushes to."""
        program = """
import sys, torch, cairn, cairn.torch
worker, store, servers = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=worker,
                                     world_size=2)
with cairn.connect(servers, job="ddp", worker=worker, workers=2) as client:
    table = cairn.torch.Embedding(client, "t", 1, optimizer=cairn.optim.SGD(1.0),
                                  initializer="zeros")
    top = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(top.weight)
    top = torch.nn.parallel.DistributedDataParallel(top)
    optimizer = torch.optim.SGD(top.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad()
        top(table(torch.tensor([worker] * (worker + 1)))).sum().backward()
        optimizer.step()
    print(float(top.module.weight))
"""
        with tempfile.TemporaryDirectory() as folder:
            running = [subprocess.Popen(
                [sys.executable, "-c", program, str(i), os.path.join(folder, "store"),
                 *self.cluster.addresses], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}) for i in range(2)]
            for process in running:  # a process that hangs must not outlive the test
                self.addCleanup(process.wait)
                self.addCleanup(process.kill)
            printed = [process.communicate(timeout=240) for process in running]
        self.assertEqual([process.returncode for process in running], [0, 0], printed)
        weight, rows, sizes = 1.0, np.zeros(2), np.array([1, 2])
        for _ in range(4):
            slope = (rows * sizes).mean()  # DDP averages over the workers
            rows -= weight * sizes
            weight -= 0.1 * slope
        for out, _ in printed:
            self.assertAlmostEqual(float(out), weight, places=5)
        with cairn.connect(self.cluster.addresses, job="ddp") as client:
            np.testing.assert_allclose(client.variables()["t"][[0, 1]][:, 0], rows, rtol=1e-6)


JOB_PROGRAM = """
import sys, torch, cairn, cairn.torch
torch.set_num_threads(1)
worker, steps, servers = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
client = cairn.connect(servers, job="kills", worker=worker, workers=2)
table = cairn.torch.Embedding(client, "t", 1, optimizer=cairn.optim.SGD(1.0), initializer="zeros")
bias = torch.nn.Parameter(torch.zeros(2))
optimizer = cairn.torch.ServerOptimizer([bias], client, optimizer=cairn.optim.SGD(1.0),
                                        tables=[table])
batches = [(step, torch.tensor([step % 7, 100])) for step in range(steps)]
first = int(client.position or b"0")
for step, keys in cairn.torch.prefetch(batches[first:], {table: lambda batch: batch[1]}):
    optimizer.zero_grad()
    (table(keys).sum() + bias.sum()).backward()
    optimizer.step(position=str(step + 1))
    print(step, flush=True)
client.leave()
"""


class _Worker:
    """A training process, restarted whenever it was killed."""

    def __init__(self, *arguments):
        self.command = [sys.executable, "-c", JOB_PROGRAM, *map(str, arguments)]
        self.steps = self.kills = 0
        self.process, self.problems = None, ""
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            with subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as self.process:
                for _ in self.process.stdout:
                    self.steps += 1
                problems = self.process.stderr.read()
            if self.process.returncode != -signal.SIGKILL:
                self.problems = problems if self.process.returncode else ""
                return
            self.kills += 1


@unittest.skipIf(MISSING, f"PyTorch or the package: {MISSING}")
class Kills(unittest.TestCase):
    """Workers and servers of a torch job are killed; every step counts once."""

    STEPS = 500

    def test_initial_values_outlive_their_worker_and_a_server(self):
        with tempfile.TemporaryDirectory() as folder, processes.Cluster(
                folder, 2, ["--snapshot_interval_seconds=100"]) as cluster:
            for index in range(2):
                for last in (3, 6):  # worker 0 is killed after step 3, and a server beside it
                    client = cairn.connect(cluster.addresses, job=f"initial{index}", worker=0)
                    table = cairn.torch.Embedding(client, "t", 1, initializer="zeros",
                                                  optimizer=cairn.optim.SGD(1.0))
                    bias = torch.nn.Parameter(torch.ones(2))
                    optimizer = cairn.torch.ServerOptimizer([bias], client, tables=[table],
                                                            optimizer=cairn.optim.SGD(1.0))
                    for step in range(int(client.position or b"0"), last):
                        optimizer.zero_grad()
                        (table(torch.arange(8)).sum() + bias.sum()).backward()
                        optimizer.step(position=str(step + 1))
                    if last == 3:
                        client.close()
                        cluster.restart(index)
                np.testing.assert_array_equal(table.table[np.arange(8)][:, 0], [-6] * 8)
                np.testing.assert_array_equal(bias.detach(), [-5] * 2)
                client.close()

    def test_every_step_counts_once(self):
        random = np.random.default_rng(7)
        with tempfile.TemporaryDirectory() as folder, processes.Cluster(folder, 2) as cluster:
            workers = [_Worker(i, self.STEPS, *cluster.addresses) for i in range(2)]
            for kill in range(8):
                goal = 100 * kill + 50 + int(random.integers(0, 40))
                processes.wait_for(lambda: sum(w.steps for w in workers) >= goal or
                                   not all(w.thread.is_alive() for w in workers), 100,
                                   f"step {goal} of both workers")
                if kill % 2:
                    cluster.restart(int(random.integers(0, 2)))
                else:
                    workers[kill // 2 % 2].process.kill()
            for worker in workers:
                worker.thread.join(100)
                self.assertFalse(worker.thread.is_alive())
                self.assertEqual(worker.problems, "")
            self.assertGreaterEqual(sum(worker.kills for worker in workers), 2)
            with cairn.connect(cluster.addresses, job="kills") as client:
                table, bias = (client.variables()[name] for name in ("t", "dense/0"))
                np.testing.assert_array_equal(table[[100]], [[-2 * self.STEPS]])
                np.testing.assert_array_equal(
                    table[np.arange(7)][:, 0],
                    [-2 * len(range(i, self.STEPS, 7)) for i in range(7)])
                np.testing.assert_array_equal(bias[...], [-2 * self.STEPS] * 2)


if __name__ == "__main__":
    tap.main()
