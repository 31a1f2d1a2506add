"""The traps as a Warp user writes them: kernels in float64 on the CPU, differentiated by `wp.Tape`."""

# ruff: noqa: B007

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cases import Found, Trap
from warp_programs import programs

__all__ = ["run", "version"]


def version(warp: Any) -> str:
    return f"Warp {warp.__version__}"


def run(warp: Any, trap: Trap) -> dict[str, Callable[[], Found]]:
    """The ways to write a row, by name; each is run when it is called."""
    warp.config.quiet = True
    ways = programs(warp).get(trap.name, {})
    special = around_the_call(warp).get(trap.name, {})
    return {name: (lambda f=f: differentiate(warp, trap, f)) for name, f in ways.items()} | special


def differentiate(wp: Any, trap: Trap, function: Any) -> Found:
    """One launch on a tape, and its adjoint."""
    inputs = []
    for column in trap.columns("float64"):
        real = column.dtype == np.float64
        inputs.append(wp.array(column.astype(np.float64 if real else np.int32), device="cpu", requires_grad=real))
    out = wp.zeros(len(trap.points), dtype=wp.float64, device="cpu", requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(kernel(wp, trap, wp.func(function)), len(trap.points), inputs, [out], device="cpu")
    values = out.numpy().tolist()
    tape.backward(grads={out: wp.ones(len(trap.points), dtype=wp.float64, device="cpu")})
    slopes = [array.grad.numpy() for array in inputs if array.requires_grad]
    return Found(values, np.stack(slopes, 1).tolist())


def kernel(wp: Any, trap: Trap, f: Any) -> Any:
    """One thread for each element."""
    real = wp.array(dtype=wp.float64)
    whole = wp.array(dtype=wp.int32)

    def one(x: real, out: real):
        i = wp.tid()
        out[i] = f(x[i])

    def two(x: real, y: real, out: real):
        i = wp.tid()
        out[i] = f(x[i], y[i])

    def three(x: real, y: real, z: real, out: real):
        i = wp.tid()
        out[i] = f(x[i], y[i], z[i])

    def counted(x: real, n: whole, out: real):
        i = wp.tid()
        out[i] = f(x[i], n[i])

    def counted_twice(x: real, n: whole, m: whole, out: real):
        i = wp.tid()
        out[i] = f(x[i], n[i], m[i])

    count, floats = len(trap.points[0]), len(trap.floats)
    body = {(1, 1): one, (2, 2): two, (3, 3): three, (2, 1): counted, (3, 1): counted_twice}[count, floats]
    body.__annotations__ = {
        name: {"real": real, "whole": whole}.get(kind, kind) for name, kind in body.__annotations__.items()
    }
    return wp.kernel(body, module="unique")


def around_the_call(wp: Any) -> dict[str, dict[str, Callable[[], Found]]]:
    """The rows that are about more than one element's function."""
    narrow = wp.array(dtype=wp.float32)

    def launch(body: Any, x: Any, out: Any) -> None:
        body.__annotations__ = dict.fromkeys(body.__annotations__, narrow)
        made = wp.kernel(body, module="unique")
        with wp.Tape() as tape:
            wp.launch(made, len(x), [x], [out], device="cpu")
        tape.backward(grads={out: wp.ones(len(x), dtype=wp.float32, device="cpu")})

    def bits(body: Any) -> Found:
        x = wp.ones(3, dtype=wp.float32, device="cpu", requires_grad=True)
        out = wp.zeros(3, dtype=wp.float32, device="cpu", requires_grad=True)
        launch(body, x, out)
        return Found([8.0 * out.numpy().itemsize], [[8.0 * x.grad.numpy().itemsize]])

    tenth = np.float64(0.1)

    def literal(x: narrow, out: narrow):
        i = wp.tid()
        out[i] = 0.1 * x[i] + wp.PI

    def scalar(x: narrow, out: narrow):
        i = wp.tid()
        out[i] = tenth * x[i]

    def rebound() -> Found:
        factor = 3.0

        def body(x: narrow, out: narrow):
            i = wp.tid()
            out[i] = factor * x[i]

        body.__annotations__ = dict.fromkeys(body.__annotations__, narrow)
        made = wp.kernel(body, module="unique")
        found = Found([], [])
        for factor in (3.0, 5.0):
            x = wp.full(1, 2.0, dtype=wp.float32, device="cpu", requires_grad=True)
            out = wp.zeros(1, dtype=wp.float32, device="cpu", requires_grad=True)
            with wp.Tape() as tape:
                wp.launch(made, 1, [x], [out], device="cpu")
            found.values.append(float(out.numpy()[0]))
            tape.backward(grads={out: wp.ones(1, dtype=wp.float32, device="cpu")})
            found.partials.append([float(x.grad.numpy()[0])])
        return found

    def overlapping() -> Found:
        def body(x: narrow, out: narrow):
            i = wp.tid()
            out[i] = x[i] * x[i]

        body.__annotations__ = dict.fromkeys(body.__annotations__, narrow)
        x = wp.array([1.0, 2.0, 3.0, 4.0], dtype=wp.float32, device="cpu")
        wp.launch(wp.kernel(body, module="unique"), 3, [x[:-1]], [x[1:]], device="cpu")
        return Found(x.numpy()[1:].tolist(), [[], [], []])

    def captured() -> Found:
        x = wp.array([2.0, 5.0], dtype=wp.float32, device="cpu", requires_grad=True)
        weights = wp.array([3.0, 4.0], dtype=wp.float32, device="cpu", requires_grad=True)
        out = wp.zeros(2, dtype=wp.float32, device="cpu", requires_grad=True)

        def body(x: narrow, out: narrow):
            i = wp.tid()
            out[i] = weights[i] * x[i]

        launch(body, x, out)
        return Found(out.numpy().tolist(), np.stack([x.grad.numpy(), weights.grad.numpy()], 1).tolist())

    def as_argument() -> Found:
        x = wp.array([2.0, 5.0], dtype=wp.float32, device="cpu", requires_grad=True)
        weights = wp.array([3.0, 4.0], dtype=wp.float32, device="cpu", requires_grad=True)
        out = wp.zeros(2, dtype=wp.float32, device="cpu", requires_grad=True)

        def body(weights: narrow, x: narrow, out: narrow):
            i = wp.tid()
            out[i] = weights[i] * x[i]

        body.__annotations__ = dict.fromkeys(body.__annotations__, narrow)
        with wp.Tape() as tape:
            wp.launch(wp.kernel(body, module="unique"), 2, [weights, x], [out], device="cpu")
        values = out.numpy().tolist()
        tape.backward(grads={out: wp.ones(2, dtype=wp.float32, device="cpu")})
        return Found(values, np.stack([x.grad.numpy(), weights.grad.numpy()], 1).tolist())

    return {
        "literal_in_float32": {"": lambda: bits(literal)},
        "numpy_scalar_in_float32": {"": lambda: bits(scalar)},
        "captured_number": {"": rebound},
        "square_shifted": {"": overlapping},
        "captured_array": {"captured": captured, "as an argument": as_argument},
    }
