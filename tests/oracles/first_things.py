"""A program that does each of its functions as the first thing of a process: see `test_first`.

It imports the package and forks for each; a child has a cache of its own, empty at first, and does it again from that.
"""

from __future__ import annotations

import math
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualbcast
from dualbcast import differentiable_broadcast

x, y = np.linspace(0.1, 0.9, 5), np.float64(0.5)
close = np.testing.assert_allclose


@differentiable_broadcast
def f(x: Any, y: Any) -> Any:
    return math.sin(x) * y if x > 0.3 else x * y


value = np.where(x > 0.3, np.sin(x), x) * 0.5
slope = np.where(x > 0.3, np.cos(x), 1.0) * 0.5
bend = np.where(x > 0.3, -np.sin(x), 0.0) * 0.5


def call() -> None:
    close(f(x, y), value)


def value_and_jacobian() -> None:
    close(f.value_and_jacobian(x, y)[1]["x"], slope)


def jacobian_of_a_column() -> None:
    close(f.jacobian(x[:, None], 0.5)["x"][:, 0], slope)


def jvp() -> None:
    close(f.jvp((x, y), (np.ones(5), 0.0))[1], slope)


def vjp() -> None:
    close(f.vjp(x, y)[1](np.ones(5))[0], slope)


def value_and_vjp() -> None:
    close(f.value_and_vjp((x, y), np.ones(5))[1][0], slope)


def hessian() -> None:
    close(f.hessian(x, y)["x", "x"], bend)


def hvp() -> None:
    close(f.hvp((x, y), (np.ones(5), 0.0))[0], bend)


def partial() -> None:
    close(f.partial("x")(x, y), slope)


def partial_of_a_partial() -> None:
    close(f.partial("x").partial("x")(x, y), bend)


def a_derivative_inside() -> None:
    @differentiable_broadcast
    def g(x: Any) -> Any:
        return dualbcast.derivative(lambda t: t**3)(x)

    close(g(x), 3 * x**2)


def a_gradient_inside() -> None:
    @differentiable_broadcast
    def g(x: Any, y: Any) -> Any:
        a, b = dualbcast.gradient(lambda s, t: s * t)(x, y)
        return a + b

    close(g(x, y), x + 0.5)


def a_derivative_of_arrays() -> None:
    close(dualbcast.derivative(math.exp)(x), np.exp(x))


def a_gradient_of_arrays() -> None:
    close(dualbcast.gradient(lambda s, t: s * t)(x, y)[1], x)


def a_rule_of_the_special_functions() -> None:
    from dualbcast import special

    close(differentiable_broadcast(special.sigmoid)(x), 1 / (1 + np.exp(-x)))


def a_rule_of_the_users() -> None:
    def cube(x: Any) -> Any:
        return x * x * x

    dualbcast.rule("cube", lambda x, _: 3 * x * x, cube, function=cube)

    @differentiable_broadcast
    def g(x: Any) -> Any:
        return cube(x)

    close(g.jacobian(x)["x"], 3 * x**2)


def custom_partials() -> None:
    @dualbcast.custom_partials(lambda _, x: 0 * x + 7.0)
    def h(x: Any) -> Any:
        return x

    @differentiable_broadcast
    def g(x: Any) -> Any:
        return h(x)

    close(g.jacobian(x)["x"], np.full(5, 7.0))


def not_differentiable() -> None:
    @dualbcast.not_differentiable
    def h(x: Any) -> Any:
        return x

    @differentiable_broadcast
    def g(x: Any) -> Any:
        return h(x)

    with pytest.raises(dualbcast.CompileError, match="marked as not differentiable"):
        g.jacobian(x)


def stop_derivative() -> None:
    @differentiable_broadcast
    def g(x: Any) -> Any:
        return x * dualbcast.stop_derivative(x)

    close(g.jacobian(x)["x"], x)


def a_captured_array() -> None:
    w = 2 * np.ones(5)

    @differentiable_broadcast
    def g(x: Any) -> Any:
        return x * w

    close(g.jacobian(x)["x"], w)


def a_loop_in_lockstep() -> None:
    @differentiable_broadcast
    def g(x: Any) -> Any:
        for _ in range(40):
            step = x - math.cos(x)
            x -= step / (1 + math.sin(x))
            if abs(step) < 1e-14:
                break
        return x

    close(g(x), np.full(5, 0.7390851332151607))


def out() -> None:
    given = np.empty(5)
    f(x, y, out=given)
    close(given, value)


def strided_and_transposed() -> None:
    z = np.arange(12.0).reshape(3, 4)
    close(f(z.T[::2], y), np.where(z.T[::2] > 0.3, np.sin(z.T[::2]), z.T[::2]) * 0.5)


def large() -> None:
    z = np.linspace(0.4, 0.9, 3_000_000)
    close(f.value_and_jacobian(z, y)[0], np.sin(z) * 0.5)


def half() -> None:
    close(f(x.astype(np.float16), y), value, rtol=1e-3)


def complex_numbers() -> None:
    @differentiable_broadcast
    def g(z: Any) -> Any:
        return np.exp(z) * z

    close(g(x + 1j), np.exp(x + 1j) * (x + 1j))


def an_order_of_complex_numbers_is_refused() -> None:
    with pytest.raises(dualbcast.CompileError, match="a complex number"):
        f(x + 1j, y)


def strings_are_refused() -> None:
    with pytest.raises(dualbcast.DTypeError):
        f(np.array(["x"]), y)


def a_table() -> None:
    @differentiable_broadcast(whole="table")
    def g(x: Any, table: Any) -> Any:
        return table[int(x * 5.0)] * x

    close(g(x, np.arange(5.0)), np.floor(x * 5.0) * x)


def what_cannot_be_compiled() -> None:
    @differentiable_broadcast
    def g(x: Any) -> Any:
        with open("x"):
            return x

    with pytest.raises(dualbcast.CompileError, match="with open"):
        g(x)


def the_python_backend() -> None:
    close(differentiable_broadcast(f.__wrapped__, backend="python").jacobian(x, y)["x"], slope)


def explain() -> None:
    assert "operations" in str(f.explain(x, y))


def explanations_by_name() -> None:
    assert isinstance(f.explain(x, y), dualbcast.Explanation)


def inspect_source() -> None:
    assert "sin(x)" in f.inspect_source(x, y)


def inspect_llvm() -> None:
    assert "define" in f.inspect_llvm(x, y)


def grad() -> None:
    from dualbcast import graph

    close(graph.grad(lambda a: np.sum(f(a, y)))(x), slope)


def a_graph_of_its_own_operations() -> None:
    from dualbcast import graph

    close(graph.grad(lambda a: np.mean((np.tanh(a) - 1) ** 2))(x), 2 * (np.tanh(x) - 1) / np.cosh(x) ** 2 / 5)


def a_gradient_of_a_gradient() -> None:
    from dualbcast import graph

    close(graph.grad(lambda a: np.sum(graph.grad(lambda b: np.sum(f(b, y)))(a)))(x), bend)


def a_sum_in_a_kernel() -> None:
    from dualbcast import graph

    w = np.ones(())
    close(graph.grad(lambda w: np.sum(f(x, w)))(w), np.sum(2 * value))


def checking() -> None:
    from dualbcast import testing

    testing.check_derivatives(f, x[1:], y)


def threads() -> None:
    with dualbcast.num_threads(1):
        close(f(x, y), value)


def main(folder: str) -> None:
    """Print the names of those that fail, and of which attempt it was; what went wrong goes to standard error."""
    for name, thing in THINGS.items():
        for cache in ("empty", "from disk"):
            os.environ["DUALBCAST_CACHE_DIR"] = str(Path(folder) / name)
            child = os.fork()
            if not child:
                try:
                    thing()
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                print(f"{name} ({cache})", flush=True)


OWN = [name for name, thing in globals().items() if getattr(thing, "__module__", "") == __name__]
THINGS = {name: globals()[name] for name in OWN if name not in ("main", "f")}

if __name__ == "__main__":
    main(sys.argv[1])
