"""PyTorch modules whose rows and parameters live on the servers.

    table = cairn.torch.EmbeddingBag(client, "words", 16, optimizer=cairn.optim.Adagrad(0.1))
    model = torch.nn.Sequential(...)              # uses table
    optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.Adam(1e-3))
    for batch in cairn.torch.prefetch(loader, {table: lambda batch: batch.keys}):
        loss = ...
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(position=str(batch.number))

Modules compute on the device of their keys, and parameters may be on any device. Rows, values and
gradients go through this host's memory, which is page-locked for GPUs.
Requires PyTorch 1.13 or newer. The package itself does not link PyTorch."""
from cairn.torch._optimizer import ServerOptimizer
from cairn.torch._prefetch import prefetch
from cairn.torch._tables import Embedding, EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag", "ServerOptimizer", "prefetch"]
