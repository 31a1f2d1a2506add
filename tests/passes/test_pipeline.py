"""The pipeline: it alone runs passes, each does what its docstring shows, and `explain` shows what each has done."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from corpus import CORPUS, Case
from ir_invariants import verify
from ir_text import parse
from run_ir import dual, lowered

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.cli.app import group
from dualbcast.codegen.kernel_text import KernelText
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Function, Names, dump
from dualbcast.kernel_spec import Layout
from dualbcast.program import pipeline
from dualbcast.rules.table import RULES

ROOT = Path(dualbcast.__file__).parent
LAYOUT = Layout(1, ("1",), (0,))
EXAMPLE = re.compile(
    r"Before(?: \((?P<bound>.*)\))?::\n\n(?P<before>(?: {4}.*\n)+)\nAfter::\n\n(?P<after>(?: {4}.*\n?)+)"
)


def every_pass() -> dict[str, Callable[..., Function]]:
    """All passes of all targets by their names, without what is bound to them."""
    text = KernelText(LAYOUT, "float64", [], [], "cuda", "", partial(pipeline.readable_helper, True))
    lists = [
        *(pipeline.product(fused) for fused in (False, True)),
        pipeline.checked(100, {}, 255, True),
        pipeline.speaking(),
        pipeline.plain(),
        pipeline.portable(),
        pipeline.cpu(set(), "float64"),
        pipeline.lowered(),
        pipeline.cuda(True, LAYOUT, "float64", text),
        pipeline.interpreter(text),
    ]
    steps = [step for each in lists for step in each]
    steps = [one for step in steps for one in (step.passes if isinstance(step, pipeline.Fallback) else [step])]
    functions = [step.func if isinstance(step, partial) else step for step in steps]
    return {function.__name__: function for function in functions if function.__name__ != "open_text"}


PASSES = every_pass()


def halved(x: float) -> float:
    for _ in range(3):
        x = 0.5 * x
    return x


def squared(x: float) -> float:
    return x * x


def bound(function: Function, name: str, text: str = "") -> Function:
    """The function after a pass with these arguments."""
    arguments = eval(f"dict({text})", {"Layout": Layout})
    if "names" in inspect.signature(PASSES[name]).parameters:
        arguments.setdefault("names", Names())
    return PASSES[name](replace(function, derived=arguments.pop("derived", ())), **arguments)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_does_what_its_docstring_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "halved", replace(RULES["digamma"], function=halved))
    of_user = replace(RULES["digamma"], name="squared#1", function=squared)
    monkeypatch.setitem(RULES, of_user.name, of_user)
    example = EXAMPLE.search(inspect.getdoc(PASSES[name]) or "")
    assert example, "no example of before and after"
    found = dump(bound(parse(example["before"]), name, example["bound"] or ""))
    assert found.strip() == textwrap.dedent(example["after"]).strip()


def calls_of_passes(text: str, module: str) -> set[str]:
    """The passes that a module imports from where they are defined."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dualbcast.passes"):
            names |= {alias.name for alias in node.names if alias.name in PASSES}
            names |= {alias.name for alias in node.names if f"{node.module}.{alias.name}" == module}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("dualbcast.passes")}
    return names


def test_nothing_but_the_pipeline_calls_a_pass() -> None:
    callers = {
        path.relative_to(ROOT).as_posix(): names
        for path in ROOT.rglob("*.py")
        if (names := calls_of_passes(path.read_text(encoding="utf-8"), ""))
    }
    # Simplification is no pass of `passes/`: all stages leave simplified IR behind.
    assert callers == {"program/pipeline.py": set(PASSES) - {"simplify"}}


def test_every_pass_of_the_folder_is_in_the_pipeline() -> None:
    """A public function from a function to a function is a pass."""
    public = set()
    for path in (ROOT / "passes").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if is_public and node.returns is not None and ast.unparse(node.returns) in ("Function", "ir.Function"):
                public.add(node.name)
    assert public == set(PASSES) - {"simplify"}


def traces(function: Function) -> list[pipeline.Trace]:
    """Of all targets, the passes of a function of one-dimensional arrays."""
    count = len(function.params) + len(function.outputs)
    layout = Layout(1, ("1",), (0,) * count)
    inputs = [{"float": "float64", "int": "int64", "bool": "bool"}[param.kind] for param in function.params]
    outputs = [{"float": "float64", "int": "int64", "bool": "bool"}[out.value.kind] for out in function.outputs]
    found = []
    for target in ("cuda", "python"):
        found.append(pipeline.Trace())
        pipeline.kernel_source(function, layout, "float64", inputs, outputs, target, trace=found[-1])
    found.append(pipeline.Trace())
    pipeline.kernel_program(function, layout, "float64", inputs, outputs, trace=found[-1])
    return found


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_notes_keep_the_invariants(case: Case) -> None:
    """A function with notes, and the one of the elements that speak; and its text can be read again."""
    function = lower(case.function, [param.kind for param in lowered(case).params], notes=True).function
    without_lines = re.sub(r" *# line \d+", "", dump(verify(function)))
    assert dump(parse(dump(function))) == without_lines
    verify(pipeline.run(pipeline.speaking(), function))


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_every_pass_keeps_the_invariants(case: Case) -> None:
    for function in (lowered(case), dual(case)):
        for trace in traces(pipeline.run(pipeline.product(True), function)):
            for name, after in trace:
                # From here on loads are expressions, and names are those of the text.
                if name == "place_loads":
                    break
                verify(after)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_the_printed_function_is_the_function(case: Case) -> None:
    function = dual(case)
    assert dump(parse(dump(function))) == re.sub(r" *  # line \d+$", "", dump(function), flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("named", "last", "line"),
    [
        ({}, "place_loads", "\nconvert_ifs\nfunction smooth_step("),
        pytest.param({"cc": (9, 0)}, "coarsen", "\ngather_loads: no change\n", marks=pytest.mark.cuda_compilers),
    ],
    ids=["cpu", "cuda"],
)
def test_explain_shows_the_function_after_each_pass(named: dict[str, Any], last: str, line: str) -> None:
    function = differentiable_broadcast(models.smooth_step)
    x = np.linspace(0, 1, 5)
    plain = function.explain(x, 2.0, **named)
    assert plain.passes == ()
    shown = function.explain(x, 2.0, passes=True, **named)
    names = [name for name, _ in shown.passes]
    assert names[0] == "product" and names[-1] == last
    assert shown.passes[0][1].startswith("function smooth_step(x: float, edge: float)\n")
    assert str(shown).startswith(str(plain))
    assert "\ndrop_custom_derivatives\nfunction smooth_step(" in str(shown)
    assert line in str(shown)


def test_the_interpreters_passes() -> None:
    shown = differentiable_broadcast(models.smooth_step, backend="python").explain("float64", "float64", passes=True)
    assert "convert_ifs" not in dict(shown.passes)


def command(*args: str) -> Any:
    from click.testing import CliRunner

    return CliRunner().invoke(group, ["explain", *args])


def test_the_command_shows_them_too() -> None:
    path = f"{models.__file__}:smooth_step"
    found = command(path, "--passes", "--product", "value")
    assert found.exit_code == 0, found.output
    assert (
        "smooth_step: 1 outputs (out) of shape" in found.output
        and "\nconvert_ifs\nfunction smooth_step(" in found.output
    )
    assert "convert_ifs" not in command(path).output
    assert "float32" in command(path, "float32").output
    assert command(path, "--wrt", "edge").output.count("out_d") == command(path).output.count("out_d") - 1
    assert "has no function" in command(f"{models.__file__}:no_such_one").output
