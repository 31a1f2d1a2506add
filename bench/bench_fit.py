"""Many fits of a Gaussian peak with four parameters to 32 points each: `fit.least_squares`, beside Levenberg and
Marquardt's method in JAX (`vmap`, `jit`) for the same iterations, and a loop of SciPy's `least_squares`.

The model and its noise are those of Gpufit's example: A. Przybylski, B. Thiel, J. Keller-Findeisen, B. Stock and
M. Bates, *Gpufit: An open-source toolkit for GPU-accelerated curve fitting*, Scientific Reports 7 (2017) 15722.
`python bench/bench_fit.py 1000000` prints a table.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
from dualbcast import differentiable_broadcast, fit

NAMES = ("height", "center", "width", "offset")
POINTS, ITERATIONS, PART = 32, 6, 50_000
X = np.arange(float(POINTS))


@differentiable_broadcast
def peak(x: float, y: float, height: float, center: float, width: float, offset: float) -> float:
    """The residual at a point."""
    z = (x - center) / width
    return height * math.exp(-0.5 * z * z) + offset - y


def problem(rows: int) -> tuple[Any, list[Any]]:
    """Noisy data of shape (rows, points), and start values within ten percent of the true ones."""
    random = np.random.default_rng(0)
    ranges = ((400, 600), (14, 17), (2.5, 4), (8, 12))
    true = [random.uniform(low, high, (rows, 1)) for low, high in ranges]
    data = peak(X, 0.0, *true) + random.normal(0, 10, (rows, POINTS))
    return data, [each * random.uniform(0.9, 1.1, (rows, 1)) for each in true]


def ours(data: Any, start: list[Any], **tests: Any) -> Any:
    return fit.least_squares(peak, X, data, *start, wrt=NAMES, **tests)


def with_jax(iterations: int) -> Callable[[Any, Any], Any]:
    """Fits of so many iterations with the same scale, damping and rule of acceptance; one pass an iteration."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    x = jnp.asarray(X)

    def residuals(p: Any, y: Any) -> Any:
        z = (x - p[1]) / p[2]
        return p[0] * jnp.exp(-0.5 * z * z) + p[3] - y

    def equations(p: Any, y: Any) -> Any:
        # Four tangents: forward mode is the faster one for more points than parameters.
        r, jacobian = residuals(p, y), jax.jacfwd(residuals)(p, y)
        return r @ r, jacobian.T @ r, jacobian.T @ jacobian

    def one(p: Any, y: Any) -> Any:
        def step(_: int, state: Any) -> Any:
            p, cost, gradient, matrix, scale, damping, growth = state
            damped = matrix + damping * jnp.diag(scale)
            s = -jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(damped), gradient)
            predicted = -(2 * gradient @ s + s @ matrix @ s)
            new = equations(p + s, y)
            ratio = (cost - new[0]) / predicted
            good = ratio > 1e-4
            kept = [jnp.where(good, a, b) for a, b in zip((p + s, *new), (p, cost, gradient, matrix), strict=True)]
            slower = damping * jnp.maximum(1 / 3, 1 - (2 * ratio - 1) ** 3)
            return (
                *kept,
                jnp.maximum(scale, jnp.diag(kept[3])),
                jnp.where(good, slower, damping * growth),
                jnp.where(good, 2.0, 2 * growth),
            )

        first = equations(p, y)
        state = (p, *first, jnp.diag(first[2]), 1e-3, 2.0)
        return jax.lax.fori_loop(0, iterations, step, state)[:2]

    return jax.jit(jax.vmap(one))


def by_parts(call: Callable[[Any, Any], Any], data: Any, start: list[Any]) -> Any:
    """JAX's fits, so many at a time that its Jacobians fit into memory, which is faster than all at once."""
    import jax

    stacked = np.concatenate(start, 1)
    parts = [slice(begin, begin + PART) for begin in range(0, len(data), PART)]
    return np.concatenate([jax.block_until_ready(call(stacked[part], data[part]))[0] for part in parts])


def with_scipy(data: Any, start: list[Any], rows: Any, **tests: Any) -> Any:
    """The fits of some rows, one after the other, with derivatives by hand."""
    from scipy.optimize import least_squares

    def residuals(p: Any, y: Any) -> Any:
        z = (X - p[1]) / p[2]
        return p[0] * np.exp(-0.5 * z * z) + p[3] - y

    def jacobian(p: Any, y: Any) -> Any:  # noqa: ARG001 (SciPy passes the data to both)
        z = (X - p[1]) / p[2]
        e = np.exp(-0.5 * z * z)
        return np.stack([e, p[0] * e * z / p[2], p[0] * e * z * z / p[2], np.ones_like(e)], 1)

    begin = np.concatenate(start, 1)
    return [least_squares(residuals, begin[row], jacobian, method="lm", args=(data[row],), **tests).x for row in rows]


def least(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The least time of a call, after one that compiles, and its result."""
    result, times = call(), []
    for _ in range(repeats):
        began = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - began)
    return min(times), result


def main(rows: int, repeats: int) -> None:
    data, start = problem(rows)
    fixed = {"ftol": 0.0, "xtol": 0.0, "gtol": 0.0, "max_iterations": ITERATIONS}
    ours(data[:1000], [each[:1000] for each in start])
    seconds, found = least(lambda: ours(data, start, **fixed), repeats)
    to_the_end, converged = least(lambda: ours(data, start), repeats)
    print(f"{rows:,} fits: {ITERATIONS} iterations {seconds:.3f} s; to convergence {to_the_end:.3f} s, {converged}")
    print(f"  {converged.iterations.mean():.2f} iterations on average")
    call = with_jax(ITERATIONS)
    part = min(rows, 4 * PART)
    theirs, values = least(lambda: by_parts(call, data[:part], [each[:part] for each in start]), 1)
    theirs *= rows / part
    values = np.abs(values / np.concatenate(list(found.parameters.values()), 1)[:part] - 1).max()
    print(f"JAX, {ITERATIONS} iterations, from {part:,}: {theirs:.2f} s, {theirs / seconds:.1f} times")
    print(f"  differs from ours by {values:.1e}")
    some = np.arange(0, rows, max(1, rows // 1000))
    alone, _ = least(lambda: with_scipy(data, start, some), 1)
    alone *= rows / len(some)
    print(f"SciPy, from {len(some):,}: {alone:.0f} s, {alone / to_the_end:.0f} times")
    tight = {"ftol": 1e-14, "xtol": 1e-14, "gtol": 1e-14}
    exact = np.array(with_scipy(data, start, some, **tight))
    for label, tests in (("default tests", {}), ("ftol=1e-12", {"ftol": 1e-12})):
        mine = ours(data[some], [each[some] for each in start], **tests)
        difference = np.abs(np.concatenate(list(mine.parameters.values()), 1) / exact - 1).max()
        print(f"  {label}: differs from SciPy's tightest by {difference:.1e}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
