"""Work that is the same for a whole row: it compiles in reasonable time, and is right."""

from __future__ import annotations

import linecache
import math
from typing import Any

import numpy as np
import pytest
from cpu_kernels import vectors
from ir_text import parse
from models import cell_update

from dualbcast import differentiable_broadcast
from dualbcast.passes.vector_analysis import varying_names

X = np.linspace(0.5, 2.0, 37)


def steps(count: int, line: str) -> Any:
    """A function that sends the scalar `a` through `count` lines."""
    body = "".join(f"    {line.format(k=k, level=k % 3 - 0.5)}\n" for k in range(count))
    text, name = f"def f(x, a):\n    w = a\n{body}    return x * w\n", f"<steps {count} {line}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"math": math}
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


BRANCHES = "w = math.sin(w) * a + {k} if w > {level} else w * w - a"


def test_a_chain_of_numbers_in_loops_compiles_at_once() -> None:
    def clumsy(x: float) -> float:
        a, b = 0.0, 1.0
        for _ in range(3):
            b += a
            j = 0
            while j < 4 and a < 0.5:
                j += 1
                a = max(-2.0, math.sqrt(abs(a * 3.0 + b) + 0.25) % 1.75)
                b = math.frexp(b)[0] if a > 0.25 else math.sin(b)
        return a + b + x

    found = differentiable_broadcast(backend="cpu")(clumsy)(X)
    np.testing.assert_allclose(found, [clumsy(x) for x in X], rtol=1e-12)


def test_control_by_rows_is_vectorised() -> None:
    c, f, i, g = np.ones((4, 8, 8), np.float32)
    z = np.ones((8, 1), np.float32)
    assert vectors(cell_update, c, f, i, g, z, z)


@pytest.mark.parametrize("count", [14, 40])
def test_they_compile_and_are_right(count: int) -> None:
    function = steps(count, BRANCHES)
    value, jacobian = differentiable_broadcast(backend="cpu")(function).value_and_jacobian(X, 0.3)
    wanted = np.array([function(x, 0.3) for x in X])
    np.testing.assert_allclose(value, wanted, rtol=1e-9)
    np.testing.assert_allclose(jacobian["x"], wanted / X, rtol=1e-9)
    other, _ = differentiable_broadcast(backend="python")(function).value_and_jacobian(X, 0.3)
    np.testing.assert_allclose(value, other, rtol=1e-9)


COUNTED = """
function f(x: float, n: float)
    count: float = 0.0
    a: bool = gt({outer}, 0.0)
    b: bool = gt(n, 0.0)
    for k in range(0, 4, 1):
        count: float = add(count, 1.0)
        if a:
            if b:
                break
    output out = count
"""


@pytest.mark.parametrize(("outer", "varies"), [("x", True), ("n", False)])
def test_what_a_loop_counts_varies_where_only_some_elements_leave_it(outer: str, varies: bool) -> None:
    """The jump is in a uniform branch, which may be in a varying one."""
    assert ("count" in varying_names(parse(COUNTED.format(outer=outer)), {"n"})) == varies
