"""Writes docs/reference/errors.md: typical mistakes, and the messages that they give: python docs/generate_errors.py"""

from __future__ import annotations

import contextlib
import linecache
import math
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualbcast import derivative, differentiable_broadcast, gradient
from dualbcast.errors import DualbcastError

PAGE = Path(__file__).parent / "reference" / "errors.md"
FILE = "example.py"

HEAD = """\
# Errors, and what to write instead

An error of this package is one message: the place, the mistake, your line with a caret, and a correction. If the
mistake is in a function that yours calls, the message also shows the calls that led there. All errors are subclasses
of `dualbcast.errors.DualbcastError`:

- `CompileError` is about the scalar function, and is raised before anything runs;
- `ArgumentError`, `ShapeError` and `DTypeError` are about the arguments of a call;
- `BackendError` and `MissingDependencyError` are about hardware and installed packages;
- `BoundsError`, `IterationError` and `KernelCancelled` are raised while a kernel runs;
- `FailedAssertion`, an `AssertionError`, is raised before it runs, by an `assert` in the function, and
  `RaisedError` by a `raise`, whose class it has, too;
- `NonFiniteError`, a `FloatingPointError`, is raised after it has run, by the option `check`.

Every message on this page comes from running the code above it, after

```python3
import math
import numpy as np
from dualbcast import derivative, differentiable_broadcast, gradient

x, y = np.array([0.5, 2.0]), np.array([1.5, -0.5])
```
"""


@dataclass(frozen=True)
class Example:
    """A mistake; `body` is the function's, or a whole program that begins with a decorator or a definition."""

    title: str
    body: str
    call: str = "f(x, y)"
    without: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The program as the page shows it."""
        body = textwrap.dedent(self.body).strip("\n")
        if "differentiable_broadcast" not in body:
            body = f"@differentiable_broadcast\ndef f(x, y):\n{textwrap.indent(body, '    ')}"
        # Laid out as formatters lay out Python, which some also do in Markdown.
        return re.sub(r"\n\n(?=\S)", "\n\n\n", f"{body}\n\n{self.call}\n")


GROUPS: dict[str, list[Example]] = {
    "The language": [
        Example("Neighbours of an element", "return (x[-1] + x + x[1]) / 3"),
        Example("The array's own attributes and methods", "return x / x.sum()"),
        Example("Assignment to an element", "y[0] = x\nreturn y"),
        Example("An exception that is caught", "try:\n    return x / y\nexcept ZeroDivisionError:\n    return 0.0"),
        Example("A print to a file", 'with open("log.txt", "a") as log:\n    print(x, file=log)\nreturn x * y'),
        Example("A dictionary whose keys are not text", "parts = {0: x, 1: y}\nreturn parts[0] * parts[1]"),
        Example("A list of two names that changes", "a = b = [x]\na.append(y)\nreturn sum(b)"),
        Example("A list that grows with the data", "terms = []\nif x > 0:\n    terms.append(y)\nreturn sum(terms)"),
        Example("A filter that depends on the data", "positive = [a for a in (x, y) if a > 0]\nreturn sum(positive)"),
        Example("An import inside the function", "from scipy.special import erf\n\nreturn erf(x)"),
        Example("A global variable that is changed", "global calls\ncalls = 1\nreturn x"),
        Example("A result that is not used", "x * y\nreturn x"),
        Example("Identity instead of equality", "return 0.0 if x is y else x / y"),
        Example("Matrix multiplication", "return x @ y"),
    ],
    "Names and paths": [
        Example("A misspelt name", "slope = 2 * x\nreturn slop + y"),
        Example("A variable that only one side assigns", "if x > 1:\n    scale = y\nreturn x * scale"),
        Example("A variable that only a loop assigns", "for i in range(int(y)):\n    last = x * i\nreturn last"),
        Example("A path without a value", "if x > 1:\n    return x * y"),
        Example("Different outputs on different paths", "if x > 1:\n    return x, y\nreturn x"),
        Example("Nothing is returned", "result = x * y"),
    ],
    "Numbers and kinds": [
        Example("A choice between functions", "curve = math.sin if x > 0 else math.cos\nreturn curve(y)"),
        Example("A number or None", "scale = y if y > 0 else None\nreturn x if scale is None else x * scale"),
        Example("A function that is not called", "return x * math.sqrt"),
        Example("Bit operations for `and`", "return x if x & y else y"),
        Example("A complex number where there is none", "return math.exp(x * 1j)"),
        Example("An integer too large for a kernel", "return int(x) * (6364136223846793005 * 3)"),
        Example("A tuple that is indexed by data", "table = (0.1, 0.2, 0.4)\nreturn x * table[int(y)]"),
        Example(
            "A variable that changes its kind in a loop",
            "total = ()\nwhile x > 0:\n    total = (*total, x)\n    x -= y\nreturn x",
        ),
        Example("Text that is chosen by data", 'mode = "up" if x > y else "down"\nreturn x if mode == "up" else y'),
    ],
    "Loops": [
        Example("A loop over a parameter", "total = 0.0\nfor a in x:\n    total += a\nreturn total * y"),
        Example("The sum of an array", "return sum(x) * y"),
        Example("A range of floats", "total = 0.0\nfor i in range(y):\n    total += x\nreturn total"),
        Example("A loop without end", "while True:\n    x = x / 2 + y"),
        Example("A long loop that is written out", "return sum((x,) * 100_000)"),
        Example(
            "Recursion that depends on the data",
            """
            def power(a, n):
                return 1.0 if n <= 0 else a * power(a, n - 1)

            @differentiable_broadcast
            def f(x, y):
                return power(x, y)
            """,
        ),
    ],
    "Calls": [
        Example("A function of `math` without a derivative", "return math.gcd(int(x), int(y))"),
        Example("A function of NumPy that works on arrays", "return np.sort(x) * np.dot(x, y)"),
        Example("Random numbers", "return x + np.random.normal()"),
        Example("Too many arguments for a function of `math`", "return math.tanh(x, y)"),
        Example(
            "Wrong arguments for your own function",
            """
            def line(slope, at, offset=0.0):
                return slope * at + offset

            @differentiable_broadcast
            def f(x, y):
                return line(x, y, shift=1.0)
            """,
        ),
        Example(
            "An error inside your own function",
            """
            def smooth(a):
                return a.clip(0, 1)

            def twice(a, b):
                return smooth(a) + smooth(b)

            @differentiable_broadcast
            def f(x, y):
                return twice(x, y)
            """,
        ),
        Example(
            "An error in an operator of your own class",
            """
            from dataclasses import dataclass

            @dataclass
            class Point:
                u: float
                v: float

                def __add__(self, other):
                    return Point(self.u + other.u, self.v + other.w)

            @differentiable_broadcast
            def f(x, y):
                return (Point(x, y) + Point(y, x)).v
            """,
        ),
        Example("A set", "return len(set((x, y)))"),
    ],
    "Derivatives inside": [
        Example("The derivative of a number", "return derivative(x * y)"),
        Example("The arguments given with the function", "return derivative(math.sin, x) * y"),
        Example("A derivative that is not called", "return derivative(math.sin) * y"),
        Example(
            "A derivative in an integer, inside a kernel",
            "def power(a, n):\n    return a**n\n\nda, dn = gradient(power)(x, int(y))\nreturn da",
        ),
        Example(
            "A derivative in an argument that is left out",
            'def line(a, slope=2.0):\n    return a * slope\n\nreturn derivative(line, wrt="slope")(x) * y',
        ),
        Example("One derivative in several arguments", "return derivative(math.hypot, wrt=(0, 1))(x, y)"),
        Example("The derivative of text", 'return derivative(lambda a: (a * y, "m"))(x)'),
        Example(
            "The derivative of a function without one",
            """
            from dualbcast import not_differentiable

            @not_differentiable
            def level(a):
                return int(4 * a)

            @differentiable_broadcast
            def f(x, y):
                return derivative(lambda a: a * level(a))(x) * y
            """,
        ),
        Example("A choice between derivatives", "slope = derivative(math.sin if x > 0 else math.cos)\nreturn slope(y)"),
        Example("A derivative of text outside a kernel", "return x * y", 'derivative(math.sin)("0.5")'),
        Example("A derivative of integers outside a kernel", "return x * y", "derivative(math.sin)(np.arange(3))"),
    ],
    "Captured objects": [
        Example(
            "A captured list",
            """
            weights = [0.2, 0.8]

            @differentiable_broadcast
            def f(x, y):
                return weights[0] * x + weights[1] * y
            """,
        ),
        Example(
            "A captured dictionary that changes",
            """
            options = {"scale": 2.0}

            @differentiable_broadcast
            def f(x, y):
                options["scale"] = 3.0
                return options["scale"] * x * y
            """,
        ),
        Example(
            "A function without source",
            """
            scope = {}
            exec("def double(a): return 2 * a", scope)
            double = scope["double"]

            @differentiable_broadcast
            def f(x, y):
                return double(x) + y
            """,
        ),
        Example("A function that is not a Python function", "f = differentiable_broadcast(math.hypot)"),
    ],
    "Arguments of a call": [
        Example("A set for an array", "return x * y", "f(x, {1.0, 2.0})"),
        Example("Too few arguments", "return x * y", "f(x)"),
        Example("A name that is not a parameter", "return x * y", "f(x, z=y)"),
        Example(
            "Text without `static=`",
            """
            @differentiable_broadcast
            def f(x, mode="up"):
                return x if mode == "up" else -x
            """,
            'f(x, mode="down")',
        ),
        Example(
            "A static argument that is an array",
            """
            @differentiable_broadcast(static=("power",))
            def f(x, power):
                return x**power
            """,
        ),
        Example(
            "A default that is a list",
            """
            @differentiable_broadcast
            def f(x, weights=[0.2, 0.8]):
                return weights[0] * x
            """,
            "f(x)",
        ),
        Example(
            "A captured array that does not fit",
            """
            weights = np.ones(3)

            @differentiable_broadcast
            def f(x, y):
                return weights * x * y
            """,
        ),
        Example("Shapes that do not broadcast", "return x * y", "f(x, np.ones(3))"),
        Example("A dtype without arithmetic", "return x * y", 'f(x, y.astype("U8"))'),
        Example("A derivative in a name that is not an argument", "return x * y", 'f.jacobian(x, y, wrt="z")'),
        Example("A derivative in an integer", "return x * y", 'f.jacobian(x, np.arange(2), wrt="y")'),
    ],
    "`out=`": [
        Example("The wrong dtype", "return x * y", "f(x, y, out=np.empty(2, np.float32))"),
        Example("The wrong shape", "return x * y", "f(x, y, out=np.empty((2, 1)))"),
        Example("One array for two outputs", "return x * y, x - y", "f(x, y, out=np.empty(2))"),
        Example("An array that cannot be written", "return x * y", "f(x, y, out=np.broadcast_to(0.0, 2))"),
        Example("No arrays for the Jacobian", "return x * y", "f.value_and_jacobian(x, y, out=np.empty(2))"),
    ],
    "While a kernel runs": [
        Example(
            "A loop that does not end",
            """
            @differentiable_broadcast(max_iterations=50)
            def f(x, y):
                u = x
                while True:
                    step = (u * u - y) / (2 * u)
                    u -= step
                    if abs(step) < 1e-13 * abs(u):
                        return u
            """,
        ),
        Example(
            "An index out of range",
            """
            @differentiable_broadcast(whole="table")
            def f(x, table):
                return table[int(x)]
            """,
            "f(np.array([0.5, 7.5]), np.arange(3.0))",
        ),
        Example(
            "An invalid bound",
            """
            @differentiable_broadcast(max_iterations=0)
            def f(x, y):
                return x * y
            """,
        ),
    ],
    "Before and after a kernel runs": [
        Example("An assertion that does not hold", 'assert y > 0, f"y is {y}"\nreturn x * math.log(y)'),
        Example("An exception for bad values", 'if y < 0:\n    raise ValueError(f"y is {y}")\nreturn x * math.sqrt(y)'),
        Example("A result that is NaN", "return x * math.log(y)", 'f(x, y, check="nan")'),
        Example(
            "A derivative that is infinite", "return math.sqrt(x) * y", 'f.jacobian(np.zeros(2), y, check="finite")'
        ),
    ],
    "Backends and packages": [
        Example(
            "A backend that does not exist",
            """
            @differentiable_broadcast(backend="gpu")
            def f(x, y):
                return x * y
            """,
        ),
        Example(
            "NumPy arrays for the GPU",
            """
            @differentiable_broadcast(backend="cuda")
            def f(x, y):
                return x * y
            """,
        ),
        Example("An invalid compute capability", "return x * y", "f.inspect_ptx(x, y, cc=90)"),
        Example(
            "The CUDA packages are not installed",
            "return x * y - 1.0625",
            "f.inspect_ptx(x, y, cc=(9, 0))",
            ("numba_cuda",),
        ),
    ],
}


@contextlib.contextmanager
def _missing(modules: tuple[str, ...]) -> Iterator[None]:
    """Run as if these modules were not installed."""
    absent = dict.fromkeys(modules)
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in modules}
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
        sys.modules.update(hidden)


def error_of(example: Example) -> DualbcastError:
    """The error that an example gives."""
    lines = example.code.splitlines(keepends=True)
    linecache.cache[FILE] = (len(example.code), None, lines, FILE)
    names: dict[str, Any] = {"math": math, "np": np, "differentiable_broadcast": differentiable_broadcast}
    names |= {"derivative": derivative, "gradient": gradient}
    names |= {"x": np.array([0.5, 2.0]), "y": np.array([1.5, -0.5]), "__name__": "example"}
    try:
        with _missing(example.without), warnings.catch_warnings(action="ignore"):
            exec(compile(example.code, FILE, "exec", dont_inherit=True), names)
    except DualbcastError as error:
        return error
    raise AssertionError(f"{example.title}: no error")


def page() -> str:
    """The text of docs/reference/errors.md."""
    parts = [HEAD]
    for group, examples in GROUPS.items():
        parts.append(f"## {group}\n")
        for example in examples:
            error = error_of(example)
            shown = f"{type(error).__name__}: {error}"
            parts.append(f"### {example.title}\n\n```python3\n{example.code}```\n\n```text\n{shown}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
