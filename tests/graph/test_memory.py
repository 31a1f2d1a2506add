"""Memory: what a backward pass has used is freed on its way, and no cycles are left for the collector."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dualbcast import graph
from dualbcast.graph.primitives import run
from dualbcast.graph.tape import Primitive
from dualbcast.memory import info, set_limit

SIZE = 20_000
ARRAY = SIZE * 8
STEPS = 200
X = np.linspace(0.1, 0.9, SIZE)


class Memory:
    """What is allocated beyond the start, in arrays: at probes in the forward and in the backward pass."""

    def __init__(self) -> None:
        self.start = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
        self.forward: dict[str, float] = {}
        self.backward: dict[str, float] = {}

    def now(self) -> float:
        return (tracemalloc.get_traced_memory()[0] - self.start) / ARRAY

    def peak(self) -> float:
        return (tracemalloc.get_traced_memory()[1] - self.start) / ARRAY

    def probe(self, x: Any, label: str) -> Any:
        """The same Variable; notes the memory when it passes, in either direction."""

        def pull(_node: Any, cotangents: Any, _wanted: Any) -> Any:
            self.backward[label] = self.now()
            return cotangents

        self.forward[label] = self.now()
        return run(Primitive("probe", lambda array: array, pull), (x,))


@contextmanager
def measured() -> Iterator[Memory]:
    gc.collect()
    gc.disable()
    limit = info().limit
    set_limit(0)  # tracemalloc does not see the pool's blocks
    tracemalloc.start()
    try:
        yield Memory()
    finally:
        tracemalloc.stop()
        set_limit(limit)
        gc.enable()


def chain(x: Any, steps: int = STEPS, memory: Memory | None = None) -> Any:
    for step in range(steps):
        x = np.sin(x) * 1.01
        if memory and step % 50 == 49:
            x = memory.probe(x, f"after {step + 1}")
    return x


@pytest.fixture(autouse=True, params=[False, True], ids=["each operation a kernel", "fused"])
def is_fusing(request: pytest.FixtureRequest) -> Iterator[bool]:
    """With all kernels compiled, which takes memory that is not to be counted."""
    with graph.fusion(request.param):
        for _ in range(2):  # the first time teaches fusion which values are asked for
            graph.grad(lambda x: np.sum(chain(x, memory=Memory())))(X)
        with graph.no_grad():
            chain(graph.Variable(X))
        graph.grad(lambda v: np.sum(graph.grad(lambda x: np.sum(chain(x, 2)))(v)))(X)
        yield request.param


def test_the_backward_pass_adds_nothing_to_the_peak(is_fusing: bool) -> None:
    with measured() as memory:

        def f(x: Any) -> Any:
            total = np.sum(chain(x, memory=memory))
            memory.forward["end"] = memory.now()
            tracemalloc.reset_peak()
            return total

        graph.grad(f)(X)
        peak = memory.peak()
    # Of each step two arrays are kept, and Python's own objects.
    assert memory.forward["end"] <= (40 if is_fusing else 2 * STEPS + 20)
    assert is_fusing or memory.forward["end"] >= 2 * STEPS - 2
    assert peak <= memory.forward["end"] + (5 if is_fusing else 1.5)


def test_what_has_been_passed_is_freed() -> None:
    with measured() as memory:
        graph.grad(lambda x: np.sum(chain(x, memory=memory)))(X)
        left = memory.now()
    for label, before in memory.forward.items():
        # In both directions as much is held at the same place, but for a cotangent or two.
        assert memory.backward[label] <= before + 6, label
    assert memory.backward["after 50"] <= 2 * 50 + 10
    assert left <= 2


def test_the_value_may_be_kept_while_the_graph_is_freed() -> None:
    with measured() as memory:
        value, gradient = graph.value_and_grad(
            lambda x: (lambda y: (np.sum(y), y))(chain(x, memory=memory)), has_aux=True
        )(X)
        left = memory.now()
    assert memory.backward["after 50"] <= 2 * 50 + 10
    assert value[1].shape == gradient.shape
    assert left <= 4


def test_checkpoints_hold_the_square_root() -> None:
    segment = graph.checkpoint(lambda x: chain(x, 14))

    def f(x: Any) -> Any:
        for _ in range(14):
            x = segment(x)
        return np.sum(x)

    graph.grad(f)(X)  # compiles
    with measured() as memory:
        found = graph.grad(f)(X)
        peak = memory.peak()
    assert peak <= 14 + 2 * 14 + 12
    np.testing.assert_allclose(found, graph.grad(lambda x: np.sum(chain(x, 14 * 14)))(X), rtol=1e-12)


def test_no_grad_keeps_nothing() -> None:
    with measured() as memory, graph.no_grad():
        chain(graph.Variable(X))
        assert memory.peak() <= 6


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: np.sum(x * x), lambda x: np.max(x), lambda x: graph.logsumexp(x), lambda x: graph.softmax(x)[0],
        lambda x: np.prod(x), lambda x: np.stack(np.split(x, 2))[0, 0], lambda x: x[[0, 0]] @ x[:2],
        lambda x: graph.checkpoint(lambda y: np.sum(np.exp(y)))(x),
    ],
)  # fmt: skip
def test_graphs_are_freed_without_the_collector(operation: Callable[..., Any]) -> None:
    gc.collect()
    gc.disable()
    try:
        x = graph.Variable(np.linspace(0.1, 0.9, 4))
        node = None
        loss = operation(x)
        node = weakref.ref(loss.node)
        graph.grad(loss, x)
        assert node() is not None
        del loss
        assert node() is None
        slope = graph.grad(operation(x), x, record=True)
        node = weakref.ref(slope.node) if slope.node else None
        del slope
        assert node is None or node() is None
    finally:
        gc.enable()


def test_a_loop_of_training_does_not_grow() -> None:
    w = graph.Variable(X)
    for _ in range(3):
        w = graph.Variable(w.value - 0.1 * graph.grad(np.sum(np.sin(w) * w), w))
    with measured() as memory:
        for _ in range(20):
            w = graph.Variable(w.value - 0.1 * graph.grad(np.sum(np.sin(w) * w), w))
        assert memory.now() <= 2
        assert memory.peak() <= 10
