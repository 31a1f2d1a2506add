"""A step of training in the graph, plain and compiled, beside PyTorch: python bench/graph_steps.py [mlp] [hmlstm].

The parameters of two layers of 64 units and one of 1, for 32 rows; and those of the HM-LSTM of docs/examples with 128
units, for 32 rows of 20 characters, which torch.compile takes minutes for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from graph_cost import microseconds

from dualbcast import graph

RATE = np.float32(0.01)
RANDOM = np.random.default_rng(0)


def mlp_loss(xp: Any, p: Any, x: Any, y: Any) -> Any:
    """The mean of squares."""
    h = xp.tanh(xp.tanh(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"])
    return xp.mean((h @ p["w2"] + p["b2"] - y) ** 2)


def mlp() -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], list[Any]]:
    """The losses of both libraries, the parameters, and the data."""

    def normal(*shape: int) -> Any:
        return (RANDOM.normal(size=shape) / math.sqrt(shape[0])).astype(np.float32)

    p = {"w0": normal(64, 64), "w1": normal(64, 64), "w2": normal(64, 1)}
    p |= {f"b{at}": np.zeros(width, np.float32) for at, width in enumerate((64, 64, 1))}
    import torch

    return (
        lambda *args: mlp_loss(np, *args),
        lambda *args: mlp_loss(torch, *args),
        p,
        [normal(32, 64), normal(32, 1)],
    )


def hmlstm() -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], list[Any]]:
    """The same for the HM-LSTM. PyTorch's straight-through estimators are written with `detach`."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "examples"))
    import hmlstm as model

    symbols = 50
    characters = np.eye(symbols, dtype=np.float32)[RANDOM.integers(0, symbols, (21, 32))]
    memory = model.forgotten(32, 128)
    data = [characters, memory, np.float32(1.0), np.float32(0.1)]
    parameters = model.initial(np.full(symbols, 1 / symbols), 128, 0)
    return lambda *args: model.loss(*args)[0], torch_hmlstm, parameters, data


def _choose(z: Any, one: Any, zero: Any) -> Any:
    return z * one + (1 - z) * zero


def _advance(p: Any, x: Any, memory: Any, slope: Any) -> Any:
    import torch

    after: list[Any] = []
    for at, (c, h, z) in enumerate(memory):
        s = h @ p[f"own{at}"] + p[f"bias{at}"]
        below = after[-1][2] if at else 1.0
        s = s + below * (after[-1][1] @ p[f"below{at}"]) if at else s + x
        if at < 2:
            s = s + z * (memory[at + 1][1] @ p[f"above{at}"])
        f, i, o, g = (s[:, 128 * part : 128 * (part + 1)] for part in range(4))
        write = torch.sigmoid(i) * torch.tanh(g)
        c = _choose(z, write, _choose(below, torch.sigmoid(f) * c + write, c))
        shown = torch.sigmoid(o) * torch.tanh(c)
        h = _choose(z, shown, _choose(below, shown, h))
        if at < 2:
            soft = torch.clamp((slope * s[:, 512:] + 1) / 2, 0, 1)
            z = below * (soft + ((s[:, 512:] > 0).float() - soft).detach())
        after.append((c, h, z))
    return after


def torch_hmlstm(p: Any, x: Any, memory: Any, slope: Any, price: Any) -> Any:
    """The loss of docs/examples/hmlstm.py."""
    import torch

    past = []
    for each in (x[:-1] @ p["below0"]).unbind(0):
        memory = _advance(p, each, memory, slope)
        past.append(memory)
    h = [torch.stack([each[at][1] for each in past]) for at in range(3)]
    gates = sum(h[at] @ p[f"gate{at}"] for at in range(3)).split(1, 2)  # type: ignore[attr-defined]
    e = torch.relu(sum(torch.sigmoid(gates[at]) * (h[at] @ p[f"mix{at}"]) for at in range(3)))  # type: ignore[arg-type]
    scores = e @ p["output"] + p["bias"]
    bits = torch.mean(torch.logsumexp(scores, -1) - (scores * x[1:]).sum(-1)) / math.log(2)
    z1, z2 = (torch.stack([each[at][2] for each in past]) for at in range(2))
    return bits + price * torch.mean(z1 + z2 / 3)


def of_graph(loss: Callable[..., Any], p: dict[str, Any], data: list[Any]) -> dict[str, Callable[[], Any]]:
    """The step in the graph, plain and compiled."""
    both = graph.value_and_grad(loss)

    def step(p: Any, *data: Any) -> Any:
        value, slopes = both(p, *data)
        return value, {name: p[name] - RATE * slopes[name] for name in p}

    compiled = graph.compile(step)
    for _ in range(3):
        compiled(p, *data)
    return {"graph": lambda: step(p, *data), "compiled": lambda: compiled(p, *data)}


def of_torch(loss: Callable[..., Any], p: dict[str, Any], data: list[Any]) -> dict[str, Callable[[], Any]]:
    """The step of PyTorch, eager and compiled."""
    import torch

    def tensors(tree: Any) -> Any:
        if isinstance(tree, tuple | list):
            return [tensors(each) for each in tree]
        return torch.tensor(tree) if isinstance(tree, np.ndarray) else float(tree)

    own = {name: torch.tensor(each, requires_grad=True) for name, each in p.items()}
    given = tensors(data)

    def stepper(function: Callable[..., Any]) -> Callable[[], Any]:
        def step() -> Any:
            value = function(own, *given)
            slopes = torch.autograd.grad(value, list(own.values()), allow_unused=True)
            with torch.no_grad():
                new = {name: w if g is None else w - 0.01 * g for (name, w), g in zip(own.items(), slopes, strict=True)}
            return value.detach(), new

        return step

    return {"PyTorch": stepper(loss), "torch.compile": stepper(torch.compile(loss))}


def main() -> None:
    """Print a line for each model; both libraries give the same loss."""
    models = {"mlp": mlp, "hmlstm": hmlstm}
    for name in sys.argv[1:] or models:
        loss, torch_loss, p, data = models[name]()
        calls = of_graph(loss, p, data) | of_torch(torch_loss, p, data)
        values = [float(call()[0]) for call in calls.values()]
        np.testing.assert_allclose(values, values[0], rtol=1e-4)
        print(
            name + "".join(f"   {what} {microseconds(call) / 1000:.2f} ms" for what, call in calls.items()), flush=True
        )


if __name__ == "__main__":
    main()
