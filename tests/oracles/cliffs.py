"""Programs that grow one thing at a time, and what they cost: a first call, and an element of the later ones.

A family writes the program of size n. Costs may grow with what the program has to do, which the family counts, and no
faster: `test_cliffs.py` asserts that of counts of work, and `bench/cliff_times.py` shows how times grow.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualbcast import differentiable_broadcast
from dualbcast.rules.table import RULES, add_later_rows

add_later_rows()

ELEMENTS = 2048
# How much faster than the operations counted a cost may grow.
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
    """What a program costs, in seconds or in counts: its first call, and an element of the later ones."""

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


def _assigning_elif(n: int) -> str:
    """The later part of each condition assigns a name, which only its own side may read."""
    chain = _chain(n, "r = w * {k}.5", "{word} x < {k}.25 and (w := y * {k}.75) > 0.5:")
    return _function([*chain, "else:", "    r = y * C", "return r"])


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


def _terms_with_sin(n: int) -> str:
    return _function([f"return x * C + {' + '.join(f'math.sin(x * {k}.5) * y' for k in range(n))}"])


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


def _iterations(n: int) -> str:
    return _function(["t = x * C", f"for i in range({n}):", "    t = t * 0.5 + y * t * 0.1", "return t"])


def _nest(head: Callable[[int, int], list[str]], last: Callable[[int], list[str]]) -> Callable[[int], str]:
    """Nested loops, of which the innermost has 4096 iterations in all."""

    def text(depth: int) -> str:
        count = round(4096 ** (1 / depth))
        body, pad = ["t = x * C"], ""
        for k in range(depth):
            body += [pad + line for line in head(k, count)]
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


_FOR = _nest(lambda k, count: [f"for i{k} in range({count}):"], lambda k: [])  # noqa: ARG005
_WHILE = _nest(lambda k, count: [f"i{k} = 0", f"while i{k} < {count}:"], lambda k: [f"i{k} += 1"])
_DATA = _nest(lambda k, count: [f"i{k} = 0", f"while i{k} < {count} + y:"], lambda k: [f"i{k} += 1"])

FAMILIES = {
    "elif": Family(_elif("r = x * {k}.5 + y"), (10, 40, 160)),
    "elif that assigns a name": Family(_assigning_elif, (10, 40, 160)),
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
    "terms with sin": Family(_terms_with_sin, (10, 40, 160)),
    "helpers in each other": Family(_helper_depth, (5, 20, 60)),
    "helpers": Family(_helpers, (10, 40, 160)),
    "calls of a helper": Family(_one_helper, (10, 40, 160)),
    "arguments": Family(_arguments, (4, 16, 64)),
    "outputs": Family(_outputs, (4, 16, 64)),
    "arguments and outputs": Family(_arguments_and_outputs, (4, 16, 64)),
    "iterations": Family(_iterations, (16, 256, 4096), length=same),
    "loops in each other, for": Family(_FOR, (1, 2, 3, 4), work=same),
    "loops in each other, while": Family(_WHILE, (1, 2, 3, 4), work=same),
    # Inside of another loop a turn also selects for who has left that one.
    "loops in each other, bounds from data": Family(_DATA, (1, 2, 3), work=lambda n: 1.0 if n == 1 else 1.5),
    "loops one after another": Family(_loops, (2, 8, 32)),
    "loop over a tuple": Family(_written_out, (10, 40, 160)),
    "loop over a tuple with a break": Family(_break_written_out, (5, 20, 80)),
    "sum over a range": Family(_sum, (10, 40, 120)),
    # Such are loops of the kernel.
    "sum over a long range": Family(_sum, (200, 400, 1600)),
    "captured numbers": Family(_captured, (10, 40, 160)),
    "least of several": Family(_least, (5, 20, 80)),
    "elif in a loop": Family(_elif_in_loop, (5, 20, 80)),
    "statements of a loop that elements leave": Family(_search, (5, 20, 80)),
    "what a loop carries": Family(_carried, (4, 12, 36)),
    "derivative inside": Family(_inner_derivative, (5, 20, 80)),
    # From the tenth on a power is no product. It takes as long as some twenty of them, and has more code.
    "powers": Family(
        _power,
        (2, 8, 64),
        work=lambda n: n.bit_length() if n < 10 else 20.0,
        length=lambda n: 1.0 if n < 10 else 1.5,
    ),
}


# --- programs -------------------------------------------------------------------------------------------------------


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


def growth(family: Family, costs: dict[int, Cost]) -> dict[str, float]:
    """How many times faster than the operations counted each cost has grown, between any two sizes."""
    found = {}
    for what, counted in (("first", family.length), ("element", family.work)):
        for small, large in itertools.combinations(family.sizes, 2):
            ratio = getattr(costs[large], what) / getattr(costs[small], what)
            found[f"{what} {small} to {large}"] = ratio / (counted(large) / counted(small))
    return found


# --- arrays and their values -----------------------------------------------------------------------------------------

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64")
OPERATORS = ("x0 ** x1", "x0 ** math.floor(x1)", "x0 / x1", "x0 % x1", "x0 // x1", "min(x0, x1)", "abs(x0)")
RULE_NAMES = [name for name, row in RULES.items() if not row.by_user]

# What a call costs, in seconds or in counts.
Measure = Callable[[Callable[[], Any]], float]


def growth_with_arrays(name: str, product: str, dtype: str, folder: Path, measure: Measure) -> dict[str, float]:
    """How many times more than the double a call costs from one size of arrays to the double."""
    f = load(FAMILIES[name].text(4), folder)
    arrays = inputs(f, dtype, 1 << 16)
    costs = {1 << power: measure(call(f, product, [each[: 1 << power] for each in arrays])) for power in range(17)}
    return {f"{size} to {2 * size}": costs[2 * size] / (2 * costs[size]) for size in list(costs)[:-1]}


def growth_with_dtypes(one: str, body: str, product: str, folder: Path, measure: Measure) -> dict[str, float]:
    """How many times more than a call of float64 alone a call of one dtype and another costs."""
    f = load(f"import math\ndef f(x, y):\n    return ({body}) * C\n", folder)
    numbers = np.random.default_rng(0).integers(0, 2, (2, ELEMENTS))
    pairs = {"float64": ("float64", "float64")} | {f"with {other}": (one, other) for other in DTYPES}
    costs = {
        pair: measure(call(f, product, [each.astype(dtype) for each, dtype in zip(numbers, dtypes, strict=True)]))
        for pair, dtypes in pairs.items()
    }
    return {pair: cost / costs["float64"] for pair, cost in costs.items()}


def growth_with_values(name: str, product: str, dtype: str, folder: Path, measure: Measure) -> dict[str, float]:
    """How many times more than a call with ordinary numbers a call of a rule or an operator costs with others."""
    if name in OPERATORS:
        head, expression, domains = "import math", name, {at: (0.1, 20.0) for at in (0, 1) if f"x{at}" in name}
    else:
        head, expression, domains = _of_rule(name)
    params = [f"x{at}" for at in domains]
    f = load(f"{head}\ndef f({', '.join(params)}):\n    return C * {expression}\n", folder)
    random = np.random.default_rng(0)
    ordinary = [random.uniform(low, high, ELEMENTS).astype(dtype) for low, high in domains.values()]
    usual, found = measure(call(f, product, ordinary)), {}
    for at, each in enumerate(ordinary):
        for kind, array in _ranges(dtype, each).items():
            arrays = [*ordinary[:at], array, *ordinary[at + 1 :]]
            found[f"{kind} {params[at]}"] = measure(call(f, product, arrays)) / usual
    return found


def growth_behind_a_guard(name: str, product: str, dtype: str, folder: Path, measure: Measure) -> dict[str, float]:
    """How many times more than a call with ordinary numbers a call of a rule costs where some elements that do not take
    the branch with the rule have others."""
    head, expression, domains = _of_rule(name)
    params = [f"x{at}" for at in domains]
    text = f"def f({', '.join(params)}, takes):\n    if takes > 0.5:\n        return C * {expression}\n    return x0\n"
    f = load(f"{head}\n{text}", folder)
    random = np.random.default_rng(0)
    ordinary = [random.uniform(low, high, ELEMENTS).astype(dtype) for low, high in domains.values()]
    takes = (np.arange(ELEMENTS) % 5 != 3).astype(dtype)
    usual, found = measure(call(f, product, [*ordinary, takes])), {}
    for kind in _ranges(dtype, ordinary[0]):
        arrays = [np.where(takes, each, _ranges(dtype, each)[kind]) for each in ordinary]
        found[kind] = measure(call(f, product, [*arrays, takes])) / usual
    return found


def _ranges(dtype: str, ordinary: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers of one kind each, as many as the ordinary ones."""
    format_ = np.finfo(dtype)
    signs = np.where(np.arange(ordinary.size) % 2 == 0, 1.0, -1.0).astype(dtype)
    spread = np.linspace(0.25, 0.75, ordinary.size, dtype=dtype)
    return {
        "zero": signs * 0,
        "subnormal": signs * spread * format_.tiny,
        "tiny": signs * spread * format_.tiny * 8,
        "huge": signs * spread * format_.max,
        "negative": -abs(ordinary),
        "infinite": signs * np.inf,
        "nan": signs * np.nan,
        "one infinite": np.where(np.arange(ordinary.size) % 64 == 5, np.inf, ordinary).astype(dtype),
    }


def is_named(name: str) -> bool:
    """Whether a rule has a function of its own; others stand for an expression."""
    return bool(_names_of(name))


def _names_of(name: str) -> list[str]:
    found = []
    for each in (*RULES[name].spellings, f"dualbcast.special.{name}", f"dualbcast.arithmetic.{name}"):
        module, _, function = each.rpartition(".")
        known = module in ("math", "numpy", "dualbcast.special", "dualbcast.arithmetic")
        if known and hasattr(importlib.import_module(module), function):
            found.append(each)
    return found


def _of_rule(name: str) -> tuple[str, str, dict[int, tuple[float, float]]]:
    """An import, a call of a rule's function, and where its arguments are from that are no integers."""
    row, spelling = RULES[name], _names_of(name)[0]
    args = ", ".join("1" if at in row.integer else f"x{at}" for at in range(row.arity))
    domains = {at: tuple(np.clip(row.domain[at], -20, 20)) for at in range(row.arity) if at not in row.integer}
    return f"import {spelling.rpartition('.')[0]}", f"{spelling}({args})", domains
