"""The modules of docs/examples/torch_modules.py: gradients like those of a reference in PyTorch, and they learn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))

import torch_modules  # noqa: E402


def reference_cell(c: Any, h: Any, f: Any, i: Any, o: Any, g: Any, z: Any, z_below: Any) -> tuple[Any, Any]:
    """The three cases weighted: where z and z_below are 0 or 1 it is one of them, and nothing is chosen by `where`."""
    write = torch.sigmoid(i) * torch.tanh(g)
    new_c = z * write + (1 - z) * (z_below * (torch.sigmoid(f) * c + write) + (1 - z_below) * c)
    shown = torch.sigmoid(o) * torch.tanh(new_c)
    return new_c, z * shown + (1 - z) * (z_below * shown + (1 - z_below) * h)


def reference_boundary(s: Any, slope: float, z_below: Any) -> Any:
    hard = ((slope * s + 1) / 2).clamp(0, 1)
    return z_below * (hard + ((hard > 0.5).to(hard.dtype) - hard).detach())


def reference_bent(x: Any, tail: Any) -> Any:
    """Products with masks of arguments that are always positive."""
    outside = (x.abs() > 1).to(x.dtype)
    size = 1 + outside * (x.abs() - 1)
    return (1 - outside) * x + outside * x.sign() * (1 + tail * torch.log(size))


def gradients(model: Any, data: Any) -> list[Any]:
    scores = model(data[:, :-1], slope=1.5)
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), data[:, 1:].flatten())
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def test_gradients_are_those_of_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    try:
        model, data = torch_modules.Model(5, 8), torch_modules.sequences(6, 10, 5)
        with torch.no_grad():  # larger numbers reach every branch
            for parameter in model.parameters():
                parameter.mul_(3.0)
        ours = gradients(model, data)
        monkeypatch.setattr(torch_modules, "cell", reference_cell)
        monkeypatch.setattr(torch_modules, "boundary", reference_boundary)
        monkeypatch.setattr(torch_modules, "bent", reference_bent)
        theirs = gradients(model, data)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(g.abs().sum() > 0 for g in ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_bent_is_finite_at_zero() -> None:
    x = torch.tensor([-2.0, -1.0, 0.0, 0.5, 3.0], requires_grad=True)
    torch_modules.Bent(5)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.5, 1.0, 1.0, 1.0, 1 / 3]))


def test_the_loss_falls() -> None:
    losses = torch_modules.train(steps=15)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
def test_the_model_is_compiled_without_a_graph_break() -> None:
    model, data = torch_modules.Model(5, 8), torch_modules.sequences(6, 4, 5)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, data), gradients(model, data))
