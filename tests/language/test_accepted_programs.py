"""What looks odd and is no error: it gives what plain Python gives, and the slopes of plain Python's differences."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cells import Cell, agree, program

from dualbcast import differentiable_broadcast, from_source

# Further in than a page of the kernel's text is wide, where no comment has room.
NESTED = "\n".join(" " * depth + f"if x < {depth + 9}:" for depth in range(40))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("return math.atan2(*(x, y))", id="starred"),
        pytest.param("for i in range(3):\n    y += i\nreturn y + i", id="loop variable"),
        pytest.param("t = (x, y)\nt += (x,)\nreturn t", id="growing tuple"),
        pytest.param("t = []\nfor i in range(3):\n    t = [*t, x * y**i]\nreturn sum(t)", id="list that a loop grows"),
        pytest.param(
            "t, s = (x,), y\nfor i in range(4):\n    t = (*t, math.sin(t[-1]) * y)\n"
            "    if i > x: break\n    s += t[-1]\nelse:\n    s *= 2\nreturn s * x",
            id="tuple that a loop with a break grows",
        ),
        pytest.param(
            "s = 0.0\nfor j in range(int(y)):\n    t = [x]\n    for i in range(2):\n        t = [*t, t[-1] * y]\n"
            "    s += t[2]\nreturn s",
            id="list that an inner loop grows",
        ),
        pytest.param("[a, b] = x, y\nreturn a * b", id="list as a target"),
        pytest.param("for *a, b in ((x, y),):\n    y += b\nreturn y", id="starred target"),
        pytest.param("return x if None else y", id="None is false"),
        pytest.param("z = x\n'text'\nreturn z", id="text between"),
        pytest.param("if x > y:\n    ...\nelse:\n    x *= y\nreturn x", id="an ellipsis as a statement"),
        pytest.param("if False:\n    return [x]\nreturn x", id="never compiled"),
        pytest.param("return x\nreturn [x]", id="never reached"),
        pytest.param("float32, exp, out, k, start = x, y, x, y, x\nreturn float32 * exp * out * k * start", id="names"),
        pytest.param("def g(a):\n    y = a\n    return y\nreturn g(x) + y", id="inner locals"),
        pytest.param("g = lambda: z\nz = x\nreturn g()", id="late binding"),
        pytest.param("r = range(3)\nfor i in r:\n    y += i\nreturn y", id="named range"),
        pytest.param("while ():\n    x += 1\nreturn x", id="empty tuple is false"),
        pytest.param("return sum(zip()) + x", id="zip of nothing"),
        pytest.param("return x if 'a' and math.sin else y", id="text and functions are true"),
        pytest.param("return x if '' or None or () else y", id="empty text is false"),
        pytest.param("return x * math.factorial(3)", id="a function of known numbers"),
        pytest.param("return x * isinstance(y, int | float)", id="a union of classes"),
        pytest.param("return sum(map(abs, (x, y)))", id="map"),
        pytest.param("return min(x, y, key=abs)", id="key of min"),
        pytest.param("return (lambda **k: k['a'] * y)(a=x)", id="double star of a lambda"),
        pytest.param("return (lambda a, b=[]: a)(x)", id="default that is a list"),
        pytest.param("def g(**a):\n    return 'b' in a, a['b']\nreturn g(b=x)", id="double star parameter"),
        pytest.param("return x in (y, 0.5), x not in [y]", id="in"),
        pytest.param("while x > 0:\n    x -= 1\nelse:\n    x = y * 2\nreturn x", id="else of a while"),
        pytest.param("for i in range(3):\n    x -= i\nelse:\n    x *= y\nreturn x", id="else of a for"),
        pytest.param("match x > 1:\n    case True: return x\nreturn y", id="match"),
        pytest.param("assert 'a' in 'abc'\nreturn x", id="assertion that is known"),
        pytest.param("assert (n := 3) > 2\nreturn x * n", id="name that an assertion assigns"),
        pytest.param(
            "if x > 1 and (w := x * y) > 0 and (v := w + y) < 9:\n    return w * v\n"
            "elif x < -1 or (w := x + y) > 0.5:\n    return x\nreturn w * 3",
            id="names that parts of conditions assign",
        ),
        pytest.param(
            "r = w * 2 if x > 0.3 and (w := x * y) > 0.6 else u if y > 0 and (u := y - x) > 0.1 else x\nreturn r",
            id="names that parts of choices assign",
        ),
        pytest.param(
            "w = 7.0\nif x > 0 and (w := x * y) > 0.2:\n    w += 1\nreturn w", id="a name that it may assign again"
        ),
        pytest.param("return *(x, y), x", id="starred return"),
        pytest.param(
            "while True:\n    j = int(x), int(x)\n    x *= 1.5\n    if x > 9: break\nreturn j[0] * x, float(j[1]) * x",
            id="value of the last turn",
        ),
        pytest.param("t = (x, None)\nif x > 1:\n    t = (y, 1)\nreturn t[0]", id="a part that paths agree on"),
        # The reduction is tried as one that is written out first, and what that tries to name must keep its name.
        pytest.param(
            "t = [x, y, x * y]\nreturn sum(a * b for a, b in zip(t, reversed(t)) if a > 0)", id="a try taken back"
        ),
        pytest.param(f"{NESTED}\n{' ' * 40}while y < 3: y += 0.7 * x\nreturn x * y", id="forty branches deep"),
    ],
)
def test_what_looks_odd_and_is_no_error(body: str) -> None:
    agree(Cell(program(body)))


LONG_REDUCTIONS = {
    "sum": "return sum(1 / math.sqrt(x * (1 + k * y) ** 2 + 2) for k in range(200))",
    "sum with a start": "return sum((x * k * y for k in range(0, 400, 2)), y)",
    "product": "return math.prod(1 + x / (k + 1) ** 2 for k in range(150)) * y",
    "two ranges with a filter": "return sum(math.exp(-x * i - y * j) for i in range(14) for j in range(14) if i != j)",
    "a range in a range": "return sum(x * i * j + y for i in range(20) for j in range(i))",
    "least and greatest": "return max(k - (k - 99.3 * x) ** 2 for k in range(999)), min(k * y for k in range(150))",
    "any and all": "return any(x < k / 300 for k in range(300)), all(k * x < 90 * y for k in range(200))",
    "counts": "return sum(k * x < y + .1 for k in range(200)), sum(k for k in range(200)), max(-k for k in range(150))",
    "indices of a tuple": "t = (x, y)\nreturn sum(t[k % 2] * k for k in range(150))",
    "pairs": "return max((k - (k - 70.2 * x) ** 2, y) for k in range(150))",
}


@pytest.mark.parametrize("body", LONG_REDUCTIONS.values(), ids=LONG_REDUCTIONS)
def test_long_reductions(body: str) -> None:
    agree(Cell(program(body)))


def test_a_long_reduction_is_a_loop() -> None:
    """Written out, with derivatives, it takes 2 s for 200 items, and minutes for thousands."""
    of = "import math\ndef f(x):\n    return sum(math.exp(-x * k) for k in range({}))"
    short, long = (from_source(of.format(count)) for count in (128, 5000))
    assert " for " not in str(short.inspect_ir("float64"))
    assert "for " in str(long.inspect_ir("float64"))
    x = np.array([0.5, 2.0])
    value, jacobian = long.value_and_jacobian(x)
    np.testing.assert_allclose(value, 1 / (1 - np.exp(-x)), rtol=1e-14)
    np.testing.assert_allclose(jacobian["x"], -np.exp(-x) / (1 - np.exp(-x)) ** 2, rtol=1e-14)


def test_a_long_loop_over_a_whole_array_is_a_loop() -> None:
    @differentiable_broadcast(whole="t")
    def total(x, t):
        result = 0.0
        for k in range(1000):
            result += t[k] * x
        return result

    t = np.linspace(0.0, 1.0, 1001)
    value, jacobian = total.value_and_jacobian(np.array([1.0, 2.0]), t)
    np.testing.assert_allclose(value, [t[:1000].sum(), 2 * t[:1000].sum()], rtol=1e-13)
    np.testing.assert_allclose(jacobian["x"], t[:1000].sum(), rtol=1e-13)
    assert "for " in str(total.inspect_ir(np.ones(2), t))


PRIVATE = {
    "object": """\
class Model:
    def __init__(self):
        self.__weight = 2.0

    def __scaled(self, a):
        return a * self.__weight

    def __call__(self, a):
        return self.__scaled(a) + self.__weight

model = Model()

def f(x, y):
    return model(x) * y
""",
    "dataclass": """\
@dataclasses.dataclass
class _Pair:
    a: float

    def __doubled(self):
        return self.a * 2

    def total(self):
        return self.__doubled()

def f(x, y):
    return _Pair(x).total() * y
""",
}


@pytest.mark.parametrize("text", PRIVATE.values(), ids=list(PRIVATE))
def test_private_names_of_a_class(text: str) -> None:
    agree(Cell(text, {"dataclasses": dataclasses}))


MANY_NAMES = """
from dualbcast.frontend.lower import lower

def f(x, n):
    total = 0.0
    for i in range(n):
        if x > i:
            first, second, third, fourth = x, 2 * x, 3 * x, 4 * x
        else:
            first, second, third, fourth = 1.0, x, x * x, 2.0
        total += first * second - third * fourth
    return total

print(lower(f, ["float", "int"]).function)
"""


def test_the_ir_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Kernels on disk are found by it, so it must not depend on the order of sets, which changes with each process."""
    file = tmp_path / "many_names.py"
    file.write_text(MANY_NAMES, encoding="utf-8")
    texts = {
        subprocess.run(
            [sys.executable, str(file)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in range(1, 5)
    }
    assert len(texts) == 1
