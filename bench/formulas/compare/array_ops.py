"""The operations that a formula of whole arrays calls: what all systems have in common, and those of NumPy.

Those of NumPy say how often each loop iterates for given arrays, and check the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["NumpyOps", "operations"]

Iteration = Callable[..., tuple[Any, ...]]
_PLAIN: dict[str, Callable[..., Any]] = {
    "fabs": abs,
    "to_float": float,
    "to_int": int,
    "not_": lambda test: not test,
    "lgamma": math.lgamma,
    "tgamma": math.gamma,
    "rint": lambda x: float(round(x)),
    "root": math.sqrt,
    "inverse_root": lambda x: 1.0 / math.sqrt(x),
    "root_cubed": lambda x: x * math.sqrt(x),
    "inverse_root_cubed": lambda x: 1.0 / (x * math.sqrt(x)),
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "modulo": lambda x, y: x % y,
    "trunc": lambda x: float(math.trunc(x)),
    "sign": lambda x: float((x > 0) - (x < 0)),
}


def operations(
    functions: Mapping[str, Callable[..., Any]],
    *,
    where: Callable[[Any, Any, Any], Any],
    loop: Callable[[int, Iteration, tuple[Any, ...], Sequence[str]], tuple[Any, ...]],
    count: Callable[[int, int, int, Iteration, tuple[Any, ...], Sequence[str]], tuple[Any, ...]],
    outputs: Callable[..., Any],
) -> SimpleNamespace:
    """A namespace for `ArrayFunction.bind`.

    Parameters
    ----------
    functions : mapping
        By the names of the IR. On Python's numbers Python's own are called instead.
    where : callable
        Of an array, and two arrays or numbers.
    loop : callable
        Of the loop's position, its iteration, the first state, and the kinds of its parts; the first part is a mask,
        and the loop ends when that is false everywhere.
    count : callable
        The same for a range, whose bounds it gets; the iteration takes the counter, and then the state.
    outputs : callable
        Makes arrays of all results.
    """

    def choice(test: Any, then: Any, orelse: Any) -> Any:
        if isinstance(test, bool):
            return then if test else orelse
        return where(test, then, orelse)

    lifted = {name: _lifted(name, function) for name, function in functions.items()}
    return _Namespace(**lifted, where=choice, loop=loop, count=count, outputs=outputs, inf=math.inf, nan=math.nan)


class _Namespace(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"it has no {name}")


def _lifted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    plain = _PLAIN.get(name) or getattr(math, name, None)

    def call(*args: Any) -> Any:
        if plain is not None and all(isinstance(arg, (bool, int, float)) for arg in args):
            return plain(*args)
        return function(*args)

    return call


def powers(sqrt: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """The powers that the IR computes by roots."""
    return {
        "sqrt": sqrt,
        "root": sqrt,
        "inverse_root": lambda x: 1.0 / sqrt(x),
        "root_cubed": lambda x: x * sqrt(x),
        "inverse_root_cubed": lambda x: 1.0 / (x * sqrt(x)),
    }


def unrolled(start: int, stop: int, step: int, iteration: Iteration, state: tuple[Any, ...], _: Any) -> tuple[Any, ...]:
    """A loop over a range whose iterations are traced one after the other."""
    for counter in range(start, stop, step):
        state = iteration(counter, *state)
    return state


class NumpyOps:
    """NumPy's operations; `iterations` has the most iterations of each loop."""

    def __init__(self, dtype: str, size: int) -> None:
        from scipy import special

        self.iterations: dict[int, int] = {}
        functions = {
            **{name: getattr(np, name) for name in COMMON},
            **{name: getattr(np, other) for name, other in RENAMED.items()},
            **powers(np.sqrt),
            "erf": special.erf,
            "erfc": special.erfc,
            "lgamma": special.gammaln,
            "tgamma": special.gamma,
            "to_float": lambda x: np.asarray(x, dtype),
            "to_int": lambda x: np.asarray(x).astype(np.int64),
        }

        def outputs(*values: Any) -> list[Any]:
            return [np.broadcast_to(np.asarray(value), (size,)) for value in values]

        self.namespace = operations(functions, where=np.where, loop=self._loop, count=unrolled, outputs=outputs)

    def _loop(self, position: int, iteration: Iteration, state: tuple[Any, ...], _: Sequence[str]) -> tuple[Any, ...]:
        done = 0
        while np.any(state[0]):
            state = iteration(*state)
            done += 1
        self.iterations[position] = max(done, self.iterations.get(position, 0))
        return state


# The names that NumPy and jax.numpy have for operations of the IR.
_COMMON = (
    "exp exp2 expm1 log log2 log10 log1p cbrt hypot sin cos tan sinh cosh tanh fabs copysign sign floor ceil trunc"
)
COMMON = (*_COMMON.split(), "rint", "fmod")
RENAMED = {"modulo": "mod", "pow": "power", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
RENAMED |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "not_": "logical_not"}
