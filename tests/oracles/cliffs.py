"""Programs that grow one thing at a time, and what they cost: processor time of a first call, and of an element.

A family writes the program of size n. Time may grow with what the program has to do, which the family counts, and no
faster: that is what `test_cliffs.py` asserts.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualbcast import differentiable_broadcast

ELEMENTS = 2048
# How much faster than the operations counted a time may grow.
MOST = 3.0
_numbers = itertools.count(1)


def same(n: int) -> float:  # noqa: ARG001
    """Work that does not grow."""
    return 1.0


class Family(NamedTuple):
    """Programs of growing size.

    Attributes
    ----------
    text : callable
        The module of a size, with a function f. `C` in it stands for a number that no other program has.
    sizes : tuple of int
    work : callable
        How much an element takes at a size, up to a factor.
    length : callable
        How much there is to compile, up to a factor.
    """

    text: Callable[[int], str]
    sizes: tuple[int, ...]
    work: Callable[[int], float] = float
    length: Callable[[int], float] = float


class Cost(NamedTuple):
    """What a program costs in seconds of the processor: its first call, and an element of the later ones."""

    first: float
    element: float


def _lines(*lines: str) -> str:
    return "\n".join(("import math", *lines)) + "\n"


def _function(body: list[str], params: str = "x, y") -> str:
    return _lines(f"def f({params}):", *(f"    {line}" for line in body))


def _chain(n: int, side: str, head: str = "{word} x < {k}.25:") -> list[str]:
    found = []
    for k in range(n):
        found += [head.format(word="elif" if k else "if", k=k), "    " + side.format(k=k)]
    return found


def _elif(side: str) -> Callable[[int], str]:
    return lambda n: _function([*_chain(n, side), "else:", "    r = y * C", "return r"])


def _early_returns(n: int) -> str:
    return _function([*_chain(n, "return x * {k}.5 + y", "if x < {k}.25:"), "return y * C"])


def _ifs(side: str) -> Callable[[int], str]:
    return lambda n: _function(["r = y * C", *_chain(n, side, "if x < {k}.25:"), "return r"])


def _nested_ifs(n: int) -> str:
    body = ["r = y * C"]
    for k in range(n):
        body += ["    " * k + f"if x > {k}.25:", "    " * (k + 1) + f"r = r * x + {k}.5"]
    return _function([*body, "return r"])


def _match(n: int) -> str:
    body = ["r = y * C", "match x:"]
    for k in range(n):
        body += [f"    case {k}.25:", f"        r = x * {k}.5 + y"]
    return _function([*body, "return r"])


def _choices(n: int) -> str:
    sides = " else ".join(f"x * {k}.5 + y if x < {k}.25" for k in range(n))
    return _function([f"return {sides} else y * C"])


def _conditions(n: int) -> str:
    return _function([f"return x * C if {' and '.join(f'x > {k - n}.25' for k in range(n))} else y"])


def _statements(step: str) -> Callable[[int], str]:
    return lambda n: _function(["t = x * C", *(step.format(k=k) for k in range(n)), "return t"])


def _terms(n: int) -> str:
    return _function(["return " + " + ".join(["x * C", *(f"x * y * {k}.5" for k in range(n))])])


def _helper_depth(n: int) -> str:
    helpers = ["def h0(x, y):", "    return x * C"]
    for k in range(1, n):
        helpers += [f"def h{k}(x, y):", f"    return h{k - 1}(x, y) * 0.5 + y * {k}.5"]
    return _lines(*helpers, "def f(x, y):", f"    return h{n - 1}(x, y)")


def _helpers(n: int) -> str:
    helpers = []
    for k in range(n):
        helpers += [f"def h{k}(x, y):", f"    return x * {k}.5 + y * y"]
    return _lines(
        *helpers, "def f(x, y):", "    t = x * C", *(f"    t += h{k}(t, y)" for k in range(n)), "    return t"
    )


def _one_helper(n: int) -> str:
    helper = ["def h(x, y):", "    s = x * y if x > y else y", "    return s * 0.5 + y"]
    return _lines(
        *helper, "def f(x, y):", "    t = x * C", *(f"    t = h(t, y * {k}.5)" for k in range(n)), "    return t"
    )


def _arguments(n: int) -> str:
    names = [f"x{k}" for k in range(n)]
    return _function(["return C * " + " * ".join(f"(1.0 + {name} * 0.01)" for name in names)], ", ".join(names))


def _outputs(n: int) -> str:
    return _function(["t = x * C", f"return ({', '.join(f't * y + {k}.5 * x' for k in range(n))},)"])


def _arguments_and_outputs(n: int) -> str:
    names = [f"x{k}" for k in range(n)]
    return _function([f"return ({', '.join(f'C * {name} * {name}' for name in names)},)"], ", ".join(names))


def _turns(n: int) -> str:
    return _function(["t = x * C", f"for i in range({n}):", "    t = t * 0.5 + y * t * 0.1", "return t"])


def _nest(head: Callable[[int, int], list[str]], last: Callable[[int], list[str]]) -> Callable[[int], str]:
    """Loops in each other, of 4096 turns of the innermost together."""

    def text(depth: int) -> str:
        turns = round(4096 ** (1 / depth))
        body, pad = ["t = x * C"], ""
        for k in range(depth):
            body += [pad + line for line in head(k, turns)]
            pad += "    "
        body.append(pad + "t = t * 0.5 + y * t * 0.1")
        for k in reversed(range(depth)):
            body += [pad + line for line in last(k)]
            pad = pad[4:]
        return _function([*body, "return t"])

    return text


def _loops(n: int) -> str:
    body = ["t = x * C"]
    for k in range(n):
        body += [f"for i{k} in range(8):", f"    t = t * 0.5 + y * {k}.5"]
    return _function([*body, "return t"])


def _written_out(n: int) -> str:
    numbers = ", ".join(f"{k}.5" for k in range(n))
    return _function(["t = x * C", f"for c in ({numbers},):", "    t = t * c + y", "return t"])


def _break_written_out(n: int) -> str:
    numbers = ", ".join(f"{k}.5" for k in range(n))
    body = ["t = x * C", f"for c in ({numbers},):", "    if t > c:", "        break", "    t = t * y + c", "return t"]
    return _function(body)


def _sum(n: int) -> str:
    return _function([f"return sum(x * C * k + y for k in range({n}))"])


def _captured(n: int) -> str:
    numbers = [f"c{k} = {k}.5 * C" for k in range(n)]
    return _lines(
        *numbers, "def f(x, y):", "    t = x", *(f"    t = t * 0.5 + c{k} * y" for k in range(n)), "    return t"
    )


def _least(n: int) -> str:
    return _function([f"return min({', '.join(f'x * {k}.5 + y * {n - k}.5' for k in range(n))}, x * C)"])


def _elif_in_loop(n: int) -> str:
    chain = [f"    {line}" for line in _chain(n, "r = x * {k}.5 + r * 0.5")]
    return _function(["r = y * C", "for i in range(4):", *chain, "return r"])


def _search(n: int) -> str:
    """A loop that elements leave one by one, with a body of n statements."""
    steps = [f"    t = t * 0.5 + y * {k}.5" for k in range(n)]
    return _function(["t = x * C", "i = 0", "while i < 4 and t < 1e300:", *steps, "    i += 1", "return t"])


def _carried(n: int) -> str:
    body = [f"t{k} = x * C + {k}.5" for k in range(n)]
    steps = [f"    t{k} = t{k} * 0.5 + t{(k + 1) % n} * y * 0.1" for k in range(n)]
    return _function([*body, "for i in range(8):", *steps, f"return {' + '.join(f't{k}' for k in range(n))}"])


def _inner_derivative(n: int) -> str:
    inner = ["def g(u, y):", "    t = u * C", *(f"    t = t * t * 0.1 + y * {k}.5" for k in range(n)), "    return t"]
    return _lines("from dualbcast import derivative", *inner, "def f(x, y):", "    return derivative(g)(x, y)")


def _power(n: int) -> str:
    return _function([f"return x ** {n} * C + y"])


_FOR = _nest(lambda k, turns: [f"for i{k} in range({turns}):"], lambda k: [])  # noqa: ARG005
_WHILE = _nest(lambda k, turns: [f"i{k} = 0", f"while i{k} < {turns}:"], lambda k: [f"i{k} += 1"])
_DATA = _nest(lambda k, turns: [f"i{k} = 0", f"while i{k} < {turns} + y:"], lambda k: [f"i{k} += 1"])

FAMILIES = {
    "elif": Family(_elif("r = x * {k}.5 + y"), (10, 40, 160)),
    "elif with exp and sin": Family(_elif("r = math.exp(x * 0.{k}5) + math.sin(y) * {k}.25"), (10, 40, 120)),
    "early returns": Family(_early_returns, (10, 40, 160)),
    "ifs one after another": Family(_ifs("r = r * 0.5 + x * {k}.5"), (10, 40, 160)),
    "ifs with exp and sin": Family(_ifs("r = r * 0.5 + math.exp(-x * {k}.5) + math.sin(y * {k}.5)"), (5, 20, 80)),
    "ifs in each other": Family(_nested_ifs, (5, 20, 80)),
    "match": Family(_match, (10, 40, 160)),
    "choices": Family(_choices, (10, 40, 120)),
    "conditions": Family(_conditions, (5, 20, 80)),
    "statements": Family(_statements("t = t * 0.5 + y * {k}.5"), (25, 100, 400)),
    "products": Family(_statements("t = t * x * 0.{k}5 + y"), (25, 100, 400)),
    "statements with sin": Family(_statements("t = math.sin(t * y + {k}.5)"), (10, 40, 160)),
    "quotients": Family(_statements("t = x / (y + t * {k}.5)"), (10, 40, 160)),
    "terms": Family(_terms, (10, 40, 160)),
    "helpers in each other": Family(_helper_depth, (5, 20, 60)),
    "helpers": Family(_helpers, (10, 40, 160)),
    "calls of a helper": Family(_one_helper, (10, 40, 160)),
    "arguments": Family(_arguments, (4, 16, 64)),
    "outputs": Family(_outputs, (4, 16, 64)),
    "arguments and outputs": Family(_arguments_and_outputs, (4, 16, 64)),
    "turns": Family(_turns, (16, 256, 4096), length=same),
    "loops in each other, for": Family(_FOR, (1, 2, 3, 4), work=same),
    "loops in each other, while": Family(_WHILE, (1, 2, 3, 4), work=same),
    # Inside of another loop a turn also selects for who has left that one.
    "loops in each other, bounds from data": Family(_DATA, (1, 2, 3), work=lambda n: 1.0 if n == 1 else 1.5),
    "loops one after another": Family(_loops, (2, 8, 32)),
    "loop over a tuple": Family(_written_out, (10, 40, 160)),
    "loop over a tuple with a break": Family(_break_written_out, (5, 20, 80)),
    "sum over a range": Family(_sum, (10, 40, 160)),
    "captured numbers": Family(_captured, (10, 40, 160)),
    "least of several": Family(_least, (5, 20, 80)),
    "elif in a loop": Family(_elif_in_loop, (5, 20, 80)),
    "statements of a loop that elements leave": Family(_search, (5, 20, 80)),
    "what a loop carries": Family(_carried, (4, 12, 36)),
    "derivative inside": Family(_inner_derivative, (5, 20, 80)),
    # From the tenth on a power is a call, of some twenty products' time.
    "powers": Family(_power, (2, 8, 64), work=lambda n: n.bit_length() if n < 10 else 20.0, length=same),
}


# --- measuring -------------------------------------------------------------------------------------------------------


def load(text: str, folder: Path) -> Any:
    """The function of a module that nobody has compiled before."""
    number = next(_numbers)
    path = folder / f"cliff_{number}.py"
    path.write_text(text.replace("C", f"1.{number:06d}"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return differentiable_broadcast(module.f)


def inputs(function: Any, dtype: str, count: int = ELEMENTS) -> list[Any]:
    """An ordinary array for each argument: a good part of the elements takes each side of a branch."""
    arguments = function.__wrapped__.__code__.co_argcount
    random = np.random.default_rng(0)
    return [random.uniform(0.1, 40.0 if at == 0 else 1.0, count).astype(dtype) for at in range(arguments)]


def call(function: Any, product: str, arrays: list[Any]) -> Callable[[], Any]:
    """A call of a product with these arrays."""
    if product == "vjp":

        def pulled() -> Any:
            value, back = function.vjp(*arrays)
            return back(tuple(map(np.ones_like, value)) if isinstance(value, tuple) else np.ones_like(value))

        return pulled
    method = function if product == "value" else getattr(function, product)
    return lambda: method(*arrays)


def element_time(run: Callable[[], Any], count: int = ELEMENTS, attempts: int = 5) -> float:
    """The processor time of an element, the least of several attempts."""
    run()
    times: list[float] = []
    calls = 1
    while len(times) < attempts:
        began = time.thread_time()
        for _ in range(calls):
            run()
        took = time.thread_time() - began
        if took < 1e-3:
            calls *= 2
        else:
            times.append(took / calls / count)
    return min(times)


def cost(family: Family, size: int, product: str, dtype: str, folder: Path) -> Cost:
    """What the program of a size costs now; its time to compile the least of two, if that is short."""
    first, run = np.inf, None
    for _ in range(2):
        function = load(family.text(size), folder)
        run = call(function, product, inputs(function, dtype))
        began = time.process_time()
        run()
        first = min(first, time.process_time() - began)
        if first > 1:
            break
    assert run is not None
    return Cost(first, element_time(run))


def growth(family: Family, costs: dict[int, Cost]) -> dict[str, float]:
    """How many times faster than the operations counted each time has grown, between any two sizes."""
    found = {}
    for what, counted in (("first", family.length), ("element", family.work)):
        for small, large in itertools.combinations(family.sizes, 2):
            times = getattr(costs[large], what) / getattr(costs[small], what)
            found[f"{what} {small} to {large}"] = times / (counted(large) / counted(small))
    return found
