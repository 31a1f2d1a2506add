"""The cost of a gradient of small arrays in the graph, nearly all of which is the recording: microseconds a call.

python bench/graph_cost.py                    beside PyTorch, which records each time, too, and jax.jit, which does once
python bench/graph_cost.py --first dualbcast  the first gradient of a process, and the second, in milliseconds
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS, SECONDS = 9, 0.05


def chain(xp: Any, x: Any, y: Any) -> Any:
    """Sixteen operations and a sum."""
    z = x
    for _ in range(8):
        z = z * y + x
    return xp.sum(z)


def network(xp: Any, w: Any, b: Any, v: Any, c: Any, x: Any, wanted: Any) -> Any:
    """Two layers and the mean of squares."""
    return xp.mean((xp.tanh(x @ w + b) @ v + c - wanted) ** 2)


def cases() -> dict[str, tuple[Callable[..., Any], list[Any], int]]:
    """For each case a function of a library and arrays, the arrays, and of how many of them the gradient is."""
    random = np.random.default_rng(0)

    def arrays(*shapes: tuple[int, ...]) -> list[Any]:
        return [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]

    return {
        "tanh(x)·x, 10 elements": (lambda xp, x: xp.sum(xp.tanh(x) * x), arrays((10,)), 1),
        "16 operations, 100 elements": (chain, arrays((100,), (100,)), 2),
        "16 operations, 2,000 elements": (chain, arrays((2000,), (2000,)), 2),
        "two layers of 8 and 2, 16 rows": (network, arrays((4, 8), (8,), (8, 2), (2,), (16, 4), (16, 2)), 4),
    }


def ours(function: Callable[..., Any], arrays: list[Any], count: int) -> Callable[[], Any]:
    """A call in the graph."""
    from dualbcast import graph

    both = graph.value_and_grad(functools.partial(function, np), wrt=tuple(range(count)))
    return lambda: both(*arrays)


def replayed(function: Callable[..., Any], arrays: list[Any], count: int) -> Callable[[], Any]:
    """A call of a compiled function."""
    from dualbcast import graph

    both = graph.compile(graph.value_and_grad(functools.partial(function, np), wrt=tuple(range(count))))
    for _ in range(3):
        both(*arrays)
    return lambda: both(*arrays)


def of_torch(function: Callable[..., Any], arrays: list[Any], count: int) -> Callable[[], Any]:
    """A call of autograd, eager."""
    import torch

    torch.set_num_threads(1)
    tensors = [torch.from_numpy(array) for array in arrays]

    def call() -> Any:
        wrt = [tensor.detach().requires_grad_() for tensor in tensors[:count]]
        value = function(torch, *wrt, *tensors[count:])
        return value.detach(), torch.autograd.grad(value, wrt)

    return call


def of_jax(function: Callable[..., Any], arrays: list[Any], count: int) -> Callable[[], Any]:
    """A call of a compiled function."""
    import jax

    own = [jax.numpy.asarray(array) for array in arrays]
    both = jax.jit(jax.value_and_grad(functools.partial(function, jax.numpy), argnums=tuple(range(count))))
    return lambda: jax.block_until_ready(both(*own))


SYSTEMS = {"dualbcast": ours, "compiled": replayed, "torch": of_torch, "jax": of_jax}


def microseconds(call: Callable[[], Any]) -> float:
    """The median of rounds."""
    call(), call()
    started = time.perf_counter()
    call()
    count = max(1, int(SECONDS / (time.perf_counter() - started)))
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(count):
            call()
        found.append((time.perf_counter() - started) / count * 1e6)
    return statistics.median(found)


def first(system: str) -> None:
    """Print the times of the first two calls of the network, with everything imported."""
    *_, case = cases().values()
    importlib.import_module({"dualbcast": "dualbcast.graph"}.get(system, system))
    times = [time.perf_counter()]
    call = SYSTEMS[system](*case)
    for _ in range(2):
        call()
        times.append(time.perf_counter())
    print(", ".join(f"{(end - start) * 1e3:.1f} ms" for start, end in itertools.pairwise(times)))


def main() -> None:
    """Print a line for each case; all systems give the same gradients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", choices=SYSTEMS, metavar="SYSTEM")
    if system := parser.parse_args().first:
        first(system)
        return
    systems = {name: make for name, make in SYSTEMS.items() if name == "compiled" or importlib.util.find_spec(name)}
    print(f"{'µs':<34}" + "".join(f"{name:>11}" for name in systems))
    for name, case in cases().items():
        calls = [make(*case) for make in systems.values()]
        expected = calls[0]()
        for call in calls[1:]:
            for found, wanted in zip(call()[1], expected[1], strict=True):
                np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-5)
        print(f"{name:<34}" + "".join(f"{microseconds(call):11.0f}" for call in calls))


if __name__ == "__main__":
    main()
