"""Functions of dualbcast in PyTorch's modules: an activation with a trained tail, and a hierarchical multiscale LSTM.

`python docs/examples/torch_modules.py` trains both together on sequences that repeat, and prints the loss.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hmlstm import boundary, cell
from torch import nn

from dualbcast import differentiable_broadcast


@differentiable_broadcast
def bent(x, tail):
    """The identity from -1 to 1, and logarithmic beyond: no logarithm of a number near 0 is ever taken."""
    if x > 1:
        return 1 + tail * math.log(x)
    if x < -1:
        return -1 - tail * math.log(-x)
    return x


class Bent(nn.Module):
    """The activation `bent`, with a tail for each feature that is trained."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.tail = nn.Parameter(torch.ones(features))

    def forward(self, x: Any) -> Any:
        """Activations of shape (..., features)."""
        return bent(x, self.tail)


class HMLSTMCell(nn.Module):
    """A layer of a hierarchical multiscale LSTM. It is updated where the layer below ends a segment."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.from_below, self.from_before = nn.Linear(inputs, 4 * hidden + 1), nn.Linear(hidden, 4 * hidden + 1)
        self.hidden = hidden

    def start(self, rows: int) -> tuple[Any, Any, Any]:
        """c and h of shape (rows, hidden), and z, which says where a segment has ended, of shape (rows, 1)."""
        return torch.zeros(rows, self.hidden), torch.zeros(rows, self.hidden), torch.zeros(rows, 1)

    def forward(self, x: Any, state: tuple[Any, Any, Any], z_below: Any, slope: float) -> tuple[Any, Any, Any]:
        """The next state from that of the layer, and the input x of shape (rows, inputs)."""
        c, h, z = state
        *gates, s = (z_below * self.from_below(x) + self.from_before(h)).split([self.hidden] * 4 + [1], dim=-1)
        c, h = cell(c, h, *gates, z, z_below)
        return c, h, boundary(s, slope, z_below)


class Model(nn.Module):
    """Two layers, and the next symbol from both of their states."""

    def __init__(self, symbols: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, hidden)
        self.layers = nn.ModuleList([HMLSTMCell(hidden, hidden) for _ in range(2)])
        self.mixed, self.activation = nn.Linear(2 * hidden, hidden), Bent(hidden)
        self.output = nn.Linear(hidden, symbols)

    def forward(self, symbols: Any, slope: float = 1.0) -> Any:
        """Scores of the next symbol, of shape (rows, length, symbols), for symbols of shape (rows, length)."""
        rows, length = symbols.shape
        states = [layer.start(rows) for layer in self.layers]
        scores = []
        for at in range(length):
            below, z_below = self.embedding(symbols[:, at]), torch.ones(rows, 1)
            for k, layer in enumerate(self.layers):
                states[k] = layer(below, states[k], z_below, slope)
                _, below, z_below = states[k]
            mixed = self.mixed(torch.cat([h for _, h, _ in states], dim=-1))
            scores.append(self.output(self.activation(mixed)))
        return torch.stack(scores, dim=1)


def sequences(rows: int, length: int, symbols: int, seed: int = 0) -> Any:
    """Sequences that repeat a random piece of three symbols."""
    pieces = torch.randint(symbols, (rows, 3), generator=torch.Generator().manual_seed(seed))
    return pieces.repeat(1, length // 3 + 1)[:, :length]


def train(steps: int = 100, rows: int = 32, length: int = 12, symbols: int = 5, hidden: int = 24) -> list[float]:
    """The loss at each step."""
    torch.manual_seed(0)
    model, data = Model(symbols, hidden), sequences(rows, length + 1, symbols)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    for step in range(steps):
        scores = model(data[:, :-1], slope=1.0 + step / steps)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), data[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for number, value in enumerate(train()):
        if number % 10 == 9:
            print(f"step {number + 1:3}: loss {value:.3f}")
