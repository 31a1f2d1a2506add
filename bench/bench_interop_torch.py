"""A recorded call on PyTorch's tensors and its backward pass: the HM-LSTM cell update, from 4 by 4 to 2048 by 2048.

`pytest bench/bench_interop_torch.py --benchmark-only` times each system, and `python bench/bench_interop_torch.py` lets
them take turns and prints least times and ratios.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.special import sigmoid

torch = pytest.importorskip("torch")

SIZES = (4, 64, 512, 1024, 2048)
THREADS = 2


@differentiable_broadcast
def cell_update(c, f, i, g, z, zb):
    """The hidden state of a hierarchical multiscale LSTM: flush, copy or update."""
    if z == 1:
        return sigmoid(i) * math.tanh(g)
    if zb == 0:
        return c
    return sigmoid(f) * c + sigmoid(i) * math.tanh(g)


def where_form(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
    """The same as users of PyTorch write it: all sides are computed."""
    new = torch.sigmoid(i) * torch.tanh(g)
    return torch.where(z == 1, new, torch.where(zb == 0, c, torch.sigmoid(f) * c + new))


class NoOp(torch.autograd.Function):
    """A function written by hand around a kernel that does nothing: it only makes the tensors."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.save_for_backward(*tensors)
        return torch.empty_like(tensors[0])

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:  # noqa: ARG004
        return *[torch.empty_like(x) for x in ctx.saved_tensors[:4]], None, None


def _numpy_sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


class InNumPy(torch.autograd.Function):
    """A function written by hand in NumPy."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.save_for_backward(*tensors)
        c, f, i, g, z, zb = [x.numpy() for x in tensors]
        new = _numpy_sigmoid(i) * np.tanh(g)
        return torch.from_numpy(np.where(z == 1, new, np.where(zb == 0, c, _numpy_sigmoid(f) * c + new)))

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        c, f, i, g, z, zb = [x.numpy() for x in ctx.saved_tensors]
        bar = cotangent.numpy()
        flush, copy = z == 1, (z != 1) & (zb == 0)
        forget, write, candidate = _numpy_sigmoid(f), _numpy_sigmoid(i), np.tanh(g)
        update = bar * ~(flush | copy)
        written = bar * ~copy
        gradients = (
            bar * copy + update * forget,
            update * c * forget * (1 - forget),
            written * candidate * write * (1 - write),
            written * write * (1 - candidate * candidate),
        )
        return *[torch.from_numpy(each) for each in gradients], None, None


def arguments(n: int) -> list[Any]:
    """c, f, i and g, which require gradients, and a control value for each element in z and zb."""
    rng = np.random.default_rng(0)
    tensors = [torch.from_numpy(rng.standard_normal((n, n), dtype=np.float32)) for _ in range(4)]
    controls = [torch.from_numpy((rng.random((n, n)) < 0.5).astype(np.float32)) for _ in range(2)]
    return [*[x.requires_grad_() for x in tensors], *controls]


def recorded(function: Callable[..., Any], tensors: list[Any], cotangent: Any) -> Callable[[], Any]:
    """A call and its backward pass."""
    return lambda: torch.autograd.grad(function(*tensors), tensors[:4], cotangent)


def on_numpy(tensors: list[Any], cotangent: Any) -> Callable[[], Any]:
    """The same two kernels called on arrays of NumPy's, which nothing records."""
    arrays, bar = [x.detach().numpy() for x in tensors], cotangent.numpy()

    def call() -> Any:
        _, pullback = cell_update.vjp(*arrays, wrt=("c", "f", "i", "g"))
        return pullback(bar)

    return call


def calls(n: int) -> dict[str, Callable[[], Any]]:
    """A call of each system."""
    torch.set_num_threads(THREADS)
    torch.compiler.reset()
    tensors = arguments(n)
    cotangent = torch.ones(n, n)
    compiled = torch.compile(where_form, fullgraph=True, dynamic=False)
    return {
        "dualbcast": recorded(cell_update, tensors, cotangent),
        "dualbcast on NumPy": on_numpy(tensors, cotangent),
        "no-op by hand": recorded(NoOp.apply, tensors, cotangent),
        "NumPy by hand": recorded(InNumPy.apply, tensors, cotangent),
        "torch": recorded(where_form, tensors, cotangent),
        "torch.compile": recorded(compiled, tensors, cotangent),
    }


SYSTEMS = ("dualbcast", "dualbcast on NumPy", "no-op by hand", "NumPy by hand", "torch", "torch.compile")


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("system", SYSTEMS)
def bench_interop_torch(benchmark: Any, system: str, n: int) -> None:
    """One row; the gradients are compared with those of the `where` form first."""
    every = calls(n)
    if system != "no-op by hand":
        for ours, theirs in zip(every[system](), every["torch"](), strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-4, atol=2e-5)
    benchmark.group = f"recorded call and backward pass, {n} by {n}"
    benchmark(every[system])


def main(sizes: list[int]) -> None:
    """Print the least times of calls that take turns, and how they compare with ours."""
    gc.disable()
    for n in sizes:
        every = calls(n)
        least = dict.fromkeys(every, math.inf)
        repeats = max(1, 2000 // (n * n))
        for function in every.values():
            function()
            function()
        end = time.perf_counter() + 12
        while time.perf_counter() < end:
            # In another order each time: threads of PyTorch's stay awake for a while, and take time from the next one.
            for system in random.sample(list(every), len(every)):
                function = every[system]
                function()
                began = time.perf_counter()
                for _ in range(repeats):
                    function()
                least[system] = min(least[system], (time.perf_counter() - began) / repeats)
            gc.collect()
        ours = least["dualbcast"]
        print(f"{n} by {n}")
        for system, seconds in least.items():
            print(f"  {system:20} {seconds * 1e6:10.1f} µs   dualbcast takes {ours / seconds:5.2f} times as long")


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or list(SIZES))
