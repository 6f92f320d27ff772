"""cairn.torch against real servers: the same gradients and values as torch's own modules, rows and
parameters that train, prefetch, and exact resume after a kill."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
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


@unittest.skipIf(MISSING, f"PyTorch or the package: {MISSING}")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.folder = tempfile.TemporaryDirectory()
        cls.cluster = processes.Cluster(cls.folder.name, 2)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.__enter__()

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
        for mode in ("sum", "mean"):
            for padding in (None, 3):
                self.check_bag(mode, padding, square)
                self.check_bag(mode, padding, flat, offsets)
        self.check_bag("sum", None, square, weights=torch.rand(2, 3))
        self.check_bag("sum", 3, flat, offsets, torch.rand(5))

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

    def test_server_optimizer_is_torchs(self):
        client = self.connect()
        torch.manual_seed(1)
        ours = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        theirs = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        theirs.load_state_dict(ours.state_dict())
        server = cairn.torch.ServerOptimizer(ours, client,
                                             optimizer=cairn.optim.SGD(0.1, momentum=0.9))
        local = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9)
        for step in range(5):
            x = torch.randn(8, 4)
            for model, optimizer in ((ours, server), (theirs, local)):
                optimizer.zero_grad()
                (model(x) ** 2).mean().backward()
                optimizer.step()
            for mine, yours in zip(ours.parameters(), theirs.parameters()):
                torch.testing.assert_close(mine, yours, msg=f"step {step}")
        # A worker that starts later takes the servers' values.
        late = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        cairn.torch.ServerOptimizer(late, self.connect(worker=1),
                                    optimizer=cairn.optim.SGD(0.1, momentum=0.9))
        for mine, yours in zip(ours.parameters(), late.parameters()):
            torch.testing.assert_close(mine, yours)

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

        def broken(_):
            raise KeyError("no keys in this batch")

        with self.assertRaisesRegex(KeyError, "no keys"):
            list(cairn.torch.prefetch(batches, {module: broken}))

    def test_resumes_exactly_after_kills(self):
        program = """
import sys, torch, cairn, cairn.torch
client = cairn.connect(sys.argv[2:], job=sys.argv[1], worker=0)
module = cairn.torch.Embedding(client, "t", 1, optimizer=cairn.optim.SGD(1.0), initializer="zeros")
optimizer = cairn.torch.ServerOptimizer([torch.nn.Parameter(torch.zeros(1))], client,
                                        optimizer=cairn.optim.SGD(1.0), tables=[module])
first = int(client.position or b"0")
for step in range(first, 300):
    keys = torch.tensor([step % 7, 100])
    optimizer.zero_grad()
    module(keys).sum().backward()
    optimizer.step(position=str(step + 1))
    print(step, flush=True)
client.leave()
"""
        job = self.id().rsplit(".", 1)[-1]
        starts = 0
        while True:
            starts += 1
            process = subprocess.Popen([sys.executable, "-c", program, job,
                                        *self.cluster.addresses], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            lines = 0
            for _ in process.stdout:
                lines += 1
                if starts <= 4 and lines == 40:
                    process.send_signal(signal.SIGKILL)
                    break
            problems = process.stderr.read()
            process.stdout.close()
            process.stderr.close()
            if process.wait() == 0:
                break
            self.assertEqual(process.returncode, -signal.SIGKILL, problems)
        self.assertGreater(starts, 3)
        table = self.connect(worker=None).variables()["t"]
        np.testing.assert_array_equal(table[[100]], [[-300]])
        np.testing.assert_array_equal(table[np.arange(7)][:, 0], [-43] * 6 + [-42])


if __name__ == "__main__":
    tap.main()
