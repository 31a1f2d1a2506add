"""Every program of the gallery runs, checks its derivatives, and ends in one labelled figure."""

from __future__ import annotations

import ast
import os
import re
import runpy
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dualbcast import Hessian, Jacobian, graph
from dualbcast.program.core_results import CoreHessian, CoreJacobian

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted((ROOT / "docs" / "gallery").glob("*.py"))
# What a program may import beside the standard library, and is skipped without, except for the first two.
LIBRARIES = {"dualbcast", "numpy", "matplotlib", "scipy", "torch", "jax"}
# These libraries take seconds to be imported.
SLOW = frozenset({"torch", "jax"})


def imports(program: Path) -> set[str]:
    """The names of the packages that a program imports."""
    found = set()
    for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def each(programs: list[Path], slow: frozenset[str] = frozenset()) -> pytest.MarkDecorator:
    marks = {path: [pytest.mark.slow] if imports(path) & slow else [] for path in programs}
    return pytest.mark.parametrize(
        "program", [pytest.param(path, id=path.stem, marks=marks[path]) for path in programs]
    )


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Matplotlib without windows and figures of others."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")
    monkeypatch.setattr(plt, "show", lambda: None)
    with matplotlib.rc_context():
        yield plt
    plt.close("all")


def run(program: Path) -> dict[str, Any]:
    for library in sorted(imports(program) & LIBRARIES):
        pytest.importorskip(library)
    with warnings.catch_warnings(), settings_kept(imports(program)):
        warnings.simplefilter("error", RuntimeWarning)  # a reader would see it
        return runpy.run_path(os.fspath(program), run_name="__main__")


@contextmanager
def settings_kept(libraries: set[str]) -> Iterator[None]:
    """What a program sets for its process is as before for the tests that follow."""
    with ExitStack() as after:
        if "torch" in libraries:
            import torch

            after.callback(torch.set_num_threads, torch.get_num_threads())
            after.enter_context(torch.random.fork_rng())
        if "jax" in libraries:
            import jax

            after.callback(jax.config.update, "jax_enable_x64", jax.config.jax_enable_x64)
        yield


@each(PROGRAMS)
def test_a_program_is_in_the_form_of_the_gallery(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    tree = ast.parse(text)
    heading = re.match(r"([^\n]+)\n(=+)\n\n\S", (ast.get_docstring(tree) or ""))
    assert heading, "the docstring begins with a title that is underlined"
    assert len(heading[1]) == len(heading[2])
    assert ast.unparse(tree.body[-1]) == "plt.show()"
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert "\n# %%\n# " in text
    assert 40 <= text.count("\n") <= 110
    own = imports(program) - LIBRARIES
    assert own <= {"math", "typing", "dataclasses"}, "it needs nothing else"


@each(PROGRAMS, slow=SLOW)
def test_a_program_runs_and_draws(program: Path, pyplot: Any) -> None:
    run(program)
    (number,) = pyplot.get_fignums()
    figure = pyplot.figure(number)
    figure.canvas.draw()
    assert figure.get_size_inches()[0] <= 8, "a wider figure has illegible text in a page"
    bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
    panels = [axis for axis in figure.axes if axis not in bars]
    for axis in panels:
        shared = len(panels) > 1
        assert axis.get_title() or shared
        assert axis.get_xlabel() or shared
        assert axis.has_data()
    assert any(axis.get_title() for axis in panels)
    assert any(axis.get_xlabel() for axis in panels)
    assert any(axis.get_ylabel() for axis in panels)


def scaled(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with results that are too large by a hundredth."""

    def larger(blocks: Any) -> Any:
        return tuple(map(larger, blocks)) if isinstance(blocks, tuple) else blocks * 1.01

    return lambda *arguments, **named: larger(method(*arguments, **named))


@pytest.mark.slow
@each([path for path in PROGRAMS if not imports(path) & SLOW])
def test_a_program_notices_a_wrong_derivative(program: Path, pyplot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Jacobian, Hessian, CoreJacobian, CoreHessian):
        for name in {"__getitem__", "stacked", "sparse", "__array__"} & {*dir(kind)}:
            monkeypatch.setattr(kind, name, scaled(getattr(kind, name)))
    for name in ("grad", "hessian", "jacobian"):
        transformation = getattr(graph, name)
        monkeypatch.setattr(graph, name, lambda *given, own=transformation: scaled(own(*given)))
    with pytest.raises(AssertionError):
        run(program)
    assert not pyplot.get_fignums()
