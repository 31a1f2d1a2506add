"""The traps as a PyTorch user writes them: whole tensors under autograd, and one element after another with `if`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import Found, Trap

__all__ = ["run", "version"]


def version(torch: Any) -> str:
    return f"PyTorch {torch.__version__.partition('+')[0]}"


def run(torch: Any, trap: Trap) -> dict[str, Callable[[], Found]]:
    """The ways to write a row, by name; each is run when it is called."""
    ways = programs(torch).get(trap.name, {})
    special = around_the_call(torch).get(trap.name, {})
    return {name: (lambda f=f, name=name: differentiate(torch, trap, f, name)) for name, f in ways.items()} | special


def differentiate(torch: Any, trap: Trap, function: Any, way: str) -> Found:
    """Autograd through the whole tensors, or through one element after another."""
    tensors = [torch.from_numpy(column).requires_grad_(column.dtype == float) for column in trap.columns("float64")]
    if way == "if":
        value = torch.stack([function(*element) for element in zip(*tensors, strict=True)])
    else:
        value = function(*tensors)
    value.sum().backward()
    # A tensor that takes no part has no gradient at all.
    slopes = [torch.zeros_like(t) if t.grad is None else t.grad for t in tensors if t.requires_grad]
    return Found(value.tolist(), torch.stack(slopes, 1).tolist())


def programs(torch: Any) -> dict[str, dict[str, Any]]:
    """For each row the ways to write it."""
    where = torch.where

    def branch(test: Any, yes: Any, no: Any, *safe: float) -> dict[str, Any]:
        """`where`, `where` around arguments that a first `where` has made harmless, and Python's own `if`."""

        def twice(*args: Any) -> Any:
            harmless = [where(test(*args), a, s) for a, s in zip(args, safe, strict=True)]
            return where(test(*args), yes(*harmless), no(*args))

        return {
            "where": lambda *args: where(test(*args), yes(*args), no(*args)),
            "double where": twice,
            "if": lambda *args: yes(*args) if test(*args) else no(*args),
        }

    def zero(x: Any, *_: Any) -> Any:
        return 0.0 * x.detach()

    def unit(x: Any, y: Any) -> Any:
        r = torch.sqrt(x * x + y * y)
        return where(r > 0, x / r, 0.0)

    def unit_if(x: Any, y: Any) -> Any:
        r = torch.sqrt(x * x + y * y)
        return x / r if r > 0 else zero(x)

    def unit_twice(x: Any, y: Any) -> Any:
        square = x * x + y * y
        r = torch.sqrt(where(square > 0, square, 1.0))
        return where(square > 0, x / r, 0.0)

    def either_square(x: Any, y: Any) -> Any:
        return where(x > 0, x * x, where(x > 0, 1.0, y) ** 2)

    def sort3(a: Any, b: Any, c: Any) -> Any:
        a, b = where(a > b, b, a), where(a > b, a, b)
        b, c = where(b > c, c, b), where(b > c, b, c)
        a, b = where(a > b, b, a), where(a > b, a, b)
        return a + 10 * b + 100 * c

    def squares(x: Any, n: Any) -> Any:
        for i in range(int(n.max())):
            x = where(i < n, x * x, x)
        return x

    def squares_in_place(x: Any, n: Any) -> Any:
        y = x.clone()
        for i in range(int(n.max())):
            going = i < n
            y[going] *= y[going]
        return y

    def odd(x: Any) -> Any:
        total, term = torch.zeros_like(x), torch.ones_like(x)
        for i in range(6):
            if i > 0:
                term = term * x
            if i % 2 == 0:
                continue
            total = total + term
        return total

    def largest(x: Any) -> Any:
        best = torch.full_like(x, -1e20)
        for i in range(5):
            if i == 2:
                continue
            v = x * (i - 2)
            best = where(v > best, v, best)
        return best

    def after_loop(x: Any, n: Any) -> Any:
        total = torch.zeros_like(x)
        for i in range(int(n.max())):
            total = where(i < n, total + x, total)
        return x * x * total

    def one_side(x: Any) -> Any:
        total = torch.zeros_like(x)
        for _ in range(3):
            total = where(x > 1, total + x * x, 1.0)
        return total

    def halve(x: Any) -> Any:
        while (x > 1).any():
            x = where(x > 1, x / 2, x)
        return x

    def large(x: Any) -> Any:
        total, term = torch.ones_like(x), torch.ones_like(x)
        done = torch.zeros_like(x, dtype=torch.bool)
        for _ in range(8):
            term = where(done, term, term * x)
            total = where(done, total, total + term)
            done = done | (total > 10)
        return total

    def reuse(x: Any) -> Any:
        y = x * x
        x = y + x
        return x * y

    def pair(x: Any, n: Any) -> Any:
        a, b = x, torch.ones_like(x)
        for i in range(int(n.max())):
            a, b = where(i < n, b, a), where(i < n, a * b, b)
        return b

    def power(x: Any, p: Any) -> Any:
        return x**p

    return {
        "sqrt_guarded": branch(lambda x: x > 0, torch.sqrt, zero, 1.0),
        "entropy": branch(lambda x: x > 0, lambda x: x * torch.log(x), zero, 1.0),
        "cardinal_sine": branch(lambda x: x != 0, lambda x: torch.sin(x) / x, torch.ones_like, 1.0),
        "softplus": branch(lambda x: x < 20, lambda x: torch.log1p(torch.exp(x)), lambda x: x, 0.0)
        | {"nn.functional.softplus": torch.nn.functional.softplus},
        "angle": branch(lambda x: x < 1, torch.acos, zero, 0.0),
        "power_guarded": branch(lambda x, _: x > 0, power, zero, 1.0, 1.0),
        "ratio": branch(lambda _, b: b != 0, lambda a, b: a / b, zero, 1.0, 1.0),
        "direction": {"where": unit, "double where": unit_twice, "if": unit_if},
        "abs_at_zero": {"": torch.abs},
        "max_tie": {"": torch.maximum},
        "min_tie": {"": torch.minimum},
        "max_of_itself": {"": lambda x: torch.maximum(x, x)},
        "relu_at_zero": {
            "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
            "clamp": lambda x: x.clamp(min=0.0),
            "relu": torch.relu,
        },
        "clip_at_bound": {"": lambda x: torch.clip(x, 0.0, 1.0)},
        "sqrt_taken": {"": torch.sqrt},
        "power_zero": {"": lambda x: x**0},
        "power_two": {"": lambda x: x**2},
        "zero_to_the_p": {"": power},
        "zero_to_the_zero": {"": power},
        "atan2_at_origin": {"": torch.atan2},
        "hypot_at_origin": {"": torch.hypot},
        "overflowing_product": {"": lambda a, b: a * torch.exp(-b)},
        "log_of_floor": {"": lambda x, y: x + torch.log(torch.floor(y))},
        "log_after_branch": {"where": lambda x, y: torch.log(where(x > 2, x, 0.0) + y)},
        "product_if_equal": {"": lambda x, y: where(x == y, x * y, 0.0)},
        "special_point": {"": lambda x: where(x == 1, 1.0, x * x)},
        "threshold": {"": lambda x: where(x > 3, 2 * x, x)},
        "sorted_digits": {"": sort3},
        "repeated_square": {"where": squares, "in place": squares_in_place},
        "odd_powers": {"": odd},
        "largest_product": {"": largest},
        "used_after_loop": {"": after_loop},
        "active_on_one_side": {"": one_side},
        "halve_until": {"": halve},
        "stop_when_large": {"": large},
        "used_after_overwriting": {"": reuse},
        "pair_in_step": {"": pair},
        "integer_product": {
            "int32": lambda x, n, m: x * (n * m),
            "as int64": lambda x, n, m: x * (n.long() * m),
        },
        "floor_division": {"": lambda x, n, m: x * (n // m) + n % m},
        "float_modulo": {"": lambda x, y: x % y},
        "negative_base": {"": power},
        "rounded": {"": lambda x, y: torch.round(x) * y},
        "signed_square": {"": lambda x: torch.sign(x) * x * x},
        "literal_in_float64": {"": lambda x: 0.1 * x},
        "unused_nan": branch(lambda x, _: x > 0, lambda x, _: x * x, lambda _, y: y * y, 1.0, 1.0)
        | {"double where": either_square},
        "unused_infinity": branch(lambda x, _: x > 0, lambda x, y: x * y, zero, 1.0, 1.0),
        "nan_compared": {"": lambda x: where(x > 0, 2 * x, 5.0)},
    }


def around_the_call(torch: Any) -> dict[str, dict[str, Callable[[], Found]]]:
    """The rows that are about more than one element's function."""
    tenth = np.float64(0.1)

    def bits(function: Any) -> Found:
        x = torch.ones(3, dtype=torch.float32, requires_grad=True)
        value = function(x)
        value.sum().backward()
        return Found([8.0 * value.dtype.itemsize], [[8.0 * x.grad.dtype.itemsize]])

    def rebound(compiled: bool) -> Found:
        factor = 3.0

        def scaled(x: Any) -> Any:
            return factor * x

        function = torch.compile(scaled, backend="aot_eager") if compiled else scaled
        found = Found([], [])
        for factor in (3.0, 5.0):  # noqa: B007
            x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
            value = function(x)
            value.backward()
            found.values.append(float(value.detach()))
            found.partials.append([float(x.grad)])
        return found

    def overlapping() -> Found:
        x = torch.tensor([1.0, 2.0, 3.0, 4.0])
        torch.mul(x[:-1], x[:-1], out=x[1:])
        return Found(x[1:].tolist(), [[], [], []])

    def captured() -> Found:
        x = torch.tensor([2.0, 5.0], requires_grad=True)
        weights = torch.tensor([3.0, 4.0], requires_grad=True)
        value = weights * x
        value.sum().backward()
        return Found(value.tolist(), torch.stack([x.grad, weights.grad], 1).tolist())

    return {
        "literal_in_float32": {"": lambda: bits(lambda x: 0.1 * x + math.pi)},
        "numpy_scalar_in_float32": {"": lambda: bits(lambda x: tenth * x)},
        "captured_number": {"eager": lambda: rebound(False), "torch.compile": lambda: rebound(True)},
        "square_shifted": {"": overlapping},
        "captured_array": {"": captured},
    }
