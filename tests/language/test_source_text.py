"""`from_source`: a function in a string runs and is differentiated, shows its lines, and can be pickled."""

from __future__ import annotations

import copy
import linecache
import math
import os
import pickle
import re
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import check_traceback

import dualbcast
from dualbcast import differentiable_broadcast, from_source
from dualbcast.errors import ArgumentError, CompileError

ROOT = Path(dualbcast.__file__).parent.parent
X = np.array([0.5, -2.0, 3.0])
KEPT = textwrap.dedent("""\
    import math

    def helper(x):
        return math.exp(-x) if x > 0 else 1.0

    def damped(x, rate):
        return helper(rate * x)
    """)


def test_value_and_derivative_are_those_of_the_function() -> None:
    f = differentiable_broadcast.from_source(KEPT)
    value, jacobian = f.value_and_jacobian(X, 0.5)
    assert value == pytest.approx([math.exp(-0.25), 1.0, math.exp(-1.5)])
    assert jacobian["x"] == pytest.approx([-0.5 * math.exp(-0.25), 0.0, -0.5 * math.exp(-1.5)])
    assert f.__name__ == "damped"
    assert repr(f) == "<BroadcastFunction damped>"
    assert differentiable_broadcast.from_source is from_source


@pytest.mark.parametrize("text", ["lambda x: x * x", "\nlambda x: x * x\n", "square = lambda x: x * x"])
def test_a_lambda(text: str) -> None:
    f = from_source(text)
    assert f(X).tolist() == (X * X).tolist()
    assert pickle.loads(pickle.dumps(f))(X).tolist() == (X * X).tolist()


def test_which_function_is_taken() -> None:
    text = "def f(x):\n    return 2 * x\n\ndef g(x):\n    return 3 * f(x)\n\nh = 4.0\n"
    assert from_source(text)(1.0) == 6.0
    assert from_source(text, "f")(1.0) == 2.0
    assert from_source("if True:\n    def f(x):\n        return 5 * x\n", "f")(1.0) == 5.0
    again = "def g(x): return x\ndef f(x): return 7 * x\ng = f\ndef late(x): return 8 * x\n"
    assert from_source(again, "g")(1.0) == 7.0
    assert (
        from_source("class Line:\n    def __call__(self, x):\n        return 9 * x\nline = Line()", "line")(1.0) == 9.0
    )


def test_an_imported_function_is_not_the_last_one() -> None:
    text = "def f(x):\n    return 2 * x\n\nfrom textwrap import dedent\n"
    assert from_source(text)(1.0) == 2.0


def test_names_that_the_text_does_not_define() -> None:
    array, helper = np.array([10.0, 20.0, 30.0]), differentiable_broadcast(lambda x: x * x)
    namespace = {"square": helper, "K": 2.0, "A": array, "m": math}
    f = from_source("def f(x):\n    return square(x) * K + A + m.sin(0.0)", namespace=namespace)
    assert f(X) == pytest.approx(2 * X * X + array)
    array[:] = 1.0
    assert f(X) == pytest.approx(2 * X * X + 1)
    assert f.jacobian(X, wrt=("x", "A"))["A"].tolist() == [1.0, 1.0, 1.0]


def test_only_names_that_are_used_are_kept() -> None:
    unpicklable = {"A": 3.0, "unused": lambda: None, "f": lambda: None, "math": math}
    f = from_source("def f(x):\n    return A * x + math.cos(0.0)", namespace=unpicklable)
    assert pickle.loads(pickle.dumps(f))(X) == pytest.approx(3 * X + 1)


def test_an_indented_text_with_line_ends_of_another_system() -> None:
    f = from_source("\r\n    def f(x):\r\n        '''Two\r\n        lines'''\r\n        return x + 1\r\n    ")
    assert f(1.0) == 2.0
    bad = from_source("\n        def f(x):\n            y = x\n            return y[0]\n")
    with pytest.raises(CompileError) as caught:
        bad(X)
    assert caught.value.lineno == 4
    assert "     4 |     return y[0]\n       |            ^^^^" in str(caught.value)


@pytest.mark.parametrize("end", ["\x0c", "\u2028", "\x1c"])
def test_characters_that_end_lines_elsewhere_end_none_of_python(end: str) -> None:
    f = from_source(f"NAME = 'a{end}b'\ndef f(x):\n    return x[0]\n")
    with pytest.raises(CompileError) as caught:
        f(X)
    assert "     3 |     return x[0]" in str(caught.value).split("\n")


def test_options_are_those_of_the_decorator() -> None:
    f = from_source("def f(x, y, n):\n    return x * y if n == 'both' else x", static="n", wrt="y", backend="python")
    assert f.value_and_jacobian(2.0, 3.0, "both")[1].wrt == ("y",)
    assert pickle.loads(pickle.dumps(f)).value_and_jacobian(2.0, 3.0, "both")[1].wrt == ("y",)
    with pytest.raises(ArgumentError):
        from_source("lambda x: x", jacobian="none")  # type: ignore[arg-type]


def test_a_function_that_the_text_decorates_itself() -> None:
    text = "from dualbcast import differentiable_broadcast\n@differentiable_broadcast\ndef f(x):\n    return x * x\n"
    f = from_source(text)
    assert f(X).tolist() == (X * X).tolist()
    assert pickle.loads(pickle.dumps(f))(X).tolist() == (X * X).tolist()


# --- errors ----------------------------------------------------------------------------------------------------------


def test_an_error_shows_the_line_of_the_text() -> None:
    f = from_source("def inner(a):\n    return a[-1]\n\ndef f(x):\n    return inner(x)\n")
    with pytest.raises(CompileError) as caught:
        f(X)
    name = re.escape(caught.value.filename)
    assert re.fullmatch(r"<dualbcast source [0-9a-f]{12}>", caught.value.filename)
    assert re.match(rf"{name}:2:12: a is one element of its array", str(caught.value))
    assert "     2 |     return a[-1]\n       |            ^^^^^\n" in str(caught.value)
    assert "     5 |     return inner(x)\n       |            ^^^^^^^^" in str(caught.value)
    check_traceback(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "shown", "carets"),
    [
        ("def f(x):\n    return x +\n", 2, "    return x +", "              ^"),
        ("def f(größe:\n    return 1\n", 1, "def f(größe:", "     ^"),
        ("é = 1\nß = é é\n", 2, "ß = é é", "      ^"),
        ("def f(x):\n  return x\n return x\n", 3, " return x", None),
    ],
)
def test_a_text_that_is_no_python(text: str, line: int, shown: str, carets: str | None) -> None:
    with pytest.raises(CompileError, match="this is no Python: ") as caught:
        from_source(text)
    assert caught.value.lineno == line
    _, code, under = str(caught.value).split("\n")
    assert code == f"{line:>6} | {shown}"
    if carets is not None:
        assert under == f"       | {carets}"
    check_traceback(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "the source is an int; give the text of a function as a str"),
        ((b"lambda x: x",), "the source is a bytes; give the text"),
        (("x = 3",), "the source defines no function, such as"),
        (("",), "the source defines no function, such as"),
        (("def f(x): return x", "g"), "the source defines no function 'g'; it has f"),
        (("f = 3.0\ndef g(x): return x", "f"), "the source defines no function 'f'; it has g"),
        (("lambda x: '\ud800'",), "the source is no text of Python"),
    ],
)
def test_what_defines_no_function(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        from_source(*arguments)


def test_a_namespace_that_is_none() -> None:
    with pytest.raises(ArgumentError, match="namespace is a list; give a mapping of names"):
        from_source("lambda x: x", namespace=["a"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="defines no function 'given'"):
        from_source("def f(x): return given(x)", "given", namespace={"given": lambda x: x})


def test_a_text_that_fails_when_it_runs_shows_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        from_source("A = 1\nB = A / 0\ndef f(x): return x\n")
    assert "    B = A / 0\n" in "".join(traceback.format_exception(caught.value))


# --- copies, pickles, and other processes ----------------------------------------------------------------------------


def test_copies_and_pickles_compute_the_same() -> None:
    array = np.array([1.0, 2.0, 3.0])
    f = from_source("def f(x, y):\n    return A * x * y", namespace={"A": array}, wrt="y")
    for again in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f)), copy.deepcopy({"f": [f]})["f"][0]):
        assert again(X, 2.0) == pytest.approx(2 * array * X)
        assert again.jacobian(X, 2.0)["y"] == pytest.approx(array * X)
        with pytest.raises(ArgumentError):
            again(X)
    assert pickle.loads(pickle.dumps(f.partial("x")))(X, 2.0) == pytest.approx(2 * array)


def in_a_process(program: str, cache: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DUALBCAST_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.strip()


def test_a_pickle_arrives_in_another_process_with_its_lines_and_finds_its_kernels(tmp_path: Path) -> None:
    f = from_source(KEPT)
    bad = from_source("def bad(x):\n    return x[0]\n")
    (tmp_path / "pickled").write_bytes(pickle.dumps((f, bad)))
    read = textwrap.dedent("""\
        import pickle, sys
        import numpy as np
        with open(sys.argv[1], "rb") as file:
            f, bad = pickle.load(file)
        print(f.value_and_jacobian(np.array([0.5, 2.0]), 0.5)[1]["x"].tolist())
        try:
            bad(1.0)
        except Exception as error:
            print(error)
        """)
    compiled = textwrap.dedent("""\
        import sys, numpy as np, dualbcast
        dualbcast.from_source(sys.argv[1]).value_and_jacobian(np.array([0.5, 2.0]), 0.5)
        """)
    cache = tmp_path / "cache"
    in_a_process(compiled, cache, KEPT)
    slopes, *shown = in_a_process(read, cache, str(tmp_path / "pickled")).splitlines()
    assert eval(slopes) == pytest.approx([-0.5 * math.exp(-0.25), -0.5 * math.exp(-1.0)])
    assert "     2 |     return x[0]" in shown
    files = {path: path.stat().st_mtime_ns for path in (cache / "kernels").iterdir()}
    in_a_process(compiled, cache, KEPT)
    assert files == {path: path.stat().st_mtime_ns for path in (cache / "kernels").iterdir()}


def test_equal_texts_have_one_name_and_others_another() -> None:
    names = [from_source(text).__wrapped__.__code__.co_filename for text in (KEPT, KEPT, KEPT + "\n")]
    assert names[0] == names[1] != names[2]
    assert linecache.getline(names[0], 3) == "def helper(x):\n"


def test_the_command_line_explains_and_sweeps_such_a_function(tmp_path: Path) -> None:
    from command_line import QUICK, run

    path = tmp_path / "made.py"
    path.write_text(
        "from dualbcast import from_source\n"
        "f = from_source('def f(x, y):\\n    return x * y if x > 0 else y')\n"
        "total = from_source('def total(*xs):\\n    return sum([x * x for x in xs])')\n"
    )
    shown = run("explain", f"{path}:f", "float32").stdout
    assert "f: 3 outputs" in shown
    assert "line 2" in shown
    swept = run("sweep", "--function", f"{path}:total", "--arity", "2", "--n", "16", "--backend", "cpu", *QUICK)
    assert "total: value and all partials" in swept.stdout


@pytest.mark.slow
def test_the_types_of_the_decorator_and_of_from_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As mypy sees them in a user's program."""
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    mypy = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""\
            from dualbcast import BroadcastFunction, differentiable_broadcast, from_source

            f: BroadcastFunction = differentiable_broadcast.from_source("lambda x: x", wrt="x", namespace={"a": 1})
            g: BroadcastFunction = from_source("lambda x: x", None, static=("n",), fastmath=True)


            @differentiable_broadcast
            def h(x: float) -> float:
                return x


            @differentiable_broadcast(wrt=("x", 1), max_iterations=3)
            def k(x: float) -> float:
                return x


            both: list[BroadcastFunction] = [h, differentiable_broadcast(k, backend="python")]
            differentiable_broadcast.from_source(3)
            differentiable_broadcast(wrt=3.5)
            from_source("lambda x: x", banana=1)
            """)
    )
    arguments = ["--strict", "--no-incremental", "--follow-imports=silent", str(program)]
    shown, _, _ = mypy.run(arguments)
    wrong = [line for line in shown.splitlines() if ": error: " in line]
    assert [re.search(r":(\d+): .*\[(.*)\]$", line).groups() for line in wrong] == [  # type: ignore[union-attr]
        ("18", "arg-type"),
        ("19", "call-overload"),
        ("20", "call-arg"),
    ], shown
