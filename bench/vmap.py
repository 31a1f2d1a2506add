"""Gradients for each row of a batch, of a network of 8 inputs and 16 hidden units: microseconds a call.

python bench/vmap.py    by vmap, by vmap compiled, by a loop over the rows, and by jax.vmap under jax.jit
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from graph_cost import microseconds

from dualbcast import graph


def loss_in(xp: Any) -> Callable[..., Any]:
    """The loss of one row."""
    return lambda w, v, x, wanted: (xp.tanh(x @ w) @ v - wanted) ** 2


def main() -> None:
    """Print a row for each size of the batch."""
    import jax

    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(0)
    w, v = random.normal(size=(8, 16)), random.normal(size=16)
    single = graph.grad(loss_in(np), (0, 1))
    mapped = graph.vmap(single, (None, None, 0, 0))
    compiled = graph.compile(mapped)
    peer = jax.jit(jax.vmap(jax.grad(loss_in(jax.numpy), (0, 1)), (None, None, 0, 0)))
    print("| rows | vmap | compiled | loop | jax |\n|---:|---:|---:|---:|---:|")
    for rows in (10, 100, 1000):
        args = w, v, random.normal(size=(rows, 8)), random.normal(size=rows)
        for found, wanted in zip(mapped(*args), peer(*args), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
        calls: list[Callable[[], Any]] = [
            lambda args=args: mapped(*args),
            lambda args=args: compiled(*args),
            lambda args=args: [single(w, v, *row) for row in zip(*args[2:], strict=True)],
            lambda args=args: jax.block_until_ready(peer(*args)),
        ]
        print(f"| {rows} | {' | '.join(f'{microseconds(call):.0f}' for call in calls)} |")


if __name__ == "__main__":
    main()
