"""What the compiler made, kept on disk: the same in a process after, and never another function's."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, Case
from corpus_calls import arrays

import dualbcast
from dualbcast import differentiable_broadcast, disk_cache, special
from dualbcast.errors import ArgumentError, CompileError
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Const, Function, Output, Var
from dualbcast.program import products
from dualbcast.runtime.cpu import kernel as cpu_kernel

EVERY = pytest.mark.parametrize("case", CORPUS[::7], ids=lambda case: case.name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has compiled nothing."""
    monkeypatch.setattr(cpu_kernel, "_kernels", {})
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Goes on as a process that finds what was kept: kernels of this one are forgotten, and nothing can be compiled."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("compiled again")

    def begin() -> None:
        assert list((folder / "kernels").iterdir())
        monkeypatch.setattr(cpu_kernel, "_kernels", {})
        monkeypatch.setattr(cpu_kernel, "_build", refuse)
        monkeypatch.setattr(products, "make_product", refuse)
        monkeypatch.setattr("dualbcast.program.pipeline.kernel_source", refuse)

    return begin


@EVERY
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_later_process_gives_the_same_bits(case: Case, dtype: str, later: Callable[[], None]) -> None:
    given = arrays(case, dtype)

    def results() -> list[Any]:
        f = differentiable_broadcast(backend="cpu")(case.function)
        value, jacobian = f.value_and_jacobian(*given)
        found = [f(*given), value, *[jacobian[key] for key in jacobian]]
        return [np.asarray(each) for each in found for each in (each if isinstance(each, tuple) else (each,))]

    wanted = results()
    later()
    for one, other in zip(results(), wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def test_other_products_and_layouts(later: Callable[[], None]) -> None:
    x, y = np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(1, 2, 4)

    def results() -> list[Any]:
        f = differentiable_broadcast(backend="cpu")(lambda x, y: (np.tanh(x * y), 2.5 * x, 3.0 if y > 1.5 else y))
        value, pulled = f.value_and_vjp((x, y), (x, x, x))
        hessian = f.hessian(x, y)
        found = [*value, *pulled, *f.jvp((x, y), (x, y))[1], *f(x.T, 2.0), *f(x[:, ::2], y[::2])]
        return [*found, *[hessian[at, "x", "y"] for at in range(3)], f.jacobian(x, y)[1, "x"]]

    wanted = [np.array(each) for each in results()]
    later()
    # What is derived from a function is made anew.
    for one, other in zip(results(), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("folder")
def test_what_is_shown_is_made_anew(tmp_path: Path) -> None:
    """With the comments of the user's file as it is now, and at its lines."""
    head = "from dualbcast import differentiable_broadcast\n{}\n@differentiable_broadcast\n"
    program = head + "def f(x):\n    y = x * x if x > 0 else -x  # {}\n    return y\n"
    shown = "x = 2.0\nf.value_and_jacobian(x)\nprint(f.inspect_source(x), f.inspect_ir(x), f.explain(x))\n"
    found = []
    for blank, comment in (("", "one"), ("\n\n", "another")):
        (tmp_path / "program.py").write_text(program.format(blank, comment) + shown, encoding="utf-8")
        found.append(python(tmp_path / "program.py"))
    assert "one" in found[0] and "another" in found[1]
    assert "line 5" in found[0] and "line 7" in found[1]


def python(path: Path) -> str:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAM = """
import numpy as np
import dualbcast
from dualbcast import differentiable_broadcast
RATE = {rate}
def helper(x):
    return x * {factor}
{given}
@differentiable_broadcast(backend="cpu")
def f(x):
    return helper(x) * RATE + known(x)
value, jacobian = f.value_and_jacobian(np.array([1.0, 2.0]))
print(value.tolist(), jacobian["x"].tolist())
"""
CUSTOM = "@dualbcast.custom_partials(lambda x, y: ({slope},))\ndef known(x):\n    return x"
RULE = "def known(x):\n    return x\ndualbcast.rule('known', lambda x, y: ({slope},), known, function=lambda x: x)"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("how", [CUSTOM, RULE])
def test_whatever_changes_between_processes_counts(how: str, tmp_path: Path) -> None:
    """What is captured, what is called, and rules and derivatives of the user's."""
    for rate, factor, slope in ((2.0, 3, "5.0"), (2.5, 3, "5.0"), (2.5, 4, "5.0"), (2.5, 4, "7.0"), (-0.0, 4, "x * x")):
        text = PROGRAM.format(rate=rate, factor=factor, given=how.format(slope=slope))
        (tmp_path / "program.py").write_text(text, encoding="utf-8")
        x = np.array([1.0, 2.0])
        own = x * x if slope == "x * x" else float(slope)
        wanted = f"{(x * factor * rate + x).tolist()} {(np.full(2, factor * rate) + own).tolist()}\n"
        assert python(tmp_path / "program.py") == wanted


def identity(text: Callable[..., Any], count: int = 1) -> str:
    kinds: Any = ("float",) * count
    return products.identity(lower(text, kinds).function)


def test_functions_that_differ_have_other_identities() -> None:
    functions = [
        lambda x: x + 1.0,
        lambda x: x + 2.0,
        lambda x: x - 1.0,
        lambda x: 1.0 + x,
        lambda x: x * 0.0,
        lambda x: x * -0.0,
        lambda x: (x + 1.0, x),
        lambda x: (x, x + 1.0),
        lambda x: x if x > 0 else -x,
        lambda x: x if x >= 0 else -x,
        lambda y: y + 1.0,
    ]
    assert len({identity(each) for each in functions}) == len(functions)
    constants: list[Any] = [True, 1, 1.0, 0, 0.0, -0.0, False, float("nan"), float("inf")]
    kinds: dict[type, Any] = {bool: "bool", int: "int", float: "float"}
    made = [
        Function("f", (Var("x", "float"),), (), (Output("out", Const(each, kinds[type(each)])),)) for each in constants
    ]
    assert len({products.identity(each) for each in made}) == len(made)


def test_what_a_user_says_is_not_kept_but_for_our_own() -> None:
    row: Any = dualbcast.rule("kept_by_nobody", lambda x, y: (y * x,), function=lambda x: x * 2.0)
    assert row.function is not None
    assert identity(lambda x: row.function(x) + x) == ""
    for callable_ in (math.exp, np.tanh, special.softplus):
        with pytest.raises(ArgumentError, match="meaning"):
            dualbcast.rule("another", lambda x, y: (y * x,), callable_, function=lambda x: x * 2.0)
    given: Any = dualbcast.custom_partials(lambda _, y: (y,))(lambda x: x)
    none: Any = dualbcast.not_differentiable(lambda x: x)
    assert identity(lambda x: given(x) + x) == identity(lambda x: none(x) + x) == ""
    assert "stop_derivative" in identity(lambda x: dualbcast.stop_derivative(x) * x)


def test_the_place_of_a_function_is_no_part_of_its_identity() -> None:
    one = lower(lambda x: np.sin(x) * x, ("float",)).function

    other = lower(lambda x: np.sin(x) * x, ("float",)).function
    assert one.location != other.location
    assert products.identity(one) == products.identity(other) != ""


@EVERY
def test_identities_do_not_depend_on_the_process(case: Case) -> None:
    kinds: Any = tuple(type(arg).__name__ for arg in case.points[0])
    function = lower(case.function, kinds).function
    again = lower(case.function, kinds).function
    assert products.identity(function) == products.identity(again)
    assert " at 0x" not in products.identity(function)
    if function.body:
        assert products.identity(replace(function, body=function.body[:-1])) != products.identity(function)


def test_damaged_entries_are_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-2, 2, 11)
    for damage in (lambda data: data[:-3], lambda data: data[:0], lambda data: data[:-5] + bytes(5)):
        monkeypatch.setattr(cpu_kernel, "_kernels", {})
        f = differentiable_broadcast(backend="cpu")(lambda x: np.exp(x) * x)
        value, jacobian = f.value_and_jacobian(x)
        np.testing.assert_allclose(value, np.exp(x) * x, rtol=1e-14)
        np.testing.assert_allclose(jacobian["x"], np.exp(x) * (1 + x), rtol=1e-14)
        for path in (folder / "kernels").iterdir():
            path.write_bytes(damage(path.read_bytes()))  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("folder")
def test_errors_are_raised_each_time() -> None:
    for _ in range(2):
        f = differentiable_broadcast(backend="cpu")(lambda x: x.nothing)
        with pytest.raises(CompileError, match="nothing"):
            f(1.0)


def test_the_stamp_tells_changed_files(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "one.py").write_text("1", encoding="utf-8")
    (tmp_path / "note.txt").write_text("1", encoding="utf-8")
    found = [disk_cache.stamp(tmp_path)]

    def grow() -> None:
        (tmp_path / "one.py").write_text("22", encoding="utf-8")
        os.utime(tmp_path / "one.py", ns=(1, 1))

    (tmp_path / "note.txt").write_text("22", encoding="utf-8")
    assert disk_cache.stamp(tmp_path) == found[0]
    for change in (
        lambda: os.utime(tmp_path / "one.py", ns=(1, 1)),
        lambda: (tmp_path / "two.py").write_text("", encoding="utf-8"),
        lambda: (tmp_path / "two.py").rename(tmp_path / "three.py"),
        lambda: (tmp_path / "three.py").unlink(),
        grow,
    ):
        change()
        found.append(disk_cache.stamp(tmp_path))
    # One file is as it was but for its time; then there are two, one by another name, one again, and it has grown.
    assert found[4] == found[1]
    assert len(set(found)) == len(found) - 1


def test_a_cache_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "file"))
    f = differentiable_broadcast(backend="cpu")(lambda x: x * x * x)
    value, jacobian = f.value_and_jacobian(np.array([2.0]))
    assert (value.tolist(), jacobian["x"].tolist()) == ([8.0], [12.0])
